#!/usr/bin/env python3
"""Writes one self-contained report.html of run folders, and of a comparison of them.

It needs no network and no script to be read: pictures are inline SVG, tables can be sorted where
scripts run, colours follow the reader's light or dark setting, and it fits a phone. The verdict
comes first, then the numbers, the pictures, and where all that comes from. A run that failed, did
not finish or was never started is shown as that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plot import (
    report_comparison,
    report_numbers,
    report_origin,
    report_pictures,
    report_stragglers,
    report_verdict,
)
from plot.cases import run_facts, run_title
from plot.comparison import Comparison, read_comparison
from plot.markup import Html, tag
from plot.picture import PictureParser, reported, write_whole
from plot.progress import Progress
from plot.style import plural, printable
from results.run_folder import RunFolder, read_any_run_folder

HERE = Path(__file__).resolve().parent


def page(runs: Sequence[RunFolder], comparison: Comparison | None, progress: Progress) -> str:
    """The whole document. Without any row it has no sections of figures."""
    names = run_names(runs)
    verdict = [report_verdict.section(runs, names)]
    if comparison:
        verdict.insert(0, report_comparison.section(comparison))
    sections = [("verdict", "Verdict", tag("div", verdict))]
    filled = any(run.results for run in runs)
    if filled:
        pictures = report_pictures.section(runs, names, comparison, progress)
        sections.append(("numbers", "Numbers", report_numbers.section(runs, names)))
        sections.append(("pictures", "Pictures", pictures))
    stragglers = report_stragglers.section(runs, names)
    if stragglers:
        sections.append(("stragglers", "Stragglers", stragglers))
    where = "Where the figures come from" if filled else "What is known of the run"
    sections.append(("origin", where, report_origin.identities(runs, names)))
    if filled:
        sections.append(("method", "How they were taken", report_origin.method(runs)))
    sections.append(("missing", "What was not measured", report_origin.missing(runs)))
    title = heading(runs)
    body = [
        tag("header", tag("h1", title), facts(runs, names), contents(sections)),
        tag(
            "main",
            [
                tag(
                    "section",
                    tag("h2", name, id=f"{key}-title"),
                    content,
                    id=key,
                    aria_labelledby=f"{key}-title",
                )
                for key, name, content in sections
            ],
        ),
        tag(
            "footer", tag("p", "Written by plot/report.py of stepscope from the run folders alone.")
        ),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html((HERE / "report.css").read_text(encoding="utf-8"))),
    ]
    script = tag("script", Html((HERE / "report.js").read_text(encoding="utf-8")))
    document = tag("html", tag("head", head), tag("body", body, script), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def run_names(runs: Sequence[RunFolder]) -> list[str]:
    """The folders' names, each different."""
    names = [printable(run.path.resolve().name) for run in runs]
    if len(set(names)) < len(names):
        names = [printable(run.path) for run in runs]
    return names


def heading(runs: Sequence[RunFolder]) -> str:
    """What the page is about: the last run that measured something."""
    filled = [run for run in runs if run.results]
    if not filled:
        return "A run without results" if len(runs) == 1 else "Runs without results"
    title = "".join(run_title(filled[-1]))
    return title if len(runs) == 1 else f"{title}, {plural(len(runs), 'run')}"


def facts(runs: Sequence[RunFolder], names: Sequence[str]) -> list[Html]:
    """One line a run, or of many runs the first and the last."""
    chosen = list(zip(runs, names, strict=True))
    if len(chosen) > 4:
        chosen = [chosen[0], chosen[-1]]
    return [
        tag("p", tag("code", name), " · " + " · ".join(run_facts(run)), class_="facts")
        for run, name in chosen
    ]


def contents(sections: Sequence[tuple[str, str, Html]]) -> Html:
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in sections]
    return tag("nav", tag("ul", links), aria_label="Sections")


def read_runs(folders: Sequence[Path], progress: Progress) -> list[RunFolder]:
    """All runs, the samples of those alone that get pictures of their own: the last ones."""
    runs: list[RunFolder] = []
    drawn = 0
    for i, folder in enumerate(reversed(folders)):
        progress.say(f"reading run folder {i + 1} of {len(folders)}")
        runs.append(read_any_run_folder(folder, drawn < report_pictures.MOST_RUNS))
        drawn += bool(runs[-1].results)
    return runs[::-1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = PictureParser("report.py", __doc__, "report.py runs/20261201T171500Z-0123abcd4567")
    parser.add_argument("run_folders", type=Path, nargs="+", metavar="RUN_FOLDER")
    parser.add_argument(
        "--comparison",
        type=Path,
        metavar="FILE",
        help="the JSON of compare_results; its verdicts come first",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="default: report.html in the last RUN_FOLDER",
    )
    options = parser.parse_args(arguments)

    def work() -> Path:
        out = options.out or options.run_folders[-1] / "report.html"
        progress = Progress("report.py")
        runs = read_runs(options.run_folders, progress)
        comparison = read_comparison(options.comparison) if options.comparison else None
        text = page(runs, comparison, progress)
        write_whole(out, text.encode("utf-8"))
        return out

    return reported("report.py", work)


if __name__ == "__main__":
    sys.exit(main())
