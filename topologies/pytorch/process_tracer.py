"""libstepscope_tracer.so in this process, which must have imported PyTorch: records operators and
collectives of chosen steps, and on a GPU what CUPTI sees. See docs/tracing-library.md."""

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

    def __init__(self, rank: int, world_size: int, device: torch.device | None = None) -> None:
        """`device`: that of the steps; the CPU where it is not given."""
        self._cuda = device is not None and device.type == "cuda"
        path = binaries().parent / "lib" / LIBRARY
        try:
            self._library = ctypes.CDLL(os.fspath(path))
        except OSError as error:
            raise CannotRun(
                f"{error}; run ./bench.sh once, which builds it, or --trace 0"
            ) from None
        self._library.stepscope_tracer_error.restype = ctypes.c_char_p
        self._call("set_rank", ctypes.c_int64(rank), ctypes.c_int64(world_size))

    def refusal(self) -> str:
        """Why the device cannot be recorded here, such as another profiler; empty where it can."""
        if not self._cuda:
            return ""
        try:
            self._start()
            self._call("stop")
        except CannotRun as error:
            return str(error)
        return ""

    def record(self, step: Callable[[], None], count: int, path: Path) -> None:
        """Writes what `count` calls of `step` do to `path`, each in a range that marks a step."""
        self._start()
        try:
            for number in range(count):
                with torch.profiler.record_function(f"stepscope:step {number}"):
                    step()
                    if self._cuda:
                        torch.cuda.synchronize()
        finally:
            self._call("stop")
        self._call("write", os.fsencode(os.fspath(path).replace("%", "%%")))

    def _start(self) -> None:
        sources = b"torch,cupti" if self._cuda else b"torch"
        self._call("start", sources, ctypes.c_int64(BUFFER_BYTES))

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, f"stepscope_tracer_{name}")(*arguments):
            raise CannotRun(self._library.stepscope_tracer_error().decode())
