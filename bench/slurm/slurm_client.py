"""Slurm's client programs: submit, watch and cancel one job. The only place that calls them.

    client = SlurmClient()
    submitted = client.submit(["sbatch", "--parsable", "job.sh"])
    state, reason = client.state(submitted.job)          # ("PENDING", "Resources")

Works with and without accounting: the controller forgets a job after some minutes, sacct does not,
and only sacct knows steps. Every call is bounded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

# A controller under load answers late.
CALL_SECONDS = 120.0
# How long a job that was told to end may take (KillWait is 30 s by default), and the accounting to
# hear of it.
END_SECONDS = 180.0
LOG_BYTES = 200_000

# What would make several jobs of one, let sbatch wait, or change the columns that are read here.
NOT_PASSED_ON = re.compile(r"SBATCH_(ARRAY_INX|WAIT|OUTPUT|REQUEUE)|(SQUEUE|SINFO|SACCT)_.*")

LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING")


class SlurmError(Exception):
    """Slurm could not be asked, or gave no answer."""

    def __init__(self, text: str, words: str = "") -> None:
        super().__init__(text)
        self.words = words or text  # what its client said until then


def require_slurm() -> None:
    """Throws SlurmError where this host has no client of Slurm."""
    if shutil.which("sbatch") is None:
        raise SlurmError("sbatch is not on this host: submit from a login node of the cluster")


@dataclass(frozen=True)
class Submitted:
    job: str | None
    words: str


@dataclass(frozen=True)
class Final:
    state: str
    exit_code: str
    failed_steps: tuple[str, ...] = ()


@dataclass
class SlurmClient:
    call_seconds: float = CALL_SECONDS
    end_seconds: float = END_SECONDS
    logs: dict[str, Path] = field(default_factory=dict)

    def submit(self, command: list[str]) -> Submitted:
        ended = self._call(command)
        job = ended.stdout.strip().split(";")[0]
        if ended.returncode != 0 or not job.isdigit():
            return Submitted(None, ended.stderr + ended.stdout)
        return Submitted(job, ended.stderr)

    def state(self, job: str) -> tuple[str, str]:
        """State and reason, or ("", "") where the controller no longer knows the job. Throws
        SlurmError where it did not answer."""
        said = self._ask(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T|%r"]).strip()
        state, _, reason = said.partition("|")
        return state, reason

    def is_alone(self, job: str) -> bool:
        """Whether no other job of this user runs."""
        said = self._ask(["squeue", "-h", "--me", "-t", "running,suspended", "-o", "%A"])
        return not set(said.split()) - {job}

    @staticmethod
    def is_final(state: str) -> bool:
        return state not in LIVE

    def queue(self, job: str | None) -> str:
        """What the user sees of the queue and of the partitions, for the record. Only the own jobs:
        those of others are nobody's business in a folder that is sent around."""
        commands = [["sinfo", "-o", "%P %a %l %D %T %G"]]
        if job is not None:
            commands.append(["squeue", "-t", "all", "-j", job])
        parts = []
        for command in commands:
            try:
                ended = self._call(command)
                parts.append(ended.stdout or ended.stderr)
            except SlurmError as error:
                parts.append(f"{error}\n")
        return "".join(parts)

    def cancel(self, job: str) -> None:
        self._call(["scancel", job])

    def wait_for_end(self, job: str) -> bool:
        """Waits for a job that was told to end; False where it has run."""
        deadline = time.monotonic() + self.end_seconds
        while time.monotonic() < deadline:
            state, _ = self.state(job)
            if self.is_final(state):
                return not self.has_started(job)
            time.sleep(0.5)
        raise SlurmError(f"job {job} did not end within {self.end_seconds:g} s after scancel")

    def wait_for_final(self, job: str) -> Final:
        """State, exit code and failed steps of a job that has ended or is about to."""
        deadline = time.monotonic() + self.end_seconds
        while True:
            final = self._from_accounting(job) or self._from_controller(job)
            if final and self.is_final(final.state.split()[0]):
                return final
            if time.monotonic() > deadline:
                return final or Final("", "")
            time.sleep(0.5)

    def has_started(self, job: str) -> bool:
        """Whether Slurm ever gave it nodes."""
        said = self._ask(["scontrol", "--oneliner", "show", "job", job])
        nodes = re.search(r"\bNodeList=(\S*)", said)
        return bool(nodes and nodes[1] not in ("", "(null)"))

    def log(self, job: str) -> str:
        """The end of the job's output."""
        try:
            with self.logs[job].open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - LOG_BYTES))
                return file.read().decode("utf-8", "replace")
        except (KeyError, OSError):
            return ""

    def _from_accounting(self, job: str) -> Final | None:
        if shutil.which("sacct") is None:
            return None
        fields = "JobID,JobName,State,ExitCode"
        try:
            ended = self._call(["sacct", "-n", "-P", "-j", job, f"--format={fields}"])
        except SlurmError:
            return None  # the controller may know
        rows = [line.split("|") for line in ended.stdout.splitlines() if line.count("|") == 3]
        own = [row for row in rows if row[0] == job]
        if ended.returncode != 0 or not own:
            return None
        failed = tuple(
            f"step {row[0]} {row[1]}: {row[2]} {row[3]}"
            for row in rows
            if row[0] != job and not row[0].endswith((".batch", ".extern")) and row[3] != "0:0"
        )
        return Final(own[0][2], own[0][3], failed)

    def _from_controller(self, job: str) -> Final | None:
        said = self._ask(["scontrol", "--oneliner", "show", "job", job])
        state = re.search(r"\bJobState=(\S+)", said)
        code = re.search(r"\bExitCode=(\S+)", said)
        return Final(state[1], code[1]) if state and code else None

    def _ask(self, command: list[str]) -> str:
        """What the controller answers of one job; nothing where it does not know it."""
        ended = self._call(command)
        if ended.returncode == 0 or re.search("Invalid job id", ended.stderr):
            return ended.stdout
        raise SlurmError(f"{command[0]} exited with {ended.returncode}", ended.stderr)

    def _call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                env={k: v for k, v in os.environ.items() if not NOT_PASSED_ON.fullmatch(k)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.call_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as silence:
            said = b"".join(part or b"" for part in (silence.stderr, silence.stdout))
            raise SlurmError(
                f"{command[0]} did not answer within {self.call_seconds:g} s",
                said.decode("utf-8", "replace"),
            ) from None
