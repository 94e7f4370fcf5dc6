"""Starts the ranks of a test in fresh processes, and lets none outlive it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch.multiprocessing as mp


def run_ranks(
    work: Callable[[int, str], None], folder: Path, world_size: int, timeout_s: float
) -> None:
    """`work(rank, folder)` on every rank; raises what a rank raised."""
    context = mp.start_processes(work, (str(folder),), world_size, join=False, start_method="spawn")
    deadline = time.monotonic() + timeout_s
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < deadline, f"no end after {timeout_s} s"
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
