#!/usr/bin/env python3
"""Draws one run as a PNG: step time per case, and optimizer state per rank.

Everything comes from the run folder. Left: for each case the median step as a dot, p10 to p90 as a
bar, and every timed step as a light point behind them; the time of a step is that of its slowest
rank. Right: one bar a rank with the bytes of the optimizer state that exists there.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from results.run_folder import RunFolder, RunFolderError, read_run_folder

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator
except ImportError as import_error:
    hint = "run it with .venv/bin/python, which ./bench.sh sets up"
    print(f"plot_run.py: {import_error}; {hint}", file=sys.stderr)
    sys.exit(2)

EXAMPLE = """\
example:
  .venv/bin/python plot/plot_run.py runs/20261201T171500Z-0123abcd4567

exit code: 0 drawn (the path of the picture is the last line), 2 could not run."""

# Okabe and Ito's colours, told apart with every common kind of colour blindness.
COLOURS = {"AdamW": "#555555", "AdamW8bit": "#0072B2", "Lion8bit": "#D55E00"}
MORE_COLOURS = ["#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
INK, FAINT, BAND, ALERT = "#1a1a1a", "#666666", "#f4f4f2", "#A00000"

DPI = 150
WIDTH = 13.5  # inches, as all lengths below
MARGIN = 0.35
GAP = 0.15
LONGEST_LABEL = 3.0
AXIS_HEIGHT = 0.75  # tick labels and the axis' name

# A sample this many times beyond the largest p90 would squeeze all others; it is counted instead.
CLIP = 1.3
LOG_FROM_RATIO = 20


@dataclass
class Measurement:
    """One repetition of a case. Nanoseconds."""

    p10: int
    p50: int
    p90: int
    steps: list[int]


@dataclass
class Case:
    """All rows of one benchmark."""

    optimizer: str
    name: str  # first line of its label
    detail: str  # second line: what tells it from the others
    problem: str | None  # why there is no time to show
    measurements: list[Measurement] = field(default_factory=list)
    state_bytes: dict[int, int] = field(default_factory=dict)  # by rank
    bytes_per_parameter: list[float] = field(default_factory=list)
    savings: list[float] = field(default_factory=list)


def cases_of(run: RunFolder) -> list[Case]:
    """The run's cases in the order in which they were measured."""
    rows_of: dict[str, list[dict[str, Any]]] = {}
    for row in run.results:
        rows_of.setdefault(str(row["benchmark"]), []).append(row)
    steps_of: dict[tuple[str, int], list[int]] = {}
    for row in run.samples:
        if row["step_ns"] is not None:
            key = (str(row["benchmark"]), row["repetition"] or 0)
            steps_of.setdefault(key, []).append(row["step_ns"])

    telling = [
        column
        for column in ("subject", "topology", "state_policy", "dtype", "model", "device")
        if len(distinct(run.results, column)) > 1 or column == "dtype"
    ]
    return [make_case(name, rows, steps_of, telling) for name, rows in rows_of.items()]


def make_case(
    benchmark: str,
    rows: list[dict[str, Any]],
    steps_of: dict[tuple[str, int], list[int]],
    telling: list[str],
) -> Case:
    first = rows[0]
    problem = None
    for row in rows:
        if row["status"] != "ok":
            problem = ": ".join(str(row[c]) for c in ("status", "status_reason") if row[c])
            problem = problem or "no status was recorded"
    case = Case(
        optimizer=first["optimizer"] or benchmark,
        name=first["optimizer"] or benchmark,
        detail=" · ".join(str(first[column]) for column in telling if first[column]),
        problem=problem,
    )
    for repetition in sorted({row["repetition"] or 0 for row in rows}):
        mine = next(row for row in rows if (row["repetition"] or 0) == repetition)
        if None in (mine["p10_ns"], mine["p50_ns"], mine["p90_ns"]):
            continue
        steps = steps_of.get((benchmark, repetition), [])
        case.measurements.append(Measurement(mine["p10_ns"], mine["p50_ns"], mine["p90_ns"], steps))
    if not case.measurements:
        case.problem = case.problem or "no step was timed"
    for row in rows:
        if row["rank"] is not None and row["state_bytes"] is not None:
            before = case.state_bytes.get(row["rank"], 0)
            case.state_bytes[row["rank"]] = max(before, row["state_bytes"])
        if row["bytes_per_parameter"] is not None:
            case.bytes_per_parameter.append(row["bytes_per_parameter"])
        if row["saving_vs_fp32_adamw"] is not None:
            case.savings.append(row["saving_vs_fp32_adamw"])
    return case


