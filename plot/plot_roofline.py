#!/usr/bin/env python3
"""Draws how near the optimizer kernels of a run come to the memory bandwidth, per subject.

Reads a run folder of kernel_step (`kernel_step --out FOLDER`). 100 % is a loop that copies and
updates the same bytes, timed in the same rounds: the roof of a kernel that computes little. One
panel a data type, one line a subject and optimizer, over the number of elements.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from plot.cases import distinct, problem_of, run_facts
from plot.picture import run_folder_program
from plot.style import (
    ALERT,
    DPI,
    FAINT,
    GRID,
    INK,
    MARGIN,
    WIDTH,
    Ruler,
    colours_of,
    printable,
)
from results.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Besides the colour, so that a line is known without it.
MARKERS = {"native": "o", "torch": "s", "bitsandbytes": "^"}
DASHES = {"native": "-", "torch": "--", "bitsandbytes": ":"}
PANEL_HEIGHT = 2.6
AXIS_HEIGHT = 0.62
BETWEEN = 0.55
# Higher are samples that a noisy machine took: their lines leave the panel, with a figure.
MOST = 2.5
LABELS = 2.2  # to the right of the lines


@dataclass
class Line:
    """One subject and optimizer in one data type: fraction of the bandwidth by elements."""

    subject: str
    optimizer: str
    fractions: dict[int, float] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.subject} {self.optimizer}"


def lines_of(run: RunFolder) -> dict[str, list[Line]]:
    """By data type, in file order. A row that is not ok is in `failed`, never a number."""
    found: dict[str, dict[tuple[str, str], Line]] = {}
    for row in run.results:
        if row["global_numel"] is None:
            continue
        subject, optimizer = printable(row["subject"]), printable(row["optimizer"])
        of_dtype = found.setdefault(printable(row["dtype"]), {})
        line = of_dtype.setdefault((subject, optimizer), Line(subject, optimizer))
        if problem_of([row]):
            line.failed.append(row["global_numel"])
        elif row["bandwidth_fraction"] is not None:
            line.fractions[row["global_numel"]] = row["bandwidth_fraction"]
    kept = {
        dtype: [line for line in lines.values() if line.fractions or line.failed]
        for dtype, lines in found.items()
    }
    return {dtype: lines for dtype, lines in kept.items() if any(x.fractions for x in lines)}


def draw(run: RunFolder, width: float = WIDTH, titled: bool = True) -> Figure:
    """The picture, ready to be saved."""
    panels = lines_of(run)
    if not panels:
        raise RunFolderError(
            run.path,
            "has no fraction of the memory bandwidth; give a run folder of kernel_step --out",
        )
    ruler = Ruler()
    usable = width - 2 * MARGIN
    facts = ruler.lines(run_facts(run), usable, 10, " · ") if titled else []
    top = MARGIN + (0.32 + 0.22 * len(facts) + 0.45 if titled else 0.15)
    height = top + len(panels) * (PANEL_HEIGHT + BETWEEN) + AXIS_HEIGHT - 0.2
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)

    def place(y: float, text: str, size: float, color: str, weight: str = "normal") -> None:
        figure.text(MARGIN / width, 1 - y / height, text, size=size, color=color, weight=weight)

    title = ruler.fit("Optimizer kernels against the memory bandwidth", usable, 15, "bold")
    if titled:
        place(MARGIN + 0.15, title, 15, INK, "bold")
    for i, fact in enumerate(facts):
        place(MARGIN + 0.45 + 0.22 * i, fact, 10, FAINT)
    colours = colours_of(line.optimizer for lines in panels.values() for line in lines)
    sizes = sorted(distinct(run.results, "global_numel"))
    largest = max(max(x.fractions.values(), default=0) for v in panels.values() for x in v)
    for k, (dtype, lines) in enumerate(panels.items()):
        panel_top = top + k * (PANEL_HEIGHT + BETWEEN)
        place(panel_top - 0.1, f"{dtype} parameters", 12, INK, "bold")
        left = MARGIN + 0.6
        box = (
            left / width,
            1 - (panel_top + PANEL_HEIGHT) / height,
            (usable - 0.6 - LABELS) / width,
            PANEL_HEIGHT / height,
        )
        axes = figure.add_axes(box)
        axes.set_ylim(0, 108 * min(max(1, largest), MOST))
        draw_lines(axes, lines, sizes, colours)
        axes.set_ylabel("% of the bandwidth", color=FAINT, size=9)
        if k == len(panels) - 1:
            axes.set_xlabel("elements of the parameter, logarithmic", color=FAINT, size=9)
    return figure


def draw_lines(
    axes: Axes, lines: Sequence[Line], sizes: Sequence[int], colours: dict[str, str]
) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=FAINT, labelsize=9)
    axes.patch.set_visible(False)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    shown = sizes[:: max(1, -(-len(sizes) // 7))]
    axes.set_xticks(shown, [f"{size:,}" for size in shown])
    axes.set_xticks([], minor=True)
    axes.axhline(100, color=INK, linewidth=1.2, zorder=2)
    ends: list[tuple[float, str, str]] = [(100.0, "the loop's bandwidth", INK)]
    for line in lines:
        colour = colours[line.optimizer]
        if line.fractions:
            over = sorted(line.fractions)
            heights = [100 * line.fractions[size] for size in over]
            axes.plot(
                over,
                heights,
                color=colour,
                linestyle=DASHES.get(line.subject, "-."),
                marker=MARKERS.get(line.subject, "D"),
                markersize=5,
                linewidth=1.8,
                zorder=3,
            )
            ends.append((heights[-1], f"{line.name} {heights[-1]:.0f} %", colour))
        for size in line.failed:
            axes.text(size, 2, f"✕ {line.name} failed", size=8, color=ALERT, rotation=90)
    name_outliers(axes, lines)
    label_ends(axes, ends)


def name_outliers(axes: Axes, lines: Sequence[Line]) -> None:
    """What is too high for the panel, in figures below its upper edge."""
    top = axes.get_ylim()[1]
    above: dict[int, int] = {}
    for line in lines:
        for size, fraction in line.fractions.items():
            if 100 * fraction > top:
                y = top * (0.97 - 0.065 * above.get(size, 0))
                above[size] = above.get(size, 0) + 1
                text = f"{line.name} {100 * fraction:,.0f} % ↑"
                side = "right" if size > min(line.fractions) else "left"
                axes.text(size, y, text, size=8, color=INK, ha=side, va="top")


def label_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names beside the lines' ends, moved apart where they would lie on each other."""
    low, high = axes.get_ylim()
    step = (high - low) * 0.17 / PANEL_HEIGHT
    ends.sort()
    heights = [end[0] for end in ends]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + step)
    heights[-1] = min(heights[-1], high)
    for i in range(len(heights) - 2, -1, -1):
        heights[i] = min(heights[i], heights[i + 1] - step)
    for height, (_, name, colour) in zip(heights, ends, strict=True):
        axes.text(
            1.012,
            (height - low) / (high - low),
            name,
            transform=axes.transAxes,
            size=9,
            color=colour,
            va="center",
            weight="bold",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    return run_folder_program("plot_roofline.py", __doc__, "roofline.png", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
