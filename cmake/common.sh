# shellcheck shell=bash
# What bench.sh, test.sh, cmake/setup.sh and cmake/lint.sh share: where things are, messages, steps that take
# long, and building a CMake preset. Sourced; the caller sets `program` (its name in messages) first.
#
# Everything these scripts write lies inside the checkout: .venv (Python packages), .cache (downloads, logs,
# temporary files), build* (builds), runs (results). Messages go to stderr, results to stdout.
# Exit codes: 0 fine, 1 the check failed, 2 could not run.

set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=$root/.cache
venv=$root/.venv
logs=$cache/log

# A Python that is set up for something else (conda, another virtual environment) must not leak in.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV
caller_path=$PATH
export PATH="$venv/bin:$PATH"
export TMPDIR=$cache/tmp
export UV_CACHE_DIR=$cache/uv PIP_CACHE_DIR=$cache/pip MPLCONFIGDIR=$cache/matplotlib XDG_CACHE_HOME=$cache

say() { printf '%s\n' "$*" >&2; }

# die MESSAGE: could not run.
die() {
  say "$program: $*"
  exit 2
}

make_cache_dirs() {
  mkdir -p "$logs" "$TMPDIR" || die "cannot write to $root: the checkout must be writable"
}

# An interrupted script takes its running step with it. Steps run in sessions of their own (setsid), so that
# the whole tree below one can be signalled.
step_pid=
end_step() {
  if [ -n "$step_pid" ]; then
    kill -TERM -- "-$step_pid" 2>/dev/null
    step_pid=
  fi
}
trap end_step EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_step LABEL LOG LIMIT COMMAND...: runs COMMAND with its output in LOG. What takes two seconds or more says so at its start, at
# its end and every 30 s between. Ended after LIMIT seconds (status 124). Returns the command's status.
run_step() {
  local label=$1 log=$2 limit=$3
  shift 3
  local start=$SECONDS next=30 elapsed=0 announced= timed_out=0 status=0
  setsid "$@" >"$log" 2>&1 </dev/null &
  step_pid=$!
  while kill -0 "$step_pid" 2>/dev/null; do
    sleep 0.1
    elapsed=$((SECONDS - start))
    if ((elapsed >= 2)) && [ -z "$announced" ]; then
      announced=1
      say "$label ..."
    fi
    if ((elapsed >= next)); then
      next=$((next + 30))
      say "$label: $elapsed s so far: $(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | cut -c 1-100)"
    fi
    if ((elapsed >= limit)); then
      timed_out=1
      kill -KILL -- "-$step_pid" 2>/dev/null
      break
    fi
  done
  wait "$step_pid" 2>/dev/null || status=$?
  step_pid=
  elapsed=$((SECONDS - start))
  if ((timed_out)); then
    say "$label: ended after $limit s"
    return 124
  fi
  if ((status != 0)); then
    say "$label: failed ($elapsed s)"
  elif [ -n "$announced" ]; then
    say "$label: done ($elapsed s)"
  fi
  return "$status"
}

# run_shown COMMAND...: runs COMMAND in sight, and so that an interrupted script takes it along.
run_shown() {
  local status=0
  setsid "$@" </dev/null &
  step_pid=$!
  wait "$step_pid" || status=$?
  step_pid=
  return "$status"
}

# show_failure LOG: the part of a step's log that says why it failed, and where the whole of it is.
show_failure() {
  local lines words='error|fatal|failed|cannot|unable|undefined reference'
  # Words of a sentence alone: the name of a file such as core/error.cc.o tells nothing.
  lines=$(grep -m 12 -iE "(^|[^[:alnum:]_./-])($words)([[:space:]:,!]|\.?\$|\.[[:space:]])" "$1" | cut -c 1-200)
  [ -n "$lines" ] || lines=$(tail -n 8 "$1" | cut -c 1-200)
  printf '%s\n' "$lines" | sed 's/^/    /' >&2
  say "    (all of it: $1)"
}

# with_lock NAME LIMIT FUNCTION...: runs FUNCTION while holding a lock of the checkout, so that two scripts at once
# neither install nor build into the same folder. The lock ends with the process, however it ends.
with_lock() {
  local name=$1 limit=$2 lock_fd status=0
  shift 2
  make_cache_dirs
  exec {lock_fd}>"$cache/$name.lock"
  if ! flock -n "$lock_fd"; then
    say "$program: waiting for another script that works on this checkout ($name)"
    flock -w "$limit" "$lock_fd" || die "another script has held $cache/$name.lock for $limit s: end it and try again"
  fi
  "$@" || status=$?
  exec {lock_fd}>&-
  return "$status"
}

# system_nvcc: prints the nvcc of a CUDA 13 toolkit that the system has; fails where there is none. Cuda.cmake looks in the
# same places.
system_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && "$candidate" --version 2>/dev/null | grep -q 'release 13\.'; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# build_folder PRESET: as in CMakePresets.json.
build_folder() {
  if [ "$1" = release ]; then printf '%s\n' "$root/build"; else printf '%s\n' "$root/build-$1"; fi
}

# build_jobs: one compiler per core, and no more than memory allows (a file that includes torch takes 2 GB).
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 2000000) }' /proc/meminfo)
  if ((memory_gb < cores)); then cores=$memory_gb; fi
  if ((cores < 1)); then cores=1; fi
  printf '%s\n' "$cores"
}

# configure_preset PRESET: where something changed that decides the configuration. Returns 1 after a message where it fails.
configure_preset() {
  with_lock "build-$1" 3600 configure_preset_locked "$1"
}

# build_preset PRESET [TARGET...]: configures and builds the targets, all without any. Returns 1 after a message where the code
# does not build.
build_preset() {
  with_lock "build-$1" 3600 build_preset_locked "$@"
}

configure_preset_locked() {
  local preset=$1 log=$logs/configure-$1.log folder key
  folder=$(build_folder "$preset")
  local options=(-DSTEPSCOPE_WERROR="$([ "${CI:-}" = true ] && echo ON || echo OFF)")
  if [ -n "${STEPSCOPE_CUDA:-}" ] && [ "$preset" = release ]; then options+=(-DSTEPSCOPE_CUDA="$STEPSCOPE_CUDA"); fi
  # Libraries of an active conda environment are built by another compiler for another libstdc++.
  if [ -n "${CONDA_PREFIX:-}" ]; then options+=(-DCMAKE_IGNORE_PREFIX_PATH="$CONDA_PREFIX"); fi
  key=$({
    printf '%s\n' "$root" "${options[@]}" "${CXX:-}"
    cat "$root/CMakePresets.json" "$venv/stepscope-setup"
  } | sha256sum)
  if [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/stepscope-configured" 2>/dev/null)" = "$key" ]; then return; fi
  # A build folder that was made elsewhere (a moved checkout), or with another compiler, cannot be configured again in place.
  local fresh=()
  if [ -f "$folder/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt"; then
    fresh=(--fresh)
  fi
  if ! run_step "configure $preset" "$log" 600 \
    cmake -S "$root" --preset "$preset" ${fresh[@]+"${fresh[@]}"} "${options[@]}"; then
    show_failure "$log"
    return 1
  fi
  printf '%s\n' "$key" >"$folder/stepscope-configured"
}

build_preset_locked() {
  local preset=$1 log=$logs/build-$1.log target
  shift
  configure_preset_locked "$preset" || return
  local command=(cmake --build "$(build_folder "$preset")" -j "$(build_jobs)")
  for target in "$@"; do command+=(--target "$target"); done
  if ! run_step "build $preset" "$log" 3600 "${command[@]}"; then
    show_failure "$log"
    return 1
  fi
}
