"""Runs a command all of whose processes end with the caller, however that ends.

Usage:

    process = leashed(["cmake", "--build", "build"], cwd=tree, stdout=log)
    code = wait(process, seconds)

    python bench/paired/leash.py COMMAND...      # the process between, which leashed() starts

Caveats: a build tool puts its compilers into process groups of their own, and no death signal
reaches grandchildren; they stay in the command's session, which is what ends here. What begins a
session of its own is not reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
SECONDS_TO_END = 10


def leashed(words: list[str], **options: Any) -> subprocess.Popen:
    """Starts `words`; `options` are those of subprocess.Popen. The exit code is the command's, 128
    and its number for a signal, and 127 where the command cannot be started, which stderr says."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def child() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(2)

    # A terminal's Ctrl-C is for the caller, which ends this in its turn.
    return subprocess.Popen(
        [sys.executable, __file__, *words], preexec_fn=child, start_new_session=True, **options
    )


def wait(process: subprocess.Popen, seconds: float) -> int:
    """The exit code of what leashed() started. Nothing of it is left when this returns or raises;
    raises subprocess.TimeoutExpired after `seconds`."""
    try:
        return process.wait(timeout=seconds)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def end_session(session: int) -> None:
    """Kills every process of the session, with what those start until then."""
    deadline = time.monotonic() + SECONDS_TO_END
    while members := _members(session):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def _members(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything. Behind it: state, parent, group, session.
            state, _, _, own, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
        except (OSError, ValueError):
            continue  # it has ended
        if state not in "ZX" and int(own) == session:
            found.append(int(stat.parent.name))
    return found


def main(words: list[str]) -> int:
    watched = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        command = subprocess.Popen(
            words,
            start_new_session=True,
            # The lock that the caller handed on: see commit_build.
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, watched),
        )
    except OSError as error:
        print(f"{words[0]} could not be started: {error.strerror}", file=sys.stderr)
        return 127
    while command.poll() is None and signal.sigwait(watched) == signal.SIGCHLD:
        pass
    end_session(command.pid)
    code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
