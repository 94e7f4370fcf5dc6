"""What compare_results and the report show of the folders that bench/slurm/submit leaves of jobs
that did not run to their end: made by its own code, from Slurm's words as they were seen."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from bench.slurm import slurm_outcome
from bench.slurm.slurm_outcome import Outcome
from bench.slurm.slurm_record import pack, record
from plot import report
from tests.results.synthetic_run import case_rows, write_run

COMPARE = Path(os.environ["STEPSCOPE_BIN"]) / "compare_results"
QUEUE = (
    "PARTITION AVAIL TIMELIMIT NODES STATE GRES\n"
    "gpu* up 1:00:00 2 idle gpu:2\n"
    "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n"
    "17 gpu stepscope root PD 0:00 1 (QOSMaxGRESPerUser)\n"
)
REFUSAL = (
    "sbatch: error: QOSMaxGRESPerUser\n"
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit"
    " limit, user's size and/or time limits)\n"
)
KILLED = (
    "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-12-02T10:00:00 DUE TO TIME LIMIT ***"
)
OOM = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=17.0"
# name -> outcome, status, class, Slurm's name for it, one of its own lines
JOBS: dict[str, tuple[Outcome, str, str, str, str]] = {
    "refused": (
        slurm_outcome.refused(REFUSAL),
        "not-run", "environment", "QOSMaxGRESPerUser", "sbatch: error: QOSMaxGRESPerUser",
    ),
    "pending": (
        slurm_outcome.waited("(Resources)", 3600),
        "not-run", "environment", "Resources", "PENDING (Resources)",
    ),
    "time": (
        slurm_outcome.ended("TIMEOUT", "0:0", KILLED),
        "incomplete", "environment", "TIMEOUT", KILLED,
    ),
    "memory": (
        slurm_outcome.ended("OUT_OF_MEMORY", "0:125", OOM),
        "incomplete", "environment", "OUT_OF_MEMORY", OOM,
    ),
    "node": (
        slurm_outcome.ended("NODE_FAIL", "0:0", "srun: error: Node failure on n2"),
        "incomplete", "environment", "NODE_FAIL", "srun: error: Node failure on n2",
    ),
    "cancelled": (
        slurm_outcome.ended("CANCELLED by 0", "0:15", ""),
        "incomplete", "environment", "CANCELLED", "CANCELLED by 0",
    ),
    "failed": (
        slurm_outcome.ended("FAILED", "2:0", "srun: error: n1: task 0: Exited with exit code 2"),
        "incomplete", "subject", "FAILED", "srun: error: n1: task 0: Exited with exit code 2",
    ),
}  # fmt: skip


def left_by(job: str, tmp_path: Path, measured: bool = False) -> Path:
    """The folder that submit leaves; of an incomplete one perhaps with rows of the benchmark."""
    out = tmp_path / job
    if measured:
        write_run(Path(f"{out}.incomplete"), *case_rows(), {"status": "incomplete"})
    folder, _ = record(out, JOBS[job][0], QUEUE, {"job": "17"}, tmp_path / "no.log")
    return folder


def compare(*words: object) -> tuple[int, str, str]:
    ended = subprocess.run(
        [COMPARE, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_comparison_names_such_a_run_and_takes_no_number_from_it(tmp_path, job):
    _, status, blame, code, words = JOBS[job]
    base = [write_run(tmp_path / f"base{i}", *case_rows()) for i in range(3)]
    new = [write_run(tmp_path / f"new{i}", *case_rows()) for i in range(3)]
    measured = status == "incomplete"
    folder = left_by(job, tmp_path, measured)
    exit_code, whole, _ = compare(*base, "--", *new)
    assert exit_code == 0
    exit_code, said, _ = compare(*base, "--", *new, folder)
    assert exit_code == 0
    note = next(line for line in said.splitlines() if str(folder) in line)
    was = "was not run" if status == "not-run" else "is not complete (status incomplete)"
    assert was in note
    assert f"({blame}, {code})" in note
    assert words in re.sub(r"\\(.)", r"\1", note)
    assert "QOSMaxGRESPerUser" in note.partition("the queue then")[2]
    # The comparison of the others is what it is without this run.
    assert table_of(said) == table_of(whole) != []


def table_of(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("job", JOBS)
def test_such_runs_alone_are_no_comparison(tmp_path, job):
    base = write_run(tmp_path / "base", *case_rows())
    exit_code, said, error = compare(base, "--", left_by(job, tmp_path, JOBS[job][1] != "not-run"))
    assert exit_code == 2
    assert JOBS[job][3] in said
    assert error.count("\n") == 1 and "no benchmark could be compared" in error


@pytest.mark.parametrize("job", JOBS)
def test_the_report_of_such_a_run_says_what_it_is_in_slurms_words(tmp_path, job):
    _, status, blame, code, words = JOBS[job]
    folder = left_by(job, tmp_path)
    assert report.main([str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    headline = "never started" if status == "not-run" else "did not finish"
    assert headline in page
    assert f"({blame}, {code})" in page
    assert words in page.replace("&#x27;", "'")
    assert "17 gpu stepscope root PD 0:00 1 (QOSMaxGRESPerUser)" in page
    assert "<svg" not in page and ">Numbers</h2>" not in page


def test_what_an_unfinished_run_measured_stands_below_what_ended_it(tmp_path):
    folder = left_by("time", tmp_path, measured=True)
    assert report.main([str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    said = [
        page.index(text) for text in ("did not finish", "(environment, TIMEOUT)", ">Numbers</h2>")
    ]
    assert said == sorted(said)


def test_what_is_packed_cannot_lead_out_of_its_folder(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    left = tmp_path / "refused.evidence"
    (left / "part").mkdir(parents=True)
    (left / "link").symlink_to(secret)
    (left / "part" / "folder").symlink_to(tmp_path)
    folder = left_by("refused", tmp_path)
    pack(folder, tmp_path / "refused.tar.gz")
    with tarfile.open(tmp_path / "refused.tar.gz") as packed:
        assert all(entry.isfile() or entry.isdir() for entry in packed)
        names = packed.getnames()
        packed.extractall(tmp_path / "unpacked", filter="data")
    assert all(name == "refused" or name.startswith("refused/") for name in names)
    assert not any("link" in name or "secret" in name for name in names)
    for path in (*folder.rglob("*"), *(tmp_path / "unpacked").rglob("*")):
        assert path.is_symlink() or path.is_dir() or b"somebody else" not in path.read_bytes()
