"""A bench/slurm/submit that is killed at any moment leaves no folder that reads as more than it is.

STEPSCOPE_KILLS=200 kills the whole program that often; the default is a reduced form. The record
itself is killed before each of its calls of the system, and those of no other part are left out.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from slurm_stand_ins import LONG, Slurm

from bench.slurm import slurm_outcome
from bench.slurm.slurm_record import pack, record
from results.run_folder import RunFolderError, read_any_run_folder, read_run_folder
from tests.results.synthetic_run import case_rows, write_run

KILLS = int(os.environ.get("STEPSCOPE_KILLS", "12"))
QUEUE = "gpu* up 1:00:00 2 idle gpu:2\n"
REFUSAL = "sbatch: error: QOSMaxGRESPerUser"
OUTCOMES = {
    "not-run": slurm_outcome.refused(REFUSAL),
    "incomplete": slurm_outcome.ended("TIMEOUT", "0:0", ""),
    "complete": slurm_outcome.ended("COMPLETED", "0:0", ""),
}
# More calls than the record makes; a child that lives longer fails the test.
MOST_CALLS = 3000


def left_by_a_job(folder: Path, status: str) -> Path:
    """What lies there when submit writes the record of a job with that end."""
    folder.mkdir()
    out = folder / "run"
    (folder / "run.job.log").write_text("what the job printed\n")
    if status == "not-run":
        return out
    (folder / "run.evidence").mkdir()
    (folder / "run.evidence" / "identities").write_text("0: node: n1\n")
    name = "run" if status == "complete" else "run.incomplete"
    write_run(folder / name, *case_rows(), {"status": status})
    return out


def recorded_until_call(number: int, out: Path, status: str) -> bool:
    """Writes and packs the record in a process that is killed before that call of the system; True
    where it ended before."""
    child = os.fork()
    if child == 0:
        calls = 0

        def count(*_event) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        folder, _ = record(out, OUTCOMES[status], QUEUE, {"job": "17"}, Path(f"{out}.job.log"))
        pack(folder, Path(f"{out}.tar.gz"))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def require_nothing_half(out: Path, status: str) -> list[str]:
    """What is there under its last name is whole, and nothing else is taken for a run; returns the
    names of what is there."""
    names = sorted(path.name for path in out.parent.iterdir())
    for name in names:
        if name.endswith(".incomplete"):
            with pytest.raises(RunFolderError):
                read_run_folder(out.with_name(name))
    if status == "incomplete":
        assert not out.exists()
    elif out.exists():
        run = read_any_run_folder(out)
        assert run.manifest["status"] == status
        if status == "not-run":
            assert run.manifest["code"] == "QOSMaxGRESPerUser"
            assert run.manifest["words"] == [REFUSAL]
            slurm = json.loads((out / "evidence" / "slurm.json").read_text())
            assert (slurm["code"], slurm["queue"]) == ("QOSMaxGRESPerUser", QUEUE.splitlines())
            assert (out / "evidence" / "job.log").exists()
            assert {"results.csv", "samples.csv"} <= {path.name for path in out.iterdir()}
    if Path(f"{out}.tar.gz").exists():
        folder = "run.incomplete" if status == "incomplete" else "run"
        with tarfile.open(f"{out}.tar.gz") as packed:
            assert {f"{folder}/manifest.json", f"{folder}/evidence/slurm.json"} <= set(
                packed.getnames()
            )
            assert all(packed.extractfile(entry).read() for entry in packed if entry.size)
    return names


@pytest.mark.parametrize("status", OUTCOMES)
def test_a_record_that_is_killed_before_any_of_its_calls_is_whole_or_not_taken_for_one(
    tmp_path, status
):
    seen = set()
    for number in range(1, MOST_CALLS):
        out = left_by_a_job(tmp_path / str(number), status)
        ended = recorded_until_call(number, out, status)
        seen |= set(require_nothing_half(out, status))
        if ended:
            break
        shutil.rmtree(out.parent)
    assert ended
    assert number > 20
    assert "run.tar.gz.new" in seen
    assert ("run.not-run.incomplete" in seen) == (status == "not-run")
    kept = "run.incomplete" if status == "incomplete" else "run"
    assert sorted(path.name for path in out.parent.iterdir()) == [kept, "run.tar.gz"]


def test_a_submit_that_is_killed_at_any_moment_leaves_nothing_half_under_the_name_of_a_run(
    tmp_path,
):
    chance = random.Random(1633)
    slurm = Slurm(tmp_path)
    slurm.says("sbatch", f"echo '{REFUSAL}' >&2; exit 1")
    begin = time.monotonic()
    assert slurm.submit(limit=LONG)[0] == 2
    life = time.monotonic() - begin
    folder = tmp_path / "runs"
    for _ in range(KILLS):
        folder.mkdir()
        slurm.out = folder / "run"
        with slurm.start(limit=LONG) as process:
            try:
                # Before the middle it is Python that starts.
                process.wait(timeout=chance.uniform(life / 2, life * 1.1))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate(timeout=60)
        names = require_nothing_half(slurm.out, "not-run")
        if names:
            # Another run of that name is refused, and never mixed with what was left.
            code, _, said = slurm.submit(limit=LONG)
            assert code == 2
            assert "exists; choose another --out" in said
            assert sorted(path.name for path in folder.iterdir()) == names
        shutil.rmtree(folder)
