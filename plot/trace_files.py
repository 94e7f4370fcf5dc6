"""The trace files of a run folder, and several files as one trace.

Usage:

    for name, paths in traces_of(Path("runs/mine")).items():
        step = read_trace(paths).step()
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from plot.step_trace import Rank, StepTrace, rank_text
from plot.style import printable
from plot.trace_json import read_json_trace
from plot.trace_sqlite import HEADER, read_sqlite_trace
from results.run_folder import RunFolderError

# The first is the one that loses nothing.
ENDINGS = (".sqlite", ".json", ".json.gz")
RANK = re.compile(r"[-_.]?rank[-_.]?([0-9]{1,9})")


def traces_of(folder: Path) -> dict[str, list[Path]]:
    """The traces of a run folder by name; files that differ in the rank alone are one trace, and of
    a file in two formats one is taken. Raises RunFolderError for a link that leads out of the
    folder, which may come from anybody."""
    files: dict[str, Path] = {}
    for ending in ENDINGS:
        for path in sorted(folder.glob(f"traces/*{ending}")):
            if not path.resolve().is_relative_to(folder.resolve()):
                raise RunFolderError(path, "is a link out of the run folder; it is not read")
            files.setdefault(path.name.removesuffix(ending), path)
    found: dict[str, list[Path]] = {}
    for stem in sorted(files, key=lambda stem: (RANK.sub("", stem), rank_in_name(stem) or 0, stem)):
        found.setdefault(RANK.sub("", stem) or "ranks", []).append(files[stem])
    return found


def rank_in_name(name: str) -> int | None:
    match = RANK.search(name)
    return int(match[1]) if match else None


def only_trace(folder: Path) -> list[Path]:
    """The files of the run folder's one trace."""
    found = traces_of(folder)
    if not found:
        raise RunFolderError(
            folder, "has no traces/*.sqlite or *.json, so there is no timeline to draw"
        )
    if len(found) > 1:
        names = ", ".join(printable(paths[0].name) for paths in found.values())
        raise RunFolderError(folder, f"has several traces; give the files of one: {names}")
    return next(iter(found.values()))


def read_trace(paths: Sequence[Path]) -> StepTrace:
    """The events of all files together, settled. Raises RunFolderError."""
    trace = StepTrace([], {})
    file_of: dict[Rank, Path] = {}
    for number, path in enumerate(paths):
        in_name = rank_in_name(path.name)
        otherwise = number if in_name is None else in_name
        read = read_sqlite_trace if is_sqlite(path) else read_json_trace
        trace.files.append(printable(path.name))
        for rank, part in read(path, otherwise).items():
            if rank in file_of:
                other = printable(file_of[rank].name)
                raise RunFolderError(
                    path,
                    f"is of {rank_text(rank)}, and so is {other}; give each rank's trace once",
                )
            file_of[rank] = path
            trace.ranks[rank] = part
    for part in trace.ranks.values():
        part.settle()
    if not any(spans for part in trace.ranks.values() for spans in part.events.values()):
        raise RunFolderError(paths[0], "holds no kernel, copy, collective or operator to draw")
    lay_on_one_clock(trace, len(paths))
    return trace


def lay_on_one_clock(trace: StepTrace, files: int) -> None:
    """A file has one clock; several are laid over each other by the time of day that each says."""
    if files == 1:
        return
    clocks = [part.clock for part in trace.ranks.values()]
    known = [clock for clock in clocks if clock is not None]
    trace.one_clock = len(known) == len(clocks)
    if trace.one_clock:
        for part, clock in zip(trace.ranks.values(), known, strict=True):
            part.shift(clock - known[0])


def is_sqlite(path: Path) -> bool:
    try:
        if not path.is_file():
            if path.exists():
                raise RunFolderError(path, "is no regular file")
            return False
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER
    except OSError as error:
        raise RunFolderError(path, f"cannot be read ({error.strerror or error})") from None
