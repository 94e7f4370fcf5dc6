#!/usr/bin/env bash
# Everything that only a GPU can check, in one command of less than ten minutes:
#
#     tests/device.sh [BUILD_DIR]
#
# It builds what it needs in BUILD_DIR (default: build, which ./test.sh makes), runs each check under a
# time limit, and ends with one line a check: passed, failed or skipped and why. Exit code: 0 if all that
# ran passed, 1 if something failed, 2 if nothing could be checked.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
export PATH="$PWD/.venv/bin:/usr/local/cuda/bin:$PATH"

stop() {
  echo "device.sh: $1" >&2
  exit 2
}

command -v nvidia-smi > /dev/null || stop "no GPU: nvidia-smi is not there; nothing was checked"
gpus=$(timeout 60 nvidia-smi -L) || stop "no GPU: nvidia-smi -L failed; nothing was checked"
[[ $gpus == GPU* ]] || stop "no GPU: nvidia-smi lists none; nothing was checked"
[[ -f $build/CMakeCache.txt ]] || stop "$build is not a build folder; run ./test.sh first"
grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" ||
  stop "$build was built without CUDA; configure it again with -DSTEPSCOPE_CUDA=ON"

echo "$gpus"
nvidia-smi --query-gpu=name,compute_cap,driver_version,clocks.sm,clocks.mem --format=csv
cmake --build "$build" --target cuda_gpu_test cuda_device_test step_table_test

results=()
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# check NAME SECONDS COMMAND...: runs a check and notes how it ended, and what it skipped itself.
check() {
  local name=$1 seconds=$2 status=0 skipped
  shift 2
  echo "=== $name"
  timeout "$seconds" "$@" 2>&1 | tee "$log" || status=$?
  case $status in
    0) results+=("passed   $name") ;;
    124) results+=("failed   $name: no end after $seconds s") failed=1 ;;
    *) results+=("failed   $name: exit code $status") failed=1 ;;
  esac
  while read -r skipped; do
    results+=("skipped  $skipped")
  done < <(sed -n 's/^\[  SKIPPED \] \([^ ]*\) (.*/\1/p' "$log")
}
skip() { results+=("skipped  $1: $2"); }

bin=$build/bin
check "device is described" 30 "$bin/cuda_device_test"
check "kernels equal the oracle, parity with bitsandbytes" 150 "$bin/cuda_gpu_test"

# The sanitizers slow kernels down by 10 to 100: no large tensors. bitsandbytes' own kernels are left out.
few='*AllKinds*:*Graph*:*Empty*'
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    check "compute-sanitizer $tool" 80 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$bin/cuda_gpu_test" --gtest_filter="$few"
  done
else
  skip "compute-sanitizer" "not installed (it comes with the CUDA toolkit)"
fi

if [[ -x $bin/optimizer_step ]]; then
  check "optimizer_step on the device" 120 env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=29531 "$bin/optimizer_step" --quick --device cuda \
    --out "$(mktemp -d)/run"
else
  skip "optimizer_step" "$bin/optimizer_step is not built"
fi
if [[ -x $bin/kernel_step ]]; then
  check "kernel_step on the device, with bitsandbytes" 120 "$bin/kernel_step" --device cuda \
    --sizes 4096,1048576,33554432 --rounds 9 --peers bitsandbytes --out "$(mktemp -d)/run"
else
  skip "kernel_step" "$bin/kernel_step is not built"
fi

echo "=== results"
printf '%s\n' "${results[@]}"
exit "$failed"
