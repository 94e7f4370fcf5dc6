#!/usr/bin/env python3
"""Draws the distribution of the step times of each case of a run, and their course over the run.

Everything comes from the run folder. Left: every timed step as a point; the box holds the middle
half of them, its line is the median, the whiskers reach from p10 to p90. Right: the same steps in
the order in which they were timed, so that a drift or a disturbance shows. A case that failed or
was not timed is named with its reason instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy

from plot.cases import Case, Measurement, cases_of, run_facts, run_title
from plot.picture import run_folder_program
from plot.rows import Label, Panel, RowsPicture, labels_of
from plot.style import FAINT, GRID, INK, WIDTH, Unit
from plot.time_axis import MOST_POINTS, draw_steps, lanes, set_time_axis, time_text, unit_of
from results.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The right panel's height of a lane, in widths of p10 to p90 above and below the median.
COURSE = 1.5


def draw(run: RunFolder) -> Figure:
    """The picture, ready to be saved."""
    cases = cases_of(run)
    if not cases:
        raise RunFolderError(run.path, "holds no results, so there is nothing to draw")
    return draw_cases(cases, WIDTH, run)


def draw_cases(cases: list[Case], width: float, run: RunFolder | None = None) -> Figure:
    """As `draw`, of some cases; without a run it has no title."""
    unit = unit_of(cases)
    labels = labels_of(cases)
    row_height = max(0.62, 0.42 * max(len(case.measurements) for case in cases))
    panels = [
        Panel(
            "Time of a step, until its slowest rank is done",
            "points: every timed step · box: middle half · line: median · whiskers: p10 to p90",
            0.66,
            [time_text(case, unit) for case in cases],
        ),
        Panel(
            "In the order they were timed",
            "grey: p10 to p90 · each row has its own height",
            0.34,
            [[] for _ in cases],
        ),
    ]
    title, facts = (run_title(run), run_facts(run)) if run else (None, [])
    rows = RowsPicture(title, facts, labels, panels, row_height, width)
    draw_distributions(rows.axes[0], cases, labels, unit)
    draw_courses(rows.axes[1], cases, labels)
    for i, case in enumerate(cases):
        if case.problem:
            rows.alert(0, i, case.problem)
    return rows.figure


def draw_distributions(axes: Axes, cases: list[Case], labels: Sequence[Label], unit: Unit) -> None:
    limit = set_time_axis(axes, cases, unit)
    if limit is None:
        return
    size = unit[0]
    for i, (case, label) in enumerate(zip(cases, labels, strict=True)):
        if case.problem:
            continue
        for y, lane, m in lanes(i, case):
            draw_steps(axes, y, lane, m, unit, limit, label.colour)
            axes.plot(
                [m.p10 / size, m.p90 / size], [y, y], color=label.colour, linewidth=1.4, zorder=3
            )
            if m.steps:
                quarter, three_quarters = numpy.percentile(m.steps, [25, 75]) / size
                axes.barh(
                    y,
                    three_quarters - quarter,
                    left=quarter,
                    height=0.36 * lane,
                    facecolor=(label.colour, 0.6),
                    edgecolor=INK,  # also seen among ten thousand points
                    linewidth=0.8,
                    zorder=4,
                )
            axes.plot(
                [m.p50 / size] * 2,
                [y - 0.26 * lane, y + 0.26 * lane],
                color=INK,
                linewidth=2.2,
                solid_capstyle="butt",
                zorder=5,
            )


def draw_courses(axes: Axes, cases: list[Case], labels: Sequence[Label]) -> None:
    axes.set_xlabel("number of the timed step", color=FAINT, size=9)
    shown = [m for case in cases if not case.problem for m in case.measurements if m.steps]
    if not shown:
        axes.set_xticks([])
        return
    longest = max(len(m.steps) for m in shown)
    axes.set_xlim(-0.5, max(longest - 0.5, 0.5))
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for i, (case, label) in enumerate(zip(cases, labels, strict=True)):
        if case.problem:
            continue
        for y, lane, m in lanes(i, case):
            if m.steps:
                draw_course(axes, y, lane, m, label.colour)


def draw_course(axes: Axes, middle: float, lane: float, m: Measurement, colour: str) -> None:
    """The steps in their order; what leaves the lane is drawn on its edge."""
    spread = max(m.p90 - m.p10, 1)
    half = 0.45 * lane

    def height(ns: numpy.ndarray) -> numpy.ndarray:
        return middle - half * numpy.clip((ns - m.p50) / spread / COURSE, -1, 1)

    axes.fill_between(
        [0, max(len(m.steps) - 1, 1)],
        *height(numpy.array([m.p10, m.p90])),
        color=GRID,
        linewidth=0,
        zorder=1,
    )
    many = len(m.steps) > MOST_POINTS
    axes.plot(
        range(len(m.steps)),
        height(numpy.array(m.steps, dtype=float)),
        "o",
        markersize=1.2 if many else 2.6,
        alpha=0.35 if many else 0.7,
        color=colour,
        markeredgewidth=0,
        rasterized=many,
        zorder=2,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    return run_folder_program("plot_latency.py", __doc__, "latency.png", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