def distinct(rows: list[dict[str, Any]], column: str) -> list[Any]:
    """The column's values, each once, in order; without missing ones."""
    return list(dict.fromkeys(row[column] for row in rows if row[column] is not None))


# --- text --------------------------------------------------------------------------------


class Ruler:
    """Measures text as it will be drawn, in inches."""

    def __init__(self) -> None:
        self._figure = Figure(dpi=DPI)
        FigureCanvasAgg(self._figure)

    def width(self, text: str, size: float, weight: str = "normal") -> float:
        artist = self._figure.text(0, 0, text, size=size, weight=weight)
        width = artist.get_window_extent().width / DPI
        artist.remove()
        return width

    def fit(self, text: str, limit: float, size: float, weight: str = "normal") -> str:
        """`text`, with its middle left out when it is wider than `limit`."""
        if self.width(text, size, weight) <= limit:
            return text
        short, long = 0, len(text)  # characters kept
        while long - short > 1:
            kept = (short + long) // 2
            if self.width(without_middle(text, kept), size, weight) <= limit:
                short = kept
            else:
                long = kept
        return without_middle(text, short)

    def lines(self, parts: Iterable[str], limit: float, size: float, between: str) -> list[str]:
        """`parts` joined by `between` into as few lines as fit."""
        lines: list[str] = []
        for part in (self.fit(part, limit, size) for part in parts):
            longer = f"{lines[-1]}{between}{part}" if lines else part
            if lines and self.width(longer, size) <= limit:
                lines[-1] = longer
            else:
                lines.append(part)
        return lines


def without_middle(text: str, kept: int) -> str:
    head = (kept + 1) // 2
    tail = kept - head
    return text[:head] + "…" + (text[-tail:] if tail else "")


