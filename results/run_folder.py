"""Reads a run folder: manifest.json, results.csv and samples.csv.

Usage:

    from results.run_folder import RunFolderError, read_run_folder

    run = read_run_folder(Path("runs/20261201T171500Z-0123abcd4567"))
    for row in run.results:
        print(row["benchmark"], row["rank"], row["p50_ns"])

A row is a dict with every column of results/schema.json, of that column's type; a missing value is
None. Columns that the schema does not know are ignored, columns that an older file lacks are None.
Everything that is not a whole, complete run folder of this schema version is a RunFolderError of
one line.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_PATH = Path(__file__).with_name("schema.json")
INCOMPLETE_SUFFIX = ".incomplete"

Row = dict[str, Any]


class RunFolderError(Exception):
    """What is wrong with a run folder, and what to do, in one line. What a terminal would act on in
    the words of a file is shown as a question mark."""

    def __init__(self, path: Path, what: str, line: int | None = None) -> None:
        place = f"{path}:{line}" if line else str(path)
        text = " ".join(f"{place}: {what}".split())
        super().__init__("".join(c if c.isprintable() else "?" for c in text))


@dataclass(frozen=True)
class RunFolder:
    """A complete run: `manifest` as it was written, and the rows of both tables in file order."""

    path: Path
    manifest: dict[str, Any]
    results: list[Row]
    samples: list[Row]


@functools.cache
def schema() -> dict[str, Any]:
    """The definition of the tables, results/schema.json."""
    return json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))


def read_run_folder(path: Path | str, with_samples: bool = True) -> RunFolder:
    """The run folder at `path`. Without samples their file, by far the largest, is not opened, and
    `samples` is empty. Raises RunFolderError."""
    path = Path(path)
    manifest = _read_manifest(path)
    if not _is_complete(path, manifest):
        raise RunFolderError(
            path,
            f"this run is not complete (status {manifest.get('status')}): it still goes on or was"
            " killed; give a complete one",
        )
    names = [name for name in schema()["tables"] if with_samples or name != "samples"]
    tables = {name: _read_table(path, name) for name in names}
    for name, rows in tables.items():
        expected = manifest.get("rows", {}).get(name)
        if expected != len(rows):
            raise RunFolderError(
                path / schema()["tables"][name]["file"],
                f"holds {len(rows)} rows, the manifest says {expected}; the file was changed or cut"
                " off",
            )
    return RunFolder(path, manifest, tables["results"], tables.get("samples", []))


def read_any_run_folder(path: Path | str, with_samples: bool = True) -> RunFolder:
    """As `read_run_folder`, but takes a run that did not finish, or was never started, as well: its
    manifest's status says so, and its tables hold what there is. Nothing but a report should want
    that. Raises RunFolderError."""
    path = Path(path)
    manifest = _read_manifest(path)
    if _is_complete(path, manifest):
        return read_run_folder(path, with_samples)
    if manifest.get("status") == "complete":  # in a folder that did not get its name
        manifest["status"] = "incomplete"
    tables = {}
    for name, table in schema()["tables"].items():
        there = (path / table["file"]).exists()
        tables[name] = _read_table(path, name, may_be_cut_off=True) if there else []
    return RunFolder(path, manifest, tables["results"], tables["samples"])


def _is_complete(path: Path, manifest: dict[str, Any]) -> bool:
    named = not path.resolve().name.endswith(INCOMPLETE_SUFFIX)
    return manifest.get("status") == "complete" and named


def _read_text(path: Path) -> str:
    try:
        if not path.is_file() and path.exists():
            # A pipe or device would never end.
            raise RunFolderError(path, "is no regular file")
        content = path.read_bytes()
    except OSError as error:
        raise RunFolderError(
            path, f"cannot be read ({error.strerror}); is this a run folder?"
        ) from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RunFolderError(path, f"is not UTF-8 at byte {error.start}", line) from None


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise RunFolderError(folder, f"cannot be read ({error.strerror})") from None
    if not is_folder:
        raise RunFolderError(
            folder, "is not a folder; give the path that the benchmark printed last"
        )
    path = folder / "manifest.json"
    try:
        manifest = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise RunFolderError(path, f"is not JSON: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise RunFolderError(path, f"is not JSON: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("rows", {}), dict):
        raise RunFolderError(path, "is not the manifest of a run folder")
    _check_version(path, manifest.get("schema_version"))
    return manifest


def _check_version(path: Path, version: Any, line: int | None = None) -> None:
    known = schema()["schema_version"]
    if version != known:
        raise RunFolderError(
            path,
            f"has schema_version {version}, and this reader knows {known};"
            " read it with the stepscope that wrote it",
            line,
        )


def _read_table(folder: Path, name: str, may_be_cut_off: bool = False) -> list[Row]:
    table = schema()["tables"][name]
    path = folder / table["file"]
    text = _read_text(path)
    if may_be_cut_off:
        text = text[: text.rfind("\n") + 1]
        if not text:
            return []
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        raise RunFolderError(path, "its last line has no line end, so it was cut off", line)
    rows = _plain_rows(text, table["columns"])
    return _checked_rows(path, text, table["columns"]) if rows is None else rows


def _plain_rows(text: str, columns: list[dict[str, str]]) -> list[Row] | None:
    """The rows, a column at a time, which is several times as fast. None where anything is not as
    it should be, or where that is not certain: `_checked_rows` decides and finds the place."""
    try:
        header, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        fields = dict(zip(header, zip(*lines, strict=True), strict=True)) if lines else {}
        if len(set(header)) != len(header) or not lines:
            return None
        absent = [""] * len(lines)
        values = [_plain_column(column, fields.get(column["name"], absent)) for column in columns]
    except (csv.Error, ValueError):
        return None
    names = [column["name"] for column in columns]
    if set(values[names.index("schema_version")]) != {schema()["schema_version"]}:
        return None
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _plain_column(column: dict[str, str], fields: Sequence[str]) -> list[Any]:
    """The values of a whole column. Raises ValueError where one is none, or where that is not
    certain."""
    if column["type"] == "string":
        return [field or None for field in fields]
    letters = set("".join(fields))
    if column["type"] == "integer":
        if not letters <= set("0123456789-"):
            raise ValueError
        integers = [int(field) if field else None for field in fields]
        if any(value is not None and not -(2**63) <= value < 2**63 for value in integers):
            raise ValueError
        return integers
    if not letters <= set("0123456789.eE+-") or any(field.startswith("+") for field in fields):
        raise ValueError
    numbers = [float(field) if field else None for field in fields]
    if any(value is not None and not math.isfinite(value) for value in numbers):
        raise ValueError
    return numbers


def _checked_rows(path: Path, text: str, columns: list[dict[str, str]]) -> list[Row]:
    """The rows, one after the other. Raises RunFolderError with the line of the first bad one."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = []
    line = 1
    try:
        header = next(reader)
        for column in header:
            if header.count(column) > 1:
                raise RunFolderError(path, f'names column "{column}" twice', line)
        line = reader.line_num + 1
        for fields in reader:
            if len(fields) != len(header):
                raise RunFolderError(
                    path, f"the row has {len(fields)} fields, the header {len(header)}", line
                )
            text_of = dict(zip(header, fields, strict=True))
            row = {
                column["name"]: _value(path, line, column, text_of.get(column["name"], ""))
                for column in columns
            }
            _check_version(path, row["schema_version"], line)
            rows.append(row)
            line = reader.line_num + 1
    except csv.Error as error:
        raise RunFolderError(path, f"is not CSV: {error}", line) from None
    return rows


def _value(path: Path, line: int, column: dict[str, str], text: str) -> Any:
    """`text` as the column's type, or None when it is empty. As strict as the C++ reader."""
    if text == "":
        return None
    if column["type"] == "string":
        return text
    if column["type"] == "integer" and re.fullmatch(r"-?[0-9]{1,19}", text):
        value = int(text)
        if -(2**63) <= value < 2**63:
            return value
    if column["type"] == "number" and re.fullmatch(
        r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", text
    ):
        value = float(text)
        if math.isfinite(value):
            return value
    raise RunFolderError(
        path, f'column {column["name"]} is "{text}", which is not of type {column["type"]}', line
    )
