"""Adapter `none`: the optimizer's class as it is, on whatever tensors FSDP hands out.

Its failure is a finding: see topologies/pytorch/failure.py.
"""

from __future__ import annotations


def none(optimizer_class: type) -> type:
    """The class itself."""
    return optimizer_class