def digits(value: float) -> str:
    """At least three significant digits, and never an exponent."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def span(values: Iterable[float], show: Callable[[float], str] = digits) -> str:
    """One number, or "2.03 to 8.00" where the values differ as far as `show` shows."""
    values = list(values)
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def time_unit(smallest: int) -> tuple[float, str]:
    """The nanoseconds and the name of the unit in which all times of one picture are shown.

    Milliseconds where they read well, as in the benchmark's table.
    """
    for at_least, size, name in ((1e10, 1e9, "s"), (1e5, 1e6, "ms"), (1e2, 1e3, "µs")):
        if smallest >= at_least:
            return size, name
    return 1.0, "ns"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def title_of(run: RunFolder) -> tuple[str, str]:
    """The first line, in two parts: the name that may be shortened, and what follows it."""
    models = ", ".join(map(str, distinct(run.results, "model"))) or "unknown model"
    numel = distinct(run.results, "global_numel")
    return models, f" ({numel[0]:,} parameters)" if numel else ""


def subtitle_of(run: RunFolder) -> list[str]:
    manifest = run.manifest
    parts = [", ".join(map(str, distinct(run.results, "topology")))]
    parts += [plural(size, "rank") for size in distinct(run.results, "world_size")]
    device = ", ".join(map(str, distinct(run.results, "device")))
    parts.append(f"{device} ({manifest['cpu_model']})" if manifest.get("cpu_model") else device)
    parts += [f"{plural(n, 'thread')} a rank" for n in distinct(run.results, "threads")]
    timed = [row for row in run.results if row["status"] == "ok"]
    steps = span(distinct(timed, "steps") or [0], str)
    warmup = span(distinct(timed, "warmup_steps") or [0], str)
    parts.append(f"{steps} timed steps after {warmup} of warm-up")
    commit = str(manifest.get("commit") or "unknown")[:12]
    parts.append(f"commit {commit}" + (" with local changes" if manifest.get("dirty") else ""))
    build_types = [b for b in distinct(run.results, "build_type") if b != "Release"]
    parts += [f"{build} build: times mean nothing" for build in build_types]
    if manifest.get("created_utc"):
        parts.append(str(manifest["created_utc"]).replace("T", " ").replace("Z", " UTC"))
    return [part for part in parts if part]


# --- drawing -----------------------------------------------------------------------------


def draw(run: RunFolder) -> Figure:
    """The picture, ready to be saved."""
    cases = cases_of(run)
    if not cases:
        raise RunFolderError(run.path, "holds no results, so there is nothing to draw")
    ruler = Ruler()
    names = [ruler.fit(case.name, LONGEST_LABEL, 11, "bold") for case in cases]
    details = [ruler.fit(case.detail, LONGEST_LABEL, 9) for case in cases]
    label_width = max(
        [ruler.width(name, 11, "bold") for name in names]
        + [ruler.width(detail, 9) for detail in details]
    )
    unit = time_unit(min([m.p50 for case in cases for m in case.measurements], default=0))
    times = [time_text(case, unit) for case in cases]
    states = [state_text(case) for case in cases]
    time_width = text_column_width(ruler, times)
    state_width = text_column_width(ruler, states)

    model, model_tail = title_of(run)
    usable = WIDTH - 2 * MARGIN
    head = "Optimizer step of "
    room = usable - ruler.width(head + model_tail, 15, "bold")
    title = head + ruler.fit(model, room, 15, "bold") + model_tail
    subtitle = ruler.lines(subtitle_of(run), usable, 10, " · ")

    ranks = max([len(case.state_bytes) for case in cases], default=1)
    row_height = min(2.5, 0.62 + 0.07 * max(0, ranks - 2))
    row_height = max(row_height, 0.34 * max(len(case.measurements) for case in cases))
    top = MARGIN + 0.32 + 0.22 * len(subtitle) + 0.78
    plot_height = row_height * len(cases)
    height = top + plot_height + AXIS_HEIGHT
    panels = usable - label_width - time_width - state_width - 5 * GAP
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)

    def place(x: float, y_from_top: float, text: str, size: float, **style: Any) -> None:
        style = {"color": INK, "va": "baseline", **style}
        figure.text(x / WIDTH, 1 - y_from_top / height, text, size=size, **style)

    place(MARGIN, MARGIN + 0.15, title, 15, weight="bold")
    for i, line in enumerate(subtitle):
        place(MARGIN, MARGIN + 0.45 + 0.22 * i, line, 10, color=FAINT)

    def panel(left: float, width: float, name: str, key: str) -> Axes:
        place(left, top - 0.34, name, 12, weight="bold")
        place(left, top - 0.12, key, 9, color=FAINT)
        box = (left / WIDTH, AXIS_HEIGHT / height, width / WIDTH, plot_height / height)
        axes = figure.add_axes(box)
        axes.set_ylim(len(cases) - 0.5, -0.5)  # the first case on top
        axes.set_yticks([])
        axes.spines[["left", "top", "right"]].set_visible(False)
        axes.spines["bottom"].set_color(FAINT)
        axes.tick_params(colors=FAINT, labelsize=9)
        axes.set_axisbelow(True)
        axes.grid(axis="x", color="#dddddd", linewidth=0.7)
        for i in range(0, len(cases), 2):
            axes.axhspan(i - 0.5, i + 0.5, color=BAND, zorder=0)
        return axes

    def column(x: float, i: int, lines: list[str], color: str = INK) -> None:
        y = top + row_height * (i + 0.5)
        place(x, y - 0.03, lines[0], 10, weight="bold", color=color)
        for extra, line in enumerate(lines[1:]):
            place(x, y + 0.14 + 0.16 * extra, line, 9, color=FAINT)

    colour_of = colours(cases)
    time_left = MARGIN + label_width + GAP
    time_panel = 0.58 * panels
    state_left = time_left + time_panel + GAP + time_width + 2 * GAP
    state_panel = panels - time_panel
    time_axes = panel(
        time_left,
        time_panel,
        "Time of a step, until its slowest rank is done",
        "dot: median · bar: p10 to p90 · light points: every timed step",
    )
    state_axes = panel(state_left, state_panel, "Optimizer state", "one bar a rank, rank 0 on top")
    draw_times(time_axes, cases, colour_of, unit)
    draw_states(state_axes, cases, colour_of)
    for i, case in enumerate(cases):
        y = top + row_height * (i + 0.5)
        right = MARGIN + label_width
        place(right, y - 0.02, names[i], 11, weight="bold", color=colour_of[i], ha="right")
        place(right, y + 0.16, details[i], 9, color=FAINT, ha="right")
        if case.problem:
            room = time_panel - 2 * GAP
            reason = ruler.lines(case.problem.split(), room, 9, " ")
            if len(reason) > 2:
                reason[1:] = [ruler.fit(" ".join(reason[1:]), room, 9)]
            for extra, line in enumerate(reason):
                place(time_left + GAP, y - 0.03 + 0.17 * extra, line, 9, color=ALERT)
        column(time_left + time_panel + GAP, i, times[i], ALERT if case.problem else INK)
        column(state_left + state_panel + GAP, i, states[i])
    return figure


def text_column_width(ruler: Ruler, columns: list[list[str]]) -> float:
    return max(
        max([ruler.width(lines[0], 10, "bold"), *(ruler.width(line, 9) for line in lines[1:])])
        for lines in columns
    )


def colours(cases: list[Case]) -> list[str]:
    """A colour per case: the optimizer's, so that both panels and all types agree."""
    more = iter(MORE_COLOURS * len(cases))
    chosen = dict(COLOURS)
    for case in cases:
        if case.optimizer not in chosen:
            chosen[case.optimizer] = next(more)
    return [chosen[case.optimizer] for case in cases]


