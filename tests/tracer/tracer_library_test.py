"""libstepscope_tracer.so, loaded into Python, records real PyTorch and real bitsandbytes on CPU."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.topologies.pytorch_ranks import on_ranks  # first: it sets what PyTorch reads when loaded

# isort: split
import bitsandbytes as bnb
import torch
from torch.distributed.fsdp import fully_shard

from topologies.pytorch.adapters import local_shards

BIN = Path(os.environ["STEPSCOPE_BIN"])
LIBRARY = BIN.parent / "lib" / "libstepscope_tracer.so"
STEPS = 2
UPDATES = ("bitsandbytes::optimizer_update_8bit_blockwise", "bitsandbytes::optimizer_update_32bit")


def tracer() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    library.stepscope_tracer_error.restype = ctypes.c_char_p
    return library


def call(function: Any, *arguments: Any) -> None:
    assert function(*arguments) == 0, tracer().stepscope_tracer_error().decode()


def record(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Steps of `optimizer` with gradients of one, recorded into `path`."""
    library = tracer()
    call(library.stepscope_tracer_start, b"torch", ctypes.c_int64(0))
    for step in range(STEPS):
        with torch.profiler.record_function(f"stepscope:step {step}"):
            optimizer.step()
    call(library.stepscope_tracer_stop)
    call(library.stepscope_tracer_write, str(path).encode())


