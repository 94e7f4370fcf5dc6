"""The axis of times that pictures of cases share, and the timed steps as points on it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from plot.cases import Case, Measurement
from plot.style import FAINT, Unit, digits, span, time_unit

# A sample this many times beyond the largest p90 would squeeze all others; it is counted instead.
CLIP = 1.3
LOG_FROM_RATIO = 20
LANES = 0.8  # of a row's height, for its repetitions together
# More points of one case are drawn as pixels, also in an SVG.
MOST_POINTS = 1000


def unit_of(cases: Sequence[Case]) -> Unit:
    return time_unit(min([m.p50 for case in cases for m in case.measurements], default=0))


def time_text(case: Case, unit: Unit) -> list[str]:
    """What stands beside a case: its median, and p10 to p90 or how often it was measured."""
    if case.problem:
        return ["n/a"]
    size, name = unit
    medians = span([m.p50 / size for m in case.measurements])
    if len(case.measurements) > 1:
        return [f"{medians} {name}", f"{len(case.measurements)} repetitions"]
    only = case.measurements[0]
    return [f"{medians} {name}", f"{digits(only.p10 / size)} to {digits(only.p90 / size)}"]


def set_time_axis(axes: Axes, cases: Sequence[Case], unit: Unit) -> float | None:
    """Gives `axes` a scale for all cases without a problem, logarithmic where they differ much.
    Returns the largest time that it shows, in `unit`; None where there is no time to show."""
    size, name = unit
    shown = [m for case in cases if not case.problem for m in case.measurements]
    axes.set_xlabel(f"time of a step in {name}", color=FAINT, size=9)
    if not shown:
        axes.set_xticks([])
        return None
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
    return limit


def lanes(row: int, case: Case) -> list[tuple[float, float, Measurement]]:
    """Middle and height of the lane of each repetition."""
    lane = LANES / len(case.measurements)
    return [
        (row - LANES / 2 + lane * (k + 0.5), lane, measurement)
        for k, measurement in enumerate(case.measurements)
    ]


def draw_steps(
    axes: Axes,
    middle: float,
    height: float,
    measurement: Measurement,
    unit: Unit,
    limit: float,
    colour: str,
) -> None:
    """Every timed step as a light point; those beyond `limit` counted at the right edge."""
    size, name = unit
    inside = [step / size for step in measurement.steps if step / size <= limit]
    beyond = len(measurement.steps) - len(inside)
    # Spread over the lane by the golden ratio: even, without pattern, the same every time.
    spread = [middle + height * 0.8 * ((j * 0.618034) % 1 - 0.5) for j in range(len(inside))]
    axes.plot(
        inside,
        spread,
        "o",
        markersize=3 if len(inside) <= MOST_POINTS else 1.5,
        color=colour,
        alpha=max(0.06, min(0.4, 60 / max(1, len(inside)))),
        markeredgewidth=0,
        rasterized=len(inside) > MOST_POINTS,
        zorder=2,
    )
    if beyond:
        axes.text(
            0.995,
            middle - 0.36 * height,
            f"{beyond:,} slower, up to {digits(max(measurement.steps) / size)} {name} →",
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="center",
            size=8,
            color=FAINT,
            zorder=5,
        )
