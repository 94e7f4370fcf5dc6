"""What became of a Slurm job, from Slurm's own words: pure functions, no Slurm needed.

    outcome = refused(sbatch_stderr)                      # there is no job
    outcome = ended(state="TIMEOUT", exit_code="0:0", log=text)

The words are those of Slurm 22.05, read from a real one; states it does not know are kept as they
are and count as the environment's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A run's status in its manifest.
COMPLETE = "complete"
INCOMPLETE = "incomplete"
NOT_RUN = "not-run"

# Whose doing it was: the allocation's, or what was measured.
ENVIRONMENT = "environment"
SUBJECT = "subject"

# The code of what is recorded where Slurm gave no word of its own.
NO_ANSWER = "NoAnswer"

# Reasons for which a job waits that no waiting will end, unless somebody changes a limit.
_LIMIT = re.compile(
    r"^(?:QOS|Assoc|Max)\w+$|^Invalid(?:QOS|Account)$|^AccountNotAllowed$|^BadConstraints$"
    r"|^Partition(?:Down|Inactive|NodeLimit|TimeLimit)$|^JobHeld\w+$"
)
# Of these, the limits on what runs at a time: they end with other jobs, of the group or of the
# user. A limit on minutes is a budget, which no end of a job gives back.
_OF_GROUP = re.compile(r"Grp(?!\w*Minutes)|PerAccount")
_OF_USER = re.compile(r"PerUser|JobsLimit$|^QOS(?:Job|Resource)Limit$")

# sbatch's words, and the short name under which they are recorded.
_REFUSALS = (
    (r"\b(QOS\w+|Assoc\w+Limit\w*)\b", None),
    (r"Invalid qos", "InvalidQOS"),
    (r"Invalid account", "InvalidAccount"),
    (r"[Ii]nvalid partition", "InvalidPartition"),
    (r"node configuration is not available", "NodeConfigurationNotAvailable"),
    (r"time limit is invalid", "InvalidTimeLimit"),
    (r"[Mm]emory specification", "MemorySpecification"),
    (r"Invalid (?:generic resource|gres)", "InvalidGres"),
    (r"Unable to contact slurm controller|Connection refused|Socket timed out", "NoController"),
    (r"Job violates accounting/QOS policy", "AccountingPolicy"),
)

_STATES = {
    "TIMEOUT": "the job's time limit was reached",
    "OUT_OF_MEMORY": "the job needed more memory than it was given",
    "NODE_FAIL": "a node of the job was lost",
    "CANCELLED": "the job was cancelled",
    "PREEMPTED": "the job had to make room for another one",
    "BOOT_FAIL": "a node of the job did not boot",
    "DEADLINE": "the job's deadline passed",
    "REVOKED": "the job was revoked",
    "PREFLIGHT": "the preflight found that the run would fail or mislead",
    "TOLD_TO_STOP": "Slurm told the job to stop: its time limit was near, or it was signalled",
}

# What a job's output says where its state does not: FAILED, 0:9.
_LOG_SIGNS = (
    (r"exceeded memory limit|oom-kill event|Out Of Memory", "OUT_OF_MEMORY"),
    (r"CANCELLED AT .* DUE TO TIME LIMIT", "TIMEOUT"),
    (r"DUE TO NODE FAILURE|Node failure on", "NODE_FAIL"),
    (r"CANCELLED AT .* DUE TO PREEMPTION", "PREEMPTED"),
    (r"(?m)^job\.sh: the preflight says stop", "PREFLIGHT"),
    (r"(?m)^job\.sh: told to stop", "TOLD_TO_STOP"),
)
_LOG_WORDS = re.compile(
    r"^.*(?:^\d+: stop |slurmstepd|srun: |sbatch: |\*\*\* (?:JOB|STEP)|memory limit|oom-kill).*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Outcome:
    """`code` is Slurm's name of the state or reason; `words` are its own lines."""

    status: str
    blame: str
    code: str
    reason: str
    words: tuple[str, ...] = ()


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())


