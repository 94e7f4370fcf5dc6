"""The benchmark's ranks as tasks of a real Slurm step: no wrapper, no variable set by hand."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm_lab import SlurmLab, missing

BIN = Path(os.environ["STEPSCOPE_BIN"])
QUICK = [BIN / "optimizer_step", "--quick", "--threads", "1", "--benchmark_filter=Lion8bit.*fp32"]

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


DRIVER = [sys.executable, Path(__file__).parents[2] / "topologies/pytorch/optimizer_step.py"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with SlurmLab(tmp_path_factory.mktemp("slurm")) as lab:
        yield lab


def test_tasks_of_two_nodes_find_each_other(lab, tmp_path):
    out = tmp_path / "run"
    ended = lab.run(["srun", "-N2", "-n3", "--kill-on-bad-exit=1", *QUICK, "--out", out])
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == str(out)
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == ["0", "1", "2"]
    assert {row["status"] for row in rows} == {"ok"}
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["launcher"] == "slurm"
    assert manifest["environment"]["SLURM_JOB_NODELIST"] == "n[1-2]"


def test_tasks_in_python_find_each_other_by_the_same_rules(lab, tmp_path):
    out = tmp_path / "run"
    words = ["--quick", "--optimizer", "Lion8bit", "--adapter", "local-shards", "--trace", "0"]
    ended = lab.run(
        [
            "srun",
            "-N2",
            "-n2",
            "--kill-on-bad-exit=1",
            *DRIVER,
            *words,
            "--steps",
            "5",
            "--out",
            out,
        ],
        timeout=150,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == str(out)
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["status"]) for row in rows] == [("0", "ok"), ("1", "ok")]
    assert json.loads((out / "manifest.json").read_text())["launcher"] == "slurm"


def test_two_steps_of_one_job_do_not_meet_each_other(lab, tmp_path):
    script = tmp_path / "job.sh"
    words = " ".join(map(str, QUICK)).replace(
        "--benchmark_filter=Lion8bit.*fp32", "'--benchmark_filter=Lion8bit.*fp32'"
    )
    script.write_text(
        "#!/bin/bash\n"
        f"srun --exact -n2 --mem=500 {words} --out {tmp_path}/a >{tmp_path}/a.txt 2>&1 & one=$!\n"
        f"srun --exact -n2 --mem=500 {words} --out {tmp_path}/b >{tmp_path}/b.txt 2>&1 & two=$!\n"
        "wait $one || exit; wait $two\n"
    )
    submit = ["sbatch", "-W", "-N1", "-n4", "-o", tmp_path / "job.txt", script]
    ended = lab.run(submit)
    said = "".join(
        file.read_text() for file in sorted(tmp_path.glob("*.txt"), key=lambda path: path.name)
    )
    assert ended.returncode == 0, said
    assert (tmp_path / "a" / "manifest.json").exists()
    assert (tmp_path / "b" / "manifest.json").exists()


def test_a_batch_script_without_srun_is_told_so_at_once(lab, tmp_path):
    log = tmp_path / "job.txt"
    line = " ".join(f"'{word}'" for word in map(str, QUICK))
    begin = time.monotonic()
    ended = lab.run(["sbatch", "-W", "-N2", "-n3", "-o", log, "--wrap", line])
    assert ended.returncode == 2
    assert time.monotonic() - begin < 60
    said = log.read_text()
    assert "SLURM_NTASKS is 3" in said
    assert "start the ranks with srun" in said
    assert said.count("\n") == 1, said


@pytest.mark.parametrize("program", [QUICK, DRIVER], ids=["C++", "Python"])
def test_a_rank_that_is_the_same_for_all_tasks_is_named_with_slurms(lab, program):
    by_hand = "RANK=0,WORLD_SIZE=3,LOCAL_RANK=0,MASTER_ADDR=127.0.0.1,MASTER_PORT=29511"
    ended = lab.run(
        ["srun", "-N2", "-n3", "--kill-on-bad-exit=1", f"--export=ALL,{by_hand}", *program]
    )
    assert ended.returncode != 0
    # The first task that fails takes the others along, whichever it is.
    assert re.search("RANK is 0 and SLURM_PROCID is [12]; unset", ended.stderr), ended.stderr


def test_a_task_that_slurm_kills_ends_the_others_with_its_rank_named(lab, tmp_path):
    out = tmp_path / "run"
    manifest = Path(f"{out}.incomplete/manifest.json")
    # Rank 1 dies while it measures; the other must not wait for the job's time limit.
    rank = tmp_path / "rank.sh"
    command = " ".join(f"'{word}'" for word in map(str, QUICK[:1]))
    rank.write_text(
        "#!/bin/bash\n"
        f"{command} --model gpt2 --steps 2000 --timeout 10 --threads 1 "
        f"'--benchmark_filter=Lion8bit.*fp32' --out {out} & pid=$!\n"
        'if [ "$SLURM_PROCID" = 1 ]; then\n'
        f"  for _ in $(seq 300); do [ -s {manifest} ] && break; sleep 0.1; done\n"
        "  sleep 1; kill -KILL $pid\n"
        "fi\n"
        "wait $pid\n"
    )
    rank.chmod(0o755)
    ended = lab.run(["srun", "-N2", "-n2", rank])
    assert ended.returncode != 0
    assert "peer rank 1" in ended.stderr, ended.stderr
    assert not out.exists()
    assert json.loads(manifest.read_text())["status"] == "incomplete"


def test_a_lab_that_is_left_by_an_error_leaves_no_process_behind(tmp_path_factory):
    # Of a short name: slurmd names a socket a step below it, and a socket's path has 107 bytes.
    tmp_path = tmp_path_factory.mktemp("left")
    # The error of a test that fails while its jobs run.
    with pytest.raises(KeyError, match="of a test"), SlurmLab(tmp_path / "slurm") as lab:
        clients = []
        deadline = time.monotonic() + 90
        next_start = time.monotonic()
        while len(running := lab.run(["squeue", "-h", "-t", "running"]).stdout.splitlines()) < 2:
            assert time.monotonic() < deadline, (running, lab.run(["scontrol", "show", "job"]))
            # On a busy machine a client may give up on its daemon; that is not what is tested.
            if time.monotonic() >= next_start:
                next_start += 15
                clients.append(start_a_client_and_a_batch_job(lab, tmp_path))
            time.sleep(0.2)
        assert any("slurmstepd" in name for name in map(name_of, lab.processes()))
        raise KeyError("of a test")
    for client in clients:
        client.wait(timeout=20)
    assert [name_of(pid) for pid in lab.processes()] == []


def start_a_client_and_a_batch_job(lab: SlurmLab, folder: Path) -> subprocess.Popen:
    client = subprocess.Popen(["srun", "-N2", "-n2", "sleep", "300"], env=lab.environment)
    submitted = lab.run(["sbatch", "-o", folder / "job%j.txt", "--wrap", "srun sleep 300"])
    assert submitted.returncode == 0, submitted.stderr
    return client


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()
