"""topologies/pytorch/memory.py: the peak of a step is the step's own."""

from __future__ import annotations

import gc

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import torch

from topologies.pytorch.memory import peak_of_step

HELD = 1 << 30
NUMEL = 1 << 20


def test_the_peak_is_what_was_held_and_what_the_step_allocates() -> None:
    def step() -> None:
        torch.empty(NUMEL)
        torch.empty(NUMEL)  # the first is free again

    assert peak_of_step(step, HELD, torch.device("cpu")) == HELD + 4 * NUMEL


def test_no_collection_comes_within_the_step() -> None:
    seen = []
    gc.enable()
    peak_of_step(lambda: seen.append(gc.isenabled()), HELD, torch.device("cpu"))
    assert seen == [False]
    assert gc.isenabled()
