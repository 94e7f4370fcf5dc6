#!/usr/bin/env bash
# The batch script for two B300 GPUs of one node, 20 minutes: b300.sh ROOT BUILD OUT [OPTION...], submitted by
#
#     bench/slurm/submit --job bench/slurm/b300.sh [sbatch's options for your cluster]
#
# Runs job.sh after it has made sure that the allocation is what the figures will claim: two GPUs of compute capability 10.3.
#SBATCH --job-name=stepscope-b300
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --gpus-per-node=2
#SBATCH --time=00:20:00
#SBATCH --signal=B:TERM@30
set -u

if ! capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader); then
  echo 'b300.sh: nvidia-smi shows no GPU on this node: ask for a node with B300 GPUs' >&2
  exit 2
fi
wanted=2
words=two
# Asked for, and marked: bench/slurm/submit --substitute.
case " ${*:4} " in *' --substitute'[\ =]*) wanted=1 words=one ;; esac
if [ "$(wc -l <<<"$capabilities")" != $wanted ] || [ "$(sort -u <<<"$capabilities")" != 10.3 ]; then
  echo "b300.sh: $words GPU(s) of compute capability 10.3 wanted, this node shows: $(paste -sd ' ' <<<"$capabilities")" >&2
  exit 2
fi
exec "$1/bench/slurm/job.sh" "$@"
