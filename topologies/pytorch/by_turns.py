"""Two ways to do a step that take turns in one process, so that both see the same phase of a noisy
machine; as bench/paired_ratio.h.

Usage:

    first, second = by_turns(lambda: timed(stock.step), lambda: timed(adapted.step), pairs=100)
    ratio = paired_ratio(second, first)              # above 1: the second is slower

Caveats: the interval holds for independent pairs. Slow phases of a machine make neighbours alike,
and the interval too narrow.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topologies.pytorch.garbage import without_collections


@dataclass(frozen=True)
class PairedRatio:
    median: float
    low: float  # 95 % interval of the median, from order statistics
    high: float


def timed(step: Callable[[], object]) -> int:
    """Nanoseconds of one call."""
    begin = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - begin


def by_turns(
    first: Callable[[], int], second: Callable[[], int], pairs: int
) -> tuple[list[int], list[int]]:
    """What `pairs` calls of each return; who begins changes from pair to pair."""
    times: tuple[list[int], list[int]] = ([], [])
    with without_collections():  # one would count for one side alone
        for pair in range(pairs):
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                times[side].append((first, second)[side]())
    return times


def paired_ratio(above: Sequence[int], below: Sequence[int]) -> PairedRatio:
    """Of `above[i] / below[i]`. With fewer than 10 pairs the interval is the whole range."""
    ratios = sorted(a / max(1, b) for a, b in zip(above, below, strict=True))
    count = len(ratios)
    # With a probability of 2.5 % fewer than this many lie below the median.
    rank = math.floor((count - 1.96 * math.sqrt(count)) / 2)
    skipped = 0 if count < 10 else rank - 1
    return PairedRatio(statistics.median(ratios), ratios[skipped], ratios[count - 1 - skipped])
