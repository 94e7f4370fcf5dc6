"""test.sh: it counts what CTest says, and its last line agrees with its exit code."""

from pathlib import Path

import pytest

from tests.setup.checkout import Checkout

PASSED = '<testcase name="a" status="run"/>'
FAILED = '<testcase name="b" status="fail"><failure/></testcase>'
SKIPPED = '<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'
NOT_FOUND = (
    '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>'
)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path)
    # The lint check has tests of its own; here only its verdict counts.
    lint = checkout.root / "cmake" / "lint.sh"
    lint.write_text('#!/bin/bash\nexit "${LINT:-0}"\n')
    return checkout


def ctest(checkout: Checkout, cases: str, code: int) -> None:
    script = f"""
for last; do :; done
printf '%s' '<testsuite>{cases}</testsuite>' >"$last"
exit {code}"""
    checkout.stand_in("ctest", script, checkout.venv_bin)


def test_all_presets_are_run_and_summed_up(checkout):
    ctest(checkout, PASSED * 3 + SKIPPED, 0)
    result = checkout.run("test.sh")
    assert result.code == 0, result
    presets = [call.split()[2] for call in checkout.calls("ctest")]
    assert presets == ["release", "asan", "tsan"]
    assert result.out_lines[-5:] == [
        "lint: 1 passed, 0 failed, 0 skipped",
        "release: 3 passed, 0 failed, 1 skipped",
        "asan: 3 passed, 0 failed, 1 skipped",
        "tsan: 3 passed, 0 failed, 1 skipped",
        "10 passed, 0 failed, 3 skipped",
    ]


def test_quick_runs_the_release_preset_alone(checkout):
    ctest(checkout, PASSED, 0)
    result = checkout.run("test.sh", "--quick")
    assert result.code == 0, result
    assert len(checkout.calls("ctest")) == 1
    assert result.out_lines[-1] == "2 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("cases", "code", "last"),
    [
        (PASSED + FAILED, 8, "2 passed, 1 failed, 0 skipped"),
        (PASSED + NOT_FOUND, 8, "2 passed, 1 failed, 0 skipped"),
        ("", 0, "1 passed, 1 failed, 0 skipped"),
        (PASSED, 8, "2 passed, 1 failed, 0 skipped"),
    ],
    ids=["a test fails", "a test cannot start", "no test", "ctest itself fails"],
)
def test_it_fails_when(checkout, cases, code, last):
    ctest(checkout, cases, code)
    result = checkout.run("test.sh", "--quick")
    assert result.code == 1, result
    assert result.out_lines[-1] == last


def test_it_fails_when_ctest_leaves_the_results_of_an_earlier_run(checkout):
    ctest(checkout, PASSED, 0)
    checkout.run("test.sh", "--quick")
    checkout.stand_in("ctest", "exit 1", checkout.root / ".venv" / "bin")
    result = checkout.run("test.sh", "--quick")
    assert result.code == 1
    assert result.out_lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_it_fails_when_the_code_does_not_build(checkout):
    ctest(checkout, PASSED, 0)
    checkout.stand_in(
        "cmake",
        'if [ "$1" = --build ]; then\n'
        '  echo "[1/2] Building CXX object core/CMakeFiles/core.dir/error.cc.o"\n'
        '  echo "a.cc:1:1: error: wrong"; echo "undefined reference to f()"; exit 1\n'
        "fi\n"
        "mkdir -p build; touch build/build.ninja",
        checkout.venv_bin,
    )
    result = checkout.run("test.sh", "--quick")
    assert result.code == 1
    assert "a.cc:1:1: error: wrong" in result.err
    assert "undefined reference to f()" in result.err
    assert "error.cc.o" not in result.err
    assert checkout.calls("ctest") == []
    assert result.out_lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_it_fails_when_lint_finds_something(checkout):
    ctest(checkout, PASSED, 0)
    result = checkout.run("test.sh", "--quick", LINT="1")
    assert result.code == 1
    assert result.out_lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_ci_makes_warnings_errors(checkout):
    ctest(checkout, PASSED, 0)
    assert checkout.run(".ci/run").code == 0
    configured = [call for call in checkout.calls("cmake") if "--preset" in call]
    assert len(configured) == 3
    assert all("-DSTEPSCOPE_WERROR=ON" in call for call in configured)


def test_arguments_are_checked_before_anything_is_done(checkout):
    assert checkout.run("test.sh", "--help").out.startswith("usage: ./test.sh")
    result = checkout.run("test.sh", "--fast")
    assert result.code == 2
    assert result.err_lines == ["test.sh: unknown argument '--fast' (see ./test.sh --help)"]
    assert not (checkout.root / ".cache").exists()


def test_without_a_package_that_only_tests_use_it_says_so_and_goes_on(checkout):
    ctest(checkout, PASSED, 0)
    result = checkout.run("test.sh", "--quick", MISSING="chromium")
    assert result.code == 0, result
    (line,) = (line for line in result.err_lines if "chromium" in line)
    assert line.startswith("test.sh: some tests will be skipped")
    assert "apt-get install -y chromium" in line


def test_as_root_it_installs_what_only_tests_use(checkout):
    ctest(checkout, PASSED, 0)
    checkout.stand_in("id", "echo 0")
    result = checkout.run("test.sh", "--quick", MISSING="chromium")
    assert result.code == 0, result
    installs = [call for call in checkout.calls("apt-get") if " install -y " in call]
    assert len(installs) == 1 and installs[0].endswith(" chromium")
    checkout.stand_in("apt-get", "exit 1")
    result = checkout.run("test.sh", "--quick", MISSING="chromium")
    assert result.code == 0, result
    assert result.err_lines[-1] == "test.sh: some tests will be skipped without chromium"
