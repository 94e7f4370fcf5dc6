"""Every program refuses an empty word of its command line, which no shell user means.

As a path it would be the root (`"" + "/manifest.json"`) or the current folder (`Path("")`).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["STEPSCOPE_BIN"])
MAIN = re.compile(r'run_program\("(\w+)"')
COMPILED = sorted(
    found[1]
    for folder in ("bench", "kernels")
    for source in (ROOT / folder).glob("*.cc")
    if (found := MAIN.search(source.read_text()))
)
SCRIPTS = [
    *(ROOT / "results" / name for name in ("history.py", "join_runs.py", "run_tables.py")),
    *(ROOT / "plot" / name for name in ("plot_run.py", "plot_trend.py", "report.py")),
    *(ROOT / "bench" / name for name in ("compare_commits", "preflight")),
]


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, cwd=cwd
    )


def assert_refused(done: subprocess.CompletedProcess, program: str, what: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"{program}: {what} is empty" in done.stderr


@pytest.mark.parametrize("program", COMPILED)
def test_a_program_refuses_an_empty_word(program, tmp_path):
    assert_refused(run(BIN / program, "", cwd=tmp_path), program, "argument 1")


@pytest.mark.parametrize("arguments", [["--out", ""], ["--out="]])
@pytest.mark.parametrize("program", ["kernel_step", "optimizer_step", "train_step"])
def test_a_program_names_the_option_whose_value_is_empty(program, arguments, tmp_path):
    assert_refused(run(BIN / program, *arguments, cwd=tmp_path), program, "--out")
    assert not list(tmp_path.iterdir())


def test_both_sides_of_a_comparison_count(tmp_path):
    done = run(BIN / "compare_results", "base", "--", "new", "", cwd=tmp_path)
    assert_refused(done, "compare_results", "argument 4")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_refuses_an_empty_word(script, tmp_path):
    assert_refused(run(sys.executable, script, "", cwd=tmp_path), script.name, "argument 1")


def test_a_script_names_the_option_whose_value_is_empty(tmp_path):
    script = ROOT / "results" / "history.py"
    for arguments in (["--out", ""], ["--out="]):
        assert_refused(
            run(sys.executable, script, "r", *arguments, cwd=tmp_path), script.name, "--out"
        )


def test_no_script_reads_its_command_line_in_another_way():
    found = [
        str(path.relative_to(ROOT))
        for folder in ("bench", "plot", "results", "topologies")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in ("", ".py")
        if re.search(r"argparse\.ArgumentParser\(|\(argparse\.ArgumentParser\)", path.read_text())
    ]
    assert found == ["results/command_line.py"]


def test_the_programs_are_known():
    assert {"golden_check", "kernel_step", "optimizer_step", "trace_check"} <= set(COMPILED)
