"""Optimizers that do what a driver must survive, for --optimizer-class: each is SGD until it fails.

RANK says which process this is: some fail on one rank alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import bitsandbytes
import torch


class _Failing(torch.optim.SGD):
    """Counts its steps in the state of each parameter, as bitsandbytes does, and fails at the
    second parameter of step `at_step`."""

    def __init__(self, params: Any, lr: float = 1e-3, at_step: int = 1, rank: int = -1) -> None:
        super().__init__(params, lr=lr)
        self._at_step, self._rank, self._step = at_step, rank, 0

    def step(self) -> None:
        super().step()
        self._step += 1
        mine = self._rank in (-1, int(os.environ["RANK"]))
        for number, parameter in enumerate(self.param_groups[0]["params"]):
            self.state[parameter]["step"] = self._step
            if number == 1 and self._step == self._at_step and mine:
                self.fail()

    def fail(self) -> None:
        raise NotImplementedError


class Raises(_Failing):
    def fail(self) -> None:
        raise RuntimeError("the planted error")


class Exits(_Failing):
    """As a library that takes the process for its own."""

    def fail(self) -> None:
        sys.exit(0)


class Hangs(_Failing):
    def fail(self) -> None:
        time.sleep(600)


class Signalled(_Failing):
    """As by the kernel, an operator or Slurm; `number`: of the signal."""

    def __init__(self, params: Any, number: int, **arguments: Any) -> None:
        super().__init__(params, **arguments)
        self._number = number

    def fail(self) -> None:
        os.kill(os.getpid(), self._number)


class _Lost(bitsandbytes.optim.AdamW8bit):
    """Loses its process at the update of a second parameter in fp32, as bitsandbytes did where a
    kernel got an address that is none of the device's."""

    def __init__(self, params: Any, lr: float = 1e-3, rank: int = -1) -> None:
        super().__init__(params, lr=lr)
        self._rank = rank

    def update_step(self, group: dict, p: torch.Tensor, gindex: int, pindex: int) -> None:
        mine = self._rank in (-1, int(os.environ["RANK"]))
        if pindex == 1 and p.dtype == torch.float32 and mine:
            self.lose()

    def lose(self) -> None:
        raise NotImplementedError


class LostBySignal(_Lost):
    def lose(self) -> None:
        print("a first word", file=sys.stderr)
        print("the  last word", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)


class LostByExit(_Lost):
    """What CUDA_CHECK_RETURN of bitsandbytes does."""

    def lose(self) -> None:
        blocking = os.environ.get("CUDA_LAUNCH_BLOCKING")
        print(f"Error an illegal memory access was encountered, {blocking=}", flush=True)
        os._exit(1)
