"""What a failed step leaves behind: the finding that a row with adapter `none` records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from topologies.pytorch.ranks import error_text


def describe_failure(
    error: BaseException, step: int, names: list[tuple[str, torch.Tensor]], state: dict
) -> str:
    """The exact error, at which step (from 1) and parameter, and what was changed by then.

    `names` is in the order in which the optimizer steps; the failed parameter is the last of them
    whose state counts this step.
    """
    counted = [(name, state[p]) for name, p in names if p in state and _counts(state[p], step)]
    changed = [(name, one) for name, one in ((n, state.get(p)) for n, p in names) if one]
    if not counted:
        text = f"step {step}: {error_text(error)}; no state counts this step"
        return text + ("" if changed else ", or exists")
    name, last = counted[-1]
    text = f"step {step}, parameter {name}: {error_text(error)}; by then {name} had "
    text += describe_state(last)
    others = len(counted) - 1
    text += f"; {others} parameter{'' if others == 1 else 's'} before it had done this step"
    if len(changed) > len(counted):
        text += f"; {len(changed) - len(counted)} more have state of earlier steps"
    return text


def describe_state(state: dict[str, Any]) -> str:
    """What the state of one parameter consists of."""
    return ", ".join(_describe(key, value) for key, value in _flat(state))


def _counts(state: dict[str, Any], step: int) -> bool:
    """Whether the state of a parameter, or of a piece of it, is one of this step."""
    return any(key == "step" and int(value) == step for key, value in _flat(state))


def _flat(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value


def _describe(key: str, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{key} {value}"
    kind = "DTensor" if isinstance(value, DTensor) else "tensor"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{key} {kind} of {value.numel()} {dtype}"
