"""This rank of a job over torch.distributed, and errors that all ranks decide on together.

Rank, world size and address come from launch.py. Everything that waits for other ranks has the
job's timeout.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from topologies.pytorch.errors import CannotRun, RanksFailed
from topologies.pytorch.launch import find_rank

T = TypeVar("T")


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
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            timeout=datetime.timedelta(seconds=timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        raise CannotRun(f"the ranks did not meet: {one_line(error)}") from None
    return Job(found.rank, found.world_size, place, timeout_s)


def gather(value: Any) -> list[Any]:
    """`value` of every rank, by rank."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
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


def from_root(job: Job, function: Callable[[], T]) -> T:
    """What `function()` returns on rank 0, on every rank."""
    value = together(lambda: function() if job.is_root else None)
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def error_text(error: BaseException) -> str:
    """Type and text, in one line; of the project's own errors the text alone."""
    text = one_line(error)
    if isinstance(error, CannotRun):
        return text
    return f"{type(error).__name__}: {text}"


def one_line(error: object) -> str:
    return " ".join(str(error).split())
