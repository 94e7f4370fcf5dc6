"""The text that train_step.py learns, and which bytes of it each step shows which rank: the same as
build/bin/train_step's (bench/train_text.h)."""

from __future__ import annotations

from pathlib import Path

import torch

from topologies.pytorch.ranks import CannotRun
from topologies.pytorch.train_network import CONTEXT

FEWEST_BYTES, MOST_BYTES = 4096, 64 << 20
MASK = (1 << 64) - 1


def _mixed(value: int) -> int:
    """SplitMix64 (Steele, Lea and Flood 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class TrainText:
    def __init__(self, path: Path) -> None:
        """Raises CannotRun where the file cannot be learnt from."""
        try:
            text = path.read_bytes()
        except OSError as error:
            raise CannotRun(f"{path}: {error.strerror}; give a text with --text") from None
        if not FEWEST_BYTES <= len(text) <= MOST_BYTES:
            raise CannotRun(
                f"{path}: has {len(text)} bytes; give one of {FEWEST_BYTES} to {MOST_BYTES}"
            )
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def batch(self, step: int, rank: int, sequences: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets [sequences, CONTEXT], from places drawn anew for every step and
        rank."""
        places = self._bytes.numel() - CONTEXT
        seed = _mixed(_mixed(step) ^ rank)
        rows = []
        for _ in range(sequences):
            seed = _mixed(seed)
            first = seed % places
            rows.append(self._bytes[first : first + CONTEXT + 1])
        shown = torch.stack(rows)
        return shown[:, :-1].contiguous(), shown[:, 1:].contiguous()
