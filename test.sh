#!/usr/bin/env bash
# Sets up, checks the sources, and runs every test in three builds. `./test.sh --help` says how to use it.
usage='usage: ./test.sh [--quick]

Installs what is missing, runs the lint checks, builds and runs every test in the presets release, asan (addresses and
undefined behaviour) and tsan (data races), and closes with one line: N passed, N failed, N skipped.

  --quick    the preset release alone, and lint without clang-tidy

Tests labelled no_sanitizers run in release only: they check no compiled code. Those labelled no_tsan or libtorch do not run
in tsan: PyTorch is not built for ThreadSanitizer, which floods it with false reports.
One preset by hand: cmake --build build && ctest --preset release.
environment: CI=true makes compiler warnings errors.
exit code: 0 all passed, 1 a check or test failed, 2 could not run.'

program=test.sh
# shellcheck source=cmake/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/cmake/setup.sh"

quick=
for argument in "$@"; do
  case $argument in
    --quick) quick=--quick ;;
    -h | --help)
      printf '%s\n' "$usage"
      exit 0
      ;;
    *) die "unknown argument '$argument' (see ./test.sh --help)" ;;
  esac
done

presets=(release asan tsan)
if [ -n "$quick" ]; then presets=(release); fi

passed=0
failed=0
skipped=0
summary=()

# count WHAT PASSED FAILED SKIPPED: adds to the sums.
count() {
  passed=$((passed + $2))
  failed=$((failed + $3))
  skipped=$((skipped + $4))
  summary+=("$1: $2 passed, $3 failed, $4 skipped")
}

# A test that CTest could not start counts as failed; skipped is only what said so itself.
junit_counts='
import sys, xml.etree.ElementTree as tree
passed = failed = skipped = 0
for case in tree.parse(sys.argv[1]).iter("testcase"):
    mark = case.find("skipped")
    reason = "" if mark is None else mark.get("message", "")
    if case.get("status") == "run":
        passed += 1
    elif case.get("status") == "disabled" or reason.startswith("SKIP_"):
        skipped += 1
    else:
        failed += 1
print(passed, failed, skipped)'

run_preset() {
  local preset=$1 folder counts code=0
  folder=$(build_folder "$preset")
  if ! build_preset "$preset"; then
    count "$preset (does not build)" 0 1 0
    return
  fi
  rm -f "$folder/tests.xml"
  cd "$root" || die "cannot enter $root"
  run_shown ctest --preset "$preset" -j "$(nproc)" --output-junit "$folder/tests.xml" || code=$?
  if ! counts=$(python -c "$junit_counts" "$folder/tests.xml" 2>/dev/null) || [ "$counts" = '0 0 0' ]; then
    count "$preset (no test was run)" 0 1 0
    return
  fi
  # shellcheck disable=SC2086
  count "$preset" $counts
  if ((code != 0)) && [[ $counts != *' '[1-9]*' '* ]]; then count "$preset (ctest exited with $code)" 0 1 0; fi
}

setup
setup_for_tests
if run_shown "$root/cmake/lint.sh" $quick; then count lint 1 0 0; else count lint 0 1 0; fi
for preset in "${presets[@]}"; do run_preset "$preset"; done

printf '\n'
printf '%s\n' "${summary[@]}"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
if ((failed > 0 || passed == 0)); then exit 1; fi
