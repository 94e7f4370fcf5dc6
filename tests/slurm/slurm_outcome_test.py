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
    interrupted_before_a_job,
    is_limit,
    out_of_sight,
    refused,
    unanswered,
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
        ("sbatch: error: Invalid generic resource (gres) specification", "InvalidGres"),
        ("sbatch: error: Invalid gres specification", "InvalidGres"),
        ("sbatch: error: AssocMaxCpuPerJobLimit", "AssocMaxCpuPerJobLimit"),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job"
            " submit limit, user's size and/or time limits)",
            "AccountingPolicy",
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
            " (connect failure)",
            "NoController",
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "NoController",
        ),
        ("sbatch: error: Batch job submission failed: Connection refused", "NoController"),
        ("sbatch: error: a plugin that nobody knows said no", "Refused"),
    ],
)
def test_a_refusal_is_not_run_and_keeps_slurms_words(said, code):
    outcome = refused(said)
    assert (outcome.status, outcome.blame, outcome.code) == (NOT_RUN, ENVIRONMENT, code)
    assert outcome.words == tuple(said.splitlines())


def test_blank_lines_are_no_words_of_slurm():
    assert refused("\nsbatch: error: no\n \n").words == ("sbatch: error: no",)


@pytest.mark.parametrize(
    ("reason", "is_one", "is_one_beside_own_jobs"),
    [
        ("(QOSMaxGRESPerUser)", True, False),
        ("QOSMaxJobsPerUserLimit", True, False),
        ("AssocMaxJobsLimit", True, False),
        ("QOSJobLimit", True, False),
        ("QOSResourceLimit", True, False),
        ("QOSMaxWallDurationPerJobLimit", True, True),
        ("AssocMaxCpuPerJobLimit", True, True),
        ("MaxMemPerLimit", True, True),
        ("QOSMinGRES", True, True),
        ("AssocGrpCPUMinutesLimit", True, True),
        ("InvalidQOS", True, True),
        ("InvalidAccount", True, True),
        ("AccountNotAllowed", True, True),
        ("BadConstraints", True, True),
        ("PartitionDown", True, True),
        ("PartitionInactive", True, True),
        ("PartitionNodeLimit", True, True),
        ("PartitionTimeLimit", True, True),
        ("JobHeldUser", True, True),
        ("JobHeldAdmin", True, True),
        # Jobs of others in the group end, and nodes come back.
        ("AssocGrpGRES", False, False),
        ("MaxGRESPerAccount", False, False),
        ("(ReqNodeNotAvail, UnavailableNodes:n1)", False, False),
        ("(Resources)", False, False),
        ("(Priority)", False, False),
        ("Dependency", False, False),
        ("None", False, False),
        ("", False, False),
    ],
)
def test_a_job_that_waits_for_a_limit_is_told_from_one_that_waits_its_turn(
    reason, is_one, is_one_beside_own_jobs
):
    assert is_limit(reason) == is_one
    assert is_limit(reason, alone=False) == is_one_beside_own_jobs
    outcome = waited(reason, 60)
    assert (outcome.status, outcome.blame) == (NOT_RUN, ENVIRONMENT)
    assert outcome.code == (reason.strip("()") or "Pending")
    assert outcome.words == (f"PENDING ({outcome.code})",)
    assert ("limit that waiting does not lift" in outcome.reason) == is_one
    assert ("after 60 s" in outcome.reason) != is_one
    assert ("after 60 s" in waited(reason, 60, alone=False).reason) != is_one_beside_own_jobs


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
        ("PREEMPTED", "0:15", "", (INCOMPLETE, ENVIRONMENT, "PREEMPTED")),
        ("BOOT_FAIL", "1:0", "", (INCOMPLETE, ENVIRONMENT, "BOOT_FAIL")),
        ("DEADLINE", "0:0", "", (INCOMPLETE, ENVIRONMENT, "DEADLINE")),
        ("REVOKED", "0:0", "", (INCOMPLETE, ENVIRONMENT, "REVOKED")),
        (
            "FAILED",
            "0:15",
            "slurmstepd-n1: error: *** JOB 5 ON n1 CANCELLED AT 2026-12-01T10:00:00 DUE TO"
            " PREEMPTION ***\n",
            (INCOMPLETE, ENVIRONMENT, "PREEMPTED"),
        ),
        (
            "FAILED",
            "0:9",
            "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-12-01T10:00:00 DUE TO NODE"
            " FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
            (INCOMPLETE, ENVIRONMENT, "NODE_FAIL"),
        ),
        (
            "FAILED",
            "1:0",
            "srun: error: n1: task 0: Out Of Memory\n",
            (INCOMPLETE, ENVIRONMENT, "OUT_OF_MEMORY"),
        ),
        (
            "FAILED",
            "2:0",
            "0: stop    cores\njob.sh: the preflight says stop: nothing was measured\n",
            (INCOMPLETE, ENVIRONMENT, "PREFLIGHT"),
        ),
        # Others may say so too: it is job.sh that counts, at the start of its line.
        (
            "FAILED",
            "2:0",
            "a job.sh: the preflight says stop\na job.sh: told to stop\n",
            (INCOMPLETE, SUBJECT, "FAILED"),
        ),
        (
            "FAILED",
            "2:0",
            "building\njob.sh: told to stop: ending the step\n",
            (INCOMPLETE, ENVIRONMENT, "TOLD_TO_STOP"),
        ),
        # Of two signs the graver one counts, and what Slurm says itself before any sign.
        (
            "FAILED",
            "2:0",
            "job.sh: told to stop: ending the step\nDetected 1 oom-kill event(s)\n",
            (INCOMPLETE, ENVIRONMENT, "OUT_OF_MEMORY"),
        ),
        (
            "CANCELLED by 0",
            "0:15",
            "job.sh: told to stop: ending the step\n",
            (INCOMPLETE, ENVIRONMENT, "CANCELLED"),
        ),
        ("FAILED", "1:0", "", (COMPLETE, SUBJECT, "CheckFailed")),
        ("FAILED", "1", "", (COMPLETE, SUBJECT, "CheckFailed")),
        ("FAILED", "1:9", "", (INCOMPLETE, SUBJECT, "FAILED")),
        ("FAILED", "1:15", "", (INCOMPLETE, SUBJECT, "FAILED")),
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
    unknown = outcome.code in ("SPECIAL_EXIT", "UNKNOWN")
    assert outcome.reason and ("left the queue as" in outcome.reason) == unknown


