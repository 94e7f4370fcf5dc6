"""Whether ranks on this node can do a collective at all: starts two of them and adds up."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from bench.free_ports import free_port
from bench.preflight_checks.finding import Finding, ok, stop, warning
from results.scratch_folder import ScratchFolder

# Loading PyTorch takes a cold file system or a busy node long, which says nothing about the ranks;
# the sum itself takes no second. Together with all else the preflight stays under a minute.
LOAD_SECONDS = 35
SUM_SECONDS = 15
RANK = """
import datetime, os, sys
import torch, torch.distributed as dist
print("loaded", flush=True)
backend, device, seconds = sys.argv[1:]
if device == "cuda":
    torch.cuda.set_device(int(os.environ["RANK"]))
dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(seconds)))
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
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    kept |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    kept |= {"OMP_NUM_THREADS": "1"}
    if device == "cpu":
        kept["GLOO_SOCKET_IFNAME"] = "lo"
    # One that has loaded waits for the others as long as they may take.
    words = [python, "-c", RANK, backend, device, str(LOAD_SECONDS + SUM_SECONDS)]
    processes: list[subprocess.Popen] = []
    with ScratchFolder() as folder:
        texts = [(folder / f"{rank}.out", folder / f"{rank}.err") for rank in range(ranks)]
        try:
            for rank, (out, err) in enumerate(texts):
                with out.open("wb") as told, err.open("wb") as failed:
                    place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                    processes.append(
                        subprocess.Popen(words, env=kept | place, stdout=told, stderr=failed)
                    )
            late = _wait(processes, [out for out, _ in texts])
            codes = [process.poll() for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        said = [err.read_text(errors="replace").strip().splitlines() for _, err in texts]
    broken = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
    if broken:
        last = (said[broken[0]] or [f"exit code {codes[broken[0]]}"])[-1]
    elif late == "loading":
        return warning(
            "loopback",
            f"{backend}: not looked, PyTorch was not loaded within {LOAD_SECONDS} s",
            "a busy node or a cold file system: look again",
        )
    elif late:
        broken = [rank for rank, code in enumerate(codes) if code is None]
        last = f"no end within {SUM_SECONDS} s after PyTorch was loaded"
    else:
        return ok("loopback", f"{backend}, {ranks} ranks added up")
    advice = "NCCL_DEBUG=INFO says more" if backend == "nccl" else "is PyTorch whole?"
    return stop("loopback", f"{backend}, rank {broken[0]} of {ranks}: {last}", advice)


def _wait(processes: list[subprocess.Popen], told: list[Path]) -> str:
    """Until all have ended or one has failed; what took too long otherwise."""
    begin = time.monotonic()
    loaded = None
    while True:
        codes = [process.poll() for process in processes]
        if None not in codes or any(codes):
            return ""
        now = time.monotonic()
        if loaded is None and all(path.stat().st_size for path in told):
            loaded = now
        if loaded is None and now - begin > LOAD_SECONDS:
            return "loading"
        if loaded is not None and now - loaded > SUM_SECONDS:
            return "sum"
        time.sleep(0.05)
