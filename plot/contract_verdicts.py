"""The verdicts in a run folder's contracts.json, as the tracer writes them, summed up.

A verdict names a contract, a rank, a step, a status (ok, broken, unverified) and a reason; there
may be a million. What stands around it (the benchmark, the trace) is taken from the objects that
hold it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plot.style import printable
from results.run_folder import RunFolderError

NAMES_AROUND = ("benchmark", "case", "trace", "file")
ORDER = {"broken": 0, "unverified": 1, "ok": 2}


@dataclass
class Summary:
    """All verdicts of one contract with one status in one place. `first` is the reason of the first
    of them, with its first event."""

    place: str
    contract: str
    status: str
    count: int = 0
    first: str = ""


def summaries(folder: Path, place: str) -> list[Summary]:
    """What is bad first; empty without a contracts.json. `place` is the name of what the file does
    not place itself. Raises RunFolderError."""
    path = folder / "contracts.json"
    if not path.exists():
        return []
    try:
        if not path.is_file():
            raise RunFolderError(path, "is no regular file")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise RunFolderError(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise RunFolderError(path, f"is not JSON: {error}") from None
    found: dict[tuple[str, str, str], Summary] = {}
    for where, verdict in verdicts(document, place, 0):
        contract, status = printable(verdict["contract"]), printable(verdict["status"])
        key = (where, contract, status)
        summary = found.setdefault(key, Summary(where, contract, status))
        if summary.count == 0:
            summary.first = reason(verdict)
        summary.count += 1
    return sorted(found.values(), key=lambda each: ORDER.get(each.status, 0))


def verdicts(node: Any, place: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    if depth > 8:
        return
    if isinstance(node, list):
        for entry in node:
            yield from verdicts(entry, place, depth + 1)
    elif isinstance(node, dict):
        if "contract" in node and "status" in node:
            yield place, node
            return
        for name in NAMES_AROUND:
            if isinstance(node.get(name), str):
                place = printable(node[name])
                break
        for entry in node.values():
            yield from verdicts(entry, place, depth + 1)


def reason(verdict: dict[str, Any]) -> str:
    """Rank and step, the reason, and the first event that offends."""
    where = [f"rank {printable(verdict['rank'])}"] if "rank" in verdict else []
    where += [printable(verdict["step"])] if "step" in verdict else []
    text = ", ".join(where)
    if verdict.get("reason"):
        text += f"{': ' if text else ''}{printable(verdict['reason'])}"
    events = verdict.get("events")
    if isinstance(events, list) and events and isinstance(events[0], dict):
        event = events[0]
        what = [printable(event.get("name", "an event"))]
        what += [
            f"{key} {printable(event[key])}" for key in ("n", "bytes", "range") if key in event
        ]
        text += f" (first: {', '.join(what)})"
    return text
