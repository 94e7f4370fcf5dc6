"""The first steps of a case in child processes, one a rank, before they are done in this process:
what may kill its process (an illegal access on a GPU, a crash of native code) or never return then
costs a child, and is a result.

Usage:

    failure = try_first_steps(job, description, case, limit_s=600)   # None: they work

The children (trial_rank.py) meet through the same store as their parents, under a prefix, and have
CUDA_LAUNCH_BLOCKING=1, so that a kernel's error appears at the step and parameter that launched it.

Caveats: a child loads PyTorch anew, which takes seconds: only for cases that may crash.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from results.scratch_folder import ScratchFolder
from topologies.pytorch.case import Case
from topologies.pytorch.ranks import Job, RanksFailed, gather, together

CHILD = Path(__file__).with_name("trial_rank.py")
LONGEST_SLICE_S = 0.5
# Others of a job whose one child has ended without a result wait for it in vain: for this long.
GRACE_S = 5.0
START_S = 300.0  # to load PyTorch and to build the model, on a busy machine
LAST_WORDS = 300  # characters
_numbers = itertools.count()


def may_crash(case: Case, device: torch.device) -> bool:
    """Whether the case is tried first without being asked to: another package, and on the GPU
    bitsandbytes as it is, whose versions before 0.47 hand what they get to their kernels."""
    is_stock = case.package == "bitsandbytes" and case.adapter in ("none", "builtin")
    return case.peer is not None or (is_stock and device.type == "cuda")


def try_first_steps(
    job: Job, description: dict[str, Any], case: Case, limit_s: float
) -> str | None:
    """What failed, on the first rank where it did; None where all steps were done. `limit_s`: for a
    step. Collective. Raises RanksFailed where the case
    cannot be built; for another package (Case.peer) that is a failure like others."""
    number = next(_numbers)
    with together(ScratchFolder) as folder:
        child = together(lambda: _Child(job, description, case, number, folder))
        try:
            ended = _wait(job, child, limit_s)
        finally:
            child.kill()
    results = gather(ended)
    # Those that waited for a child that was lost fail in their turn.
    earliest = min((one.look for one in results if one.lost), default=None)
    lost = _first([one.lost if one.look == earliest else None for one in results])
    unable = _first([one.cannot_run for one in results])
    if unable and not lost and not case.peer:
        raise RanksFailed(unable)
    return lost or _first([one.failure for one in results]) or unable


@dataclass
class _Ended:
    failure: str | None = None  # said by the child itself
    cannot_run: str | None = None  # as well
    lost: str | None = None  # it ended without a word of its own, or did not end
    look: int = 0  # the one in which this was seen: the ranks look together


class _Child:
    def __init__(
        self, job: Job, description: dict[str, Any], case: Case, number: int, folder: Path
    ) -> None:
        self._progress = folder / "progress"
        self._words = folder / "words"
        self._progress.touch()
        spec = {
            "case": asdict(case),
            "description": description,
            "rank": job.rank,
            "world_size": job.world_size,
            "device": str(job.device),
            "timeout_s": job.timeout_s,
            "threads": torch.get_num_threads(),
            "store_prefix": f"trial {number}",
            "progress": str(self._progress),
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        with self._words.open("w") as words:
            self._process = subprocess.Popen(
                [sys.executable, CHILD, folder / "spec.json"],
                env={**os.environ, "CUDA_LAUNCH_BLOCKING": "1"},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def ended(self, wait_s: float) -> bool:
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def notes(self) -> list[dict[str, Any]]:
        """What it has begun and found, in order; a line that was not written to its end is left."""
        lines = self._progress.read_text(errors="replace").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def outcome(self) -> _Ended:
        """Of a child that has ended."""
        notes = self.notes()
        last = notes[-1] if notes else {}
        if "done" in last:
            return _Ended()
        if "failure" in last:
            return _Ended(failure=last["failure"])
        if "cannot_run" in last:
            return _Ended(cannot_run=last["cannot_run"])
        code = self._process.returncode
        if code < 0:
            how = f"its process was ended by signal {signal.Signals(-code).name}"
        else:
            how = f"its process ended with exit code {code}"
        return _Ended(lost=self._where(notes, how))

    def overdue(self, limit_s: float) -> _Ended:
        return _Ended(lost=self._where(self.notes(), f"it did not end within {limit_s:g} s"))

    def _where(self, notes: list[dict[str, Any]], how: str) -> str:
        step = next((one["step"] for one in reversed(notes) if "step" in one), None)
        if step is None:
            return f"before the first step: {how}{self._last_words()}"
        begun = [one for one in notes if one.get("of_step") == step]
        text = f"step {step}"
        if begun:
            text += f", parameter {begun[-1]['parameter']}"
        text += f": {how}{self._last_words()}"
        if begun:
            others = len(begun) - 1
            text += f"; by then {begun[-1]['parameter']} had {begun[-1]['state'] or 'no state'}"
            text += f"; {others} parameter{'' if others == 1 else 's'} before it had done this step"
        return text

    def _last_words(self) -> str:
        lines = self._words.read_text(errors="replace").split("\n")
        last = next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")
        return f', last words "{last[-LAST_WORDS:]}"' if last else ""


def _wait(job: Job, child: _Child, limit_s: float) -> _Ended:
    """What this rank's child came to. All ranks look together, again and again, so that none waits
    in a collective for longer than the job's timeout."""
    slice_s = min(LONGEST_SLICE_S, job.timeout_s / 4)
    seen, since, lost_since, mine = 0, time.monotonic(), None, None
    look = 0
    while True:
        look += 1
        if mine is not None:
            time.sleep(slice_s)
        elif child.ended(slice_s):
            mine = child.outcome()
        now = time.monotonic()
        if mine is None:
            notes = child.notes()
            if len(notes) > seen:
                seen, since = len(notes), now
            limit = limit_s if notes else max(limit_s, START_S)
            if now - since > limit and not (notes and "stepped" in notes[-1]):
                mine = child.overdue(limit)
            if mine is None and lost_since is not None and now - lost_since > GRACE_S:
                mine = _Ended(failure="it waited for a rank that was lost")
        if mine is not None and not mine.look:
            mine.look = look
        states = gather((mine is not None, mine is not None and mine.lost is not None))
        if all(done for done, _ in states):
            return mine
        if any(lost for _, lost in states) and lost_since is None:
            lost_since = now


def _first(reasons: list[str | None]) -> str | None:
    for rank, one in enumerate(reasons):
        if one is not None:
            return one if rank == 0 else f"rank {rank}: {one}"
    return None
