#!/usr/bin/env python3
"""Draws the step time of each benchmark over the commits of several runs.

Reads run folders, any number a commit. Commits stand in the order in which they were first
measured. A point is the median of one run, its bar p10 to p90; the line joins the median run of
each commit. Every row has a height of its own, which does not start at zero. Points move from run
to run on their own, so a step in the line is no finding: changes are marked only where a comparison
says so (--comparison, the JSON of compare_results). A run whose case failed is a cross.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plot.cases import Case, cases_of
from plot.comparison import Comparison, concerns, read_comparison
from plot.picture import PictureParser, check_suffix, drawing, reported, save
from plot.progress import Progress
from plot.rows import Panel, RowsPicture, labels_of
from plot.style import ALERT, FAINT, WIDTH, digits, plural, printable, span, time_unit
from results.run_folder import RunFolder, RunFolderError, read_run_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 0.66  # of a row, for the range of its times
MOST_TICKS = 12
SPREAD = 0.5  # of the distance between two commits, for the runs of one


@dataclass
class Point:
    """One run's figures of one benchmark. Nanoseconds; None where it failed."""

    commit: int
    p10: int | None = None
    p50: int | None = None
    p90: int | None = None


@dataclass
class Trend:
    """One benchmark over all runs, the oldest first. `case` is that of the newest run."""

    case: Case
    points: list[Point] = field(default_factory=list)

    @property
    def measured(self) -> list[Point]:
        return [point for point in self.points if point.p50 is not None]

    def medians(self) -> dict[int, float]:
        """By commit, the median over its runs."""
        runs: dict[int, list[int]] = {}
        for point in self.measured:
            runs.setdefault(point.commit, []).append(point.p50)
        return {commit: statistics.median(values) for commit, values in sorted(runs.items())}


