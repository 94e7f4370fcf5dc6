"""One step of a trace: what ran when on each rank.

Usage:

    trace = read_trace([Path("traces/rank0.sqlite"), Path("traces/rank1.sqlite")])  # trace_files.py
    step = trace.step("ProfilerStep#6")     # the last range with that text in its name
    step.events[0]["kernels"]               # [(start, end, name), ...] in ns from the step's start

All times are whole nanoseconds. Ranks are laid over each other by the clocks that their files
recorded; where one of them recorded none, each rank counts from the start of its own step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plot.style import printable

KINDS = ("operators", "collectives", "copies", "kernels")
# By the words of torch.profiler and of this project's own traces (tracer/event.h).
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
    "collective": "collectives on the host",
}
RANGES = ("user_annotation", "range", "nvtx")
# How the host's part of a collective is called; a device's kernel has nccl in its name.
HOST_COLLECTIVES = ("nccl:", "gloo:", "c10d::")
# Ranges of this project's own programs; those around them name the case, OptimizerStep/...
OWN = "stepscope:"
OWN_STEP = "stepscope:step "

# Start and end in ns, name.
Span = tuple[int, int, str]
# A rank, or the process ("process 4711") where nothing says which rank it was.
Rank = int | str


# Thousands of events have the same few names.
shown = functools.lru_cache(maxsize=4096)(printable)


def rank_text(rank: Rank) -> str:
    return rank if isinstance(rank, str) else f"rank {rank}"


@dataclass
class Step:
    """What happened on every rank between two times. `ns` is the length; without `one_clock` times
    of two ranks say nothing about each other."""

    name: str
    ns: int
    events: dict[Rank, dict[str, list[Span]]]
    files: list[str]
    one_clock: bool


@dataclass
class RankTrace:
    """What a file says of one rank, on the file's clock; `clock` is the ns from there to the time
    since 1970, None where it is not known."""

    clock: int | None = None
    events: dict[str, list[Span]] = field(default_factory=dict)
    ranges: list[Span] = field(default_factory=list)

    def add(self, category: str, name: str, start: int, end: int) -> None:
        """Keeps what the picture shows; what ends before it starts is none of it."""
        if end < start:
            return
        span = (start, end, shown(name))
        if category in RANGES:
            self.ranges.append(span)
        kind = CATEGORIES.get(category)
        if kind == "kernels" and "nccl" in name.lower():
            kind = "collectives"
        elif name.startswith(HOST_COLLECTIVES):
            kind = "collectives on the host"
        if kind:
            self.events.setdefault(kind, []).append(span)

    def settle(self) -> None:
        """A collective shows up once: as the device ran it, else as the host called it. Of
        operators within operators the outermost is kept."""
        on_host = self.events.pop("collectives on the host", [])
        if not self.events.get("collectives"):
            self.events["collectives"] = outermost(on_host)
        self.events["operators"] = outermost(self.events.get("operators", []))

    def shift(self, ns: int) -> None:
        for spans in (self.ranges, *self.events.values()):
            spans[:] = [(start + ns, end + ns, name) for start, end, name in spans]

    def extent(self) -> Span | None:
        """From the first event to the last."""
        spans = [span for spans in self.events.values() for span in spans]
        if not spans:
            return None
        return min(s[0] for s in spans), max(s[1] for s in spans), "the whole trace"


@dataclass
class StepTrace:
    files: list[str]
    ranks: dict[Rank, RankTrace]
    one_clock: bool = True

    def step(self, text: str | None = None) -> Step:
        """The last outermost range whose name holds `text`, on every rank that has it; without any
        such range the whole trace. Without a text: the last step of this project's own, else the
        last range with "step" in its name."""
        chosen = {rank: last_step(part.ranges, text) for rank, part in self.ranks.items()}
        if not any(chosen.values()):
            chosen = {rank: part.extent() for rank, part in self.ranks.items()}
        windows = [span for span in chosen.values() if span]
        first, last = min(span[0] for span in windows), max(span[1] for span in windows)
        events, length = {}, 1
        for rank, part in sorted(self.ranks.items(), key=lambda item: order_of(item[0])):
            begin, end, _ = chosen[rank] or part.extent() or (first, last, "")
            start = first if self.one_clock else begin
            if self.one_clock:
                # The step before may still go on when that of another rank begins; what a step
                # started on a device may end behind it.
                begin, end = (begin if chosen[rank] else first), last
            length = max(length, end - start)
            events[rank] = {
                kind: within(part.events.get(kind, []), begin, end, start) for kind in KINDS
            }
        return Step(windows[0][2].removeprefix(OWN), length, events, self.files, self.one_clock)


def order_of(rank: Rank) -> tuple[bool, int, str]:
    return (True, 0, rank) if isinstance(rank, str) else (False, rank, "")


def last_step(spans: Sequence[Span], text: str | None) -> Span | None:
    if text is None:
        own = [span for span in spans if span[2].startswith(OWN_STEP)]
        return last_outermost(own, OWN_STEP) or last_outermost(spans, "step")
    return last_outermost(spans, text)


def last_outermost(spans: Sequence[Span], text: str) -> Span | None:
    chosen = None
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if text.lower() in span[2].lower() and (chosen is None or span[0] >= chosen[1]):
            chosen = span
    return chosen


def within(spans: Iterable[Span], begin: int, end: int, zero: int) -> list[Span]:
    """The spans that overlap [begin, end], cut to it and counted from `zero`."""
    return [
        (max(start, begin) - zero, min(stop, end) - zero, name)
        for start, stop, name in spans
        if start < end and stop > begin
    ]


def outermost(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    open_until: list[int] = []  # ends of kept spans that overlap without one holding the other
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        open_until = [end for end in open_until if end > span[0]]
        if not any(span[1] <= end for end in open_until):
            kept.append(span)
            open_until.append(span[1])
    return kept
