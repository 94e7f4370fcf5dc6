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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_PATH = Path(__file__).with_name("schema.json")
INCOMPLETE_SUFFIX = ".incomplete"

Row = dict[str, Any]


class RunFolderError(Exception):
    """What is wrong with a run folder, and what to do, in one line."""

    def __init__(self, path: Path, what: str, line: int | None = None) -> None:
        place = f"{path}:{line}" if line else str(path)
        super().__init__(" ".join(f"{place}: {what}".split()))


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


def read_run_folder(path: Path | str) -> RunFolder:
    """The run folder at `path`. Raises RunFolderError."""
    path = Path(path)
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise RunFolderError(path, f"cannot be read ({error.strerror})") from None
    if not is_folder:
        raise RunFolderError(path, "is not a folder; give the path that the benchmark printed last")
    manifest = _read_manifest(path)
    tables = {name: _read_table(path, name) for name in schema()["tables"]}
    for name, rows in tables.items():
        expected = manifest.get("rows", {}).get(name)
        if expected != len(rows):
            raise RunFolderError(
                path / schema()["tables"][name]["file"],
                f"holds {len(rows)} rows, the manifest says {expected}; the file was changed or cut"
                " off",
            )
    return RunFolder(path, manifest, tables["results"], tables["samples"])


def _read_text(path: Path) -> str:
    try:
        if not path.is_file() and path.exists():
            # A pipe or device would never end.
            raise RunFolderError(path, "is no regular file")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RunFolderError(
            path, f"cannot be read ({error.strerror}); is this a run folder?"
        ) from None
    except UnicodeDecodeError as error:
        raise RunFolderError(path, f"is not UTF-8 at byte {error.start}") from None


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise RunFolderError(path, f"is not JSON: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("rows", {}), dict):
        raise RunFolderError(path, "is not the manifest of a run folder")
    _check_version(path, manifest.get("schema_version"))
    status = manifest.get("status")
    if status != "complete" or folder.resolve().name.endswith(INCOMPLETE_SUFFIX):
        raise RunFolderError(
            folder,
            f"this run is not complete (status {status}): it still goes on or was killed;"
            " give a complete one",
        )
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


def _read_table(folder: Path, name: str) -> list[Row]:
    table = schema()["tables"][name]
    path = folder / table["file"]
    text = _read_text(path)
    if not text.endswith("\n"):
        raise RunFolderError(path, "its last line has no line end, so it was cut off")
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
                for column in table["columns"]
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
