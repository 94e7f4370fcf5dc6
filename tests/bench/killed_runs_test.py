"""A run that is killed at any moment leaves a complete folder, or one that says it is incomplete.

STEPSCOPE_KILLS=200 kills that often; the default is a reduced form.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from ranks import RANK_VARIABLES

from bench.free_ports import free_port
from results.run_folder import RunFolderError, read_run_folder

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "optimizer_step"
KILLS = int(os.environ.get("STEPSCOPE_KILLS", "40"))
COMMAND = [PROGRAM, "--quick", "--steps", "3", "--threads", "1", "--topology", "single"]


def start(out: Path) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
    environment |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return subprocess.Popen(
        [*map(str, COMMAND), "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def life_of_a_whole_run(folder: Path) -> tuple[float, float]:
    """Seconds until the folder appears, and until the run has ended."""
    begin = time.monotonic()
    process = start(folder / "whole")
    while not (folder / "whole.incomplete").exists() and process.poll() is None:
        time.sleep(0.001)
    appeared = time.monotonic() - begin
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return appeared, time.monotonic() - begin


def verdict(out: Path) -> str:
    """complete, incomplete or nothing; anything else fails."""
    incomplete = out.with_name(out.name + ".incomplete")
    assert not (out.exists() and incomplete.exists())
    if out.exists():
        run = read_run_folder(out)
        assert run.manifest["status"] == "complete"
        assert len(run.results) == 6
        return "complete"
    if not incomplete.exists():
        return "nothing"
    with pytest.raises(RunFolderError):
        read_run_folder(incomplete)
    if (incomplete / "manifest.json").exists():
        # Also when it was killed after the last row and before the name: only the name counts.
        status = json.loads((incomplete / "manifest.json").read_text())["status"]
        assert status in ("incomplete", "complete")
    return "incomplete"


def test_a_run_killed_while_it_measures_says_that_it_is_incomplete(tmp_path):
    out = tmp_path / "run"
    rows = tmp_path / "run.incomplete" / "samples.csv"
    process = start(out)
    deadline = time.monotonic() + 60
    while not (rows.exists() and rows.read_text().count("\n") > 1):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=60)
    assert verdict(out) == "incomplete"
    _, said = start(out).communicate(timeout=60)
    assert "killed" in said


def test_a_run_killed_at_any_moment_is_complete_or_says_that_it_is_not(tmp_path):
    chance = random.Random(2080)
    appeared, whole = life_of_a_whole_run(tmp_path)
    seen = {"complete": 0, "incomplete": 0, "nothing": 0}
    for i in range(KILLS):
        out = tmp_path / f"run{i}"
        process = start(out)
        # Half of the kills fall into the last tenth, when files are synced and the folder is named.
        first = appeared if i % 2 == 0 else whole - (whole - appeared) / 10
        last = whole + (whole - appeared) / 10
        try:
            process.wait(timeout=chance.uniform(first, last))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate(timeout=60)
        kind = verdict(out)
        seen[kind] += 1
        # The next run of that name is refused where rows were left, and never mixes with them.
        if kind == "incomplete" and i % 8 == 0:
            again = start(out)
            _, said = again.communicate(timeout=60)
            assert again.returncode == 2
            assert "killed" in said
        for path in (out, out.with_name(out.name + ".incomplete")):
            shutil.rmtree(path, ignore_errors=True)
    print(seen)
