"""Which rank set a case's step times, how often and by how much: as results/stragglers.h."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from results.percentile import percentile
from results.run_folder import Row


@dataclass(frozen=True)
class Straggler:
    """A rank that set the time of `steps` steps; the leads over the rank in the middle of those
    steps, None where the run did not keep the middle rank's time."""

    rank: int
    steps: int
    p50_lead_ns: int | None
    max_lead_ns: int | None


def find_stragglers(samples: Iterable[Row]) -> list[Straggler]:
    """Of the rows of samples.csv of one case, the most frequent rank first, of equals the lower
    one. Rows without a slowest rank are left out."""
    leads: dict[int, list[int | None]] = {}
    for row in samples:
        rank, step, middle = row["slowest_rank"], row["step_ns"], row["middle_rank_ns"]
        if rank is None:
            continue
        known = step is not None and middle is not None
        leads.setdefault(rank, []).append(step - middle if known else None)
    found = []
    for rank, lead in leads.items():
        kept = [ns for ns in lead if ns is not None]
        found.append(Straggler(rank, len(lead), percentile(kept, 50), max(kept, default=None)))
    return sorted(found, key=lambda one: (-one.steps, one.rank))
