"""A trace in Chrome's JSON, plain or gzipped, as torch.profiler (Kineto) and this project write it.

Usage:

    for rank, part in read_json_trace(Path("traces/rank0.json.gz"), rank_if_unsaid=0).items(): ...

Times in such a file are microseconds, often with a fraction; they are read as the decimal numbers
that they are.
"""

from __future__ import annotations

import gzip
import json
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

from plot.step_trace import Rank, RankTrace
from results.run_folder import RunFolderError

# Kineto wrote times since 1970 before its files had a base.
YEAR_2001 = 10**18
LARGEST = 2**63


class Digits(str):
    """A number with a fraction, as the file has it."""

    __slots__ = ()


def read_json_trace(path: Path, rank_if_unsaid: int) -> dict[Rank, RankTrace]:
    """The events of a file by rank. Raises RunFolderError."""
    document = read_json(path)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise RunFolderError(path, 'is no trace in Chrome\'s format: it has no "traceEvents"')
    told = document.get("distributedInfo") if isinstance(document, dict) else None
    rank_of_file = rank_in(told, rank_if_unsaid)
    base = document.get("baseTimeNanoseconds") if isinstance(document, dict) else None
    clock = base if is_integer(base) else None
    ranks: dict[Rank, RankTrace] = {}
    first = LARGEST
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
        # An event without a usable time is left out, as what the picture does not show.
        if start is None or length is None:
            continue
        first = min(first, start)
        part = ranks.setdefault(rank_in(event.get("args"), rank_of_file), RankTrace())
        category, name = str(event.get("cat", "")), str(event.get("name", ""))
        part.add(category, name, start, start + length)
    if clock is None and YEAR_2001 <= first < LARGEST:
        clock = 0
    for part in ranks.values():
        part.clock = clock
    return ranks


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def rank_in(told: Any, otherwise: int) -> int:
    rank = told.get("rank") if isinstance(told, dict) else None
    return rank if is_integer(rank) else otherwise


def nanoseconds(microseconds: Any) -> int | None:
    """None for what is no number, or none that a clock could show."""
    if is_integer(microseconds):
        ns = 1000 * microseconds
    elif isinstance(microseconds, Digits):
        try:
            number = Decimal(microseconds)
            # Before it becomes an integer, which would have as many digits as its exponent says.
            if abs(number) >= LARGEST:
                return None
        except ArithmeticError:
            return None
        ns = round(1000 * number)
    else:
        return None
    return ns if abs(ns) < LARGEST else None


def read_json(path: Path) -> Any:
    try:
        if not path.is_file() and path.exists():
            raise RunFolderError(path, "is no regular file")
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return json.loads(content, parse_float=Digits)
    except OSError as error:
        raise RunFolderError(path, f"cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError, EOFError, zlib.error) as error:
        raise RunFolderError(path, f"is not JSON: {error}") from None
