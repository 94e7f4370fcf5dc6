#!/usr/bin/env python3
"""Draws the bytes of optimizer state and the peak memory of every rank of a run.

Everything comes from the run folder. Ranks lie below each other, rank 0 on top; more than a few
dozen become one outline. Peak memory: the bar is what the tensor allocator had handed out at most,
the line what the caching allocator had reserved for it, where there is one (not on a CPU).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plot.cases import Case, cases_of, run_facts, run_title
from plot.picture import run_folder_program
from plot.rows import Label, Panel, RowsPicture, labels_of
from plot.style import FAINT, INK, WIDTH, Unit, byte_unit, plural, span
from results.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 0.76  # of a row, for all ranks
MOST_BARS = 32

ByRank = dict[int, int]


def draw(run: RunFolder) -> Figure:
    """The picture, ready to be saved."""
    cases = cases_of(run)
    if not any(case.state_bytes or case.peak_allocated for case in cases):
        raise RunFolderError(run.path, "holds no bytes of any rank, so there is nothing to draw")
    return draw_cases(cases, WIDTH, run)


def draw_cases(cases: list[Case], width: float, run: RunFolder | None = None) -> Figure:
    """As `draw`, of some cases; without a run it has no title."""
    labels = labels_of(cases)
    reserved = any(case.peak_reserved for case in cases)
    state_unit = byte_unit(largest_of([case.state_bytes for case in cases]))
    peak_unit = byte_unit(largest_of([case.peak_allocated for case in cases]))
    ranks = max(len(case.state_bytes) for case in cases)
    row_height = min(2.0, 0.62 + 0.06 * max(0, ranks - 2))
    panels = [
        Panel(
            "Optimizer state of each rank",
            "one bar a rank, rank 0 on top",
            0.5,
            [bytes_text(case.state_bytes, state_unit) for case in cases],
        ),
        Panel(
            "Peak memory of each rank",
            "bar: allocated tensors" + (" · line: reserved by the allocator" if reserved else ""),
            0.5,
            [bytes_text(case.peak_allocated, peak_unit) for case in cases],
        ),
    ]
    title, facts = (run_title(run), run_facts(run)) if run else (None, [])
    rows = RowsPicture(title, facts, labels, panels, row_height, width)
    draw_bytes(rows.axes[0], [case.state_bytes for case in cases], labels, state_unit)
    draw_bytes(rows.axes[1], [case.peak_allocated for case in cases], labels, peak_unit)
    draw_reserved(rows.axes[1], [case.peak_reserved for case in cases], peak_unit)
    for i, case in enumerate(cases):
        if case.problem and not case.state_bytes:
            rows.alert(0, i, case.problem)
    return rows.figure


def largest_of(columns: Sequence[ByRank]) -> int:
    return max([size for by_rank in columns for size in by_rank.values()], default=0)


def bytes_text(by_rank: ByRank, unit: Unit) -> list[str]:
    """The rank that has most, and how the others differ."""
    if not by_rank:
        return ["n/a"]
    size, name = unit
    amounts = [value / size for value in by_rank.values()]
    text = span(amounts)
    return [f"{text} {name}", *([plural(len(amounts), "rank")] if " to " in text else [])]


def draw_bytes(axes: Axes, columns: Sequence[ByRank], labels: Sequence[Label], unit: Unit) -> None:
    size, name = unit
    axes.set_xlabel(f"{name} on a rank", color=FAINT, size=9)
    largest = largest_of(columns)
    if largest == 0:
        axes.set_xticks([])
        return
    axes.set_xlim(0, 1.04 * largest / size)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for i, (by_rank, label) in enumerate(zip(columns, labels, strict=True)):
        if not by_rank:
            continue
        lane = HEIGHT / len(by_rank)
        amounts = [by_rank[rank] / size for rank in sorted(by_rank)]
        if len(amounts) <= MOST_BARS:
            middles = [i - HEIGHT / 2 + lane * (k + 0.5) for k in range(len(amounts))]
            axes.barh(middles, amounts, height=0.86 * lane, color=label.colour, zorder=2)
        else:
            edges = [i - HEIGHT / 2 + lane * k for k in range(len(amounts) + 1)]
            axes.fill_betweenx(
                edges,
                [*amounts, amounts[-1]],
                step="post",
                color=label.colour,
                linewidth=0,
                zorder=2,
            )


def draw_reserved(axes: Axes, columns: Sequence[ByRank], unit: Unit) -> None:
    """A line across each rank's bar."""
    size = unit[0]
    largest = largest_of(columns) / size
    if largest == 0:
        return
    axes.set_xlim(0, max(axes.get_xlim()[1], 1.04 * largest))
    for i, by_rank in enumerate(columns):
        lane = HEIGHT / max(1, len(by_rank))
        for k, rank in enumerate(sorted(by_rank)):
            top = i - HEIGHT / 2 + lane * k
            axes.plot(
                [by_rank[rank] / size] * 2,
                [top, top + lane],
                color=INK,
                linewidth=1.4,
                solid_capstyle="butt",
                zorder=3,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    return run_folder_program("plot_memory.py", __doc__, "memory.png", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
