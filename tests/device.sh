#!/usr/bin/env bash
# Everything that only a GPU can check, in one command of less than ten minutes:
#
#     tests/device.sh [BUILD_DIR]
#     tests/device.sh --plan          # what it would run and how long each may take; runs nothing
#
# BUILD_DIR (default: build) is one that ./test.sh made, with CUDA; what is out of date there is built
# again. Each check has a time limit, and the limits of all sum to less than ten minutes. The last lines
# say of each check whether it passed, failed or was skipped, and why. Exit code: 0 if all that ran passed,
# 1 if something failed, 2 if nothing could be checked.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:/usr/local/cuda/bin:$PATH"

plan=no
if [[ ${1-} == --plan ]]; then
  plan=yes
  shift
fi
if [[ $# -gt 1 || ${1-} == -* ]]; then
  echo "device.sh: usage: tests/device.sh [--plan] [BUILD_DIR]" >&2
  exit 2
fi
build=${1:-build}
bin=$build/bin

# Why no check can run; empty if they can.
obstacle=
gpu_limit=20 build_limit=150 kill_after=5
results=()
total=0 failed=0 passed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# limit NAME SECONDS: counts a step's time; prints it in a plan, and fails there, as nothing is to run.
limit() {
  total=$((total + $2))
  [[ $plan == no ]] || printf '%4d s  %s\n' "$2" "$1"
  [[ $plan == no ]]
}
# bounded SECONDS COMMAND...: at most that long, even if the command does not end when told to.
bounded() {
  timeout --kill-after="$kill_after" "$(($1 - kill_after))" "${@:2}"
}
# check NAME SECONDS COMMAND...: runs a check and notes how it ended, and what it skipped itself.
check() {
  local name=$1 seconds=$2 status=0 line
  limit "$name" "$seconds" || return 0
  shift 2
  if [[ -n $obstacle ]]; then
    results+=("skipped  $name: $obstacle")
    return
  fi
  if ! command -v "$1" > /dev/null; then
    results+=("skipped  $name: $1 is not there")
    return
  fi
  echo "=== $name"
  bounded "$seconds" "$@" 2>&1 | tee "$scratch/log" || status=$?
  case $status in
    0)
      if grep -q '^\[  PASSED  \] 0 tests' "$scratch/log"; then
        results+=("skipped  $name: it skipped all of its tests")
      else
        results+=("passed   $name") passed=$((passed + 1))
      fi
      ;;
    124 | 137) results+=("failed   $name: no end within $seconds s") failed=1 ;;
    *) results+=("failed   $name: exit code $status") failed=1 ;;
  esac
  # Google Test gives the reason in the line before.
  while read -r line; do
    results+=("skipped  $line")
  done < <(awk '/^\[  SKIPPED \] .* ms\)$/ { print $4 ": " reason } NF && !/^\[/ { reason = $0 }' "$scratch/log")
}

# Sets `obstacle` if there is no GPU, else shows it.
find_gpu() {
  local gpus
  if ! command -v nvidia-smi > /dev/null; then
    obstacle="no GPU (nvidia-smi is not there)"
  elif ! gpus=$(bounded "$gpu_limit" nvidia-smi -L); then
    obstacle="no GPU (nvidia-smi -L failed)"
  elif [[ $gpus != GPU* ]]; then
    obstacle="no GPU (nvidia-smi lists none)"
  else
    echo "$gpus"
    bounded "$gpu_limit" nvidia-smi --format=csv \
      --query-gpu=name,compute_cap,driver_version,clocks.sm,clocks.mem || true
  fi
}
build_programs() {
  if [[ ! -f $build/CMakeCache.txt ]]; then
    obstacle="$build is not a build folder; run ./test.sh first"
  elif ! grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt"; then
    obstacle="$build was built without CUDA; configure it again with -DSTEPSCOPE_CUDA=ON"
  elif ! bounded "$build_limit" cmake --build "$build" --target \
    cuda_device_test cuda_gpu_test optimizer_step kernel_step; then
    obstacle="$build could not be built within $build_limit s; run ./test.sh first"
  fi
}

if limit "the GPU is found, and its clocks shown" $((2 * gpu_limit)); then find_gpu; fi
if limit "what is out of date is built" "$build_limit" && [[ -z $obstacle ]]; then build_programs; fi

check "device is described" 20 "$bin/cuda_device_test"
check "kernels equal the oracle, parity with bitsandbytes" 90 "$bin/cuda_gpu_test"
# The sanitizers slow kernels down by 10 to 100: no large tensors. bitsandbytes' own kernels are left out.
few='*AllKinds*:*Graph*:*Empty*'
for tool in memcheck racecheck initcheck synccheck; do
  check "compute-sanitizer $tool" 40 compute-sanitizer --tool "$tool" --error-exitcode 1 \
    "$bin/cuda_gpu_test" --gtest_filter="$few"
done
RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29531 \
  check "optimizer_step on the device" 60 "$bin/optimizer_step" --quick --device cuda --out "$scratch/step"
check "kernel_step on the device, with bitsandbytes" 70 "$bin/kernel_step" --device cuda \
  --sizes 4096,1048576,33554432 --rounds 9 --peers bitsandbytes --out "$scratch/kernels"

if [[ $plan == yes ]]; then
  printf '%4d s  at most, in all\n' "$total"
  exit 0
fi
echo "=== results"
printf '%s\n' "${results[@]}"
if [[ $passed -eq 0 && $failed -eq 0 ]]; then
  echo "device.sh: nothing was checked: ${obstacle:-no check could run}" >&2
  exit 2
fi
exit "$failed"
