#!/usr/bin/env python3
"""Draws one step of a trace: the operators, collectives, copies and kernels of every rank.

Reads traces in nsys' SQLite schema (traces/*.sqlite in a run folder, exports of nsys) and in
Chrome's JSON, plain or gzipped (of torch.profiler). One file may hold several ranks, or each
rank has a file. The step is the last that a program of this project marked, or the last outermost
range whose name holds --range; without such a range it is the whole trace. Beside each row: the
time in which anything of it ran, its share of the step, and how many there were.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plot.picture import PictureParser, check_suffix, drawing, reported, save
from plot.rows import Label, Panel, RowsPicture
from plot.step_trace import KINDS, Span, Step, rank_text
from plot.style import (
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    VERMILION,
    WIDTH,
    Ruler,
    Unit,
    digits,
    plural,
    time_unit,
)
from plot.trace_files import only_trace, read_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"operators": GREEN, "collectives": VERMILION, "copies": ORANGE, "kernels": BLUE}
# More ranks would be too many rows to read; the first ones are drawn.
MOST_RANKS = 16
MOST_LANES = 4
HEIGHT = 0.72  # of a row
MOST_NAMES = 300
FEWEST_LETTERS = 10  # of a name that is cut
COLUMNS = 900  # what is shorter than one of them is not drawn on its own
FAINTEST = 0.3


def draw(step: Step, width: float = WIDTH, titled: bool = True) -> Figure:
    """The picture, ready to be saved."""
    ranks = list(step.events)[:MOST_RANKS]
    rows = [
        (rank, kind, step.events[rank][kind])
        for rank in ranks
        for kind in KINDS
        if any(step.events[each][kind] for each in ranks)
    ]
    unit = time_unit(step.ns)
    labels = [Label(rank_text(rank), kind, COLOURS[kind]) for rank, kind, _ in rows]
    key = "a box: one event · pale: shorter ones, filling a part of the time · nested ones left out"
    texts = [busy_text(spans, step.ns) for *_, spans in rows]
    facts = [ranks_text(step), *step.files[:4], *notes_of(step)]
    picture = RowsPicture(
        ("Timeline of ", step.name, f", {digits(step.ns / unit[0])} {unit[1]}") if titled else None,
        facts,
        labels,
        [Panel("What ran when", key, 1, texts)],
        0.5,
        width,
    )
    axes = picture.axes[0]
    axes.set_xlim(0, step.ns / unit[0])
    axes.set_xlabel(f"{unit[1]} from the start", color=FAINT, size=9)
    names = 0
    for i, (_, kind, spans) in enumerate(rows):
        names += draw_spans(axes, i, spans, unit, COLOURS[kind], names)
    return picture.figure


def ranks_text(step: Step) -> str:
    if any(isinstance(rank, str) for rank in step.events):
        return "1 process" if len(step.events) == 1 else f"{len(step.events)} processes"
    return plural(len(step.events), "rank")


def notes_of(step: Step) -> list[str]:
    """What must be known to read the picture."""
    notes = []
    if len(step.events) > MOST_RANKS:
        notes.append(f"the first {MOST_RANKS} of {len(step.events)} ranks are drawn")
    if len(step.events) > 1:
        notes.append(
            "ranks laid over each other by the clocks that they recorded"
            if step.one_clock
            else "no common clock: each rank from the start of its own step"
        )
    return notes


def busy_text(spans: Sequence[Span], length: int) -> list[str]:
    if not spans:
        return ["none"]
    busy = covered(spans)
    size, name = time_unit(busy)
    percent = 100 * busy / length
    share = f"{percent:.0f} %" if percent >= 1 else "below 1 %"
    return [f"{digits(busy / size)} {name} · {share}", plural(len(spans), "event")]


def covered(spans: Sequence[Span]) -> int:
    """The time in which at least one of the spans ran."""
    total = until = 0  # no span starts before the step
    for start, end, _ in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def lanes_of(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans in lanes without overlap, as many as are needed up to MOST_LANES."""
    lanes: list[list[Span]] = [[]]
    ends = [0]
    for span in sorted(spans):
        lane = next((k for k, end in enumerate(ends) if end <= span[0]), None)
        if lane is None and len(lanes) < MOST_LANES:
            lanes.append([])
            ends.append(0)
            lane = len(lanes) - 1
        lane = ends.index(min(ends)) if lane is None else lane
        lanes[lane].append(span)
        ends[lane] = max(ends[lane], span[1])
    return lanes


