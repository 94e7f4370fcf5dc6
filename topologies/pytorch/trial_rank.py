"""One child of trial.py, which starts it: `trial_rank.py SPEC`. Does the first steps of a case, and
notes before each step and parameter what comes, for the case that it is heard of no more.

A note is a line of JSON in the file that SPEC names: {"step": 1}, {"of_step": 1, "parameter": name,
"state": text}, {"stepped": 1}, and last {"done": true}, {"failure": text} or {"cannot_run": text}.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import torch
import torch.distributed as dist

from topologies.pytorch.case import DTYPES, Case
from topologies.pytorch.failure import describe_failure, describe_state
from topologies.pytorch.measure import make_optimizer
from topologies.pytorch.ranks import Job, error_text, gather
from topologies.pytorch.reference_check import STEPS
from topologies.pytorch.sharded_model import Sharding, set_gradients, sharded_model

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run(spec: dict[str, Any], note: Callable[[dict[str, Any]], None]) -> None:
    case = Case(**{**spec["case"], "sharding": Sharding(**spec["case"]["sharding"])})
    device = torch.device(spec["device"])
    torch.set_num_threads(spec["threads"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    timeout = datetime.timedelta(seconds=spec["timeout_s"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore(spec["store_prefix"], store),
        rank=spec["rank"],
        world_size=spec["world_size"],
        timeout=timeout,
    )
    job = Job(spec["rank"], spec["world_size"], device, spec["timeout_s"])
    model = sharded_model(spec["description"], case.sharding, DTYPES[case.dtype], job)
    optimizer = make_optimizer(model, case)
    set_gradients(model)
    names = model.named_parameters()
    step = 0
    note_updates(optimizer, names, lambda told: note({"of_step": step, **told}))
    for step in range(1, STEPS + 1):
        note({"step": step})
        failure = None
        try:
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        except BaseException as error:
            failure = describe_failure(error, step, names, optimizer.state)
        note({"stepped": step})  # from here on it may wait for others
        if failure is not None:
            note({"failure": failure})
        if any(gather(failure is not None)):
            if failure is None:
                note({"done": True})
            return
    note({"done": True})


def note_updates(
    optimizer: torch.optim.Optimizer,
    names: list[tuple[str, torch.Tensor]],
    note: Callable[[dict[str, Any]], None],
) -> None:
    """Notes each parameter before its update, where the optimizer has a method for one, as
    bitsandbytes' have."""
    update = getattr(optimizer, "update_step", None)
    if update is None:
        return
    name_of = {parameter: name for name, parameter in names}

    def noted(group: dict[str, Any], p: torch.Tensor, *place: int) -> None:
        state = describe_state(optimizer.state.get(p, {}))
        note({"parameter": name_of[p], "state": state})
        update(group, p, *place)

    optimizer.update_step = noted


def main() -> None:
    # It must not outlive its parent, nor leave a core file where somebody works.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    spec = json.loads(Path(sys.argv[1]).read_text())
    # Unbuffered: a note is in the file before what it announces.
    progress = os.open(spec["progress"], os.O_WRONLY | os.O_APPEND)

    def note(told: dict[str, Any]) -> None:
        os.write(progress, (json.dumps(told) + "\n").encode())

    try:
        run(spec, note)
    except Exception as error:
        note({"cannot_run": error_text(error)})
    os._exit(0)  # no exit handler may wait for others


if __name__ == "__main__":
    main()
