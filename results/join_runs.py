#!/usr/bin/env python3
"""Puts the rows of one run folder behind those of another, so that one folder holds both.

    results/join_runs.py RUN MORE

RUN keeps its name and gets MORE's rows; its manifest gets MORE's as an entry of "joined"; MORE is
removed. The joined folder is written under a name that says it is incomplete, and when it is whole
the two change places in one step: whenever this program is killed, RUN is a complete folder. (On a
file system that cannot do that, RUN is for a moment called "RUN.before-join".) contracts.json gets
the cases of both. Other files stay with RUN; those of MORE that RUN has not are taken over.

exit code: 0 joined, 2 could not run (RUN is as it was).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from results.command_line import OneLineParser
from results.run_folder import RunFolderError, read_run_folder, schema
from results.run_writer import OWN_KEYS, RunWriter, sync

BEFORE_SUFFIX = ".before-join"
# From linux/fcntl.h and linux/fs.h.
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def join(run: Path, more: Path) -> None:
    """See above. Raises RunFolderError."""
    run, more = run.resolve(), more.resolve()
    first, second = read_run_folder(run), read_run_folder(more)
    taken = {row["benchmark"] for row in first.results}
    twice = sorted(taken & {row["benchmark"] for row in second.results})
    if twice:
        raise RunFolderError(more, f"holds benchmark {twice[0]}, which is in {run.name} as well")
    for key in ("commit", "host"):
        if first.manifest.get(key) != second.manifest.get(key):
            raise RunFolderError(more, f"was made with another {key} than {run.name}")
    before = run.with_name(run.name + BEFORE_SUFFIX)
    if before.exists():
        raise RunFolderError(before, "was left by a join that was killed; look at it, then move it")
    manifest = {key: value for key, value in first.manifest.items() if key not in OWN_KEYS}
    manifest["joined"] = [*manifest.get("joined", []), second.manifest]
    # Beside RUN and not at its place, which is taken.
    joined = RunWriter.create(run.with_name(run.name + ".joined"), manifest)
    try:
        for row in [*first.results, *second.results]:
            joined.add_result(row)
        for row in [*first.samples, *second.samples]:
            joined.add_sample(row)
        own = {table["file"] for table in schema()["tables"].values()} | {"manifest.json"}
        for folder in (first.path, second.path):
            for path in sorted(folder.rglob("*")):
                place = path.relative_to(folder)
                target = joined.working / place
                if str(place) in own or target.exists():
                    continue
                if path.is_dir():
                    target.mkdir()
                else:
                    shutil.copy2(path, target)
        _join_contracts(first.path, second.path, joined.working)
        whole = joined.finish()
    except BaseException:
        shutil.rmtree(joined.working, ignore_errors=True)
        raise
    try:
        exchange(run, whole)
        before = whole
    except OSError:
        run.rename(before)
        try:
            whole.rename(run)
        except OSError:
            before.rename(run)
            raise
    sync(run.parent)
    shutil.rmtree(before)
    shutil.rmtree(more)


def _join_contracts(run: Path, more: Path, joined: Path) -> None:
    """Where only one of them has contracts.json, it is there already."""
    documents = []
    for folder in (run, more):
        path = folder / "contracts.json"
        if not path.exists():
            return
        try:
            document = json.loads(path.read_text())
            document["cases"] = list(document["cases"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(path, f"is not what optimizer_step writes: {error}") from None
        documents.append(document)
    both = {**documents[0], "cases": documents[0]["cases"] + documents[1]["cases"]}
    (joined / "contracts.json").write_text(json.dumps(both) + "\n")


def exchange(one: Path, other: Path) -> None:
    """Two folders change their names in one step. Raises OSError where that cannot be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one))


def main() -> int:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("more", type=Path, metavar="MORE")
    arguments = parser.parse_args()
    try:
        join(arguments.run, arguments.more)
    except RunFolderError as error:
        print(f"join_runs.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"join_runs.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
