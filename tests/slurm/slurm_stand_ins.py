"""Slurm's client programs as stand-ins on PATH, with the words of a real Slurm 22.05, for tests of
bench/slurm/submit that need no Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Seconds of silence where Slurm answers, which must not be cut short.
LONG = "60"
# Each is a line of shell; a hung one holds its pipes open, as a real one does.
CLIENTS = {
    "sbatch": "echo 17",
    "squeue": "echo 'PENDING|Priority'",
    "sinfo": "echo 'gpu* up 1:00:00 2 idle gpu:2'",
    "scontrol": "echo 'JobId=17 JobState=PENDING ExitCode=0:0 NodeList=(null)'",
    "scancel": "exit 0",
    "sacct": "exit 1",
}


class Slurm:
    """The stand-ins on PATH; `run/<client>` files hold what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name, words in CLIENTS.items():
            self.says(name, words)
        self.out = folder / "run"

    def says(self, client: str, words: str) -> None:
        program = self.folder / "bin" / client
        fresh = program.with_suffix(".new")
        fresh.write_text(f'#!/bin/sh\necho "{client} $*" >>{self.folder}/asked\n{words}\n')
        fresh.chmod(0o755)
        fresh.rename(program)

    @contextlib.contextmanager
    def start(self, *words: str, limit: str) -> Iterator[subprocess.Popen]:
        """Submits; it and the clients that it started are ended when the block is left."""
        limits = ["--silence-limit", limit, "--poll", "0.1"]
        process = subprocess.Popen(
            [sys.executable, ROOT / "bench/slurm/submit", *limits, "--out", self.out, *words],
            env=dict(os.environ) | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"},
            # What a shell starts in the background ignores it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def submit(self, *words: str, limit: str = LONG) -> tuple[int, str, str]:
        with self.start(*words, limit=limit) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    def wait_until_asked(self, client: str) -> None:
        deadline = time.monotonic() + 30
        while not any(line.startswith(client) for line in self.asked_so_far()):
            assert time.monotonic() < deadline, f"{client} was not called"
            time.sleep(0.05)

    def asked_so_far(self) -> list[str]:
        return self.asked() if (self.folder / "asked").exists() else []


def recorded(folder: Path) -> dict:
    manifest = json.loads((folder / "manifest.json").read_text())
    with tarfile.open(
        folder.with_name(folder.name.removesuffix(".incomplete") + ".tar.gz")
    ) as packed:
        assert f"{folder.name}/manifest.json" in packed.getnames()
    return manifest


def verdict(manifest: dict) -> tuple[str, str, str]:
    return manifest["status"], manifest["class"], manifest["code"]
