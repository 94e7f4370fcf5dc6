"""Steps other libraries' optimizers for kernel_step, which starts this and times it in turn.

Usage:  kernel_step --peers bitsandbytes,torchao      (started by it, never by hand)

Requests are lines on standard input, each answered by one line on standard output: "ok VALUE" or
"error TEXT".

    open LIBRARY THREADS                  imports the library; VALUE is its version
    make ID OPTIMIZER DTYPE NUMEL         tensors, and an optimizer over them that ID names; 0
    step ID COUNT                         COUNT steps; VALUE is their time in nanoseconds

Caveats: what is timed is `optimizer.step()` as a user calls it, Python included. State is 8-bit
whatever the size; a size that the library would keep in FP32 is an error. The end of standard input
ends the program.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TextIO

TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
BLOCK = 256
Factory = Callable[[Any], Any]


class PeerError(Exception):
    """What a library cannot do, in one line."""


def bitsandbytes_factories() -> dict[str, Factory]:
    optim = importlib.import_module("bitsandbytes.optim")
    return {
        "AdamW8bit": lambda p: optim.AdamW8bit([p], min_8bit_size=0),
        "Lion8bit": lambda p: optim.Lion8bit([p], min_8bit_size=0),
    }


def torchao_factories() -> dict[str, Factory]:
    optim = importlib.import_module("torchao.optim")

    def adamw(p: Any) -> Any:
        if p.numel() < 4096 or p.numel() % BLOCK:
            raise PeerError(
                f"torchao keeps FP32 state for {p.numel()} elements"
                f" (give multiples of {BLOCK} from 4096 on)"
            )
        return optim.AdamW8bit([p], block_size=BLOCK)

    return {"AdamW8bit": adamw}


LIBRARIES: dict[str, Callable[[], dict[str, Factory]]] = {
    "bitsandbytes": bitsandbytes_factories,
    "torchao": torchao_factories,
}


class Peers:
    """The library that was opened, and the optimizers that were made of it."""

    def __init__(self) -> None:
        self.factories: dict[str, Factory] = {}
        self.optimizers: dict[str, Any] = {}

    def open(self, library: str, threads: str) -> str:
        if library not in LIBRARIES:
            raise PeerError(f"unknown library {library} (known: {', '.join(LIBRARIES)})")
        torch = importlib.import_module("torch")
        torch.set_num_threads(int(threads))
        self.factories = LIBRARIES[library]()
        return importlib.metadata.version(library)

    def make(self, number: str, optimizer: str, dtype: str, numel: str) -> str:
        torch = importlib.import_module("torch")
        if optimizer not in self.factories:
            raise PeerError(f"the library has no {optimizer}")
        torch.manual_seed(1)

        def values() -> Any:
            # A product of two uniform numbers, as kernel_step's own cases have.
            a, b = (torch.rand(int(numel)).mul_(2).sub_(1) for _ in range(2))
            return a.mul_(b).mul_(0.1).to(getattr(torch, TORCH_DTYPES[dtype]))

        parameter = torch.nn.Parameter(values())
        parameter.grad = values()
        self.optimizers[number] = self.factories[optimizer](parameter)
        return "0"

    def step(self, number: str, count: str) -> str:
        step = self.optimizers[number].step
        start = time.perf_counter_ns()
        for _ in range(int(count)):
            step()
        return str(time.perf_counter_ns() - start)


def answer(peers: Peers, line: str) -> str:
    word, *arguments = line.split()
    try:
        handlers = {"open": peers.open, "make": peers.make, "step": peers.step}
        return "ok " + handlers[word](*arguments)
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return "error " + (text if len(text) <= 300 else text[:300] + "...")


def serve(requests: TextIO, answers: TextIO) -> None:
    peers = Peers()
    for line in requests:
        print(answer(peers, line), file=answers, flush=True)


def main() -> int:
    # Libraries may print; only answers may go where answers are read.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A compiler's workers would take the cores from what is timed.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    warnings.simplefilter("ignore")
    gc.disable()
    serve(sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
