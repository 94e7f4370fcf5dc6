"""Refuses what would not fit into memory before anything is allocated; as bench/memory_guard.h."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from topologies.pytorch.case import DTYPES, Case
from topologies.pytorch.errors import CannotRun
from topologies.pytorch.launch import find_rank
from topologies.pytorch.ranks import Job, together

# What a rank takes besides its tensors: PyTorch's pages, Gloo's buffers. Measured at 300 to
# 500 MiB on a CPU; rounded up.
OVERHEAD = 512 << 20
GIB = 1 << 30
# Bytes of two moments an element in FP32, and at the most in 8 bits (codes and absmax).
FP32_STATE, STATE_8BIT = 8, 2.04


def require_memory(job: Job, model: dict[str, Any], cases: list[Case], sides: int) -> None:
    """`sides`: jobs that are alive at once on this host. Collective. Raises RanksFailed."""
    together(lambda: _require(job, model, cases, sides))


def _require(job: Job, model: dict[str, Any], cases: list[Case], sides: int) -> None:
    needed = [least_bytes(one, model["numel"], job.world_size) for one in cases]
    largest = max(needed)
    if job.device.type == "cuda":
        free, sharers, where = torch.cuda.mem_get_info(job.device)[0], sides, "its device has"
    else:
        free, sharers, where = available_bytes(), sides * find_rank().local_world_size, "there are"
    if free is None or largest <= free // sharers - OVERHEAD:
        return
    raise CannotRun(
        f"{cases[needed.index(largest)].benchmark_name(model['name'])} needs"
        f" {largest / GIB:.1f} GiB of tensors on this rank, {where} {free / GIB:.1f} GiB free, and"
        f" {sharers} process(es) share them; use more ranks or a smaller model; nothing was"
        " allocated"
    )


def least_bytes(case: Case, numel: int, world_size: int) -> int:
    """Parameters, gradients and state of a rank; under FSDP1 the whole model, too, from which its
    shards are cut."""
    itemsize = DTYPES[case.dtype].itemsize
    local = -(-numel // world_size)
    state = STATE_8BIT if case.asks_8bit else FP32_STATE
    whole = numel * itemsize if case.sharding.topology == "fsdp1" else 0
    return whole + local * 2 * itemsize + int(local * state)


def available_bytes() -> int | None:
    """What this host can still give, or the control group (version 2) this process is in."""
    found = []
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    for line in _lines("/proc/self/cgroup"):
        if line.startswith("0::"):
            folder = "/sys/fs/cgroup" + line[3:]
            limit, used = (_lines(f"{folder}/memory.{one}") for one in ("max", "current"))
            if limit and used and limit[0] != "max":  # "max" where there is none
                found.append(max(0, int(limit[0]) - int(used[0])))
    return min(found, default=None)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
