#!/usr/bin/env bash
# Checks the sources: clang-format, ruff, shellcheck, who includes whom, headers that compile alone, clang-tidy.
# cmake/lint.py says more.
usage='usage: cmake/lint.sh [--fix] [--quick]

  --fix      first lay out C++ and Python files as clang-format and ruff want them
  --quick    without what compiles (clang-tidy, headers alone)

exit code: 0 nothing found, 1 something to change, 2 could not run.'

program=lint.sh
# shellcheck source=cmake/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

arguments=()
quick=
for argument in "$@"; do
  case $argument in
    --fix) arguments+=(--fix) ;;
    --quick) arguments+=(--quick) quick=1 ;;
    -h | --help)
      printf '%s\n' "$usage"
      exit 0
      ;;
    *) die "unknown argument '$argument' (see cmake/lint.sh --help)" ;;
  esac
done

setup
if [ -z "$quick" ]; then configure_preset release || exit 2; fi
run_shown python "$root/cmake/lint.py" ${arguments[@]+"${arguments[@]}"}
