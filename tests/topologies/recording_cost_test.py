"""topologies/pytorch/recording_cost.py: real bitsandbytes, recorded and unrecorded by turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "topologies" / "pytorch" / "recording_cost.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)


def test_every_optimizer_has_a_line_with_both_times() -> None:
    done = run("--model", "tiny", "--world-size", "8", "--pairs", "3", "--optimizer", "AdamW8bit")
    assert done.returncode == 0, done.stderr
    head, _, line = done.stdout.splitlines()
    assert "elements in" in head
    words = line.split()
    assert words[:2] == ["bitsandbytes.optim:AdamW8bit", "3"]
    assert float(words[2]) > 0 and float(words[3]) > 0


def test_an_unknown_optimizer_is_refused_with_the_names() -> None:
    done = run("--optimizer", "Adam9bit")
    assert done.returncode == 2
    assert "Adam9bit" in done.stderr and "AdamW8bit" in done.stderr


def test_a_model_that_is_not_there_is_one_line() -> None:
    done = run("--model", "no-such-model")
    assert done.returncode == 2
    assert done.stderr.startswith("recording_cost: ") and done.stderr.count("\n") == 1
