"""The suite's compiled parts that the programs in Python use: what C++ defines once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from topologies.pytorch.errors import CannotRun

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
FINE = 0


def binaries() -> Path:
    """Where the programs are: build/bin, or what STEPSCOPE_BIN says."""
    return Path(os.environ.get("STEPSCOPE_BIN", ROOT / "build" / "bin"))


def run_program(name: str, *arguments: str | Path, accepted: Sequence[int] = (FINE,)) -> str:
    """What the program writes on stdout. Raises CannotRun where it ends with another code than
    those `accepted`, with what it says on stderr."""
    program = binaries() / name
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except OSError as error:
        raise CannotRun(
            f"{program}: {error.strerror}; run ./bench.sh once, which builds it"
        ) from None
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{program} did not end within {TIMEOUT_S} s") from None
    if done.returncode not in accepted:
        said = done.stderr.strip().removeprefix(f"{name}: ")
        raise CannotRun(said or f"{program} ended with code {done.returncode}")
    return done.stdout
