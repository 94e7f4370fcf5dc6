"""Slurm's words become an outcome. The texts are those of a real Slurm 22.05."""

from __future__ import annotations

import pytest

from bench.slurm.slurm_outcome import (
    COMPLETE,
    ENVIRONMENT,
    INCOMPLETE,
    NOT_RUN,
    SUBJECT,
    ended,
    is_limit,
    refused,
    waited,
)

DENIED = (
    "sbatch: error: QOSMaxGRESPerUser\n"
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit"
    " limit, user's size and/or time limits)\n"
)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (DENIED, "QOSMaxGRESPerUser"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "InvalidQOS"),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition"
            " combination specified",
            "InvalidAccount",
        ),
        ("sbatch: error: invalid partition specified: nosuch", "InvalidPartition"),
        (
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "InvalidPartition",
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not"
            " available",
            "NodeConfigurationNotAvailable",
        ),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing"
            " or exceeds some limit)",
            "InvalidTimeLimit",
        ),
        ("sbatch: error: Memory specification can not be satisfied", "MemorySpecification"),
        ("sbatch: error: a plugin that nobody knows said no", "Refused"),
    ],
)
def test_a_refusal_is_not_run_and_keeps_slurms_words(said, code):
    outcome = refused(said)
    assert (outcome.status, outcome.blame, outcome.code) == (NOT_RUN, ENVIRONMENT, code)
    assert outcome.words == tuple(said.splitlines())


def test_a_job_that_waits_for_a_limit_is_told_from_one_that_waits_its_turn():
    assert is_limit("(QOSMaxGRESPerUser)")
    assert is_limit("AssocGrpGRES")
    assert is_limit("PartitionTimeLimit")
    assert not is_limit("(Resources)")
    assert not is_limit("(Priority)")
    assert waited("(QOSMaxGRESPerUser)", 5).code == "QOSMaxGRESPerUser"
    assert "limit" in waited("(QOSMaxGRESPerUser)", 5).reason
    assert "after 60 s" in waited("(Resources)", 60).reason


@pytest.mark.parametrize(
    ("state", "code", "log", "expected"),
    [
        ("TIMEOUT", "0:0", "", (INCOMPLETE, ENVIRONMENT, "TIMEOUT")),
        ("OUT_OF_MEMORY", "0:125", "", (INCOMPLETE, ENVIRONMENT, "OUT_OF_MEMORY")),
        (
            "FAILED",
            "0:9",
            "slurmstepd-n1: error: Job 4 exceeded memory limit (31457280 > 20971520), being"
            " killed\n",
            (INCOMPLETE, ENVIRONMENT, "OUT_OF_MEMORY"),
        ),
        (
            "FAILED",
            "1:0",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=3.batch.\n",
            (INCOMPLETE, ENVIRONMENT, "OUT_OF_MEMORY"),
        ),
        (
            "COMPLETED",
            "0:0",
            "srun: error: Node failure on n2\n",
            (INCOMPLETE, ENVIRONMENT, "NODE_FAIL"),
        ),
        ("NODE_FAIL", "1:0", "", (INCOMPLETE, ENVIRONMENT, "NODE_FAIL")),
        ("CANCELLED by 0", "0:0", "", (INCOMPLETE, ENVIRONMENT, "CANCELLED")),
        ("CANCELLED+", "0:0", "", (INCOMPLETE, ENVIRONMENT, "CANCELLED")),
        (
            "FAILED",
            "0:15",
            "slurmstepd-n1: error: *** JOB 5 ON n1 CANCELLED AT 2026-12-01T10:00:00 DUE TO TIME"
            " LIMIT ***\n",
            (INCOMPLETE, ENVIRONMENT, "TIMEOUT"),
        ),
        (
            "FAILED",
            "2:0",
            "job.sh: told to stop: ending the step\n",
            (INCOMPLETE, ENVIRONMENT, "TOLD_TO_STOP"),
        ),
        ("FAILED", "1:0", "", (COMPLETE, SUBJECT, "CheckFailed")),
        ("FAILED", "2:0", "", (INCOMPLETE, SUBJECT, "FAILED")),
        ("FAILED", "0:11", "", (INCOMPLETE, SUBJECT, "FAILED")),
        ("COMPLETED", "0:0", "", (COMPLETE, SUBJECT, "COMPLETED")),
        ("SPECIAL_EXIT", "0:0", "", (INCOMPLETE, ENVIRONMENT, "SPECIAL_EXIT")),
        ("", "", "", (INCOMPLETE, ENVIRONMENT, "UNKNOWN")),
    ],
)
def test_an_ended_job_has_a_status_and_somebodys_doing(state, code, log, expected):
    outcome = ended(state, code, log)
    assert (outcome.status, outcome.blame, outcome.code) == expected
    assert outcome.reason


def test_a_job_with_a_failed_step_is_not_complete_although_slurm_says_completed():
    outcome = ended("COMPLETED", "0:0", "", failed_steps=("4.0 optimizer_step FAILED 2:0",))
    assert (outcome.status, outcome.code) == (INCOMPLETE, "StepFailed")
    assert "4.0 optimizer_step FAILED 2:0" in outcome.words


def test_a_job_cancelled_before_it_started_was_not_run():
    assert ended("CANCELLED by 0", "0:0", "", started=False).status == NOT_RUN
