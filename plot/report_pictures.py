"""The report's pictures: the drawings of plot_latency.py and its siblings as inline SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from plot import plot_latency, plot_memory, plot_roofline, plot_timeline, plot_trend
from plot.cases import cases_of
from plot.comparison import Comparison
from plot.markup import Html, tag
from plot.picture import drawing, svg_of
from plot.progress import Progress
from plot.style import (
    ALERT,
    BAND,
    BLUE,
    FAINT,
    GREEN,
    GREY,
    GRID,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    digits,
    plural,
    printable,
    time_unit,
)
from plot.trace_files import read_trace, traces_of
from results.run_folder import RunFolder, RunFolderError

# Inches: text is then about as large as that of the page, where the page is at its widest.
WIDTH = 11.0
# A picture of more rows is no picture; the table of numbers has all.
MOST_CASES = 60
# Of more runs only the newest are drawn one by one.
MOST_RUNS = 4
MOST_TRACES = 6  # a run
# Fewer commits are a comparison, and no trend.
FEWEST_COMMITS = 3

TREND_CAPTION = (
    "Median step time of each run by commit. Points move from run to run on their own: a step in "
    "the line is no finding unless a comparison marks it."
)

# The colours of the drawings that report.css redefines in the dark.
VARIABLES = {
    INK: "--ink",
    FAINT: "--faint",
    GRID: "--grid",
    BAND: "--band",
    ALERT: "--bad",
    GREY: "--series-grey",
    BLUE: "--series-blue",
    VERMILION: "--series-vermilion",
    GREEN: "--series-green",
    PURPLE: "--series-purple",
    ORANGE: "--series-orange",
    SKY: "--series-sky",
}


def section(
    runs: Sequence[RunFolder],
    names: Sequence[str],
    comparison: Comparison | None,
    progress: Progress,
) -> Html:
    parts: list[Html] = []
    with drawing():
        chosen = [(r, n) for r, n in zip(runs, names, strict=True) if r.results][-MOST_RUNS:]
        if len(chosen) < len(runs):
            parts.append(
                tag("p", f"Of {plural(len(runs), 'run')}, these are the last {len(chosen)}.")
            )
        whole = [run for run in runs if run.manifest.get("status") == "complete" and run.results]
        if len({plot_trend.commit_name(run) for run in whole}) >= FEWEST_COMMITS:
            progress.say("drawing the trend")
            drawn = plot_trend.draw(whole, [comparison] if comparison else [], WIDTH, False)
            parts.append(figure(drawn, "trend", TREND_CAPTION))
        for run, name in reversed(chosen):
            if len(runs) > 1:
                parts.append(tag("h3", name))
            parts += of_run(run, name, progress)
    return tag("div", parts) if parts else tag("p", "There is nothing to draw.")


def of_run(run: RunFolder, name: str, progress: Progress) -> list[Html]:
    cases = cases_of(run)
    shown = cases[:MOST_CASES]
    note = ""
    if len(shown) < len(cases):
        note = f" The first {len(shown)} of {len(cases)} cases; the table of numbers has all."
    parts = []

    def add(kind: str, caption: str, draw: Callable[[], Figure]) -> None:
        progress.say(f"drawing {kind} of {name}")
        parts.append(figure(draw(), f"{kind}-{name}", caption))

    if plot_roofline.lines_of(run):
        add(
            "bandwidth",
            "How near the kernels come to a loop that moves the same bytes.",
            lambda: plot_roofline.draw(run, WIDTH, titled=False),
        )
    add(
        "latency",
        "Every timed step. One sample is one step as its slowest rank saw it." + note,
        lambda: plot_latency.draw_cases(shown, WIDTH),
    )
    if any(case.state_bytes or case.peak_allocated for case in shown):
        add(
            "memory",
            "Bytes that exist on each rank: optimizer state, and the most that tensors took."
            + note,
            lambda: plot_memory.draw_cases(shown, WIDTH),
        )
    traces = traces_of(run.path)
    for trace, paths in list(traces.items())[:MOST_TRACES]:
        progress.say(f"drawing the trace {printable(trace)} of {name}")
        parts.append(timeline(printable(trace), paths, name))
    if len(traces) > MOST_TRACES:
        others = ", ".join(printable(trace) for trace in list(traces)[MOST_TRACES:])
        parts.append(tag("p", f"Not drawn, but plot_timeline.py can: the traces {others}."))
    return parts


def timeline(trace: str, paths: Sequence[Path], run_name: str) -> Html:
    """The last step of a trace, or why it cannot be drawn."""
    try:
        step = read_trace(paths).step()
    except RunFolderError as error:
        return tag("p", f"The trace {trace} is not drawn: {error}")
    size, unit = time_unit(step.ns)
    facts = "".join(f" {note[0].upper()}{note[1:]}." for note in plot_timeline.notes_of(step))
    caption = f"Trace {trace}: {step.name}, {digits(step.ns / size)} {unit}.{facts}"
    drawn = plot_timeline.draw(step, WIDTH, titled=False)
    return figure(drawn, f"timeline-{trace}-{run_name}", caption)


def figure(drawn: Figure, salt: str, caption: str) -> Html:
    """The drawing with what it shows as its name for those who do not see it."""
    return tag(
        "figure",
        tag(
            "div",
            inline(svg_of(drawn, salt), caption),
            class_="picture",
            tabindex="0",
            role="region",
            aria_label=f"Picture: {caption}",
        ),
        tag("figcaption", caption),
    )


def inline(svg: str, label: str) -> Html:
    """An SVG document as an element of the page: in the page's colours, without a background."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The white page behind everything is the first patch.
    svg = re.sub(r'<g id="patch_1">.*?</g>', "", svg, count=1, flags=re.DOTALL)
    # Groups are named alike in every picture, and a page may have a name once.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for colour, variable in VARIABLES.items():
        svg = re.sub(f"{colour}(?![0-9a-f])", f"var({variable})", svg, flags=re.IGNORECASE)
    svg = svg.replace("#ffffff", "var(--page)")
    opening = tag("svg", role="img", aria_label=label).removesuffix("></svg>")
    return Html(svg.replace("<svg", opening, 1))
