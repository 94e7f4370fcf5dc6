"""Times steps as the suite's own ranks do: a barrier, then the rank's own clock around the step.
The maximum over the ranks is taken after the loop: no communication lies inside a sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from topologies.pytorch.garbage import without_collections
from topologies.pytorch.ranks import barrier, gather


@dataclass(frozen=True)
class Samples:
    """By timed step. Nanoseconds."""

    step_ns: list[int]  # max over ranks
    slowest_rank: list[int]  # the lowest of those that set it
    middle_rank_ns: list[int]  # of two middle ranks the lower
    start_ns: list[int]  # on rank 0, since the first timed step


def timed_steps(
    step: Callable[[], None],
    count: int,
    device: torch.device,
    before: Callable[[int], None] = lambda _: None,
) -> Samples:
    """`count` timed calls of `step`, `before(i)` before that of number i. Collective."""
    starts, durations = [], []
    with without_collections():  # one inside a rank's sample would be the sample
        for i in range(count):
            before(i)
            barrier()
            _synchronize(device)
            begin = time.perf_counter_ns()
            step()
            _synchronize(device)
            durations.append(time.perf_counter_ns() - begin)
            starts.append(begin)
    ranks = gather((starts, durations))
    first = ranks[0][0][0] if count else 0
    by_step = [[durations[i] for _, durations in ranks] for i in range(count)]
    return Samples(
        [max(one) for one in by_step],
        [one.index(max(one)) for one in by_step],
        [sorted(one)[(len(one) - 1) // 2] for one in by_step],
        [start - first for start in ranks[0][0]],
    )


def affordable_steps(
    step: Callable[[], None], wanted: int, least: int, seconds: float, device: torch.device
) -> int:
    """How many of the wanted steps fit into `seconds`, by the time of one; not fewer than `least`.
    The same on all ranks. Collective."""
    begin = time.perf_counter()
    step()
    _synchronize(device)
    slowest = max(gather(time.perf_counter() - begin))
    return min(wanted, max(least, int(seconds / max(slowest, 1e-9))))


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