def refused(stderr: str) -> Outcome:
    """sbatch refused: there is no job."""
    code = "Refused"
    for pattern, name in _REFUSALS:
        found = re.search(pattern, stderr)
        if found:
            code = name or found[1]
            break
    return Outcome(NOT_RUN, ENVIRONMENT, code, "Slurm refused the job", _lines(stderr))


def may_be_replaced(outcome: Outcome) -> bool:
    """Whether a smaller job may take the place of this one: no job ran or may still run, and nobody
    called it off."""
    return outcome.status == NOT_RUN and outcome.code not in (NO_ANSWER, "CANCELLED")


def is_limit(reason: str, alone: bool = True) -> bool:
    """Whether a pending job waits for something that time does not bring; `alone`: no other job of
    the user runs, whose end could lift a limit."""
    code = reason.strip("()")
    if not _LIMIT.search(code) or _OF_GROUP.search(code):
        return False
    return alone or not _OF_USER.search(code)


def unanswered(seconds: float, words: str) -> Outcome:
    """sbatch gave no answer: nobody knows whether there is a job. One that starts later finds the
    folder of this run and stops."""
    what = f"sbatch did not answer within {seconds:g} s; look with squeue --me"
    return Outcome(NOT_RUN, ENVIRONMENT, NO_ANSWER, what, _lines(words))


def interrupted_before_a_job() -> Outcome:
    """submit was told to stop while sbatch was asked."""
    what = "submit was told to stop before sbatch had answered; look with squeue --me"
    return Outcome(NOT_RUN, ENVIRONMENT, "CANCELLED", what, ("(sbatch said nothing)",))


def out_of_sight(started: bool, seconds: float, words: str) -> Outcome:
    """The controller did not answer for so long that nobody waits any more; `words`: the last that
    a client of Slurm said instead. The job may still run."""
    status = INCOMPLETE if started else NOT_RUN
    what = f"the controller did not answer for {seconds:.0f} s: what became of the job is not known"
    return Outcome(status, ENVIRONMENT, NO_ANSWER, what, _lines(words))


def waited(reason: str, seconds: float, alone: bool = True) -> Outcome:
    """The job did not start within `seconds` and was taken back; `reason` as squeue says it,
    `alone` as for is_limit."""
    code = reason.strip("()") or "Pending"
    what = f"the job was still pending after {seconds:.0f} s"
    if is_limit(code, alone):
        what = "the job waits for a limit that waiting does not lift"
    return Outcome(NOT_RUN, ENVIRONMENT, code, what, (f"PENDING ({code})",))


def ended(
    state: str, exit_code: str, log: str, started: bool = True, failed_steps: tuple[str, ...] = ()
) -> Outcome:
    """A job that left the queue in `state`, with the batch script's `exit_code` ("1:0": code and
    signal), its output, and the steps that failed, as sacct shows them."""
    name = state.split()[0].rstrip("+") if state.strip() else "UNKNOWN"
    words = tuple(line.strip() for line in _LOG_WORDS.findall(log))[:20] + failed_steps
    if name in ("COMPLETED", "FAILED"):
        for pattern, found in _LOG_SIGNS:
            if re.search(pattern, log):
                name = found
                break
    status = INCOMPLETE if started else NOT_RUN
    if name in _STATES:
        return Outcome(status, ENVIRONMENT, name, _STATES[name], (state, *words))
    code, _, signal = exit_code.partition(":")
    if name == "COMPLETED":
        # A script whose last command succeeds after a failed srun is COMPLETED all the same.
        if failed_steps:
            return Outcome(INCOMPLETE, SUBJECT, "StepFailed", "a step of the job failed", words)
        return Outcome(COMPLETE, SUBJECT, name, "the job ran to its end", words)
    if name == "FAILED" and signal in ("", "0"):
        if code == "1":
            return Outcome(COMPLETE, SUBJECT, "CheckFailed", "a check of the run failed", words)
        return Outcome(
            INCOMPLETE, SUBJECT, "FAILED", f"the job exited with {code}", (state, *words)
        )
    if name == "FAILED":
        return Outcome(
            INCOMPLETE, SUBJECT, "FAILED", f"the job was ended by signal {signal}", (state, *words)
        )
    return Outcome(status, ENVIRONMENT, name, f"the job left the queue as {state}", (state, *words))
