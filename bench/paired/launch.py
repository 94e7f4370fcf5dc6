"""Starts the ranks of the two sides of a pair on this host, and waits until all have ended.

Usage:

    outcome = launch([Side("a", command_a), Side("b", command_b)], cores, logs, timeout)

Caveats: rank r of both sides runs on the same cores: they take turns on them. Whatever ends the
caller ends the ranks too.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.free_ports import free_port
from bench.paired.problem import Problem

# What a launcher around this one would set for its own job.
RANK_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RESTART_COUNT",
)
PR_SET_PDEATHSIG = 1
SECONDS_TO_NOTICE = 10
LITTLE_SPACE = 1 << 20
# What a side says when only its partner is to blame.
PARTNER_GONE = "the other build of this pair ended"


@dataclass(frozen=True)
class Side:
    name: str  # "a" or "b"
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def core_sets(cores: list[int], ranks: int, placement: int) -> list[set[int]]:
    """The cores of each rank: equal parts of `cores`, in an order that `placement` rotates. Where
    there are fewer cores than ranks, ranks share."""
    if len(cores) < ranks:
        return [{cores[(rank + placement) % len(cores)]} for rank in range(ranks)]
    share = len(cores) // ranks
    parts = [set(cores[i * share : (i + 1) * share]) for i in range(ranks)]
    return [parts[(rank + placement) % ranks] for rank in range(ranks)]


def launch(sides: list[Side], cores: list[set[int]], logs: Path, timeout: float) -> dict[str, int]:
    """The worst exit code of each side: 0 or 1. Raises Problem when a rank could not run, and when
    the pair has not ended after `timeout` seconds. No rank is left running."""
    logs.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None)
    parent = os.getpid()
    ranks: list[tuple[Side, int, subprocess.Popen]] = []
    deadline = time.monotonic() + timeout
    try:
        for side in sides:
            port = str(free_port())
            for rank, own in enumerate(cores):

                def child(own: set[int] = own) -> None:
                    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                    if os.getppid() != parent:
                        os._exit(2)
                    os.sched_setaffinity(0, own)

                environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
                environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(len(cores)))
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                environment.setdefault("OMP_NUM_THREADS", str(len(own)))
                with _log(logs, side, rank).open("w") as output:
                    process = subprocess.Popen(
                        side.command,
                        env=environment | side.environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        preexec_fn=child,
                    )
                ranks.append((side, rank, process))
        left = _wait([process for _, _, process in ranks], deadline)
    except subprocess.TimeoutExpired:
        raise Problem(
            f"a pair took more than {timeout:.0f} s", f"give a longer --timeout; logs: {logs}"
        ) from None
    except OSError as error:
        raise Problem(
            f"{side.command[0]} could not be started: {error.strerror or error}", "build it"
        ) from None
    finally:
        for _, _, process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()
    return _outcome([one for one in ranks if one[2] not in left], logs)


def _wait(processes: list[subprocess.Popen], deadline: float) -> list[subprocess.Popen]:
    """Until all have ended, or, once one could not run, the others had time to notice: what it was
    to meet may wait for it for long. Returns those that did not. Raises subprocess.TimeoutExpired
    at the deadline."""
    notice = float("inf")
    while left := [one for one in processes if one.poll() is None]:
        now = time.monotonic()
        if any(one.returncode not in (None, 0, 1) for one in processes):
            notice = min(notice, now + SECONDS_TO_NOTICE)
        if now > notice:
            return left
        if now > deadline:
            raise subprocess.TimeoutExpired(left[0].args, 0)
        time.sleep(0.05)
    return []


def _log(logs: Path, side: Side, rank: int) -> Path:
    return logs / f"{side.name}-rank{rank}.log"


def _outcome(ranks: list[tuple[Side, int, subprocess.Popen]], logs: Path) -> dict[str, int]:
    worst: dict[str, int] = {}
    said: list[tuple[int, str]] = []
    for side, rank, process in ranks:
        code = process.returncode
        worst[side.name] = max(worst.get(side.name, 0), code)
        if code in (0, 1):
            continue
        text = _log(logs, side, rank).read_text(errors="replace").strip()
        last = text.splitlines()[-1] if text else f"exited with {code} without a word"
        if not text and shutil.disk_usage(logs).free < LITTLE_SPACE:
            last += f", and the disk of {logs} is full"
        # A signal is a cause; who lost its partner did not cause it, nor did who leaves it to
        # another rank to say what all know; between them, anything else.
        guilt = 3 if not text else 2 if PARTNER_GONE in last else 1
        if code < 0:
            guilt, last = 0, f"was ended by {signal.Signals(-code).name}"
        said.append((guilt, f"side {side.name}, rank {rank}: {last}"))
    if said:
        raise Problem(min(said)[1], f"logs: {logs}; the same command goes on where it stopped")
    return worst
