"""compare_commits on two bitsandbytes: real ranks of both on the real PyTorch FSDP, in turn."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.free_ports import free_port
from bench.paired.subject import subject, unrecordable

ROOT = Path(__file__).parents[2]
BIN = Path(os.environ["STEPSCOPE_BIN"])
VENV = ROOT / ".venv"
SECONDS = 400
ONE_CASE = ["--trace", "0", "--optimizer", "Lion8bit", "--dtype", "fp32"]
BENCHMARK = "OptimizerStep/bitsandbytes/Lion8bit/fsdp2/global/fp32/two"
# Put behind the real package's: what every step of its 8-bit optimizers does first.
PLANT = """
import os as _os, signal as _signal, time as _time
from bitsandbytes.optim.optimizer import Optimizer8bit as _planted
_step, _calls = _planted.step, [0]
def _first(self, closure=None):
    _calls[0] += 1
    {what}
    return _step(self, closure)
_planted.step = _first
"""


def installed_package(name: str) -> Path:
    """Its folder in the environment of the tests."""
    asked = f"import importlib.util as u; print(u.find_spec('{name}').origin)"
    origin = subprocess.run(
        [VENV / "bin/python", "-c", asked], capture_output=True, text=True, check=True, cwd="/"
    ).stdout.strip()
    return Path(origin).parent


def plant(folder: Path, what: str) -> Path:
    """A folder with a bitsandbytes that is the installed one, but for what its steps do first."""
    installed = installed_package("bitsandbytes")
    package = folder / "bitsandbytes"
    (package / "optim").mkdir(parents=True)
    for part in (Path(), Path("optim")):
        for one in (installed / part).iterdir():
            if one.name not in ("__pycache__", "optim"):
                (package / part / one.name).symlink_to(one)
    start = package / "optim" / "__init__.py"
    text = start.read_text()
    start.unlink()
    start.write_text(text + PLANT.format(what=what))
    return folder


def run(*words: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [ROOT / "bench/compare_commits", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def compare(a: Path, b: Path, out: Path, *words: object) -> tuple[int, str, str]:
    # Two parameters, one of them with 8-bit state.
    model = out.with_name("two.json")
    sizes = {"large.weight": [67, 129], "small.bias": [64]}
    listed = [{"name": name, "shape": shape, "dtype": "fp32"} for name, shape in sizes.items()]
    model.write_text(json.dumps(listed))
    sides = ["--subject-a", a, "--subject-b", b, "--out", out]
    return run(*sides, *words, "--model", model)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def verdict(out: Path) -> dict:
    (benchmark,) = json.loads((out / "comparison.json").read_text())["benchmarks"]
    assert benchmark["benchmark"] == BENCHMARK
    return benchmark


def turns_of(folder: Path, steps: int) -> list[list[int]]:
    """When the steps of every turn began, in nanoseconds since the first."""
    with (folder / "samples.csv").open(newline="") as stream:
        starts = [int(row["start_ns"]) for row in csv.DictReader(stream)]
    return [starts[i : i + steps] for i in range(0, len(starts), steps)]


def test_one_environment_twice_takes_turns_and_is_not_slower_than_itself(tmp_path):
    out = tmp_path / "out"
    # The same environment, by its folder and by its Python.
    words = ["--pairs", "1", "--", *ONE_CASE, "--steps", "20", "--turn-steps", "5"]
    code, table, said = compare(VENV, VENV / "bin/python", out, *words)
    assert code == 0, said
    assert f"| {BENCHMARK} |" in table
    assert "pair 1 of 1" in said
    # One pair cannot tell.
    assert verdict(out)["verdict"] == "uncertain"
    sides = [out / "pair-001" / side for side in ("a", "b")]
    found = [manifest(side)["turns"] for side in sides]
    assert found[0]["pair"] == found[1]["pair"] != ""
    assert [one["order"] for one in found] == ["first", "second"]
    assert manifest(sides[0])["world_size"] == 2
    a, b = (turns_of(side, 5) for side in sides)
    assert len(a) == len(b) == 4
    for i in range(3):
        # Between two turns of one side lies a whole turn of the other.
        assert a[i + 1][0] - a[i][-1] > b[i][-1] - b[i][0]
        assert b[i + 1][0] - b[i][-1] > a[i + 1][-1] - a[i + 1][0]


def test_a_slower_bitsandbytes_is_found_and_an_interrupted_comparison_goes_on(tmp_path):
    # Both sleep, so that what else the machine does is little beside it.
    usual = plant(tmp_path / "usual", "_time.sleep(0.1)")
    slow = plant(tmp_path / "slow", "_time.sleep(0.4)")
    out = tmp_path / "out"
    words = ["--ranks", "1", "--", *ONE_CASE, "--steps", "5"]
    code, _, said = compare(usual, slow, out, "--pairs", "1", *words)
    assert code == 0, said
    pair = manifest(out / "pair-001/b")["turns"]["pair"]
    code, table, said = compare(usual, slow, out, "--pairs", "3", *words)
    assert "1 pairs are measured already" in said
    assert manifest(out / "pair-001/b")["turns"]["pair"] == pair
    assert code == 1, table
    assert verdict(out)["verdict"] == "slower"
    assert verdict(out)["new"]["p50_ns"] > 400e6
    # Whose runs these are is in the table and in the manifests.
    for side in ("a", "b"):
        found = manifest(out / "pair-001" / side)["packages"]["bitsandbytes"]
        assert len(found["files_sha256"]) == 64 and "wheel_files_sha256" not in found
        assert f"bitsandbytes {found['version']} ({found['files_sha256'][:8]})" in table
    # With other files it is another bitsandbytes.
    with (slow / "bitsandbytes/optim/__init__.py").open("a") as file:
        file.write("# changed\n")
    code, table, said = compare(usual, slow, out, "--pairs", "3", *words)
    assert (code, table) == (2, "")
    assert "sha256" in said.splitlines()[-1]


def with_torch(folder: Path, version: str) -> Path:
    """An environment with the installed packages, whose PyTorch says that it is of that version."""
    installed = installed_package("torch")
    package = folder / "packages/torch"
    package.mkdir(parents=True)
    for one in installed.iterdir():
        if one.name not in ("__pycache__", "version.py"):
            (package / one.name).symlink_to(one)
    text = (installed / "version.py").read_text()
    said = re.sub(r"(?m)^__version__ = .*$", f"__version__ = {version!r}", text, count=1)
    (package / "version.py").write_text(said)
    python = folder / "bin/python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{VENV / "bin/python"}" "$@"\n'
    )
    python.chmod(0o755)
    return folder


def test_a_pytorch_that_the_recorder_does_not_fit_is_measured_without_it(tmp_path):
    out = tmp_path / "out"
    words = ["--pairs", "1", "--ranks", "1", "--", *ONE_CASE[2:], "--steps", "10"]
    code, table, said = compare(VENV, with_torch(tmp_path / "other", "2.9.1"), out, *words)
    assert code == 0, said
    why = "side b has PyTorch 2.9.1, and the recorder was built for "
    assert said.count(why) == 1 and "steps are not recorded (--trace 0)" in said
    assert f"Contracts are unverified: {why}" in table.splitlines()[-1]
    assert (out / "comparison.md").read_text() == table
    for side in ("base", "new"):
        assert verdict(out)[side]["contract"] == "unverified"
    assert not list(out.glob("pair-001/*/traces/*"))
    # Another build of the same release has the same classes.
    same = with_torch(tmp_path / "same", f"{own_torch().partition('+')[0]}+other")
    subjects = [subject(ROOT, one) for one in (VENV, same)]
    assert unrecordable(ROOT, subjects) == ""


def own_torch() -> str:
    return subject(ROOT, VENV).torch


def test_a_bitsandbytes_whose_steps_fail_is_a_regression_and_the_other_is_measured(tmp_path):
    broken = plant(tmp_path / "broken", "raise RuntimeError('no step today')")
    out = tmp_path / "out"
    words = ["--pairs", "1", "--ranks", "1", "--", *ONE_CASE, "--steps", "15"]
    code, table, said = compare(VENV, broken, out, *words)
    assert code == 1, said
    assert "**regression**" in table and "no step today" in table
    assert len(turns_of(out / "pair-001/a", 15)[0]) == 15
    assert turns_of(out / "pair-001/b", 15) == []


def test_a_rank_that_is_killed_is_named_and_the_other_side_is_not_blamed(tmp_path):
    deadly = plant(
        tmp_path / "deadly",
        "_calls[0] == 9 and _os.environ['RANK'] == '1' and _os.kill(_os.getpid(), _signal.SIGKILL)",
    )
    words = ["--pairs", "1", "--ranks", "2", "--", *ONE_CASE, "--steps", "20"]
    code, table, said = compare(VENV, deadly, tmp_path / "out", *words)
    assert (code, table) == (2, "")
    assert "side b, rank 1: was ended by SIGKILL" in said.splitlines()[-1]
    log = (tmp_path / "out/pair-001/logs/a-rank0.log").read_text()
    assert "the other build of this pair ended before the pair was measured" in log
    for side in ("a", "b"):
        left = tmp_path / f"out/pair-001/{side}.incomplete"
        assert manifest(left)["status"] == "incomplete"


def test_a_build_of_the_suite_and_an_environment_are_no_pair(tmp_path):
    """They speak the same protocol, and both say what differs."""
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    driver = [VENV / "bin/python", ROOT / "topologies/pytorch/optimizer_step.py"]
    jobs = []
    try:
        for turn, program in (("first", [BIN / "optimizer_step"]), ("second", driver)):
            words = [
                *ONE_CASE,
                "--model",
                "tiny",
                "--baton",
                tmp_path / "s",
                "--turn",
                turn,
                "--out",
                tmp_path / turn,
            ]
            jobs.append(
                subprocess.Popen(
                    [*map(str, [*program, *words])],
                    env=os.environ | place | {"MASTER_PORT": str(free_port())},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        said = [job.communicate(timeout=SECONDS)[1] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    assert [job.returncode for job in jobs] == [2, 2], said
    for text in said:
        assert '"turns=1"' in text and '"pytorch-turns=1"' in text, text


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["--subject-a", "x"], "--subject-a and --subject-b go together"),
        (["main", "HEAD", "--subject-a", "x", "--subject-b", "x"], "without revisions"),
        (
            ["--build-a", "x", "--build-b", "x", "--subject-a", "x", "--subject-b", "x"],
            "do not go together",
        ),
        (["--subject-a", "/nowhere", "--subject-b", "x"], "/nowhere is no virtual environment"),
        (["--subject-a", "x", "--subject-b", "x", "--", "--baton", "y"], "--baton behind --"),
    ],
)
def test_usage_errors_are_one_line_that_helps(words, word):
    code, table, said = run(*words)
    assert (code, table) == (2, "")
    assert word in said
    assert said.count("\n") == 1


def test_an_environment_without_pytorch_is_refused_before_anything_is_measured(tmp_path):
    python = tmp_path / "bare/bin/python"
    python.parent.mkdir(parents=True)
    # -S: without site-packages.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    out = tmp_path / "out"
    code, table, said = compare(tmp_path / "bare", VENV, out, "--", *ONE_CASE)
    assert (code, table) == (2, "")
    assert "finds no torch" in said and said.count("\n") == 1
    assert not out.exists()
