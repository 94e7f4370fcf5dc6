"""bench/slurm/submit on a real Slurm with accounting: whatever Slurm says becomes a run folder."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from slurm_lab import SlurmLab, missing

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["STEPSCOPE_BIN"]).parent
SUBMIT = [ROOT / "bench/slurm/submit", "--build", BUILD, "--poll", "0.3"]
QUICK = ["--", "--quick", "--threads", "1", "--benchmark_filter=Lion8bit.*fp32"]
LONG = ["--", "--model", "tiny", "--steps", "2000000", "--threads", "1", QUICK[-1]]
SECRET = "planted-in-the-environment-4711"

pytestmark = pytest.mark.skipif(
    bool(missing(accounting=True)), reason=missing(accounting=True) or "-"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with SlurmLab(tmp_path_factory.mktemp("slurm"), accounting=True) as lab:
        yield lab


def submit(lab, out, *words, timeout=150):
    return lab.run(
        [*SUBMIT, "--out", out, *words], environment={"PLANTED_TOKEN": SECRET}, timeout=timeout
    )


@pytest.fixture
def started(lab):
    """Submits a job and returns when its benchmark has begun to measure: the process, and the id of
    the job. Both are ended with the test, however that ends."""
    processes = []

    def start(out, *words):
        process = subprocess.Popen(
            [str(word) for word in (*SUBMIT, "--out", out, *words)],
            env=lab.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        # On a busy machine the preflight alone takes its minute.
        deadline = time.monotonic() + 150
        while not Path(f"{out}.incomplete/manifest.json").exists():
            assert time.monotonic() < deadline, "the job did not begin to measure"
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        return process, lab.run(["squeue", "-h", "-o", "%i"]).stdout.split()[0]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
    lab.cancel_all()


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def whole(lab, tmp_path_factory):
    """A job that ran to its end, and its folder."""
    out = tmp_path_factory.mktemp("whole") / "run"
    # PyTorch is loaded twice on every rank: minutes on a busy machine, so not the default limit.
    words = ["--nodes=2", "--ntasks", "3", "--time=00:20:00", *QUICK]
    return submit(lab, out, *words, timeout=700), out


def test_a_job_that_ran_leaves_a_complete_folder_with_its_evidence(whole):
    ended, out = whole
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{out}\n"
    assert manifest(out)["status"] == "complete"
    with (out / "results.csv").open(newline="") as file:
        assert {row["world_size"] for row in csv.DictReader(file)} == {"3"}
    evidence = out / "evidence"
    identities = (evidence / "identities").read_text()
    assert "0: node: n1" in identities
    assert "1: node: n2" in identities
    assert "optimizer_step_sha256: " in identities
    preflight = (evidence / "preflight").read_text()
    assert "1: ok      loopback" in preflight
    assert "optimizer_step --device cpu --out" in (evidence / "commands").read_text()
    slurm = json.loads((evidence / "slurm.json").read_text())
    assert slurm["code"] == "COMPLETED"
    assert slurm["parts"][0] == "traced step: ok, 3 ranks keep the plan of fsdp2/global"
    assert slurm["parts"][1].startswith("upstream #1633: reproduced, step 1, parameter ")
    assert "got mixed torch.Tensor and DTensor" in slurm["parts"][1]
    assert slurm["parts"][2].startswith("upstream #2080: reproduced, 0 FP32 state(s) in one flat")
    assert slurm["parts"][3:] == [
        "memcheck: not run, because compute-sanitizer checks what runs on a GPU, and this job has"
        " none",
    ]
    assert all(line in ended.stderr for line in slurm["parts"])
    verdicts = json.loads((evidence / "trace_check.json").read_text())["verdicts"]
    judged = {(one["contract"], one["rank"]): one["status"] for one in verdicts}
    assert {judged["local-n", rank] for rank in range(3)} == {"ok"}
    assert not Path(f"{out}.evidence").exists()
    with tarfile.open(f"{out}.tar.gz") as packed:
        names = packed.getnames()
    there = {str(path.relative_to(out.parent)) for path in (out, *out.rglob("*"))}
    assert set(names) == there
    assert {"run/results.csv", "run/evidence/slurm.json", "run/evidence/job.log"} < there
    assert sum(name.endswith(".sqlite") for name in names) > 3


def test_no_secret_of_the_environment_is_in_what_is_left(whole):
    ended, out = whole
    assert ended.returncode == 0, ended.stderr
    for path in out.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--qos=onedeny", "--ntasks=2", "--gpus-per-node=2"], "QOSMaxGRESPerUser"),
        (["--qos=one", "--ntasks=2", "--gpus-per-node=2"], "QOSMaxGRESPerUser"),
        (["--qos=nosuch", "--ntasks=1"], "InvalidQOS"),
        (["--partition=nosuch", "--ntasks=1"], "InvalidPartition"),
        (["--gpus-per-node=8", "--ntasks=1"], "NodeConfigurationNotAvailable"),
        (["--begin=now+1hour", "--pending-limit=1", "--ntasks=1"], "BeginTime"),
    ],
)
def test_what_slurm_does_not_start_is_not_run_in_its_own_words(lab, tmp_path, words, code):
    out = tmp_path / "run"
    ended = submit(lab, out, *words, *QUICK)
    assert ended.returncode == 2
    assert ended.stdout == f"{out}\n"
    assert "not-run" in ended.stderr
    found = manifest(out)
    assert found["status"] == "not-run"
    assert found["class"] == "environment"
    assert found["code"] == code, found["words"]
    assert any(code in line or "sbatch: error" in line for line in found["words"])
    assert any(line.startswith("gpu*") for line in found["queue"])
    assert found["rows"] == {"results": 0, "samples": 0}
    assert lab.run(["squeue", "-h"]).stdout == ""
    with tarfile.open(f"{out}.tar.gz") as packed:
        assert {"run/manifest.json", "run/evidence/slurm.json"} <= set(packed.getnames())


REFUSED = ["--qos=onedeny", "--gpus-per-node=2"]


def test_one_gpu_that_was_asked_for_instead_is_measured_and_marked_everywhere(lab, tmp_path):
    out = tmp_path / "run"
    words = [*REFUSED, "--ntasks=2", "--time=00:20:00", "--substitute=one-gpu", *QUICK]
    ended = submit(lab, out, *words, timeout=700)
    smaller = tmp_path / "run-one-gpu"
    assert ended.stdout == f"{out}\n{smaller}\n", ended.stderr
    assert ended.returncode == 2  # what was asked for was not run
    refused = manifest(out)
    assert (refused["status"], refused["code"]) == ("not-run", "QOSMaxGRESPerUser")
    found = manifest(smaller)
    assert (found["status"], found["substitute"]) == ("complete", "one-gpu")
    tables = [path for path in smaller.rglob("results.csv")]
    assert len(tables) == 4  # the benchmarks', the traced step's, and two of the upstream problems
    for table in tables:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {(row["substitute"], row["world_size"]) for row in rows} == {("one-gpu", "1")}, table
    slurm = json.loads((smaller / "evidence" / "slurm.json").read_text())
    assert slurm["slurm"]["instead_of"]["code"] == "QOSMaxGRESPerUser"


def test_ranks_that_share_cores_as_asked_for_pass_the_preflights_cores(lab, tmp_path):
    """A job whose preflight stops it for another reason, as nothing else of it is needed here."""
    out = tmp_path / "run"
    cores = len(os.sched_getaffinity(0))
    words = [*REFUSED, f"--ntasks={cores + 1}", "--substitute", "oversubscribed"]
    ended = submit(lab, out, *words, "--", "--model", "no such model.json", timeout=300)
    smaller = tmp_path / "run-oversubscribed.incomplete"
    assert ended.stdout == f"{out}\n{smaller}\n", ended.stderr
    found = manifest(smaller)
    assert (found["code"], found["substitute"]) == ("PREFLIGHT", "oversubscribed")
    said = (smaller / "evidence" / "preflight").read_text()
    assert f"warning cores         {cores} for {cores + 1} ranks of this node; asked for" in said
    assert not any("cores" in line for line in found["words"]), found["words"]


def test_memory_that_does_not_suffice_is_the_environments_doing(lab, tmp_path):
    out = tmp_path / "run"
    ended = submit(lab, out, "--ntasks=1", "--mem=20", *LONG)
    assert ended.returncode == 2
    found = manifest(Path(f"{out}.incomplete"))
    assert (found["status"], found["class"]) == ("incomplete", "environment")
    assert found["code"] == "OUT_OF_MEMORY"
    assert any("memory limit" in line or "oom" in line for line in found["words"])


def test_a_preflight_that_says_stop_ends_the_job_before_anything_is_measured(lab, tmp_path):
    out = tmp_path / "run"
    cores = len(os.sched_getaffinity(0))
    if cores > 7:
        pytest.skip("a virtual node has 8 cores: no job can ask for more ranks than this host has")
    ended = submit(lab, out, "--nodes=1", "--ntasks", str(cores + 1), *QUICK)
    assert ended.returncode == 2
    found = manifest(Path(f"{out}.incomplete"))
    assert (found["status"], found["class"], found["code"]) == (
        "incomplete", "environment", "PREFLIGHT",
    )  # fmt: skip
    assert any("stop    cores" in line for line in found["words"]), found["words"]
    assert found["rows"] == {"results": 0, "samples": 0}


def test_a_cancelled_job_keeps_what_was_measured_and_is_incomplete(lab, started, tmp_path):
    out = tmp_path / "run"
    process, job = started(out, "--ntasks=2", *LONG)
    assert lab.run(["scancel", job]).returncode == 0
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said == f"{out}.incomplete\n"
    found = manifest(Path(f"{out}.incomplete"))
    assert (found["status"], found["class"], found["code"]) == (
        "incomplete", "environment", "CANCELLED",
    )  # fmt: skip
    assert found["world_size"] == 2
    assert not out.exists()


def test_slurms_warning_before_the_time_limit_ends_the_step_and_keeps_it(lab, started, tmp_path):
    out = tmp_path / "run"
    process, job = started(out, "--ntasks=2", *LONG)
    # What --signal=B:TERM@30 sends.
    assert lab.run(["scancel", "--batch", "--signal=TERM", job]).returncode == 0
    process.communicate(timeout=120)
    assert process.returncode == 2
    folder = Path(f"{out}.incomplete")
    found = manifest(folder)
    assert (found["status"], found["class"], found["code"]) == (
        "incomplete", "environment", "TOLD_TO_STOP",
    )  # fmt: skip
    assert "told to stop" in (folder / "evidence" / "job.log").read_text()


def test_a_time_limit_ends_the_job_before_slurm_kills_it(lab, tmp_path):
    out = tmp_path / "run"
    ended = submit(lab, out, "--ntasks=1", "--time=00:01:00", *LONG)
    assert ended.returncode == 2
    found = manifest(Path(f"{out}.incomplete"))
    assert (found["status"], found["class"]) == ("incomplete", "environment")
    assert found["code"] in ("TOLD_TO_STOP", "TIMEOUT")
    assert found["world_size"] == 1  # what the benchmark wrote is still there


def test_an_interrupted_submit_takes_its_job_back(lab, started, tmp_path):
    out = tmp_path / "run"
    process, _ = started(out, "--ntasks=2", *LONG)
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 2
    assert manifest(Path(f"{out}.incomplete"))["code"] == "CANCELLED"
    deadline = time.monotonic() + 60
    while lab.run(["squeue", "-h", "-t", "running"]).stdout and time.monotonic() < deadline:
        time.sleep(0.2)
    assert lab.run(["squeue", "-h", "-t", "running"]).stdout == ""


def test_a_node_that_is_lost_is_the_environments_doing(lab, started, tmp_path):
    out = tmp_path / "run"
    process, job = started(out, "--nodes=2", "--ntasks=2", *LONG)
    lost = "n2"
    lab.lose(lost)
    try:
        process.communicate(timeout=150)
    finally:
        lab.restore(lost)
    assert process.returncode == 2
    found = manifest(Path(f"{out}.incomplete"))
    assert (found["status"], found["class"]) == ("incomplete", "environment"), found
    assert found["code"] == "NODE_FAIL", found["words"]
    assert job in found["slurm"]["job"]


@pytest.mark.parametrize(
    ("make", "out", "said"),
    [
        ("mkdir run", "run", "run exists; choose another --out"),
        ("touch run", "run", "run exists; choose another --out"),
        ("ln -s nowhere run", "run", "run exists; choose another --out"),
        ("touch run.job.log", "run", "run.job.log exists; choose another --out"),
        ("mkdir run.not-run.incomplete", "run", "incomplete exists; choose another --out"),
        ("touch file", "file/run", "File exists"),
        ("true", "/proc/stepscope/run", "No such file or directory"),
        ("true", "100 %j", "Slurm gives %"),
        ("true", "a\nb", "control characters"),
    ],
)
def test_a_destination_that_cannot_be_is_refused_before_anything_is_submitted(
    lab, tmp_path, make, out, said
):
    subprocess.run(make, shell=True, cwd=tmp_path, check=True, timeout=20)
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = submit(lab, tmp_path / out, "--ntasks=1", *QUICK)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1 and ended.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert lab.run(["squeue", "-h"]).stdout == ""


def test_blanks_foreign_letters_and_slurms_variables_change_nothing(lab, tmp_path):
    """A job whose preflight stops it, as nothing else of it is needed here."""
    out = tmp_path / "läuft über Nacht 夜 (1)" / "it's a run"
    words = ["--nodes=1", "--ntasks=1", "--", "--model", "no such model.json"]
    hostile = {
        "SBATCH_ARRAY_INX": "0-3",
        "SBATCH_WAIT": "1",
        "SBATCH_REQUEUE": "1",
        "SQUEUE_FORMAT": "%u",
        "SQUEUE_STATES": "FAILED",
        "SINFO_FORMAT": "%n",
        "SACCT_FORMAT": "User",
        "SLURM_TIME_FORMAT": "relative",
    }
    ended = lab.run([*SUBMIT, "--out", out, *words], environment=hostile, timeout=150)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == f"{out}.incomplete\n"
    found = manifest(Path(f"{out}.incomplete"))
    assert found["code"] == "PREFLIGHT", ended.stderr
    assert any("no such model.json" in line for line in found["words"]), found["words"]
    assert any(line.startswith("gpu*") for line in found["queue"])
    assert sorted(path.name for path in out.parent.iterdir()) == [
        "it's a run.incomplete", "it's a run.tar.gz",
    ]  # fmt: skip


def test_of_two_submits_into_one_folder_the_second_is_refused(lab, started, tmp_path):
    out = tmp_path / "run"
    process, job = started(out, "--ntasks=1", *LONG)
    ended = submit(lab, out, "--ntasks=1", *QUICK)
    assert ended.returncode == 2
    assert "exists; choose another --out" in ended.stderr
    assert lab.run(["scancel", job]).returncode == 0
    process.communicate(timeout=120)
    assert manifest(Path(f"{out}.incomplete"))["code"] == "CANCELLED"


def test_a_job_whose_submit_was_killed_keeps_its_evidence_by_itself(lab, started, tmp_path):
    out = tmp_path / "run"
    process, job = started(out, "--ntasks=1", *LONG)
    process.kill()
    process.communicate(timeout=60)
    assert lab.run(["scancel", "--batch", "--signal=TERM", job]).returncode == 0
    deadline = time.monotonic() + 90
    while lab.run(["squeue", "-h"]).stdout and time.monotonic() < deadline:
        time.sleep(0.3)
    folder = Path(f"{out}.incomplete")
    assert manifest(folder)["status"] == "incomplete"
    assert "node: n" in (folder / "evidence" / "identities").read_text()
    assert not Path(f"{out}.evidence").exists()
