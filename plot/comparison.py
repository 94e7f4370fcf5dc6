"""What compare_results found: its JSON, read for the report and the trend.

Usage:

    comparison = read_comparison(Path("comparison.json"))
    for row in comparison.rows:
        print(row["benchmark"], row["verdict"])

A row is an object with a benchmark and a verdict, wherever it stands in the document; objects
within it are flattened ("base p50_ns"). All columns are kept, so that one that is added is shown.
What stands beside the rows is kept as facts. Nothing is judged here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plot.style import printable
from results.run_folder import RunFolderError

BAD_VERDICTS = frozenset({"slower", "larger", "broken", "regression"})
GOOD_VERDICTS = frozenset({"faster", "smaller", "fixed"})
SAME_VERDICTS = frozenset({"same"})
MOST_DEPTH = 8


@dataclass
class Comparison:
    """`rows` in file order; `facts` the scalars and lists beside them; `new_side` every text that
    the document has under "new": paths of run folders and commits; `commits` of either side what it
    names as such, with "-dirty" behind those that had local changes."""

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    new_side: str = ""
    base_commits: tuple[str, ...] = ()
    new_commits: tuple[str, ...] = ()


def read_comparison(path: Path) -> Comparison:
    """Raises RunFolderError."""
    try:
        if not path.is_file() and path.exists():
            raise RunFolderError(path, "is no regular file")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise RunFolderError(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise RunFolderError(path, f"is not JSON: {error}") from None
    comparison = Comparison(path)
    collect(comparison, document, "", 0)
    if not comparison.rows:
        raise RunFolderError(
            path, "has no benchmark with a verdict; give the JSON of compare_results"
        )
    if isinstance(document, dict):
        comparison.new_side = "\n".join(texts(document.get("new"), 0))
        comparison.base_commits = commits_in(document.get("base"))
        comparison.new_commits = commits_in(document.get("new"))
    return comparison


def commits_in(side: Any) -> tuple[str, ...]:
    """Each once, of a list of objects with a commit."""
    entries = side if isinstance(side, list) else []
    named = [one.get("commit") for one in entries if isinstance(one, dict)]
    return tuple(dict.fromkeys(one for one in named if isinstance(one, str) and one))


def collect(comparison: Comparison, node: Any, name: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        return
    if isinstance(node, dict) and "benchmark" in node and "verdict" in node:
        comparison.rows.append(dict(flattened(node, "", depth)))
    elif isinstance(node, dict):
        for key, value in node.items():
            collect(comparison, value, f"{name} {key}".strip(), depth + 1)
    elif isinstance(node, list) and any(isinstance(entry, dict) for entry in node):
        for entry in node:
            collect(comparison, entry, name, depth + 1)
    elif node not in (None, [], ""):
        entries = node if isinstance(node, list) else [node]
        told = ", ".join(printable(entry) for entry in entries)
        comparison.facts.append((printable(name).replace("_", " "), told))


def flattened(row: dict[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix} {printable(key)}".strip()
        if isinstance(value, dict) and depth <= MOST_DEPTH:
            yield from flattened(value, name, depth + 1)
        else:
            yield name, value


def texts(node: Any, depth: int) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list) and depth <= MOST_DEPTH:
        for entry in node.values() if isinstance(node, dict) else node:
            yield from texts(entry, depth + 1)


def concerns(comparison: Comparison, commit: str, dirty: bool = False) -> bool:
    """Whether `commit` (a build with local changes where `dirty`) is on the new side: named there,
    or, where no commit is named, part of the name of a run folder."""
    if comparison.new_commits:
        return (commit + ("-dirty" if dirty else "")) in comparison.new_commits
    return len(commit) >= 7 and commit[:12] in comparison.new_side
