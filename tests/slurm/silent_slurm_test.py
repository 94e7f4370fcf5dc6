"""bench/slurm/submit where Slurm is silent or is interrupted: the stand-ins are Slurm's client
programs, with the words of a real Slurm 22.05."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from slurm_stand_ins import LONG, Slurm, recorded, verdict

ROOT = Path(__file__).resolve().parents[2]
# Seconds of silence, where it is the case.
SHORT = "4"
UNREACHABLE = "Unable to contact slurm controller (connect failure)"
DOWN = f"echo 'slurm_load_jobs error: {UNREACHABLE}' >&2; exit 1"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


@pytest.fixture
def slurm(tmp_path):
    return Slurm(tmp_path)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("sleep 50", "sbatch did not answer within 4 s"),
        (
            "echo 'sbatch: error: Slurm controller not responding, sleeping and retrying.' >&2\n"
            "sleep 50",
            "sbatch: error: Slurm controller not responding, sleeping and retrying.",
        ),
    ],
)
def test_an_sbatch_that_hangs_is_a_run_that_was_not_run(slurm, words, kept):
    slurm.says("sbatch", words)
    code, out, err = slurm.submit("--ntasks=2", limit=SHORT)
    assert (code, out) == (2, f"{slurm.out}\n")
    manifest = recorded(slurm.out)
    assert verdict(manifest) == ("not-run", "environment", "NoAnswer")
    assert manifest["words"] == [kept]
    assert manifest["queue"] == ["gpu* up 1:00:00 2 idle gpu:2"]
    assert "squeue --me" in manifest["reason"] and manifest["reason"] in err


@pytest.mark.parametrize("option", ["--out", "--job", "--build", "--poll", "--substitute", "--qos"])
def test_an_option_whose_value_is_empty_is_named_before_anything_is_submitted(slurm, option):
    code, out, err = slurm.submit("--ntasks=2", option, "")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and f"submit: {option} is empty" in err
    assert slurm.asked_so_far() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out="], "--out is empty"),
        (["--substitute="], "--substitute is empty"),
        (["--ntasks=2", ""], "argument 8 is empty"),
        (["--ntasks=2", "--", "--model", ""], "--model is empty"),
    ],
)
def test_an_empty_word_is_refused_before_anything_is_submitted(slurm, words, said):
    code, out, err = slurm.submit(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and f"submit: {said}" in err
    assert slurm.asked_so_far() == []


def test_an_sbatch_that_cannot_reach_its_controller_says_so_in_its_own_words(slurm):
    said = f"sbatch: error: Batch job submission failed: {UNREACHABLE}"
    slurm.says("sbatch", f"echo '{said}' >&2; exit 1")
    slurm.says("sinfo", f"echo 'slurm_load_partitions: {UNREACHABLE}' >&2; exit 1")
    assert slurm.submit()[0] == 2
    manifest = recorded(slurm.out)
    assert verdict(manifest) == ("not-run", "environment", "NoController")
    assert manifest["words"] == [said]
    assert manifest["queue"] == [f"slurm_load_partitions: {UNREACHABLE}"]


@pytest.mark.parametrize(
    ("silence", "kept"),
    [(DOWN, f"slurm_load_jobs error: {UNREACHABLE}"), ("sleep 50", "squeue did not answer within")],
)
@pytest.mark.parametrize("begun", [False, True])
def test_a_controller_that_stays_silent_is_recorded_and_no_vanished_job(
    slurm, silence, kept, begun
):
    stage = slurm.out.with_name("run.evidence")
    if begun:
        slurm.says("sbatch", f"mkdir {stage}; echo here >{stage}/identities; echo 17")
    slurm.says("squeue", silence)
    slurm.says("sinfo", "sleep 50")
    code, out, err = slurm.submit(limit=SHORT)
    folder = slurm.out.with_name("run.incomplete") if begun else slurm.out
    assert (code, out) == (2, f"{folder}\n")
    manifest = recorded(folder)
    assert verdict(manifest) == ("incomplete" if begun else "not-run", "environment", "NoAnswer")
    assert manifest["words"][0].startswith(kept)
    assert any("sinfo did not answer" in line for line in manifest["queue"])
    assert manifest["slurm"]["job"] == "17"
    assert "no answer from Slurm" in err
    # The job may still run: it is neither cancelled nor robbed of its files.
    assert not any(line.startswith("scancel") for line in slurm.asked())
    assert slurm.out.with_name("run.job.log").exists()
    if begun:
        assert (stage / "identities").read_text() == "here\n"
        assert (folder / "evidence" / "identities").read_text() == "here\n"


def test_a_controller_that_answers_again_in_time_is_not_silent(slurm):
    once = slurm.folder / "once"
    slurm.says(
        "squeue",
        f"if [ -e {once} ]; then echo 'FAILED|NonZeroExitCode'; else touch {once}; {DOWN}; fi",
    )
    slurm.says("scontrol", "echo 'JobId=17 JobState=FAILED ExitCode=2:0 NodeList=n1'")
    code, out, _ = slurm.submit()
    assert (code, out) == (2, f"{slurm.out}.incomplete\n")
    assert verdict(recorded(Path(f"{slurm.out}.incomplete"))) == ("incomplete", "subject", "FAILED")


def test_a_job_that_the_controller_has_forgotten_has_an_unknown_end(slurm):
    slurm.says("squeue", FORGOTTEN)
    slurm.says("scontrol", FORGOTTEN)
    assert slurm.submit(limit=SHORT)[0] == 2
    manifest = recorded(Path(f"{slurm.out}.incomplete"))
    assert verdict(manifest) == ("incomplete", "environment", "UNKNOWN")


def test_a_job_cancelled_by_others_before_it_had_nodes_was_not_run(slurm):
    slurm.says("squeue", "echo 'CANCELLED|None'")
    slurm.says("scontrol", "echo 'JobId=17 JobState=CANCELLED ExitCode=0:0 NodeList=(null)'")
    assert slurm.submit()[:2] == (2, f"{slurm.out}\n")
    assert verdict(recorded(slurm.out)) == ("not-run", "environment", "CANCELLED")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_submit_that_is_stopped_while_sbatch_hangs_leaves_a_record(slurm, number):
    slurm.says("sbatch", "sleep 50")
    with slurm.start(limit=LONG) as process:
        slurm.wait_until_asked("sbatch")
        process.send_signal(number)
        begin = time.monotonic()
        out, _ = process.communicate(timeout=30)
        assert time.monotonic() - begin < 30
    assert (process.returncode, out) == (2, f"{slurm.out}\n")
    manifest = recorded(slurm.out)
    assert verdict(manifest) == ("not-run", "environment", "CANCELLED")
    assert "squeue --me" in manifest["reason"]


def test_a_stopped_submit_takes_a_pending_job_back_and_says_where_it_could_not(slurm):
    slurm.says("scancel", "exit 0")
    slurm.says("squeue", DOWN)
    with slurm.start(limit=LONG) as process:
        slurm.wait_until_asked("squeue")
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, f"{slurm.out}\n")
    assert "scancel 17" in slurm.asked()
    assert verdict(recorded(slurm.out)) == ("not-run", "environment", "CANCELLED")
    assert "job 17 could not be cancelled, scancel it" in err


def test_a_job_that_starts_after_its_folder_says_not_run_measures_nothing(slurm):
    slurm.says("sbatch", "sleep 50")
    slurm.submit(limit=SHORT)
    before = (slurm.out / "manifest.json").read_text()
    ended = subprocess.run(
        [ROOT / "bench/slurm/job.sh", ROOT, ROOT / "build", slurm.out],
        env=dict(os.environ) | {"SLURM_JOB_NUM_NODES": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == f"job.sh: {slurm.out} exists: another run is there\n"
    assert (slurm.out / "manifest.json").read_text() == before
    assert not slurm.out.with_name("run.evidence").exists()


def test_a_limit_that_an_end_of_the_own_jobs_would_lift_is_waited_for(slurm):
    """The other job is 16; once it has gone, nothing is left to wait for."""
    seen, gone = slurm.folder / "seen", slurm.folder / "gone"
    slurm.says(
        "squeue",
        f"""case $* in
          *--me*) if [ -e {seen} ]; then echo 17; else touch {seen}; echo 16; echo 17; fi ;;
          *) if [ -e {gone} ]; then echo 'CANCELLED|None'
             else echo 'PENDING|QOSMaxJobsPerUserLimit'; fi ;;
        esac""",
    )
    slurm.says("scancel", f"touch {gone}")
    assert slurm.submit()[0] == 2
    assert len([line for line in slurm.asked() if "--me" in line]) == 2
    manifest = recorded(slurm.out)
    assert verdict(manifest) == ("not-run", "environment", "QOSMaxJobsPerUserLimit")
    assert "limit that waiting does not lift" in manifest["reason"]
