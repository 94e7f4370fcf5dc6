"""Reading a trace takes time in proportion to its events, and little more memory than they fill; so
does checking every contract on it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

BIN = Path(os.environ["STEPSCOPE_BIN"])
PROGRAM = BIN / "trace_speed"
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


# Runs a command and says, in KiB, what its one child needed at most: a process of its own, since
# the figure is of all children that a process ever had.
PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_of_check(trace: Path, limit: int = resource.RLIM_INFINITY) -> tuple[int, int]:
    """Exit code and peak memory of trace_check, bytes, in an address space of at most `limit`."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", PEAK, BIN / "trace_check", trace],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        preexec_fn=limited,
    )
    code, kib = map(int, done.stdout.split())
    return code, kib * 1024


def test_checking_10_million_events_fits_into_a_gigabyte(tmp_path: Path) -> None:
    # A tenth of them, and a tenth of the gigabyte beside what the program needs for itself.
    few, many = tmp_path / "few.sqlite", tmp_path / "many.sqlite"
    run(few, 2_000)
    run(many, 1_000_000)
    code, base = peak_of_check(few)
    assert code == 0
    code, peak = peak_of_check(many, limit=(1 << 30) // 10 + (256 << 20))
    assert code == 0, "it needs more than it may have"
    assert peak - base < (1 << 30) // 10
