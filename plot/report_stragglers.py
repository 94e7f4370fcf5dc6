"""The report's table of stragglers: which rank set the step times of a case, how often, and by how
much."""

from __future__ import annotations

from collections.abc import Sequence

from plot.cases import problem_of
from plot.markup import NOT_MEASURED, Cell, Column, Html, table, tag
from plot.report_numbers import NAMING, case_cell, rows_by_case
from plot.style import digits, time_unit
from results.run_folder import RunFolder
from results.stragglers import Straggler, find_stragglers

# A case of thousands of ranks names the worst.
MOST_RANKS = 8

SPOKEN = (
    "A step lasts as long as its slowest rank. The lead is that rank's time beyond the time of the "
    "rank in the middle of the same step. Both are durations, each by its own rank's monotonic "
    "clock; clocks of different hosts are never compared, so none of this depends on how far apart "
    "they are. Of equal ranks each would set the share under “if equal”."
)


def section(runs: Sequence[RunFolder], names: Sequence[str]) -> Html | None:
    """The table; None where no case has more than one rank and steps that name their slowest."""
    body = []
    units = time_unit(min(_leads(runs), default=0))
    telling = {
        column for column in NAMING if len({row[column] for run in runs for row in run.results}) > 1
    }
    for run, name in zip(runs, names, strict=True):
        for rows, stragglers in _cases(run):
            steps = sum(one.steps for one in stragglers)
            for one in stragglers[:MOST_RANKS]:
                cells = [case_cell(rows[0], telling), Cell(str(one.rank), one.rank)]
                cells += [_share(one.steps / steps), _share(1 / rows[0]["world_size"])]
                cells += [_time(one.p50_lead_ns, units), _time(one.max_lead_ns, units)]
                body.append(cells + ([Cell(name)] if len(runs) > 1 else []))
    if not body:
        return None
    heads = [
        Column("case"),
        Column("rank", "", True, "A rank that set the time of at least one step"),
        Column("of steps", "%", True, "Share of the timed steps whose time this rank set"),
        Column("if equal", "%", True, "The share that each of equal ranks would set"),
        Column("median lead", units[1], True, "Over the steps whose time this rank set"),
        Column("largest lead", units[1], True, "Over the steps whose time this rank set"),
    ]
    if len(runs) > 1:
        heads.append(Column("run"))
    return tag("div", tag("p", SPOKEN), table("Ranks that set the step times.", heads, body))


def _cases(run: RunFolder) -> list[tuple[list, list[Straggler]]]:
    """The rows of every timed case of several ranks, with its stragglers."""
    samples: dict[tuple[str, int], list] = {}
    for row in run.samples:
        samples.setdefault((str(row["benchmark"]), row["repetition"] or 0), []).append(row)
    found = []
    for key, rows in rows_by_case(run).items():
        stragglers = find_stragglers(samples.get(key, []))
        if stragglers and (rows[0]["world_size"] or 1) > 1 and problem_of(rows) is None:
            found.append((rows, stragglers))
    return found


def _leads(runs: Sequence[RunFolder]) -> list[int]:
    return [
        one.p50_lead_ns
        for run in runs
        for _, stragglers in _cases(run)
        for one in stragglers[:MOST_RANKS]
        if one.p50_lead_ns
    ]


def _share(share: float) -> Cell:
    return Cell(f"{100 * share:.1f}", share)


def _time(ns: int | None, unit: tuple[float, str]) -> Cell:
    return NOT_MEASURED if ns is None else Cell(digits(ns / unit[0]), ns)
