"""libstepscope_tracer.so in this process, which must have imported PyTorch: records operators and
collectives of chosen steps. See docs/tracing-library.md."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import torch

from topologies.pytorch.programs import binaries
from topologies.pytorch.ranks import CannotRun

LIBRARY = "libstepscope_tracer.so"
BUFFER_BYTES = 64 << 20


class ProcessTracer:
    """One a process. Raises CannotRun where the library is not there, or says why it cannot."""

    def __init__(self, rank: int, world_size: int) -> None:
        path = binaries().parent / "lib" / LIBRARY
        try:
            self._library = ctypes.CDLL(os.fspath(path))
        except OSError as error:
            raise CannotRun(
                f"{error}; run ./bench.sh once, which builds it, or --trace 0"
            ) from None
        self._library.stepscope_tracer_error.restype = ctypes.c_char_p
        self._call("set_rank", ctypes.c_int64(rank), ctypes.c_int64(world_size))

    def record(self, step: Callable[[], None], count: int, path: Path) -> None:
        """Writes what `count` calls of `step` do to `path`, each in a range that marks a step."""
        self._call("start", b"torch", ctypes.c_int64(BUFFER_BYTES))
        try:
            for number in range(count):
                with torch.profiler.record_function(f"stepscope:step {number}"):
                    step()
        finally:
            self._call("stop")
        self._call("write", os.fsencode(os.fspath(path).replace("%", "%%")))

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, f"stepscope_tracer_{name}")(*arguments):
            raise CannotRun(self._library.stepscope_tracer_error().decode())
