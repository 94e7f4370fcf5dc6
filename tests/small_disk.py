"""A disk that fills up, for tests of what is written to it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of its own at `folder`, of a size as mount takes it ("64k"); only root may have one,
    and others skip the test."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "stepscope-test", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], timeout=20, check=True)
