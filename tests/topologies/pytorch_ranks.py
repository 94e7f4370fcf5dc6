"""Runs a function on the ranks of a job over Gloo: real processes, forked from one that has
imported PyTorch and bitsandbytes once."""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Where PyTorch's square root is correctly rounded, whatever the length of the vector: see NUMERICS
# in docs/upstream.md. Must be set before PyTorch is loaded.
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
os.environ["MKL_CBWR"] = "AVX2"

import bitsandbytes  # noqa: F401  loaded before the ranks are forked
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: F401

TIMEOUT_S = 240


def on_ranks(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(*arguments)` returns on each rank (as JSON holds it)."""
    with tempfile.TemporaryDirectory() as folder:
        context = mp.start_processes(
            _rank,
            (world_size, folder, function, arguments),
            nprocs=world_size,
            join=False,
            start_method="fork",
        )
        try:
            deadline = datetime.datetime.now() + datetime.timedelta(seconds=TIMEOUT_S)
            while not context.join(timeout=5):
                assert datetime.datetime.now() < deadline, "the ranks do not end"
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
        results = [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(world_size)]
    problems = [result["problem"] for result in results if "problem" in result]
    assert not problems, "\n".join(problems)
    return [result["value"] for result in results]


def _rank(rank: int, world_size: int, folder: str, function: Callable, arguments: tuple) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(f"{folder}/store", world_size),
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=60),
    )
    try:
        result = {"value": function(*arguments)}
    except Exception:
        result = {"problem": traceback.format_exc()}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    if "problem" in result:
        os._exit(0)  # the others may wait in a collective: their timeout ends them
    dist.destroy_process_group()
