"""Parameters and gradients for a measurement: the same numbers, bit for bit, as the suite's own
ranks step (topologies/synthetic_values.h), so that rows of one table stand for the same work."""

from __future__ import annotations

import numpy as np
import torch

CHUNK = 1 << 20


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _random(stream: int, first: int, count: int) -> np.ndarray:
    place = np.arange(first, first + count, dtype=np.uint64)
    key = _mix(np.array([stream + 1], dtype=np.uint64))
    return _mix(key + place * np.uint64(0x9E3779B97F4A7C15))


def _float32(random: np.ndarray, lowest: int, exponents: int) -> np.ndarray:
    sign = (random & np.uint64(1)) << np.uint64(31)
    exponent = np.uint64(127 + lowest) + (random >> np.uint64(1)) % np.uint64(exponents)
    fraction = random >> np.uint64(57)
    bits = sign | (exponent << np.uint64(23)) | (fraction << np.uint64(16))
    return bits.astype(np.uint32).view(np.float32)


def fill_parameter(out: torch.Tensor, parameter: int, first: int) -> None:
    """Writes elements [first, first + out.numel()) of the parameter with this index in the model
    to a flat tensor of any float type (the values are exact in all of them)."""
    for begin in range(0, out.numel(), CHUNK):
        count = min(CHUNK, out.numel() - begin)
        random = _random(2 * parameter, first + begin, count)
        out[begin : begin + count] = torch.from_numpy(_float32(random, -9, 6))


def fill_gradient(out: torch.Tensor, parameter: int, first: int) -> None:
    """The gradient of the same elements; one in sixteen is zero."""
    for begin in range(0, out.numel(), CHUNK):
        count = min(CHUNK, out.numel() - begin)
        random = _random(2 * parameter + 1, first + begin, count)
        values = _float32(random, -13, 8)
        values[(random >> np.uint64(8)) & np.uint64(15) == 0] = 0
        out[begin : begin + count] = torch.from_numpy(values)