def test_a_job_that_failed_is_recorded_with_its_state_and_code():
    assert ended("FAILED", "2:0", "").words == ("FAILED",)
    assert ended("FAILED", "2:0", "").reason == "the job exited with 2"
    assert ended("FAILED", "1:9", "").words == ("FAILED",)
    assert ended("FAILED", "1:9", "").reason == "the job was ended by signal 9"
    assert ended("TIMEOUT", "0:0", "").words == ("TIMEOUT",)
    assert ended("SPECIAL_EXIT", "0:0", "").words == ("SPECIAL_EXIT",)


SLURMS_LINES = (
    "3: stop    cores         2 for 4 ranks",
    "slurmstepd: error: a",
    "srun: error: b",
    "sbatch: error: c",
    "*** JOB 5 ON n1 CANCELLED AT 2026-12-01T10:00:00 ***",
    "*** STEP 5.0 ON n1 CANCELLED AT 2026-12-01T10:00:00 ***",
    "Job 4 exceeded memory limit",
    "Some of your processes may have been killed: oom-kill",
)


@pytest.mark.parametrize(
    ("state", "code"), [("FAILED", "1:0"), ("FAILED", "2:0"), ("NODE_FAIL", "0:0"), ("X", "0:0")]
)
def test_slurms_lines_of_the_output_are_kept_and_no_others(state, code):
    log = "".join(f"measured 1.0\nan unrelated 3: stop here\n{line}\n" for line in SLURMS_LINES)
    kept = [line for line in ended(state, code, log).words if line != state]
    assert kept == list(SLURMS_LINES)


def test_of_many_such_lines_the_first_twenty_are_kept():
    log = "".join(f"srun: error: {number}\n" for number in range(30))
    words = ended("FAILED", "1:0", log, failed_steps=("step 4.0",)).words
    assert words == (*(f"srun: error: {number}" for number in range(20)), "step 4.0")


def test_silence_is_recorded_with_what_was_said_until_then():
    outcome = unanswered(4, "sbatch: retrying\n\n")
    assert (outcome.status, outcome.blame, outcome.code) == (NOT_RUN, ENVIRONMENT, "NoAnswer")
    assert outcome.words == ("sbatch: retrying",) and "within 4 s" in outcome.reason
    outcome = interrupted_before_a_job()
    assert (outcome.status, outcome.blame, outcome.code) == (NOT_RUN, ENVIRONMENT, "CANCELLED")
    assert outcome.words == ("(sbatch said nothing)",)
    for started, status in ((True, INCOMPLETE), (False, NOT_RUN)):
        outcome = out_of_sight(started, 900, "squeue: no\n")
        assert (outcome.status, outcome.blame, outcome.code) == (status, ENVIRONMENT, "NoAnswer")
        assert outcome.words == ("squeue: no",) and "for 900 s" in outcome.reason


def test_a_job_with_a_failed_step_is_not_complete_although_slurm_says_completed():
    outcome = ended("COMPLETED", "0:0", "", failed_steps=("4.0 optimizer_step FAILED 2:0",))
    assert (outcome.status, outcome.code) == (INCOMPLETE, "StepFailed")
    assert outcome.words == ("4.0 optimizer_step FAILED 2:0",)


def test_a_job_cancelled_before_it_started_was_not_run():
    assert ended("CANCELLED by 0", "0:0", "", started=False).status == NOT_RUN
    assert ended("SPECIAL_EXIT", "0:0", "", started=False).status == NOT_RUN
