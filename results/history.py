#!/usr/bin/env python3
"""Shows how each benchmark went over the commits of many run folders.

    results/history.py runs/*
    results/history.py --out history runs/*          # also the comparisons, for plot_trend.py

Commits stand in the order in which they were first measured; a build with local changes is one of
its own. Each is compared with the one before it by compare_results, and a change is called one only
where that says so: between, times are "same" or "uncertain". stdout gets a Markdown table.

  --out DIR          keeps the comparisons' JSON there; plot/plot_trend.py --comparison takes it
  --threshold P      percent of the time that do not matter (default 3)

Run folders that are not whole are named and left out. exit code: 0 shown, whatever it shows; 2
could not run, or there are fewer than two commits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from results.command_line import OneLineParser
from results.run_folder import RunFolder, RunFolderError, read_run_folder
from results.scratch_folder import ScratchFolder

ROOT = Path(__file__).resolve().parent.parent
FINE, COULD_NOT_RUN = 0, 2
NONE = "n/a"
SECONDS = 600


@dataclass
class Commit:
    """A commit's runs. `name`: its first digits, with "-dirty" where files differed from it."""

    name: str
    runs: list[RunFolder] = field(default_factory=list)


def commits_of(runs: list[RunFolder]) -> list[Commit]:
    """In the order in which they were first measured."""
    found: dict[str, Commit] = {}
    for run in sorted(runs, key=lambda run: str(run.manifest.get("created_utc") or "")):
        full = str(run.manifest.get("commit") or "unknown")
        suffix = "-dirty" if run.manifest.get("dirty") else ""
        # It becomes part of a file's name and a cell of the table, whatever the manifest says.
        name = re.sub(r"[^0-9A-Za-z._-]", "_", full[:12]) + suffix
        found.setdefault(full + suffix, Commit(name)).runs.append(run)
    return list(found.values())


def compare(before: Commit, after: Commit, threshold: float, file: Path) -> dict[str, Any]:
    """What compare_results finds, as it is in `file`. Raises RunFolderError."""
    program = Path(os.environ.get("STEPSCOPE_BIN", ROOT / "build" / "bin")) / "compare_results"
    words = [program, "--threshold", str(threshold), "--format", "json", "--json", file]
    words += [*(run.path for run in before.runs), "--", *(run.path for run in after.runs)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except OSError as error:
        raise RunFolderError(program, f"cannot be run ({error.strerror}); build it") from None
    except subprocess.TimeoutExpired:
        raise RunFolderError(program, f"took more than {SECONDS} s") from None
    # 2 with a result: nothing could be compared, which it says for each benchmark.
    if done.returncode not in (0, 1) and not done.stdout:
        raise RunFolderError(program, done.stderr.strip().removeprefix("compare_results: "))
    return json.loads(done.stdout)


def table(commits: list[Commit], comparisons: list[dict[str, Any]]) -> list[str]:
    """A line a benchmark and commit, in the order of the benchmarks' first appearance."""
    lines = ["| benchmark | commit | runs | p50 | against the one before | verdict |"]
    lines += ["| --- | --- | ---: | ---: | ---: | --- |"]
    by_name = [{row["benchmark"]: row for row in one["benchmarks"]} for one in comparisons]
    names = list(dict.fromkeys(name for rows in by_name for name in rows))
    for name in names:
        first = by_name[0].get(name)
        lines.append(_line(name, commits[0].name, first and first["base"], None))
        for i, commit in enumerate(commits[1:]):
            row = by_name[i].get(name)
            lines.append(_line(name, commit.name, row and row["new"], row))
    return lines


def _line(name: str, commit: str, side: dict[str, Any] | None, row: dict[str, Any] | None) -> str:
    named = "".join(c if c.isprintable() else " " for c in name)
    cells = [re.sub(r"([\\`*\[<&|])", r"\\\1", named), commit]
    cells.append(str(side["runs"]) if side else "0")
    cells.append(f"{side['p50_ns'] / 1e6:.3f} ms" if side and side["p50_ns"] is not None else NONE)
    ratio = row and row["ratio"]
    shown = f"{ratio:.3f}" if ratio is not None else NONE
    if ratio is not None and row["ratio_low"] is not None:
        shown += f" ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
    cells += [shown, row["verdict"] if row else NONE]
    return "| " + " | ".join(cells) + " |"


class TooFewCommits(Exception):
    """str() says what there is and what is needed."""


def show(folders: list[Path], threshold: float, out: Path) -> None:
    """Raises RunFolderError and TooFewCommits."""
    runs = []
    for i, folder in enumerate(folders, 1):
        if sys.stderr.isatty():
            print(f"history.py: run folder {i} of {len(folders)}", file=sys.stderr)
        try:
            runs.append(read_run_folder(folder, with_samples=False))
        except RunFolderError as error:
            print(f"history.py: left out: {error}", file=sys.stderr)
    commits = commits_of(runs)
    if not commits:
        raise TooFewCommits("no run folder is whole; give runs of at least two commits")
    if len(commits) == 1:
        have = f"{len(runs)} run folder{'' if len(runs) == 1 else 's'}"
        raise TooFewCommits(
            f"{have} of one commit, {commits[0].name}; a history needs two: give runs of another"
        )
    comparisons = []
    for i, (before, after) in enumerate(itertools.pairwise(commits), 1):
        file = out / f"{i:03}-{before.name}-{after.name}.json"
        comparisons.append(compare(before, after, threshold, file))
    print("\n".join(table(commits, comparisons)))


def main(arguments: list[str] | None = None) -> int:
    parser = OneLineParser(
        "history.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_folders", type=Path, nargs="+", metavar="RUN_FOLDER")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keeps the comparisons' JSON here")
    parser.add_argument("--threshold", type=float, default=3.0, help="percent (default 3)")
    options = parser.parse_args(arguments)
    try:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            show(options.run_folders, options.threshold, options.out)
        else:
            with ScratchFolder() as folder:
                show(options.run_folders, options.threshold, folder)
    except (RunFolderError, TooFewCommits, OSError) as error:
        print(f"history.py: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    return FINE


if __name__ == "__main__":
    sys.exit(main())
