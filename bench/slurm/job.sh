#!/usr/bin/env bash
# The batch script for any allocation: job.sh ROOT BUILD OUT [OPTION...], submitted by bench/slurm/submit. ROOT is the checkout,
# BUILD its build folder, OUT the run folder to write; the options go to optimizer_step.
#
# The preflight of every node comes first; where it says stop nothing is measured. After the benchmarks come the parts of parts.sh,
# on the same ranks. Identities of every node, the preflight, the commands as they were run, and what the parts found go to
# OUT/evidence, and all of it to OUT.tar.gz. A check that failed makes the job's exit code 1, everything else that stopped it 2.
#SBATCH --job-name=stepscope
# Slurm's warning before the time limit comes to this script, which ends the step so that what was measured is kept.
#SBATCH --signal=B:TERM@30
set -u

if (($# < 3)); then
  echo 'job.sh: started without its arguments; use bench/slurm/submit' >&2
  exit 2
fi
root=$1
build=$2
out=$3
shift 3
cd "$root" || exit 2

# Beside the run folder, where every node can write, and where submit finds it should this script be killed.
stage=$out.evidence
# A submit that had no word of this job has written down that it was not run, or is about to.
for taken in "$out" "$out.not-run.incomplete"; do
  if [ -e "$taken" ] || [ -L "$taken" ]; then
    echo "job.sh: $taken exists: another run is there" >&2
    exit 2
  fi
done
if ! mkdir -p "$(dirname "$out")" || ! mkdir -m 0755 "$stage"; then
  echo "job.sh: $stage cannot be made: another run writes there, or nobody may" >&2
  exit 2
fi
step=
# shellcheck disable=SC2329 # by the traps below
finish() { rm -rf "$stage"; }
# keep_evidence FOLDER: what was gathered so far, beside what was measured.
keep_evidence() { mkdir -p "$1/evidence" && cp -r "$stage"/. "$1/evidence/"; }
# shellcheck disable=SC2329
ended_early() {
  echo "job.sh: told to stop: ending the step, what was measured is kept" >&2
  if [ -n "$step" ]; then
    kill -TERM "$step" 2>/dev/null
    wait "$step"
  fi
  for folder in "$out" "$out.incomplete"; do
    if [ -d "$folder" ]; then keep_evidence "$folder"; fi
  done
  exit 2
}
trap finish EXIT
trap ended_early TERM INT

# run WORDS...: notes the command, runs it, and stays open for signals meanwhile.
run() {
  printf '%q ' "$@" >>"$stage/commands"
  printf '\n' >>"$stage/commands"
  "$@" &
  step=$!
  local code=0
  wait "$step" || code=$?
  step=
  return "$code"
}

if ! [ -x "$build/bin/optimizer_step" ]; then
  echo "job.sh: building $build" >&2
  # shellcheck disable=SC2034 # setup.sh names it in its messages
  program=job.sh
  # shellcheck source=cmake/setup.sh disable=SC1091
  . "$root/cmake/setup.sh"
  setup
  build_preset release || exit 2
  build=$root/build
  trap finish EXIT
  trap ended_early TERM INT
fi

run srun --ntasks-per-node=1 --ntasks="$SLURM_JOB_NUM_NODES" --output="$stage/identities" --label \
  bench/slurm/identities.sh "$build" || echo 'job.sh: the identities of the nodes are not complete' >&2

# The model that the preflight looks at is the one that will be measured.
model=gpt2
# What the job is instead of a larger one, where that was asked for.
substitute=
options=("$@")
for ((i = 0; i < ${#options[@]}; ++i)); do
  case ${options[i]} in
    --model) model=${options[i + 1]:-} ;;
    --model=*) model=${options[i]#*=} ;;
    --substitute) substitute=${options[i + 1]:-} ;;
    --substitute=*) substitute=${options[i]#*=} ;;
    --quick) model=tiny ;;
  esac
done

preflight=0
sharing=()
if [ "$substitute" = oversubscribed ]; then sharing=(--oversubscribed); fi
device=cpu
if grep -q ' gpu: ' "$stage/identities"; then device=cuda; fi

ranks=$(((${SLURM_NTASKS:-1} + SLURM_JOB_NUM_NODES - 1) / SLURM_JOB_NUM_NODES))
run srun --ntasks-per-node=1 --ntasks="$SLURM_JOB_NUM_NODES" --kill-on-bad-exit=0 --output="$stage/preflight" --label \
  "$root/.venv/bin/python" bench/preflight --build "$build" --device "$device" --ranks "$ranks" \
  --world-size "${SLURM_NTASKS:-1}" --model "$model" --out "$(dirname "$out")" "${sharing[@]}" || preflight=$?
cat "$stage/preflight"
if ((preflight != 0)); then
  echo 'job.sh: the preflight says stop: nothing was measured' >&2
  keep_evidence "$out.incomplete"
  exit 2
fi

code=0
run srun --kill-on-bad-exit=1 "$build/bin/optimizer_step" --device "$device" --out "$out" "$@" || code=$?

if ! [ -d "$out" ]; then
  if [ -d "$out.incomplete" ]; then keep_evidence "$out.incomplete"; fi
  echo "job.sh: optimizer_step exited with $code and left no complete run folder" >&2
  exit 2
fi

# The worst of all parts counts; the benchmarks' figures are whole whatever comes of them.
# shellcheck source=bench/slurm/parts.sh disable=SC1091
. bench/slurm/parts.sh
for part in traced_step upstream memcheck; do
  found=0
  "$part" || found=$?
  if ((found > code)); then code=$found; fi
done
keep_evidence "$out"
# submit packs anew, with Slurm's verdict; this is for the case that it was killed.
tar -czf "$out.tar.gz.new" -C "$(dirname "$out")" "$(basename "$out")" && mv "$out.tar.gz.new" "$out.tar.gz"
exit "$code"
