"""Writes a run folder from Python, by the same contract as results/run_folder.h.

Usage:

    run = RunWriter.create(Path("runs/mine"), manifest)
    run.add_result({"benchmark": name, "rank": 0, "p50_ns": 12_000})
    run.add_sample({"benchmark": name, "step": 0, "step_ns": 12_000})
    print(run.finish())

Everything is written to "<destination>.incomplete", whose manifest says "incomplete"; only `finish`
gives the folder its name. A killed run leaves that sibling with the rows written until then. Every
error is a RunFolderError of one line. One process writes a folder.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import shutil
import socket
from pathlib import Path
from typing import Any

from results.run_folder import INCOMPLETE_SUFFIX, RunFolderError, schema

OWN_KEYS = ("schema_version", "status", "writer", "rows", "finished_utc")
TYPES = {"string": str, "integer": int, "number": float}


class RunWriter:
    """A run that goes on. Made by `create`."""

    def __init__(self, destination: Path, working: Path, manifest: dict[str, Any]) -> None:
        self.destination = destination
        self.working = working
        self._files: dict[str, Any] = {}
        self._rows = {name: 0 for name in schema()["tables"]}
        self._manifest = {
            **manifest,
            "schema_version": schema()["schema_version"],
            "status": "incomplete",
            "writer": {"host": socket.gethostname(), "pid": os.getpid()},
        }
        self._write_manifest()
        for name, table in schema()["tables"].items():
            # Unbuffered: a row is in the file when the call returns.
            self._files[name] = os.fdopen(
                _for_its_owner(working / table["file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL),
                "wb",
                buffering=0,
            )
            self._append(name, [column["name"] for column in table["columns"]])

    @classmethod
    def create(cls, destination: Path | str, manifest: dict[str, Any]) -> RunWriter:
        """Starts a run folder. Raises RunFolderError when the destination is taken, another run is
        writing to it or was killed while it did, or nothing can be written there."""
        destination = Path(os.path.realpath(destination))
        if destination.name.endswith(INCOMPLETE_SUFFIX):
            raise RunFolderError(
                destination, "a run folder's name may not end in .incomplete; choose another name"
            )
        try:
            if destination.exists() and (
                not destination.is_dir() or any(destination.iterdir()) or destination.is_mount()
            ):
                raise RunFolderError(
                    destination, "exists and is no empty directory; choose another name"
                )
            working = destination.with_name(destination.name + INCOMPLETE_SUFFIX)
            working.parent.mkdir(parents=True, exist_ok=True)
            # The lock: of two runs with one destination, one gets the folder.
            working.mkdir(mode=0o755)
        except FileExistsError:
            raise RunFolderError(
                working,
                "another run is writing here, or was killed while it did; remove this folder if"
                " that run is gone, or choose another name for the run folder",
            ) from None
        except OSError as error:
            raise RunFolderError(destination, f"cannot be created ({error.strerror})") from None
        try:
            return cls(destination, working, manifest)
        except BaseException:
            # Nothing was measured yet, so nothing is lost, and the next try finds its way free.
            shutil.rmtree(working, ignore_errors=True)
            raise

    def add_result(self, row: dict[str, Any]) -> None:
        """Appends a row of results.csv; what is None or left out is written empty."""
        self._add("results", row)

    def add_sample(self, row: dict[str, Any]) -> None:
        """The same, for samples.csv."""
        self._add("samples", row)

    def set(self, key: str, value: Any) -> None:
        """Sets a value of the manifest and writes the manifest anew."""
        if key in OWN_KEYS:
            raise RunFolderError(self.working, f"the manifest's key {key} is set by the run folder")
        self._manifest[key] = value
        self._write_manifest()

    def finish(self) -> Path:
        """Marks the run complete, forces all files to the disk, renames the folder to its
        destination and returns that. Nothing may be added afterwards."""
        try:
            for file in self._files.values():
                os.fsync(file.fileno())
                file.close()
            now = datetime.datetime.now(datetime.timezone.utc)
            self._manifest["rows"] = self._rows
            self._manifest["finished_utc"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            self._manifest["status"] = "complete"
            self._write_manifest()
            for path in [*self.working.rglob("*"), self.working]:
                if not path.is_symlink() and (path.is_file() or path.is_dir()):
                    sync(path)
            self.working.rename(self.destination)
            sync(self.destination.parent)
        except OSError as error:
            raise RunFolderError(
                self.working, f"the run cannot be finished ({error.strerror})"
            ) from None
        return self.destination

    def _add(self, table: str, row: dict[str, Any]) -> None:
        columns = schema()["tables"][table]["columns"]
        unknown = row.keys() - {column["name"] for column in columns}
        if unknown:
            raise RunFolderError(self.working, f"table {table} has no column {min(unknown)}")
        row = {**row, "schema_version": schema()["schema_version"]}
        fields = [_text(self.working, column, row.get(column["name"])) for column in columns]
        self._append(table, fields)
        self._rows[table] += 1

    def _append(self, table: str, fields: list[str]) -> None:
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerow(fields)
        try:
            self._files[table].write(record.getvalue().encode("utf-8", "replace"))
        except OSError as error:
            raise RunFolderError(
                self.working, f"a row cannot be written ({error.strerror})"
            ) from None

    def _write_manifest(self) -> None:
        # A reader must never see half a manifest: write beside it, then rename.
        path = self.working / "manifest.json"
        fresh = self.working / "manifest.json.new"
        try:
            with open(fresh, "w", encoding="utf-8", opener=_for_its_owner) as file:
                json.dump(self._manifest, file, indent=2, ensure_ascii=False, allow_nan=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
        except OSError as error:
            raise RunFolderError(path, f"cannot be written ({error.strerror})") from None


def _for_its_owner(path: Path | str, flags: int) -> int:
    """Whatever the umask, nobody else may write what a run measured."""
    return os.open(path, flags, 0o644)


def sync(path: Path) -> None:
    """Forces a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(folder: Path, column: dict[str, str], value: Any) -> str:
    """`value` as the column's type; an integer is accepted where a number is wanted."""
    if value is None:
        return ""
    kind = TYPES[column["type"]]
    fits = type(value) is kind or (kind is float and type(value) is int)
    if kind is int and fits:
        fits = -(2**63) <= value < 2**63
    if kind is float and fits:
        fits = math.isfinite(value)
    if not fits:
        raise RunFolderError(
            folder, f"column {column['name']} is of type {column['type']}, not {value!r}"
        )
    return value if kind is str else repr(float(value) if kind is float else value)