def with_gradients(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return parameters


def updates(trace: Path) -> list[tuple[str, int]]:
    """Name and n of every update in a file, as our reader understands it."""
    chrome = trace.with_suffix(".converted.json")
    command = [BIN / "convert_trace", trace, trace.with_suffix(".converted.sqlite"), chrome]
    subprocess.run(command, check=True, timeout=60)
    events = json.loads(chrome.read_text())["traceEvents"]
    found = [event for event in events if event.get("name") in UPDATES]
    return [(event["name"], _numel(event["args"]["Input Dims"][2])) for event in found]


def _numel(shape: list[int]) -> int:
    return torch.Size(shape).numel()


def judged(folder: Path, sizes: list[list[int]], files: list[Path]) -> dict[tuple, str]:
    """Statuses by contract, rank and step, where rank r has to step tensors of sizes[r]."""
    plan = {
        "schema_version": 1,
        "kind": "stepscope shard plan",
        "world_size": len(sizes),
        "collectives": [],
        "ranks": [
            {
                "rank": rank,
                "tensors": [{"name": f"p{i}", "n": n, "whole": n} for i, n in enumerate(local)],
            }
            for rank, local in enumerate(sizes)
        ],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    command = [BIN / "judge_trace", folder / "plan.json", *files]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {
        (verdict["contract"], verdict["rank"], verdict.get("ordinal")): verdict["status"]
        for verdict in json.loads(done.stdout)
    }


def plain(folder: str) -> None:
    large, small = with_gradients([torch.nn.Parameter(torch.ones(n)) for n in (8192, 300)])
    optimizer = bnb.optim.AdamW8bit([large, small], lr=1e-3)
    record(optimizer, Path(folder) / "plain.sqlite")


def test_plain_tensors_are_seen_with_their_n(tmp_path: Path) -> None:
    on_ranks(1, plain, str(tmp_path))
    trace = tmp_path / "plain.sqlite"
    assert sorted(updates(trace)) == sorted([(UPDATES[0], 8192), (UPDATES[1], 300)] * STEPS)


SHAPES = {"rows": (30, 300), "uneven": (5, 1000), "small": (3,), "one_row": (1, 700)}
LOCAL = [[4500, 3000, 2, 700], [4500, 2000, 1, 0]]
WHOLE = [[9000, 5000, 3, 700]] * 2


def sharded(folder: str) -> int:
    module = torch.nn.Module()
    for name, shape in SHAPES.items():
        module.register_parameter(name, torch.nn.Parameter(torch.ones(shape)))
    fully_shard(module)
    parameters = with_gradients(list(module.parameters()))
    rank = torch.distributed.get_rank()
    call(tracer().stepscope_tracer_set_rank, ctypes.c_int64(rank), ctypes.c_int64(2))
    record(local_shards(bnb.optim.AdamW8bit)(parameters, lr=1e-3), Path(folder) / "rank%r.sqlite")
    return rank


def test_shards_of_fsdp2_are_seen_with_their_local_n_and_keep_the_contracts(tmp_path: Path) -> None:
    assert on_ranks(2, sharded, str(tmp_path)) == [0, 1]
    files = [tmp_path / f"rank{rank}.sqlite" for rank in (0, 1)]
    # Precision goes by the whole parameter: the shards of `uneven` are below the threshold.
    for file, (rows, uneven, small, one_row) in zip(files, LOCAL, strict=True):
        step = [(UPDATES[0], rows), (UPDATES[0], uneven), (UPDATES[1], small)]
        step += [(UPDATES[1], one_row)] if one_row else []
        assert sorted(updates(file)) == sorted(step * STEPS)

    statuses = judged(tmp_path, LOCAL, files)
    for contract in ("local-n", "no-all-gather", "no-collectives", "no-host-device-copies"):
        for rank in (0, 1):
            assert [statuses[contract, rank, step] for step in range(STEPS)] == ["ok", "ok"]
    statuses = judged(tmp_path, WHOLE, files)
    assert statuses["local-n", 1, 0] == "broken"


NVTX_SCRIPT = """
import os, torch
nvtx = torch.cuda.nvtx
for step in range(3):
    nvtx.range_push(f"stepscope:step {step}")
    torch.ones(7).add_(1)
    nvtx.range_pop()
identity = nvtx.range_start("started \u00e9")
nvtx.range_end(identity)
nvtx.range_pop()  # once too often
nvtx.range_push("never popped")
if os.fork() == 0:
    raise SystemExit  # a child that exits the usual way does not write its parent's file
os.wait()
"""


def test_nvtx_ranges_of_any_process_are_written_when_it_exits(tmp_path: Path) -> None:
    environment = {
        "NVTX_INJECTION64_PATH": str(LIBRARY),
        "STEPSCOPE_TRACE_OUT": str(tmp_path / "r%r.json"),
        "RANK": "3",
        "WORLD_SIZE": "4",
    }
    done = subprocess.run(
        [sys.executable, "-c", NVTX_SCRIPT],
        check=True,
        timeout=120,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    assert [file.name for file in tmp_path.iterdir()] == ["r3.json"]
    events = json.loads((tmp_path / "r3.json").read_text())["traceEvents"]
    named = {event["name"]: event for event in events if event["ph"] == "X"}
    steps = [named[f"stepscope:step {step}"] for step in range(3)]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(steps))
    assert {"started \u00e9", "never popped"} <= named.keys()
    inside = [event for event in events if event["name"] == "aten::add_"]
    assert len(inside) == 3, "libtorch was in the process, and is recorded, too"
    for step, operator in zip(steps, inside, strict=True):
        assert step["ts"] <= operator["ts"] <= step["ts"] + step["dur"]


def test_without_torch_the_source_is_refused_in_one_line(tmp_path: Path) -> None:
    script = f"""
import ctypes
tracer = ctypes.CDLL({str(LIBRARY)!r})
tracer.stepscope_tracer_error.restype = ctypes.c_char_p
assert tracer.stepscope_tracer_start(b"torch", ctypes.c_int64(0)) == 1
print(tracer.stepscope_tracer_error().decode())
assert tracer.stepscope_tracer_start(b"auto", ctypes.c_int64(0)) == 0
assert "torch" not in open("/proc/self/maps").read()
"""
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    assert out == (
        "libtorch is not in this process, so its operators cannot be recorded; "
        "import torch first, or leave out source 'torch'\n"
    )
