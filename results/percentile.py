"""Percentiles as results/percentile.h takes them: Hyndman-Fan type 7, linear between order
statistics, in whole nanoseconds, ties to even. Integers throughout, so that both agree."""

from __future__ import annotations

from collections.abc import Sequence

METHOD = "linear-type7"


def percentile(samples: Sequence[int], percent: int) -> int | None:
    """The `percent`-th percentile (a whole number from 0 to 100); None without samples."""
    if not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent} was asked for; give a whole number from 0 to 100")
    if not samples:
        return None
    ordered = sorted(samples)
    below, fraction = divmod((len(ordered) - 1) * percent, 100)
    above = min(below + 1, len(ordered) - 1)
    whole, rest = divmod(ordered[below] * (100 - fraction) + ordered[above] * fraction, 100)
    return whole + (rest > 50 or (rest == 50 and whole % 2 == 1))