def time_text(case: Case, unit: tuple[float, str]) -> list[str]:
    if case.problem:
        return ["n/a"]
    size, name = unit
    medians = span([m.p50 / size for m in case.measurements])
    if len(case.measurements) > 1:
        return [f"{medians} {name}", f"{len(case.measurements)} repetitions"]
    only = case.measurements[0]
    return [f"{medians} {name}", f"{digits(only.p10 / size)} to {digits(only.p90 / size)}"]


def state_text(case: Case) -> list[str]:
    if not case.state_bytes:
        return ["n/a"]
    lines = [f"{span([size / 2**20 for size in case.state_bytes.values()])} MiB"]
    if case.bytes_per_parameter:
        lines[0] += f" · {span(case.bytes_per_parameter, '{:.3f}'.format)} B/parameter"
    if case.savings:
        lines.append(f"{span([100 * s for s in case.savings], '{:.1f}'.format)} % below FP32 AdamW")
    return lines


def draw_times(
    axes: Axes, cases: list[Case], colour_of: list[str], unit: tuple[float, str]
) -> None:
    size, name = unit
    shown = [m for case in cases if not case.problem for m in case.measurements]
    axes.set_xlabel(f"time of a step in {name}", color=FAINT, size=9)
    if not shown:
        axes.set_xticks([])
        return
    largest = max(1, *(m.p90 for m in shown))
    smallest = min([min([m.p10, *m.steps]) for m in shown])
    limit = CLIP * largest / size
    if smallest > 0 and largest > LOG_FROM_RATIO * smallest:
        axes.set_xscale("log")
        axes.set_xlim(smallest / size / 1.3, limit * 1.1)
        axes.set_xlabel(f"time of a step in {name}, logarithmic", color=FAINT, size=9)
        few_decades = limit / (smallest / size) < 1000
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few_decades else (1,)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, limit)
    for i, case in enumerate(cases):
        if case.problem:
            continue
        lane = 0.8 / len(case.measurements)
        for k, m in enumerate(case.measurements):
            y = i - 0.4 + lane * (k + 0.5)
            inside = [step / size for step in m.steps if step / size <= limit]
            beyond = len(m.steps) - len(inside)
            # Spread over the lane by the golden ratio: even, without pattern, the same every time.
            spread = [y + lane * 0.8 * ((j * 0.618034) % 1 - 0.5) for j in range(len(inside))]
            axes.scatter(
                inside,
                spread,
                s=9,
                color=colour_of[i],
                alpha=max(0.04, min(0.35, 40 / max(1, len(inside)))),
                linewidths=0,
                zorder=2,
            )
            axes.plot(
                [m.p10 / size, m.p90 / size],
                [y, y],
                color=colour_of[i],
                linewidth=4,
                alpha=0.75,
                solid_capstyle="butt",
                zorder=3,
            )
            axes.plot(
                m.p50 / size,
                y,
                "o",
                color=colour_of[i],
                markersize=7.5 if lane > 0.3 else 5,
                markeredgecolor="white",
                markeredgewidth=1.2,
                zorder=4,
            )
            if beyond:
                axes.text(
                    0.995,
                    y - 0.28 * lane,
                    f"{beyond} slower, up to {digits(max(m.steps) / size)} {name} →",
                    transform=axes.get_yaxis_transform(),
                    ha="right",
                    va="center",
                    size=8,
                    color=FAINT,
                    zorder=5,
                    bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1},
                )


