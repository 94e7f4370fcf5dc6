"""This rank of a job over torch.distributed, and errors that all ranks decide on together.

Rank, world size and address come from launch.py. Everything that waits for other ranks has the
job's timeout.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from topologies.pytorch.errors import CannotRun, RankLost, RanksFailed
from topologies.pytorch.launch import CANNOT_RUN, find_rank
from topologies.pytorch.meeting import Meeting

T = TypeVar("T")
_meetings: list[Meeting] = []  # this process's own, once it has met the others


@dataclass(frozen=True)
class Job:
    rank: int
    world_size: int
    device: torch.device
    timeout_s: float

    @property
    def is_root(self) -> bool:
        return self.rank == 0


def connect(device: str, timeout_s: float) -> Job:
    """Meets the other ranks. Raises CannotRun."""
    found = find_rank()
    place = torch.device("cpu")
    if device == "cuda":
        if not torch.cuda.is_available():
            raise CannotRun("--device cuda was asked for, and PyTorch finds no GPU; use cpu")
        if found.local_rank >= torch.cuda.device_count():
            raise CannotRun(
                f"local rank {found.local_rank} has no GPU of its own:"
                f" there are {torch.cuda.device_count()}; start fewer ranks a host"
            )
        place = torch.device("cuda", found.local_rank)
        torch.cuda.set_device(place)
    try:
        meeting = Meeting(found, timeout_s)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            timeout=datetime.timedelta(seconds=timeout_s),
            store=meeting.store,
            rank=found.rank,
            world_size=found.world_size,
        )
    except (RuntimeError, ValueError) as error:
        raise CannotRun(f"the ranks did not meet: {one_line(error)}") from None
    _meetings.append(meeting)
    meeting.watch(_end)
    return Job(found.rank, found.world_size, place, timeout_s)


def _end(reason: str) -> None:
    """From a thread: the main one waits for a rank that will not come."""
    program = Path(sys.argv[0]).name
    print(
        f"{program}: {_lost('a collective failed elsewhere', reason)}", file=sys.stderr, flush=True
    )
    os._exit(CANNOT_RUN)


def _lost(what: str, reason: str) -> str:
    return f"{what}, {reason}; look at that rank's output; --timeout sets how long a rank waits"


def collective(name: str, body: Callable[[], T]) -> T:
    """`body()`, a collective. Raises RankLost, which names the rank that does not answer."""
    try:
        return body()
    except RuntimeError as error:
        if not _meetings or dist.get_world_size() == 1:
            raise
        said = essence(one_line(error))
        raise RankLost(_lost(f"{name} failed ({said})", _meetings[-1].missing())) from None


def essence(text: str) -> str:
    """c10d's message without its source path and its general advice."""
    return re.sub(r"^\[\S+:\d+\] ", "", text).partition(". This is typically")[0]


def barrier() -> None:
    """Returns when every rank has come here."""
    collective("barrier", dist.barrier)


def gather(value: Any) -> list[Any]:
    """`value` of every rank, by rank."""
    values = [None] * dist.get_world_size()
    collective("all-gather", lambda: dist.all_gather_object(values, value))
    return values


def together(function: Callable[[], T]) -> T:
    """`function()` on every rank; where it raises on any of them, all raise RanksFailed with the
    first such rank's reason. No collective may lie inside that only some ranks reach."""
    value, reason = None, None
    try:
        value = function()
    except Exception as error:
        reason = error_text(error)
    reasons = gather(reason)
    failed = [rank for rank, one in enumerate(reasons) if one is not None]
    if failed:
        raise RanksFailed(f"rank {failed[0]}: {reasons[failed[0]]}")
    return value


def first_reason(reason: str | None) -> str | None:
    """That of the first rank which has one, with its number (but for rank 0). Collective."""
    for rank, one in enumerate(gather(reason)):
        if one is not None:
            return one if rank == 0 else f"rank {rank}: {one}"
    return None


def from_root(job: Job, function: Callable[[], T]) -> T:
    """What `function()` returns on rank 0, on every rank."""
    value = together(lambda: function() if job.is_root else None)
    values = [value]
    collective("broadcast", lambda: dist.broadcast_object_list(values, src=0))
    return values[0]


def error_text(error: BaseException) -> str:
    """Type and text, in one line; of the project's own errors the text alone."""
    text = one_line(error)
    if isinstance(error, CannotRun):
        return text
    return f"{type(error).__name__}: {text}"


def one_line(error: object) -> str:
    return " ".join(str(error).split())
