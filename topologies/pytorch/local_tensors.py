"""What a rank hands its optimizer, as plain tensors: for measurements of one process."""

from __future__ import annotations

import json

import torch

from results.scratch_folder import ScratchFolder
from topologies.pytorch.programs import run_program


def local_tensors(model: str, world_size: int) -> list[torch.nn.Parameter]:
    """The shards of rank 0 of a job under fsdp2, gradients included. Raises CannotRun."""
    with ScratchFolder() as folder:
        plan = folder / "plan.json"
        ranks = ["--world-size", str(world_size), "--plan-ranks", "0"]
        run_program("plan_state", "--model", model, *ranks, "--plan-out", plan)
        tensors = json.loads(plan.read_text())["ranks"][0]["tensors"]
    generator = torch.Generator().manual_seed(1)
    parameters = []
    for tensor in tensors:
        if not tensor["n"]:
            continue
        parameter = torch.nn.Parameter(torch.randn(tensor["n"], generator=generator))
        parameter.grad = torch.randn(tensor["n"], generator=generator)
        parameters.append(parameter)
    return parameters
