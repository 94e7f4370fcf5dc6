#!/usr/bin/env python3
"""Prints what follows from the rows of a run folder: stragglers, and verdicts of the contracts.

    results/run_tables.py RUN

The tables of optimizer_step (bench/straggler_report.cc, bench/contract_report.cc), for a run whose
rows come from several programs. exit code: 0 printed, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from results.command_line import OneLineParser
from results.contract_table import contract_table
from results.run_folder import RunFolder, RunFolderError, read_run_folder
from results.stragglers import find_stragglers

HEADING = "straggler, against the middle rank"


def straggler_table(run: RunFolder) -> list[str]:
    """A line a case that several ranks were timed in."""
    world_size = {row["benchmark"]: row["world_size"] for row in run.results if row["steps"]}
    told = [name for name, ranks in world_size.items() if ranks > 1]
    if not told:
        return []
    width = max(len(HEADING), *map(len, told))
    lines = [
        _line(width, HEADING, "slowest rank", "of steps", "if equal", "p50 lead ms", "max lead ms")
    ]
    for name in told:
        samples = [row for row in run.samples if row["benchmark"] == name]
        first = find_stragglers(samples)[0]
        shares = [first.steps / len(samples), 1 / world_size[name]]
        leads = [first.p50_lead_ns, first.max_lead_ns]
        lines.append(
            _line(
                width,
                name,
                str(first.rank),
                *(f"{100 * share:.1f} %" for share in shares),
                *("n/a" if lead is None else f"{lead / 1e6:.3f}" for lead in leads),
            )
        )
    return lines


def _line(width: int, name: str, *columns: str) -> str:
    rank, steps, equal, p50, most = columns
    return f"{name:<{width}}  {rank:>12} {steps:>8} {equal:>8} {p50:>11} {most:>11}"


def tables(path: Path) -> list[list[str]]:
    """Raises RunFolderError."""
    run = read_run_folder(path)
    contracts = run.path / "contracts.json"
    cases = []
    if contracts.exists():
        try:
            cases = json.loads(contracts.read_text())["cases"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(contracts, f"cannot be read: {error}") from None
    return [table for table in (straggler_table(run), contract_table(cases)) if table]


def main() -> int:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    arguments = parser.parse_args()
    try:
        for table in tables(arguments.run):
            print("\n".join(["", *table]))
    except RunFolderError as error:
        print(f"run_tables.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
