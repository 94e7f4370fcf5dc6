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
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.paired.launch import Side, core_sets, launch
from bench.paired.problem import Problem
from results.run_folder import RunFolderError, read_run_folder

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
        with (self.out / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Problem(
                    f"another compare_commits measures into {self.out}", "wait, or give --out"
                ) from None
            self._agree()
            yield

    def _agree(self) -> None:
        file = self.out / "plan.json"
        if not file.exists():
            foreign = [one.name for one in self.out.iterdir() if one.name != "lock"]
            if foreign:
                raise Problem(f"{self.out} holds {foreign[0]}", "give --out another folder")
            temporary = file.with_suffix(".new")
            temporary.write_text(json.dumps(self.plan, indent=2) + "\n")
            temporary.rename(file)
            return
        try:
            earlier = json.loads(file.read_text())
        except (ValueError, OSError) as error:
            raise Problem(f"{file} cannot be read: {error}", "remove the folder") from None
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
                manifest = read_run_folder(folder, with_samples=False).manifest
            except RunFolderError:
                return False
            names.append((manifest.get("turns") or {}).get("pair"))
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
        # A path within the folder may be longer than a socket's may be.
        with socket_path() as baton:
            turned = []
            for side, turn in zip(ordered, ("first", "second"), strict=True):
                more = ["--baton", baton, "--turn", turn, "--out", str(folder / side.name)]
                turned.append(Side(side.name, [*side.command, *more], side.environment))
            launch(turned, cores, folder / "logs", timeout)
        if not self.measured(number):
            raise Problem(f"pair {number} left no two run folders of one pair", f"see {folder}")


@contextlib.contextmanager
def socket_path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        yield f"{folder}/baton"
