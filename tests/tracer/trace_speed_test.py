"""Reading a trace takes time in proportion to its events, and little more memory than they fill."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "trace_speed"
EVENT_BYTES = 72  # sizeof(Event)


def run(*arguments: object) -> str:
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout


def test_time_and_memory_grow_with_the_events(tmp_path: Path) -> None:
    small, large = tmp_path / "small.sqlite", tmp_path / "large.sqlite"
    run(small, 100_000)
    run(large, 1_000_000)
    # Interleaved, and the best of each: other programs share the machine.
    rounds = [(json.loads(run(small)), json.loads(run(large))) for _ in range(3)]
    fastest = [
        min(one["read_s"] + one["finish_s"] for one in side) for side in zip(*rounds, strict=True)
    ]
    assert fastest[1] < 25 * fastest[0]

    few, many = rounds[0]
    assert many["events"] - few["events"] == 900_900
    per_event = (many["peak_kib"] - few["peak_kib"]) * 1024 / (many["events"] - few["events"])
    assert EVENT_BYTES * 0.5 < per_event < EVENT_BYTES * 1.3
