"""PyTorch's square root, rounded correctly on every processor, for tests that compare bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch


def square_root(tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sqrt(tensor.detach().numpy()))


def are_rounded_correctly() -> bool:
    """Whether PyTorch's are, on this processor and with these settings of MKL."""
    values = torch.linspace(0.0, 1.0, 100_003)
    return torch.equal(values.sqrt(), square_root(values))


@pytest.fixture(scope="module", autouse=True)
def rounded_square_roots() -> Iterator[None]:
    """Lets NumPy take the square roots of this process and of those forked from it where PyTorch's
    are wrong: with MKL on AMD's processors one in five is (docs/upstream.md, Numerics). The
    suite's kernels follow IEEE 754 everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        if not are_rounded_correctly():
            patch.setattr(torch, "sqrt", square_root)
            patch.setattr(torch.Tensor, "sqrt", square_root)
        yield
