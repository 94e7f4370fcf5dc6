"""The pairs of a comparison in a folder: which are measured, and measuring those that are not.

Usage:

    pairs = Pairs(out, plan)            # takes up what an earlier call with the same plan left
    with pairs.locked():
        pairs.measure(number, sides, cores, timeout)
    a, b = pairs.folders(number)

The folder holds plan.json, and for every pair pair-001/a, pair-001/b (run folders) and
pair-001/logs. A pair counts when both run folders are complete and name the same pair of turns;
anything else of it is measured anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.paired.launch import Side, core_sets, launch
from bench.paired.lock import locked
from bench.paired.problem import Problem
from results.run_folder import RunFolderError, read_run_folder
from results.scratch_folder import ScratchFolder

SOCKET = "baton"
SOCKET_PATH_BYTES = 107  # unix(7): sun_path without the byte that ends it

# Pairs after which order and placement of the ranks have both taken every value with every other.
ORDERS = 2


@dataclass
class Pairs:
    out: Path
    plan: dict[str, Any]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder, or checks that it was made for the same plan."""
        self.out.mkdir(parents=True, exist_ok=True)
        busy = Problem(f"another compare_commits measures into {self.out}", "wait, or give --out")
        with locked(self.out / "lock", busy):
            self._agree()
            yield

    def _agree(self) -> None:
        file = self.out / "plan.json"
        if not file.exists():
            temporary = file.with_suffix(".new")
            # A call that was killed here left its own.
            own = ("lock", temporary.name)
            foreign = [one.name for one in self.out.iterdir() if one.name not in own]
            if foreign:
                raise Problem(f"{self.out} holds {foreign[0]}", "give --out another folder")
            temporary.write_text(json.dumps(self.plan, indent=2) + "\n")
            temporary.rename(file)
            return
        try:
            earlier = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise Problem(f"{file} cannot be read: {error}", "remove the folder") from None
        if not isinstance(earlier, dict):
            raise Problem(f"{file} is no plan of a comparison", "remove the folder")
        for key in self.plan.keys() | earlier.keys():
            if self.plan.get(key) != earlier.get(key):
                raise Problem(
                    f"{self.out} was measured with {key} = {json.dumps(earlier.get(key))},"
                    f" now it is {json.dumps(self.plan.get(key))}",
                    "give --out another folder, or remove this one",
                )

    def _folder(self, number: int) -> Path:
        return self.out / f"pair-{number:03}"

    def folders(self, number: int) -> tuple[Path, Path]:
        return self._folder(number) / "a", self._folder(number) / "b"

    def measured(self, number: int) -> bool:
        names = []
        for folder in self.folders(number):
            try:
                manifest = read_run_folder(folder).manifest
            except RunFolderError:
                return False
            turns = manifest.get("turns")
            names.append(turns.get("pair") if isinstance(turns, dict) else None)
        return names[0] is not None and names[0] == names[1]

    def measure(self, number: int, sides: list[Side], ranks: int, timeout: float) -> None:
        """Pair `number`, counted from 1. Sides start in an order that alternates from pair to pair,
        on cores that are dealt out anew after both orders."""
        folder = self._folder(number)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        ordered = sides if number % ORDERS == 1 else sides[::-1]
        cores = core_sets(sorted(os.sched_getaffinity(0)), ranks, (number - 1) // ORDERS)
        with socket_folder() as scratch:
            turned = []
            for side, turn in zip(ordered, ("first", "second"), strict=True):
                more = ["--baton", str(scratch / SOCKET), "--turn", turn]
                more += ["--out", str(folder / side.name)]
                turned.append(Side(side.name, [*side.command, *more], side.environment))
            launch(turned, cores, folder / "logs", timeout)
        if not self.measured(number):
            raise Problem(f"pair {number} left no two run folders of one pair", f"see {folder}")


def socket_folder() -> ScratchFolder:
    """Where both sides meet: not in the pair's folder, whose path may be longer than a socket's may
    be, nor in a temporary folder of which the same is true."""
    scratch = ScratchFolder()
    if len(os.fsencode(scratch.path / SOCKET)) > SOCKET_PATH_BYTES:
        scratch = ScratchFolder(Path("/tmp"))
    return scratch
