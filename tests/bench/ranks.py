"""Starts the ranks of a job by hand, as a user without a launcher would, and sees how they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path

from bench.free_ports import free_port

# What a launcher would set must not leak in from the surroundings of the test, either.
from bench.paired.launch import RANK_VARIABLES

BIN = Path(os.environ["STEPSCOPE_BIN"])


@dataclass
class Ended:
    code: int
    out: str
    err: str
    seconds: float


@dataclass
class Job:
    """`world_size` processes of one program; always ended when the `with` block is left."""

    arguments: list[str]
    world_size: int = 2
    program: str = "optimizer_step"
    environment: dict[str, str] = field(default_factory=dict)
    by_rank: dict[int, dict[str, str | None]] = field(default_factory=dict)
    arguments_by_rank: dict[int, list[str]] = field(default_factory=dict)
    cwd: Path | None = None

    def __enter__(self) -> Job:
        port = free_port()
        self.started = time.monotonic()
        self.processes = []
        for rank in range(self.world_size):
            environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
            environment |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(self.world_size),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            environment |= self.environment
            for name, value in self.by_rank.get(rank, {}).items():
                if value is None:
                    environment.pop(name, None)
                else:
                    environment[name] = value
            extra = self.arguments_by_rank.get(rank, [])
            self.processes.append(
                subprocess.Popen(
                    [str(BIN / self.program), *self.arguments, *extra],
                    env=environment,
                    cwd=self.cwd,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return self

    def __exit__(self, *unused: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def waits(self) -> list[int]:
        """How often the main thread of each rank has waited for anything."""
        pattern = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)
        texts = [Path(f"/proc/{process.pid}/status").read_text() for process in self.processes]
        return [int(pattern.search(text)[1]) for text in texts]

    def wait_until_in_step(self, folder: Path) -> None:
        """Returns when the ranks have written to `folder`, and take one step after the other.

        Before that, each loads its libraries and checks its optimizer, which on a busy machine may
        take one of them longer than a brief --timeout. A step waits for the other ranks; little
        else does.
        """
        deadline = time.monotonic() + 60
        before = None
        while before is None or min(map(sub, self.waits(), before)) < 300:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in self.processes)
            if before is None and (folder / "manifest.json").exists():
                before = self.waits()
            time.sleep(0.02)

    def wait(self, rank: int, timeout: float = 120) -> Ended:
        out, err = self.processes[rank].communicate(timeout=timeout)
        return Ended(self.processes[rank].returncode, out, err, time.monotonic() - self.started)

    def wait_all(self, timeout: float = 120) -> list[Ended]:
        return [self.wait(rank, timeout) for rank in range(self.world_size)]


def run(arguments: list[str], world_size: int = 2, timeout: float = 120, **more) -> list[Ended]:
    with Job(arguments, world_size, **more) as job:
        return job.wait_all(timeout)
