"""One step of a trace in Chrome's JSON, as torch.profiler (Kineto) and this project write it.

Usage:

    trace = read_trace([Path("traces/rank0.json.gz"), Path("traces/rank1.json.gz")])
    step = trace.step("ProfilerStep#6")     # the last range with that text in its name
    step.events[0]["kernels"]               # [(start, end, name), ...] in ns from the step's start

Times in such a file are microseconds, often with a fraction, so they are good for a picture and for
nothing exact. Files of several ranks are laid over each other by the clocks that they recorded.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plot.style import printable
from results.run_folder import RunFolderError

KINDS = ("operators", "collectives", "copies", "kernels")
CATEGORIES = {
    "kernel": "kernels",
    "concurrent_kernel": "kernels",
    "gpu_memcpy": "copies",
    "gpu_memset": "copies",
    "copy": "copies",
    "set": "copies",
    "cpu_op": "operators",
    "host_operator": "operators",
    "operator": "operators",
    "collective": "collectives",
}
RANGES = ("user_annotation", "range", "nvtx")
# How the host's part of a collective is called; a device's kernel has nccl in its name.
HOST_COLLECTIVES = ("nccl:", "gloo:", "c10d::")

# Start and end in ns, name.
Span = tuple[float, float, str]


@dataclass
class Step:
    """What happened on every rank between two times. `ns` is the length."""

    name: str
    ns: float
    events: dict[int, dict[str, list[Span]]]
    files: list[str]


@dataclass
class StepTrace:
    """Events by rank and kind, with the times of the file's clock in ns."""

    path: Path
    files: list[str] = field(default_factory=list)
    events: dict[int, dict[str, list[Span]]] = field(default_factory=dict)
    ranges: dict[int, list[Span]] = field(default_factory=dict)

    def step(self, text: str) -> Step:
        """The last outermost range whose name holds `text`, on every rank that has it; without any
        such range the whole trace."""
        found = {rank: last_outermost(spans, text) for rank, spans in self.ranges.items()}
        windows = [span for span in found.values() if span]
        if windows:
            begin, end = min(span[0] for span in windows), max(span[1] for span in windows)
            name = windows[0][2]
        else:
            every = [
                span for kinds in self.events.values() for spans in kinds.values() for span in spans
            ]
            begin, end = min(span[0] for span in every), max(span[1] for span in every)
            name = "the whole trace"
        events = {
            rank: {kind: within(kinds.get(kind, []), begin, end) for kind in KINDS}
            for rank, kinds in sorted(self.events.items())
        }
        return Step(name, max(end - begin, 1.0), events, self.files)


def last_outermost(spans: Sequence[Span], text: str) -> Span | None:
    chosen = None
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if text.lower() in span[2].lower() and (chosen is None or span[0] >= chosen[1]):
            chosen = span
    return chosen


def within(spans: Iterable[Span], begin: float, end: float) -> list[Span]:
    """The spans that overlap [begin, end], cut to it and counted from its start."""
    return [
        (max(start, begin) - begin, min(stop, end) - begin, name)
        for start, stop, name in spans
        if start < end and stop > begin
    ]


def read_trace(paths: Sequence[Path]) -> StepTrace:
    """The events of all files together. Raises RunFolderError."""
    trace = StepTrace(paths[0])
    first_base = None
    for number, path in enumerate(paths):
        document = read_json(path)
        events = document.get("traceEvents") if isinstance(document, dict) else document
        if not isinstance(events, list):
            raise RunFolderError(path, 'is no trace in Chrome\'s format: it has no "traceEvents"')
        told = document.get("distributedInfo") if isinstance(document, dict) else None
        rank = told.get("rank") if isinstance(told, dict) else None
        trace.files.append(printable(path.name))
        # Each file counts from a time of its own.
        base = document.get("baseTimeNanoseconds") if isinstance(document, dict) else None
        base = base if isinstance(base, int) else 0
        first_base = base if first_base is None else first_base
        for event in events:
            add(trace, event, rank if isinstance(rank, int) else number, base - first_base)
    if not any(spans for kinds in trace.events.values() for spans in kinds.values()):
        raise RunFolderError(paths[0], "holds no kernel, copy, collective or operator to draw")
    for kinds in trace.events.values():
        settle(kinds)
    return trace


def read_json(path: Path) -> Any:
    try:
        if not path.is_file() and path.exists():
            raise RunFolderError(path, "is no regular file")
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return json.loads(content)
    except OSError as error:
        raise RunFolderError(path, f"cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError, EOFError, zlib.error) as error:
        raise RunFolderError(path, f"is not JSON: {error}") from None


def add(trace: StepTrace, event: Any, rank_of_file: int, shift_ns: int) -> None:
    """Keeps an event that the picture shows; others, also those without a time, are left out."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return
    category, name = str(event.get("cat", "")), printable(event.get("name", ""))
    start, length = event.get("ts"), event.get("dur")
    for number in (start, length):
        if isinstance(number, bool) or not isinstance(number, int | float):
            return
        if not math.isfinite(number):
            return
    if length < 0:
        return
    arguments = event.get("args")
    rank = arguments.get("rank") if isinstance(arguments, dict) else None
    rank = rank if isinstance(rank, int) else rank_of_file
    span = (1000 * start + shift_ns, 1000 * (start + length) + shift_ns, name)
    if category in RANGES:
        trace.ranges.setdefault(rank, []).append(span)
    kind = CATEGORIES.get(category)
    if kind == "kernels" and "nccl" in name.lower():
        kind = "collectives"
    elif category != "collective" and name.startswith(HOST_COLLECTIVES):
        kind = "collectives on the host"
    if kind:
        trace.events.setdefault(rank, {}).setdefault(kind, []).append(span)


def settle(kinds: dict[str, list[Span]]) -> None:
    """A collective shows up once: as the device ran it, else as the host called it. Of operators
    within operators the outermost is kept."""
    on_host = kinds.pop("collectives on the host", [])
    if not kinds.get("collectives"):
        kinds["collectives"] = outermost(on_host)
    kinds["operators"] = outermost(kinds.get("operators", []))


def outermost(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    open_until: list[float] = []  # ends of kept spans that overlap without one holding the other
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        open_until = [end for end in open_until if end > span[0]]
        if not any(span[1] <= end for end in open_until):
            kept.append(span)
            open_until.append(span[1])
    return kept
