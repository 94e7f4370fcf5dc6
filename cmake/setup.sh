#!/usr/bin/env bash
# Installs what the project needs and the machine lacks: Debian packages (as root; otherwise it names them), and .venv with
# the Python packages that pyproject.toml pins. bench.sh and test.sh source it; run it alone to only set up:
#
#     cmake/setup.sh
#
# Environment: STEPSCOPE_CUDA=OFF leaves NVIDIA's toolkit out. A second call checks and does nothing.

setup_usage='usage: cmake/setup.sh [--help]
Installs what is missing to build and run: Debian packages (as root, otherwise names them) and .venv.
Environment: STEPSCOPE_CUDA=AUTO|ON|OFF (OFF: without the CUDA toolkit from PyPI).'

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  program=setup.sh
  case ${1:-} in
    '') ;;
    -h | --help) printf '%s\n' "$setup_usage"; exit 0 ;;
    *) printf 'setup.sh: unknown argument %s (see cmake/setup.sh --help)\n' "$1" >&2; exit 2 ;;
  esac
fi
# shellcheck source=cmake/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The Debian packages, each with a header that shows it where there is no dpkg.
debian_packages=(
  libbenchmark-dev:benchmark/benchmark.h
  libgtest-dev:gtest/gtest.h
  libgmock-dev:gmock/gmock.h
  libfmt-dev:fmt/format.h
  libcli11-dev:CLI/CLI.hpp
  nlohmann-json3-dev:nlohmann/json.hpp
  libsqlite3-dev:sqlite3.h
  libhwy-dev:hwy/highway.h
  libgloo-dev:gloo/transport/device.h
  libssl-dev:openssl/evp.h
  zlib1g-dev:zlib.h
)

# What some tests use: where one of them cannot be installed, those tests are skipped and say so.
test_packages=(chromium iproute2)
# A Slurm and a database are servers, which belong on no user's machine without asking: CI alone installs them.
if [ "${CI:-}" = true ]; then test_packages+=(slurmctld slurmd slurm-client munge slurmdbd mariadb-server); fi

have() { command -v "$1" >/dev/null 2>&1; }

