"""Leaves one run folder for a submitted job, whatever became of it.

    folder, outcome = record(out, outcome, queue, {"command_line": "sbatch ..."}, log)

A job that was never started leaves OUT with the status not-run, which has another name until it is
whole; one that was cut short leaves OUT.incomplete with what was measured until then; one that ran
to its end leaves OUT as the benchmark wrote it. Slurm's part is in the manifest of the first two,
and in evidence/slurm.json of all.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import socket
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.checkout import head_commit, is_dirty
from bench.slurm.slurm_outcome import COMPLETE, INCOMPLETE, NO_ANSWER, NOT_RUN, SUBJECT, Outcome
from results.run_folder import INCOMPLETE_SUFFIX, schema

EVIDENCE_SUFFIX = ".evidence"  # of job.sh's own folder beside the run folder
UNFINISHED_SUFFIX = ".not-run" + INCOMPLETE_SUFFIX  # of the record of a job that did not start


def default_out(root: Path) -> Path:
    """runs/<utc>-<commit>, as the benchmarks name their folders."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    commit = head_commit(root)[:12] or "unknown"
    dirty = "-dirty" if is_dirty(root) else ""
    return root / "runs" / f"{now}-{commit}{dirty}"


def record(
    out: Path,
    outcome: Outcome,
    queue: str,
    facts: dict[str, Any],
    log: Path,
    substitute: str = "",
) -> tuple[Path, Outcome]:
    """The folder, and the outcome, which is corrected where the folder shows that a job that Slurm
    calls complete has left none. `substitute`: what the job was instead of a larger one."""
    incomplete = out.with_name(out.name + INCOMPLETE_SUFFIX)
    if outcome.status == COMPLETE and not (out / "manifest.json").is_file():
        outcome = replace(
            outcome, status=INCOMPLETE, blame=SUBJECT, code="NoRunFolder",
            reason="the job ended without a run folder",
        )  # fmt: skip
    if (out / "manifest.json").is_file():
        folder = out  # the measurements are whole, even where the job failed afterwards
    elif outcome.status == NOT_RUN:
        # A kill must leave none of it under the name of a run.
        folder = out.with_name(out.name + UNFINISHED_SUFFIX)
        folder.mkdir()
        _add_to_manifest(folder, _not_measured(NOT_RUN, substitute), outcome, queue, facts)
    else:
        folder = incomplete
        folder.mkdir(exist_ok=True)
        manifest = _read_manifest(folder) or _not_measured(INCOMPLETE, substitute)
        _add_to_manifest(folder, manifest, outcome, queue, facts)
    evidence = folder / "evidence"
    # What the job script had gathered when it was killed.
    left = out.with_name(out.name + EVIDENCE_SUFFIX)
    still_runs = outcome.code == NO_ANSWER  # perhaps: then what it writes is left to it
    if left.is_dir():
        with contextlib.suppress(*(shutil.Error,) if still_runs else ()):  # its files come and go
            shutil.copytree(left, evidence, symlinks=True, dirs_exist_ok=True)
        if not still_runs:
            shutil.rmtree(left)
    evidence.mkdir(exist_ok=True)
    part = _slurm_part(outcome, queue, facts) | {"parts": parts(folder)}
    _write_json(evidence / "slurm.json", part)
    if log.is_file():
        (shutil.copyfile if still_runs else shutil.move)(log, evidence / "job.log")
    if folder.name.endswith(UNFINISHED_SUFFIX):
        folder = folder.rename(out)
    return folder, outcome


def pack(folder: Path, archive: Path) -> None:
    """Writes the folder as it is now to `archive`, which appears whole or not at all. Files and
    folders alone: a link could lead out of the folder where it is unpacked."""

    def only_files(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return entry if entry.isfile() or entry.isdir() else None

    fresh = archive.with_name(archive.name + ".new")
    with tarfile.open(fresh, "w:gz") as file:
        file.add(folder, arcname=folder.name, filter=only_files)
    fresh.rename(archive)


def parts(folder: Path) -> list[str]:
    """What the job's parts after the benchmarks found, a line each: "name: verdict, reason"."""
    try:
        text = (folder / "evidence" / "parts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines()


def _slurm_part(outcome: Outcome, queue: str, facts: dict[str, Any]) -> dict[str, Any]:
    part = asdict(outcome)
    return {
        "class": part["blame"],
        "code": part["code"],
        "reason": part["reason"],
        "words": list(part["words"]),
        "queue": queue.splitlines(),
        "slurm": facts,
    }


def _not_measured(status: str, substitute: str) -> dict[str, Any]:
    """A manifest of a run of which there are no rows."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "schema_version": schema()["schema_version"],
        "status": status,
        "created_utc": now,
        "writer": {"host": socket.gethostname(), "pid": os.getpid()},
        "rows": {name: 0 for name in schema()["tables"]},
        **({"substitute": substitute} if substitute else {}),
    }


def _add_to_manifest(
    folder: Path, manifest: dict[str, Any], outcome: Outcome, queue: str, facts: dict[str, Any]
) -> None:
    for table in schema()["tables"].values():
        file = folder / table["file"]
        if not file.exists():
            names = ",".join(column["name"] for column in table["columns"])
            file.write_text(names + "\n", encoding="utf-8")
    _write_json(folder / "manifest.json", manifest | _slurm_part(outcome, queue, facts))


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _write_json(path: Path, value: dict[str, Any]) -> None:
    # A reader must never see half a file: write beside it, then rename.
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
