"""Runs the test program shard_plan_dump: what load_model and ShardPlan make of their input."""

import json
import os
import subprocess
from pathlib import Path


def dump(model: str | Path, *plan: str | int) -> dict:
    """The model (a preset or a file) and, given topology, world size and what follows, the plan."""
    done = run(model, *plan)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def error(model: str | Path, *plan: str | int) -> str:
    """The one line of error, for input that must be refused."""
    done = run(model, *plan)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("shard_plan_dump: ").rstrip("\n")


def run(*arguments: str | Path | int) -> subprocess.CompletedProcess:
    program = Path(os.environ["STEPSCOPE_BIN"]) / "shard_plan_dump"
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
