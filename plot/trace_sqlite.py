"""A trace in nsys' SQLite schema: this project's own traces/*.sqlite, and exports of nsys.

Usage:

    for rank, part in read_sqlite_trace(Path("traces/rank0.sqlite"), rank_if_unsaid=0).items(): ...

The file may come from anybody: it is opened for reading alone, as a file that nobody changes; only
tables with rows of their own are read, no views and nothing computed; and SQLite may take as many
steps as a file of that size can need, so that pages in a circle come to an end. Our own tables
STEPSCOPE_PROCESS and STEPSCOPE_EVENT (tracer/nsys_tables.h) say what nsys' schema has no place for.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from plot.step_trace import Rank, RankTrace, rank_text
from plot.style import printable
from results.run_folder import RunFolderError

HEADER = b"SQLite format 3\x00"
KERNELS, COPIES, SETS, NVTX = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "NVTX_EVENTS",
)
# The number of a table in STEPSCOPE_EVENT, and the kind of its rows where that says nothing.
TABLES = {KERNELS: (0, "kernel"), COPIES: (1, "copy"), SETS: (2, "set"), NVTX: (5, "range")}
KINDS = (
    "kernel",
    "copy",
    "set",
    "synchronization",
    "api_call",
    "collective",
    "host_operator",
    "range",
)
RANGE_TYPES = (59, 60, 70, 71)
DOMAIN_TYPE = 75
THREAD_BITS = 24  # globalPid and globalTid are process << 24 | thread
# Names of copies by nsys' copyKind.
COPY_NAMES = (
    *("Memcpy", "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA", "Memcpy AtoH", "Memcpy AtoA"),
    *("Memcpy AtoD", "Memcpy DtoA", "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"),
    *("Unified memory HtoD", "Unified memory DtoH", "Unified memory DtoD"),
)
# What PyTorch's emit_nvtx writes behind an operator's name, and the scopes of c10d's back ends.
SIZES = ", sizes = "
NUMBERS = (", op_id = ", ", seq = ")  # from the end
LISTS = re.compile(r"\[[0-9\[\], ]*\]")
COLLECTIVE = re.compile(r"(gloo|nccl|ucc|mpi|xccl):(?!:)")

# As many steps of SQLite's machine as reading a row takes at the most; no row is below four bytes.
STEPS_PER_ROW = 100
LEAST_ROW_BYTES = 4
FREE_ROWS = 100_000
STEPS_A_CALL = 1_000
READING = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_PRAGMA,
    sqlite3.SQLITE_FUNCTION,
)


def read_sqlite_trace(path: Path, rank_if_unsaid: int) -> dict[Rank, RankTrace]:
    """The events of a file by rank. Raises RunFolderError."""
    try:
        with closing(opened(path)) as connection:
            return Reader(path, connection).read(rank_if_unsaid)
    except sqlite3.Error as error:
        raise RunFolderError(path, f"cannot be read as SQLite: {printable(error)}") from None


def opened(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    allowed = {action: sqlite3.SQLITE_OK for action in READING}
    connection.set_authorizer(lambda action, *_: allowed.get(action, sqlite3.SQLITE_DENY))
    rows = path.stat().st_size // LEAST_ROW_BYTES + FREE_ROWS
    calls = iter(range(rows * STEPS_PER_ROW // STEPS_A_CALL))
    connection.set_progress_handler(lambda: next(calls, None) is None, STEPS_A_CALL)
    return connection


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Reader:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._most_rows = path.stat().st_size // LEAST_ROW_BYTES
        self._tables = self._find_tables()
        self._parts: dict[int, RankTrace] = {}  # by the process' key
        self._ranks: dict[int, int] = {}  # likewise, where the file says it
        self._strings: dict[int, str] = {}

    def read(self, rank_if_unsaid: int) -> dict[Rank, RankTrace]:
        if not any(self._table(name) for name in TABLES):
            raise RunFolderError(self._path, "is no trace: it has none of the tables of nsys")
        self._strings = {
            self._integer("StringIds", number, row, "id"): str(text)
            for number, row, text in self._rows("StringIds", "id", "value")
        }
        self._read_processes()
        # Ranges first: they say which processes there are, which naive files leave out elsewhere.
        self._read_ranges()
        self._read_kernels()
        self._read_copies()
        self._read_sets()
        if len(self._parts) == 1:
            ((key, part),) = self._parts.items()
            return {self._ranks.get(key, rank_if_unsaid): part}
        found: dict[Rank, RankTrace] = {}
        for key, part in self._parts.items():
            rank: Rank = self._ranks.get(key, f"process {key & (1 << THREAD_BITS) - 1}")
            if rank in found:
                raise RunFolderError(self._path, f"holds {rank_text(rank)} twice")
            found[rank] = part
        return found

    # --- tables ----------------------------------------------------------------------------------

    def _find_tables(self) -> dict[str, list[str]]:
        """The columns of each table. What has no page of its own (views, virtual tables) and what
        is computed (hidden 2 and 3) is code, not data."""
        names = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type='table' AND rootpage>0"
        ).fetchall()
        tables = {}
        for (name,) in names:
            columns = self._connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            tables[name] = [column[1] for column in columns if column[6] == 0]
        return tables

    def _table(self, base: str) -> str | None:
        """The table of that name, or the newest of its versions (nsys: NAME_V<N>)."""
        found: tuple[int, str] | None = None
        for name in self._tables:
            match = re.fullmatch(re.escape(base) + r"(?:_V([1-9][0-9]{0,8}))?", name, re.IGNORECASE)
            if match:
                found = max(found or (-1, ""), (int(match[1] or 0), name))
        return found[1] if found else None

    def _rows(self, base: str, *columns: str, where: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of a table, if there is one: the number of the row in this answer, then the
        columns; one that the table lacks is None."""
        name = self._table(base)
        if name is None:
            return
        present = {column.lower() for column in self._tables[name]} | {"rowid"}
        chosen = [quoted(c) if c.lower() in present else "NULL" for c in columns]
        rows = self._connection.execute(f"SELECT {','.join(chosen)} FROM {quoted(name)} {where}")
        number = 0
        while True:
            number += 1
            try:
                row = rows.fetchone()
            except sqlite3.Error as error:
                self._fail(base, number, f"cannot be read: {printable(error)}")
            if row is None:
                return
            if number > self._most_rows:
                self._fail(base, number, "cannot be: the file is too small for so many rows")
            yield (number, *row)

    def _has(self, base: str, column: str) -> bool:
        name = self._table(base)
        return name is not None and column.lower() in (c.lower() for c in self._tables[name])

    def _fail(self, table: str, number: int, what: str) -> Any:
        raise RunFolderError(self._path, f"row {number} of table {table} {what}")

    def _integer(self, table: str, number: int, value: Any, column: str) -> int:
        if not isinstance(value, int):
            self._fail(table, number, f"has no integer in column {column}")
        return value

    def _name(self, value: Any) -> str:
        """An id of StringIds, or in naive files the text itself."""
        if value is None:
            return ""
        if isinstance(value, int):
            return self._strings.get(value, f"unknown string {value}")
        return str(value)

    # --- processes -------------------------------------------------------------------------------

    def _read_processes(self) -> None:
        table = "STEPSCOPE_PROCESS"
        for number, global_pid, rank, clock in self._rows(
            table, "globalPid", "rank", "wallClockOffset"
        ):
            key = self._integer(table, number, global_pid, "globalPid") >> THREAD_BITS
            if key in self._parts:
                self._fail(table, number, "repeats a globalPid")
            if clock is not None:
                self._integer(table, number, clock, "wallClockOffset")
            self._parts[key] = RankTrace(clock)
            if rank is not None:
                self._ranks[key] = self._integer(table, number, rank, "rank")

    def _clock_of_file(self) -> int | None:
        table = "TARGET_INFO_SESSION_START_TIME"
        for number, clock in self._rows(table, "utcEpochNs", where="LIMIT 1"):
            return None if clock is None else self._integer(table, number, clock, "utcEpochNs")
        return None

    def _part(self, table: str, number: int, process: Any, column: str) -> RankTrace:
        """The process that a globalPid or globalTid names; where it is missing, the file's only
        process."""
        key = 0
        if process is not None:
            key = self._integer(table, number, process, column) >> THREAD_BITS
        elif len(self._parts) == 1:
            return next(iter(self._parts.values()))
        if key not in self._parts:
            self._parts[key] = RankTrace(self._clock_of_file())
        return self._parts[key]

    # --- events ----------------------------------------------------------------------------------

    def _own_words(self, base: str) -> dict[int, tuple[Any, Any]]:
        """What STEPSCOPE_EVENT says of a table's rows: their kind and name, None for nothing."""
        table = "STEPSCOPE_EVENT"
        if self._table(table) is None:
            return {}
        said = {}
        for number, row, kind, name in self._rows(
            table, "row", "kind", "nameId", where=f"WHERE tableId={TABLES[base][0]}"
        ):
            if kind is not None:
                known = 0 <= self._integer(table, number, kind, "kind") < len(KINDS)
                if not known:
                    self._fail(table, number, f"holds {kind}, which this version does not know")
                kind = KINDS[kind]
            if kind is not None or name is not None:
                said[self._integer(table, number, row, "row")] = (kind, name)
        return said

    def _times(self, table: str, number: int, start: Any, end: Any) -> tuple[int, int]:
        return (
            self._integer(table, number, start, "start"),
            self._integer(table, number, end, "end"),
        )

    def _read_device(self, table: str, names: Sequence[str], name_of: Any = None) -> None:
        said = self._own_words(table)
        columns = ("rowid", "start", "end", "globalPid", *names)
        for number, row, start, end, process, *values in self._rows(table, *columns):
            kind, name = said.get(row, (None, None))
            self._part(table, number, process, "globalPid").add(
                kind or TABLES[table][1],
                name_of(number, *values) if name is None else self._name(name),
                *self._times(table, number, start, end),
            )

    def _read_kernels(self) -> None:
        names = ("demangledName", "shortName", "mangledName")
        column = next((name for name in names if self._has(KERNELS, name)), names[0])
        self._read_device(KERNELS, [column], lambda _, name: self._name(name))

    def _read_copies(self) -> None:
        def name_of(number: int, kind: Any) -> str:
            kind = 0 if kind is None else self._integer(COPIES, number, kind, "copyKind")
            return COPY_NAMES[kind if 0 <= kind < len(COPY_NAMES) else 0]

        self._read_device(COPIES, ["copyKind"], name_of)

    def _read_sets(self) -> None:
        self._read_device(SETS, [], lambda _: "Memset")

    def _read_ranges(self) -> None:
        said = self._own_words(NVTX)
        # A domain is numbered within its process, and its name may come after its first range.
        domains = {}
        columns = ("rowid", "start", "end", "eventType", "globalTid", "domainId", "text", "textId")
        for number, _, _, _, kind, thread, domain, text, text_id in self._rows(NVTX, *columns):
            if kind == DOMAIN_TYPE:
                process = 0 if thread is None else self._integer(NVTX, number, thread, "globalTid")
                domains[process >> THREAD_BITS, domain] = self._name(
                    text_id if text is None else text
                )
        for number, row, start, end, kind, thread, domain, text, text_id in self._rows(
            NVTX, *columns
        ):
            # A range without an end was still open when the recording ended.
            if kind not in (*RANGE_TYPES, None) or end is None:
                continue
            part = self._part(NVTX, number, thread, "globalTid")
            category, name = host_event(self._name(text_id if text is None else text))
            if domain:
                process = 0 if thread is None else thread
                prefix = domains.get((process >> THREAD_BITS, domain))
                name = name if prefix is None else f"{prefix}:{name}"
            own_kind, own_name = said.get(row, (None, None))
            part.add(
                own_kind or category,
                name if own_name is None else self._name(own_name),
                *self._times(NVTX, number, start, end),
            )


def host_event(text: str) -> tuple[str, str]:
    """The kind and name of a host's range, as its text tells them."""
    name, is_operator = without_numbers(text)
    if COLLECTIVE.match(name):
        return "collective", name
    return ("host_operator" if is_operator and "::" in name else "range"), name


def without_numbers(text: str) -> tuple[str, bool]:
    """An operator's name without what PyTorch writes behind it, and whether it did."""
    name, _, sizes = text.rpartition(SIZES)
    if not name:
        name = text
    elif not LISTS.fullmatch(sizes):
        return text, False
    for word in NUMBERS:
        head, _, number = name.rpartition(word)
        if head and number.isascii() and number.isdecimal():
            name = head
    return name, name != text
