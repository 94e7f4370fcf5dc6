"""Keeps two callers out of one folder.

Usage:

    with locked(folder / "lock", busy=Problem("another one is at work", "wait")) as descriptor:
        ...

Caveats: a process that was handed the descriptor holds the lock too, until it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from bench.paired.problem import Problem

# What a killed call started takes a moment to end.
SECONDS = 5


@contextlib.contextmanager
def locked(file: Path, busy: Problem) -> Iterator[int]:
    """Raises `busy` where somebody else has the lock for longer than a moment."""
    deadline = time.monotonic() + SECONDS
    with file.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise busy from None
                time.sleep(0.05)
        yield lock.fileno()
