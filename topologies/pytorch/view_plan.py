"""The shard plan where the optimizer is handed views of the original parameters: FSDP1 with
use_orig_params=True.

    plan = view_plan(gather(stepped_ranges(layout)), case.state_policy, minimum)
    Path("plan.json").write_text(json.dumps(plan))       # for trace_check --plan

plan_state plans what a unit's flat parameter is cut into. Here every original stands for itself:
where one rank's part ends depends on the gaps that FSDP1 leaves between originals, which the
layout knows (shard_layout.py), and a rank without a part of one steps nothing of it.
"""

from __future__ import annotations

from typing import Any

from topologies.pytorch.border_exchange import BLOCK
from topologies.pytorch.shard_layout import Range, ShardLayout


def stepped_ranges(layout: ShardLayout) -> list[Range]:
    """What this rank steps now: what it owns of the parameters that have a gradient."""
    stepped = [p for p in layout.by_parameter if p.grad is not None]
    return [one for parameter in stepped for one in layout.ranges(parameter, layout.rank)]


def view_plan(by_rank: list[list[Range]], state_policy: str, min_8bit_size: int) -> dict[str, Any]:
    """As plan_state writes it. `min_8bit_size`: originals of fewer elements have FP32 state, which
    has no blocks."""

    def sizes(one: Range) -> list[int]:
        if state_policy != "original" or one.original_numel < min_8bit_size:
            return [one.numel]
        return _block_sizes(one)

    ranks = [
        {
            "rank": rank,
            "tensors": [
                {"name": one.name, "n": n, "whole": one.original_numel}
                for one in ranges
                for n in sizes(one)
            ],
        }
        for rank, ranges in enumerate(by_rank)
    ]
    handed = sum(one.numel for ranges in by_rank for one in ranges)
    stepped = sum(tensor["n"] for one in ranks for tensor in one["tensors"])
    return {
        "schema_version": 1,
        "kind": "stepscope shard plan",
        "world_size": len(by_rank),
        # More is stepped than owned only where a block is: once by each of its owners.
        "collectives": ["all-to-all"] if stepped > handed else [],
        "ranks": ranks,
    }


def _block_sizes(one: Range) -> list[int]:
    """Whole blocks in one go, then each block that others own a part of."""
    whole, shared = 0, []
    for first in range(one.offset // BLOCK * BLOCK, one.end, BLOCK):
        end = min(first + BLOCK, one.original_numel)
        if one.offset <= first and end <= one.end:
            whole += end - first
        else:
            shared.append(end - first)
    return [whole, *shared] if whole else shared
