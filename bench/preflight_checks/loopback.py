"""Whether ranks on this node can do a collective at all: starts two of them and adds up."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from bench.preflight_checks.finding import Finding, ok, stop

SECONDS = 40
RANK = """
import datetime, os, sys
import torch, torch.distributed as dist
backend, device = sys.argv[1:]
patience = datetime.timedelta(seconds=20)
if device == "cuda":
    torch.cuda.set_device(int(os.environ["RANK"]))
dist.init_process_group(backend, timeout=patience)
value = torch.full((1 << 18,), float(dist.get_rank() + 1), device=device)
dist.all_reduce(value)
size = dist.get_world_size()
assert bool((value == size * (size + 1) / 2).all()), "the sum is wrong"
dist.destroy_process_group()
"""


def check(device: str, ranks: int, python: Path) -> Finding:
    """An all-reduce of 1 MiB over `ranks` processes of this node. `python`: the one that has
    PyTorch, which need not be the one that runs this."""
    backend = "nccl" if device == "cuda" else "gloo"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    kept |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    kept |= {"OMP_NUM_THREADS": "1"}
    if device == "cpu":
        kept["GLOO_SOCKET_IFNAME"] = "lo"
    processes = [
        subprocess.Popen(
            [python, "-c", RANK, backend, device],
            env=kept | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    begin = time.monotonic()
    said = [""] * ranks
    for rank, process in enumerate(processes):
        try:
            said[rank] = process.communicate(timeout=max(1, SECONDS + begin - time.monotonic()))[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said[rank] = f"no end within {SECONDS} s\n{process.communicate()[1]}"
    failed = [rank for rank, process in enumerate(processes) if process.returncode != 0]
    if failed:
        last = (
            said[failed[0]].strip().splitlines() or [f"exit code {processes[failed[0]].returncode}"]
        )[-1]
        advice = "NCCL_DEBUG=INFO says more" if backend == "nccl" else "is PyTorch whole?"
        return stop("loopback", f"{backend}, rank {failed[0]} of {ranks}: {last}", advice)
    return ok("loopback", f"{backend}, {ranks} ranks added up")
