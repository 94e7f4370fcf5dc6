#!/usr/bin/env bash
# Says what this node is, a fact a line, "name: value": identities.sh BUILD. Run once a node by job.sh. Facts that the node does
# not have are left out; nothing of the environment but Slurm's name for the node is shown.
build=$1

fact() { if [ -n "$2" ]; then printf '%s: %s\n' "$1" "$2"; fi; }

fact node "${SLURMD_NODENAME:-$(hostname)}"
fact kernel "$(uname -sr)"
fact cpu "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
fact cores "$(nproc)"
fact memory_kb "$(sed -n 's/^MemTotal:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/meminfo)"
if command -v nvidia-smi >/dev/null 2>&1; then
  nvidia-smi --query-gpu=index,uuid,name,compute_cap,driver_version,vbios_version,mig.mode.current,persistence_mode \
    --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /'
  fact driver_cuda "$(nvidia-smi | sed -n 's/.*CUDA Version: \([0-9.]*\).*/\1/p')"
fi
fact optimizer_step "$("$build/bin/optimizer_step" --version)"
fact optimizer_step_sha256 "$(sha256sum "$build/bin/optimizer_step" | cut -d ' ' -f 1)"
packages=$(echo "$(dirname "$build")"/.venv/lib/python3*/site-packages)
for package in torch bitsandbytes nvidia_nccl_cu13 nvidia_cuda_runtime; do
  fact "$package" "$(sed -n 's/^Version: //p' "$packages/$package"-*.dist-info/METADATA 2>/dev/null | head -n 1)"
done
for library in "$packages"/bitsandbytes/libbitsandbytes_cpu.so "$packages"/bitsandbytes/libbitsandbytes_cuda13*.so; do
  if [ -f "$library" ]; then
    fact "sha256 of ${library##*/}" "$(sha256sum "$library" | cut -d ' ' -f 1)"
  fi
done
