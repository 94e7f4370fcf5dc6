"""What a failed step leaves behind: the finding that a row with adapter `none` records."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from topologies.pytorch.ranks import error_text


def describe_failure(
    error: Exception, step: int, names: list[tuple[str, torch.Tensor]], state: dict
) -> str:
    """The exact error, at which step (from 1) and parameter, and what was changed by then.

    `names` is in the order in which the optimizer steps; the failed parameter is the last of them
    whose state counts this step.
    """
    counted = [(name, state[p]) for name, p in names if p in state and state[p].get("step") == step]
    changed = [(name, one) for name, one in ((n, state.get(p)) for n, p in names) if one]
    if not counted:
        return f"step {step}: {error_text(error)}; no state was changed"
    name, last = counted[-1]
    text = f"step {step}, parameter {name}: {error_text(error)}; by then {name} had "
    text += ", ".join(_describe(key, value) for key, value in last.items())
    others = len(counted) - 1
    text += f"; {others} parameter{'' if others == 1 else 's'} before it had done this step"
    if len(changed) > len(counted):
        text += f"; {len(changed) - len(counted)} more have state of earlier steps"
    return text


def _describe(key: str, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{key} {value}"
    kind = "DTensor" if isinstance(value, DTensor) else "tensor"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{key} {kind} of {value.numel()} {dtype}"
