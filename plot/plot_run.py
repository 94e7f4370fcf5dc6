#!/usr/bin/env python3
"""Draws one run as a PNG or SVG: step time per case, and optimizer state per rank.

Everything comes from the run folder. Left: for each case the median step as a dot, p10 to p90 as a
bar, and every timed step as a light point behind them; the time of a step is that of its slowest
rank. Right: one bar a rank with the bytes of the optimizer state that exists there.
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
from plot.style import FAINT, Unit, span
from plot.time_axis import draw_steps, lanes, set_time_axis, time_text, unit_of
from results.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(run: RunFolder) -> Figure:
    """The picture, ready to be saved."""
    cases = cases_of(run)
    if not cases:
        raise RunFolderError(run.path, "holds no results, so there is nothing to draw")
    unit = unit_of(cases)
    labels = labels_of(cases)
    ranks = max([len(case.state_bytes) for case in cases], default=1)
    row_height = min(2.5, 0.62 + 0.07 * max(0, ranks - 2))
    row_height = max(row_height, 0.34 * max(len(case.measurements) for case in cases))
    panels = [
        Panel(
            "Time of a step, until its slowest rank is done",
            "dot: median · bar: p10 to p90 · light points: every timed step",
            0.58,
            [time_text(case, unit) for case in cases],
        ),
        Panel(
            "Optimizer state",
            "one bar a rank, rank 0 on top",
            0.42,
            [state_text(case) for case in cases],
        ),
    ]
    rows = RowsPicture(run_title(run), run_facts(run), labels, panels, row_height)
    draw_times(rows.axes[0], cases, labels, unit)
    draw_states(rows.axes[1], cases, labels)
    for i, case in enumerate(cases):
        if case.problem:
            rows.alert(0, i, case.problem)
    return rows.figure


def state_text(case: Case) -> list[str]:
    if not case.state_bytes:
        return ["n/a"]
    lines = [f"{span([size / 2**20 for size in case.state_bytes.values()])} MiB"]
    if case.bytes_per_parameter:
        lines[0] += f" · {span(case.bytes_per_parameter, '{:.3f}'.format)} B/parameter"
    if case.savings:
        lines.append(f"{span([100 * s for s in case.savings], '{:.1f}'.format)} % below FP32 AdamW")
    return lines


def draw_times(axes: Axes, cases: list[Case], labels: Sequence[Label], unit: Unit) -> None:
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
                [m.p10 / size, m.p90 / size],
                [y, y],
                color=label.colour,
                linewidth=4,
                alpha=0.75,
                solid_capstyle="butt",
                zorder=3,
            )
            axes.plot(
                m.p50 / size,
                y,
                "o",
                color=label.colour,
                markersize=7.5 if lane > 0.3 else 5,
                markeredgecolor="white",
                markeredgewidth=1.2,
                zorder=4,
            )


def draw_states(axes: Axes, cases: list[Case], labels: Sequence[Label]) -> None:
    axes.set_xlabel("optimizer state of a rank in MiB", color=FAINT, size=9)
    largest = max([size for case in cases for size in case.state_bytes.values()], default=0)
    if largest == 0:
        axes.set_xticks([])
        return
    axes.set_xlim(0, 1.03 * largest / 2**20)
    for i, (case, label) in enumerate(zip(cases, labels, strict=True)):
        lane = 0.74 / max(1, len(case.state_bytes))
        for k, rank in enumerate(sorted(case.state_bytes)):
            axes.barh(
                i - 0.37 + lane * (k + 0.5),
                case.state_bytes[rank] / 2**20,
                height=lane * 0.86,
                color=label.colour,
                zorder=2,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    return run_folder_program("plot_run.py", __doc__, "step.png", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