def boxes_of(spans: Sequence[Span], length: float) -> list[tuple[float, float, float]]:
    """Start, end and strength of what is drawn of one lane. Spans too short to be seen become one
    box a column, the stronger the more of its time they fill: never a block where little ran."""
    column = length / COLUMNS
    boxes = [(start, end, 1.0) for start, end, _ in spans if end - start >= column]
    filled: dict[int, float] = {}
    for start, end, _ in spans:
        if end - start < column:
            filled[int(start / column)] = filled.get(int(start / column), 0.0) + end - start
    for i, time in filled.items():
        strength = FAINTEST + (1 - FAINTEST) * min(1.0, time / column)
        boxes.append((i * column, (i + 1) * column, strength))
    return boxes


def short_name(name: str) -> str:
    """A function's own name: without its result, namespaces, template's and call's arguments."""
    head = re.split(r"[(<]", name, maxsplit=1)[0]
    if "::" not in head and head == name:
        return name
    return (head.split() or [name])[-1].rsplit("::", 1)[-1] or name


def draw_spans(
    axes: Axes, row: int, spans: Sequence[Span], unit: Unit, colour: str, names: int
) -> int:
    """Boxes, named where the name fits; returns how many names were written."""
    size = unit[0]
    lanes = lanes_of(spans)
    height = HEIGHT / len(lanes)
    written = 0
    ruler = Ruler()
    inches = axes.get_window_extent().width / axes.figure.dpi / axes.get_xlim()[1]
    for k, lane in enumerate(lanes):
        top = row - HEIGHT / 2 + k * height
        boxes = boxes_of(lane, axes.get_xlim()[1] * size)
        axes.broken_barh(
            [(start / size, (end - start) / size) for start, end, _ in boxes],
            (top, 0.92 * height),
            facecolors=[(colour, strength) for *_, strength in boxes],
            linewidth=0,
            zorder=2,
        )
        if len(lanes) > 2:
            continue
        for start, end, name in lane:
            room = inches * (end - start) / size - 0.06
            if room < 0.3 or names + written >= MOST_NAMES:
                continue
            short = name if ruler.width(name, 7) <= room else short_name(name)
            text = ruler.fit(short, room, 7)
            if len(text) >= min(len(short), FEWEST_LETTERS):
                axes.text(
                    (start + end) / 2 / size,
                    top + 0.46 * height,
                    text,
                    size=7,
                    color="white" if colour != ORANGE else "black",
                    ha="center",
                    va="center",
                    zorder=3,
                )
                written += 1
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    parser = PictureParser("plot_timeline.py", __doc__, "plot_timeline.py runs/<name>")
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="TRACE", help="trace files, or one run folder"
    )
    parser.add_argument(
        "--range",
        metavar="TEXT",
        help="what the name of the range holds; the last one is drawn (default: the last step that"
        ' a program of this project marked, else "step")',
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a .png or .svg (default: timeline.png in the run folder, or beside the first trace)",
    )
    options = parser.parse_args(arguments)

    def work() -> Path:
        first = options.traces[0]
        out = options.out or (first if first.is_dir() else first.parent) / "timeline.png"
        check_suffix(out)
        paths = only_trace(first) if first.is_dir() else options.traces
        step = read_trace(paths).step(options.range)
        with drawing():
            save(draw(step), out)
        return out

    return reported("plot_timeline.py", work)


if __name__ == "__main__":
    sys.exit(main())