def draw_states(axes: Axes, cases: list[Case], colour_of: list[str]) -> None:
    axes.set_xlabel("optimizer state of a rank in MiB", color=FAINT, size=9)
    largest = max([size for case in cases for size in case.state_bytes.values()], default=0)
    if largest == 0:
        axes.set_xticks([])
        return
    axes.set_xlim(0, 1.03 * largest / 2**20)
    for i, case in enumerate(cases):
        lane = 0.74 / max(1, len(case.state_bytes))
        for k, rank in enumerate(sorted(case.state_bytes)):
            axes.barh(
                i - 0.37 + lane * (k + 0.5),
                case.state_bytes[rank] / 2**20,
                height=lane * 0.86,
                color=colour_of[i],
                zorder=2,
            )


def save(figure: Figure, path: Path) -> None:
    """Writes the PNG beside its name and renames it, so that nobody sees half a picture."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(fresh, format="png")
        fresh.replace(path)
    except OSError as error:
        raise RunFolderError(path, f"cannot be written ({error.strerror})") from None
    finally:
        fresh.unlink(missing_ok=True)


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog="plot_run.py",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: RUN_FOLDER/step.png")
    options = parser.parse_args(arguments)
    out = options.out or options.run_folder / "step.png"
    try:
        if out.suffix != ".png":
            raise RunFolderError(out, "the picture is a PNG; give a name that ends in .png")
        run = read_run_folder(options.run_folder)
        # The user's matplotlibrc has no say; a "$" in a name is no formula.
        matplotlib.rcdefaults()
        with matplotlib.rc_context({"text.parse_math": False}), warnings.catch_warnings():
            # A model's name may hold letters that the font lacks; boxes stand for them.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            save(draw(run), out)
        print(out, flush=True)
    except RunFolderError as error:
        print(f"plot_run.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"plot_run.py: cannot write to stdout ({error.strerror})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