# cxx_command: the compiler that CMake will take.
cxx_command() {
  local candidate
  for candidate in "${CXX:-}" c++ g++ clang++; do
    if [ -n "$candidate" ] && have "$candidate"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# missing_packages: prints the Debian packages that are not installed, one a line.
missing_packages() {
  local entry installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${debian_packages[@]%%:*}" 2>/dev/null)
  for entry in "${debian_packages[@]}"; do
    grep -qx "${entry%%:*} installed" <<<"$installed" || printf '%s\n' "${entry%%:*}"
  done
  cxx_command >/dev/null || echo g++
  have git || echo git
  # What only the making of .venv needs.
  if [ "$venv_now" != current ]; then
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    if ! usable_uv >/dev/null && ! bootstrap_way >/dev/null; then echo python3-venv; fi
  fi
}

# missing_headers: the same question where there is no dpkg, answered by the compiler.
missing_headers() {
  local entry header
  for entry in "${debian_packages[@]}"; do
    header=${entry#*:}
    printf '#if !__has_include(<%s>)\nmissing %s\n#endif\n' "$header" "$header"
  done | "$(cxx_command)" -std=c++20 -E -P -x c++ - 2>/dev/null | sed -n 's/^missing //p'
}

check_system_packages() {
  local missing
  if ! have dpkg-query; then
    cxx_command >/dev/null || die "no C++ compiler was found: install g++ 11 or newer, or set CXX"
    mapfile -t missing < <(missing_headers)
    if ((${#missing[@]})); then
      die "this is not Debian or Ubuntu, and these headers are missing: ${missing[*]}: install the libraries they belong to"
    fi
    return
  fi
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    # Where the other steps follow: a reader who sees "2/4" first looks for what he missed.
    if [ "$venv_now" != current ]; then say "setup 1/4: the Debian packages are there"; fi
    return
  fi
  if ! have apt-get || [ "$(id -u)" != 0 ]; then
    die "Debian packages are missing; install them and try again: sudo apt-get install -y ${missing[*]}"
  fi
  install_system_packages "${missing[@]}"
}

install_system_packages() {
  local log=$logs/apt.log label="setup 1/4: apt-get install"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o Acquire::http::Timeout=60
    -o Acquire::https::Timeout=60 -o DPkg::Lock::Timeout=120)
  say "setup 1/4: installing Debian packages: $*"
  # The lists of a fresh machine are empty or name versions that are gone; elsewhere they need no update.
  if "${apt[@]}" install --simulate "$@" >/dev/null 2>&1 && run_step "$label" "$log" 900 "${apt[@]}" install -y --no-install-recommends "$@"; then
    return
  fi
  if ! run_step "setup 1/4: apt-get update" "$log" 300 "${apt[@]}" update ||
    ! run_step "$label" "$log" 900 "${apt[@]}" install -y --no-install-recommends "$@"; then
    show_failure "$log"
    die "Debian packages could not be installed: check the network and /etc/apt, or install them by hand: apt-get install -y $*"
  fi
}

# pinned NAME: the version that pyproject.toml pins.
pinned() { sed -n "s/.*\"$1==\([^\"]*\)\".*/\1/p" "$root/pyproject.toml" | head -n 1; }

# dependency_groups: the groups of pyproject.toml to install with their dependencies.
dependency_groups() {
  echo base
  if [ "${STEPSCOPE_CUDA:-AUTO}" != OFF ] && ! system_nvcc >/dev/null; then echo cuda; fi
}

# setup_key: what .venv was made from. The path is in it, as the scripts in .venv/bin name it.
setup_key() {
  {
    printf '%s\n' "$root"
    dependency_groups
    grep '^version_info' "$venv/pyvenv.cfg"
    cat "$root/pyproject.toml"
  } 2>/dev/null | sha256sum | cut -d ' ' -f 1
}

# venv_state: `current`, `outdated` (whole, of other pins) or `broken` (absent, interrupted or damaged). The stamp holds the
# key and the names in site-packages at its time.
venv_state() {
  local key name packages
  packages=$(echo "$venv"/lib/python3*/site-packages)
  if ! [ -f "$venv/stepscope-setup" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
    echo broken
    return
  fi
  {
    read -r key
    while IFS= read -r name; do
      if [ ! -e "$packages/$name" ]; then
        echo broken
        return
      fi
    done
  } <"$venv/stepscope-setup"
  if [ ! -e "$packages/torch/lib/libtorch_cpu.so" ] || [ ! -x "$venv/bin/cmake" ] || [ ! -x "$venv/bin/ninja" ]; then
    echo broken
  elif [ "$key" = "$(setup_key)" ]; then
    echo current
  else
    echo outdated
  fi
}

# find_python: prints path and version, with a tab between, of the first Python that PyTorch has wheels for. Where there is none it
# fails and prints the last one it met, if any. A pyenv shim without a version fails when it is run, and the next one is tried.
find_python() {
  local candidate found seen=
  for candidate in python3 python3.13 python3.12 python3.11 python3.10 python3.14 /usr/bin/python3; do
    # -I: nothing from the user's site or the current folder. The base of a virtual environment, not the environment itself: it
    # may be the very .venv that is to be replaced.
    found=$(PATH=$caller_path && "$candidate" -I -c \
      'import sys; print(getattr(sys, "_base_executable", sys.executable), "%d.%d.%d" % sys.version_info[:3], int((3, 10) <= sys.version_info[:2] <= (3, 14)), sep="\t")' \
      2>/dev/null) || continue
    seen=${found%$'\t'*}
    if [ "${found##*$'\t'}" = 1 ]; then
      printf '%s\n' "$seen"
      return 0
    fi
  done
  printf '%s\n' "$seen"
  return 1
}

check_python() {
  local found
  found=$(find_python) && return
  if [ -n "$found" ]; then
    die "Python 3.10 to 3.14 is needed, and ${found%$'\t'*} is ${found#*$'\t'}: install a fitting python3 or put it first in PATH"
  fi
  die "Python 3.10 or newer was not found: install it (Debian: apt-get install python3)"
}

# usable_uv: prints a uv that can install dependency groups.
usable_uv() {
  local candidate
  for candidate in "$(command -v uv || true)" "$cache/uv-bootstrap/bin/uv"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && "$candidate" pip install --help 2>/dev/null | grep -q -- '--group'; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# bootstrap_way: how this Python can install uv: `venv`, or `pip` where Debian left ensurepip out; fails where neither works.
bootstrap_way() {
  local python
  python=$(find_python) || return
  python=${python%$'\t'*}
  if "$python" -I -c 'import ensurepip' 2>/dev/null; then
    echo venv
  elif "$python" -I -m pip --version >/dev/null 2>&1; then
    echo pip
  else
    return 1
  fi
}

install_uv() {
  local python=$1 log=$logs/uv-bootstrap.log folder=$cache/uv-bootstrap requirement
  requirement=uv==$(pinned uv)
  rm -rf "$folder"
  # No cache folder of pip's in the home, and no advice about its own version.
  export PIP_DISABLE_PIP_VERSION_CHECK=1
  case $(bootstrap_way) in
    venv)
      run_step "setup 2/4: installing uv" "$log" 300 bash -c \
        '"$1" -I -m venv "$2" && "$2/bin/python" -I -m pip install "$3"' bash "$python" "$folder" "$requirement"
      ;;
    pip)
      run_step "setup 2/4: installing uv" "$log" 300 "$python" -I -m pip install --target "$folder" "$requirement"
      ;;
    *)
      die "$python has neither ensurepip nor pip: install uv or Python's venv module (Debian: apt-get install python3-venv)"
      ;;
  esac && return
  show_failure "$log"
  die "uv could not be installed from PyPI: check the network, or install uv by hand and put it in PATH"
}

install_python_packages() {
  local python version uv group log=$logs/pip.log
  local groups=()
  python=$(find_python)
  version=${python##*$'\t'}
  python=${python%$'\t'*}
  say "setup 2/4: Python $version ($python)"
  if ! uv=$(usable_uv); then
    install_uv "$python"
    uv=$(usable_uv) || die "uv was installed in $cache/uv-bootstrap and does not run: see $logs/uv-bootstrap.log"
  fi
  if [ "$venv_now" = broken ]; then
    if [ -e "$venv" ]; then say "setup 2/4: .venv is incomplete or damaged and is made anew"; fi
    if ! run_step "setup 2/4: creating .venv" "$log" 120 "$uv" venv --clear --no-python-downloads --python "$python" "$venv"; then
      show_failure "$log"
      die "the virtual environment $venv could not be created"
    fi
  fi
  # The stamp comes last: without it the environment counts as broken.
  rm -f "$venv/stepscope-setup"
  for group in $(dependency_groups); do groups+=(--group "$group"); done
  local install=(env UV_HTTP_TIMEOUT=120 "$uv" --directory "$root" pip install --python "$venv/bin/python")
  if ! run_step "setup 3/4: installing Python packages (PyTorch and more, about 3 GB)" "$log" 1800 \
    "${install[@]}" "${groups[@]}" ||
    ! run_step "setup 3/4: installing test data" "$log" 300 "${install[@]}" --no-deps --group testdata; then
    show_failure "$log"
    die "Python packages could not be installed: check the network and the free disk space (10 GB), then run it again"
  fi
}

# NVIDIA's packages lay the toolkit out for Python: the linker's names of the libraries are missing, and nvcc looks for
# lib64.
complete_cuda_toolkit() {
  local toolkit library
  toolkit=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13)
  [ -x "$toolkit/bin/nvcc" ] || return 0
  ln -sfn lib "$toolkit/lib64"
  for library in "$toolkit"/lib/lib*.so.*; do
    [ -e "${library%%.so.*}.so" ] || ln -s "${library##*/}" "${library%%.so.*}.so"
  done
}

# The last step proves that what was installed works, so that a bad compiler or wheel is named here and not by a page of
# CMake's or the linker's output.
check_installation() {
  local log=$logs/check.log packages
  if ! run_step "setup 4/4: checking PyTorch and the compiler" "$log" 300 bash -c '
      "$1" -c "import torch, bitsandbytes, matplotlib; print(torch.__version__)" &&
      printf "#include <concepts>\n#include <span>\n#include <string>\nint main() {}\n" | "$2" -std=c++20 -fsyntax-only -x c++ -
    ' bash "$venv/bin/python" "$(cxx_command)"; then
    show_failure "$log"
    die "the installation does not work; a C++20 compiler (g++ 11, clang 14 or newer, or set CXX) and an x86-64 Linux are needed"
  fi
  packages=$(echo "$venv"/lib/python3*/site-packages)
  {
    setup_key
    (cd "$packages" && printf '%s\n' *) | grep -vx __pycache__
  } >"$venv/stepscope-setup.new"
  mv "$venv/stepscope-setup.new" "$venv/stepscope-setup"
}

# setup_for_tests: the packages that only tests use. Without them nothing is ended.
setup_for_tests() {
  with_lock setup 1800 install_test_packages
}

install_test_packages() {
  local missing=() package installed
  have dpkg-query || return 0
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${test_packages[@]}" 2>/dev/null)
  for package in "${test_packages[@]}"; do
    grep -qx "$package installed" <<<"$installed" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then return 0; fi
  if ! have apt-get || [ "$(id -u)" != 0 ]; then
    say "$program: some tests will be skipped without Debian packages: sudo apt-get install -y ${missing[*]}"
  elif ! (install_system_packages "${missing[@]}"); then
    say "$program: some tests will be skipped without ${missing[*]}"
  fi
}

setup_locked() {
  venv_now=$(venv_state)
  if [ "$venv_now" != current ]; then check_python; fi
  check_system_packages
  if [ "$venv_now" != current ]; then
    install_python_packages
    complete_cuda_toolkit
    check_installation
  fi
}

setup() {
  case ${STEPSCOPE_CUDA:-AUTO} in
    AUTO | ON | OFF) ;;
    *) die "STEPSCOPE_CUDA is '$STEPSCOPE_CUDA': it takes AUTO, ON or OFF" ;;
  esac
  make_cache_dirs
  # What scripts that were killed left behind.
  find "$TMPDIR" -mindepth 1 -maxdepth 1 -mtime +1 -exec rm -rf {} +
  with_lock setup 1800 setup_locked
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  setup
  say "setup: complete"
fi