def in_order(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """By the time at which they were started; without one, first."""
    return sorted(runs, key=lambda run: str(run.manifest.get("created_utc") or ""))


def commit_name(run: RunFolder) -> str:
    """With a star where files differed from the commit: such runs are a build of their own."""
    commit = printable(run.manifest.get("commit") or "unknown")[:8]
    return commit + ("*" if run.manifest.get("dirty") else "")


def trends_of(runs: Sequence[RunFolder]) -> tuple[list[str], list[Trend]]:
    """The commits, and every benchmark over them. `runs` in their order."""
    commits = list(dict.fromkeys(commit_name(run) for run in runs))
    found: dict[tuple[str, str], Trend] = {}
    for run in runs:
        world_size = {str(row["benchmark"]): str(row["world_size"]) for row in run.results}
        for case in cases_of(run):
            key = (case.benchmark, world_size.get(case.benchmark, ""))
            trend = found.setdefault(key, Trend(case))
            trend.case = case
            index = commits.index(commit_name(run))
            if case.problem:
                trend.points.append(Point(index))
            trend.points += [
                Point(index, m.p10, m.p50, m.p90) for m in case.measurements if not case.problem
            ]
    return commits, list(found.values())


def machines(runs: Sequence[RunFolder]) -> list[str]:
    """A warning where not all runs are of one machine."""
    facts = []
    for key, what in (("cpu_model", "processor"), ("host", "host")):
        values = {printable(run.manifest[key]) for run in runs if run.manifest.get(key)}
        if len(values) > 1:
            facts.append(f"{plural(len(values), what)}: commits may differ by the machine")
            break
    return facts


@dataclass(frozen=True)
class Change:
    """What a comparison says of one benchmark from `commit` on."""

    commit: int
    text: str


def changes_of(
    runs: Sequence[RunFolder], comparisons: Sequence[Comparison]
) -> dict[str, list[Change]]:
    """By benchmark. A change stands before the first commit of the comparison's new side, and names
    the base where that is not the commit before; where no run is of that side it has no place and
    is left out. `runs` in their order."""
    commits = list(dict.fromkeys(commit_name(run) for run in runs))
    found: dict[str, list[Change]] = {}
    for comparison in comparisons:
        side = [
            run
            for run in runs
            if concerns(
                comparison, str(run.manifest.get("commit") or ""), bool(run.manifest.get("dirty"))
            )
        ]
        if not side:
            continue
        index = commits.index(commit_name(side[0]))
        base = [
            printable(commit)[:8] + ("*" if commit.endswith("-dirty") else "")
            for commit in comparison.base_commits
        ]
        before = commits[index - 1] if index else ""
        against = "" if not base or base == [before] else f" than {', '.join(base)}"
        for row in comparison.rows:
            # What else is found of the row may hide what is found of its time.
            verdict = row.get("time_verdict") or row["verdict"]
            if verdict in ("slower", "faster"):
                ratio = row.get("ratio")
                by = f", ratio {ratio:.3g}" if isinstance(ratio, float) else ""
                change = Change(index, f"{verdict}{against}{by}")
                found.setdefault(printable(row["benchmark"]), []).append(change)
    return found


def draw(
    runs: Sequence[RunFolder],
    comparisons: Sequence[Comparison] = (),
    width: float = WIDTH,
    titled: bool = True,
) -> Figure:
    """The picture, ready to be saved."""
    runs = in_order(runs)
    commits, trends = trends_of(runs)
    if not trends:
        raise RunFolderError(runs[0].path, "no run folder holds results, so there is no trend")
    facts = [plural(len(runs), "run"), plural(len(commits), "commit"), *machines(runs)]
    if any("*" in name for name in commits):
        facts.append("* with local changes")
    panel = Panel(
        "Median step time of each run, by commit",
        "point: one run · bar: p10 to p90 · line: the median run of each commit · each row has its "
        "own height",
        1,
        [trend_text(trend) for trend in trends],
    )
    labels = labels_of([trend.case for trend in trends])
    title = ("Trend over ", plural(len(commits), "commit"), "") if titled else None
    picture = RowsPicture(title, facts, labels, [panel], 0.95, width)
    axes = picture.axes[0]
    axes.set_xlim(-0.6, len(commits) - 0.4)
    every = max(1, -(-len(commits) // MOST_TICKS))
    shown = range(0, len(commits), every)
    axes.set_xticks(list(shown), [commits[i] for i in shown])
    axes.set_xlabel("commit, in the order in which they were first measured", color=FAINT, size=9)
    changes = changes_of(runs, comparisons)
    for i, trend in enumerate(trends):
        for change in changes.get(trend.case.benchmark, []):
            draw_change(axes, i, change)
        draw_trend(axes, i, trend, labels[i].colour)
        if not trend.measured:
            picture.alert(0, i, trend.case.problem or "no run was measured")
    return picture.figure


def trend_text(trend: Trend) -> list[str]:
    """The newest commit's time, those of all runs, and what the row's height reaches over."""
    medians = trend.medians()
    if not medians:
        return ["n/a"]
    size, name = time_unit(min(medians.values()))
    measured = trend.measured
    all_times = [point.p50 / size for point in measured]
    return [
        f"{digits(medians[max(medians)] / size)} {name}",
        f"runs: {span(all_times)}",
        f"height: {span([*(p.p10 / size for p in measured), *(p.p90 / size for p in measured)])}",
    ]


def draw_change(axes: Axes, row: int, change: Change) -> None:
    """A dashed line before the commit, with what the comparison says."""
    x = change.commit - 0.5
    axes.plot([x, x], [row - 0.48, row + 0.48], color=ALERT, linestyle=(0, (4, 3)), zorder=1)
    axes.text(x + 0.03, row - 0.45, change.text, size=9, color=ALERT, va="top", weight="bold")


def draw_trend(axes: Axes, row: int, trend: Trend, colour: str) -> None:
    measured = trend.measured
    failed = [point for point in trend.points if point.p50 is None]
    axes.plot(
        [point.commit for point in failed],
        [row + 0.42] * len(failed),
        "x",
        color=ALERT,
        markersize=7,
        markeredgewidth=2,
        zorder=4,
    )
    if not measured:
        return
    low = min(point.p10 for point in measured)
    high = max(point.p90 for point in measured)

    def height(ns: float) -> float:
        return row + HEIGHT / 2 - HEIGHT * (ns - low) / max(high - low, 1)

    medians = trend.medians()
    axes.plot(
        list(medians),
        [height(ns) for ns in medians.values()],
        color=colour,
        linewidth=1.6,
        zorder=2,
    )
    by_commit: dict[int, list[Point]] = {}
    for point in measured:
        by_commit.setdefault(point.commit, []).append(point)
    for commit, points in by_commit.items():
        for k, point in enumerate(points):
            x = commit + SPREAD * ((k + 0.5) / len(points) - 0.5)
            axes.plot(
                [x, x],
                [height(point.p10), height(point.p90)],
                color=colour,
                alpha=0.35,
                linewidth=2.5,
                solid_capstyle="butt",
                zorder=2,
            )
            axes.plot(
                x,
                height(point.p50),
                "o",
                color=colour,
                markersize=5.5,
                markeredgecolor="white",
                markeredgewidth=0.8,
                zorder=3,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = PictureParser("plot_trend.py", __doc__, "plot_trend.py runs/* --out trend.png")
    parser.add_argument("run_folders", type=Path, nargs="+", metavar="RUN_FOLDER")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", required=True, help="the .png or .svg to write"
    )
    parser.add_argument(
        "--comparison",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the JSON of compare_results; may be given several times",
    )
    options = parser.parse_args(arguments)

    def work() -> Path:
        check_suffix(options.out)
        progress = Progress("plot_trend.py")
        runs = []
        for i, folder in enumerate(options.run_folders):
            progress.say(f"reading run folder {i + 1} of {len(options.run_folders)}")
            runs.append(read_run_folder(folder, with_samples=False))
        comparisons = [read_comparison(path) for path in options.comparison]
        with drawing():
            save(draw(runs, comparisons), options.out)
        return options.out

    return reported("plot_trend.py", work)


if __name__ == "__main__":
    sys.exit(main())
