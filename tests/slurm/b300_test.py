"""bench/slurm/b300.sh: goes on to job.sh on two B300 alone; nvidia-smi is a stand-in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench/slurm/b300.sh"
FAILS = "echo 'NVIDIA-SMI has failed' >&2; exit 9"


def started(folder: Path, nvidia_smi: str, *more: str) -> subprocess.CompletedProcess[str]:
    """The script, in a checkout whose job.sh only says what it is given."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{nvidia_smi}\n")
    (folder / "bench/slurm").mkdir(parents=True)
    (folder / "bench/slurm/job.sh").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    for program in ("nvidia-smi", "bench/slurm/job.sh"):
        (folder / program).chmod(0o755)
    return subprocess.run(
        [SCRIPT, folder, "build", "out", "--model", "a b", *more],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_two_gpus_of_compute_capability_10_3_are_measured_as_asked(tmp_path):
    ended = started(tmp_path, "printf '10.3\\n10.3\\n'")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [str(tmp_path), "build", "out", "--model", "a b"]


@pytest.mark.parametrize(
    ("nvidia_smi", "said"),
    [
        ("printf '10.3\\n'", "this node shows: 10.3\n"),
        ("printf '10.3\\n10.0\\n'", "this node shows: 10.3 10.0\n"),
        ("printf '9.0\\n9.0\\n'", "this node shows: 9.0 9.0\n"),
        ("printf '10.3\\n10.3\\n10.3\\n'", "this node shows: 10.3 10.3 10.3\n"),
        (FAILS, "nvidia-smi shows no GPU on this node"),
    ],
)
def test_anything_else_is_refused_and_nothing_takes_its_place(tmp_path, nvidia_smi, said):
    ended = started(tmp_path, nvidia_smi)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("mark", [["--substitute", "one-gpu"], ["--substitute=oversubscribed"]])
def test_a_job_that_is_marked_as_a_substitute_has_one_such_gpu(tmp_path, mark):
    ended = started(tmp_path, "printf '10.3\\n'", *mark)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[3:] == ["--model", "a b", *mark]


@pytest.mark.parametrize("gpus", ["10.3\\n10.3\\n", "9.0\\n"])
def test_a_marked_job_on_other_gpus_is_refused(tmp_path, gpus):
    ended = started(tmp_path, f"printf '{gpus}'", "--substitute=one-gpu")
    assert ended.returncode == 2 and "one GPU(s) of compute capability 10.3 wanted" in ended.stderr


def test_the_job_asks_for_two_gpus_of_one_node_for_twenty_minutes():
    asked = {line for line in SCRIPT.read_text().splitlines() if line.startswith("#SBATCH")}
    for words in ("--nodes=1", "--ntasks=2", "--gpus-per-node=2", "--time=00:20:00"):
        assert f"#SBATCH {words}" in asked
