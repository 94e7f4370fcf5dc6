"""Runs a program of topologies/pytorch on the ranks of a job over Gloo: forked from this process,
which has loaded PyTorch, since loading it takes seconds."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import torch

from bench.free_ports import free_port
from results.run_folder import RunFolder, read_run_folder

RANKS_TIMEOUT_S = 240


@dataclass
class Ended:
    codes: list[int]
    out: list[str]  # of rank 0
    errors: list[str]  # by rank

    @property
    def run(self) -> RunFolder:
        return read_run_folder(self.out[-1])


def on_ranks(
    world_size: int,
    *arguments: str,
    main: Callable[[], int],
    before: Callable[[int], Sequence[str]] = lambda _rank: (),
    left: Sequence[int] = (),
) -> Ended:
    """Starts the ranks by hand, as torchrun would replace their exit codes: forked from this
    process, which has loaded PyTorch. `before` is called on each rank at its start, and returns
    further arguments of that rank; those that are `left` are not waited for, and killed at the
    end."""
    port = str(free_port())
    with tempfile.TemporaryDirectory() as folder:
        texts = [
            [Path(folder) / f"{rank}.{name}" for name in ("out", "err")]
            for rank in range(world_size)
        ]
        ranks = []
        for rank in range(world_size):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size}
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            pid = os.fork()
            if pid == 0:
                _be_the_program(main, arguments, place, *texts[rank], before)
            ranks.append(pid)
        codes = _codes(ranks, left)
        said = [[path.read_text() for path in pair] for pair in texts]
    return Ended(codes, said[0][0].splitlines(), [err for _, err in said])


def _be_the_program(
    main: Callable[[], int],
    arguments: Sequence[str],
    place: dict[str, Any],
    out: Path,
    err: Path,
    before: Callable[[int], Sequence[str]],
) -> NoReturn:
    code = 70
    try:
        os.environ.update({key: str(value) for key, value in place.items()})
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = ["program", *arguments, *before(place["RANK"])]
        torch.set_num_threads(1)
        code = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _codes(ranks: list[int], left: Sequence[int]) -> list[int]:
    """What they end with; none outlives the deadline."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + RANKS_TIMEOUT_S
    try:
        while any(pid not in codes for rank, pid in enumerate(ranks) if rank not in left):
            assert time.monotonic() < deadline, "the ranks do not end"
            for pid in ranks:
                if pid not in codes:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        codes[pid] = os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
    finally:
        for pid in ranks:
            if pid not in codes:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return [codes.get(pid, -signal.SIGKILL) for pid in ranks]
