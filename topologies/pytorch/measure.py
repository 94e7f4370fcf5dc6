"""Measures one case on all ranks: builds, checks, times, counts bytes."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, field
from typing import Any

import torch

from topologies.pytorch.case import DTYPES, Case
from topologies.pytorch.failure import describe_failure
from topologies.pytorch.memory import peak_of_step, reset_peak_resident, resident_bytes
from topologies.pytorch.ranks import CannotRun, Job, gather, one_line, together
from topologies.pytorch.reference_check import STEPS, check_against_plain_tensors
from topologies.pytorch.sharded_model import (
    ShardedModel,
    local,
    set_gradients,
    sharded_model,
)
from topologies.pytorch.state_bytes import state_bytes, storage_bytes, tensors_of
from topologies.pytorch.step_contracts import (
    NO_TRACING,
    SUBJECTS,
    RankContracts,
    StepRecording,
    Tracing,
)
from topologies.pytorch.step_timing import Samples, affordable_steps, timed_steps
from topologies.pytorch.turns import Turns

LEAST_STEPS = 5


@dataclass(frozen=True)
class Settings:
    steps: int  # timed ones that are wanted
    warmup_steps: int
    seconds: float  # a case's timed steps may take, unless LEAST_STEPS take longer
    threads: int
    tracing: Tracing = NO_TRACING


@dataclass
class CaseResult:
    case: Case
    failure: str = ""  # why it was not timed
    is_finding: bool = False  # the failure is what was to be found out: not the suite's
    checked: str = ""
    warmup_steps: int = 0
    samples: Samples = field(default_factory=lambda: Samples([], [], [], []))
    ranks: list[dict[str, Any]] = field(default_factory=list)  # columns of results.csv, by rank
    contracts: list[RankContracts] = field(default_factory=list)  # by rank; none: not recorded

    @property
    def is_wrong(self) -> bool:
        """A failed check. What the adapter `none` shows, whatever it is, is a finding."""
        if self.failure:
            return not self.is_finding
        is_broken = any(one.status == "broken" for one in self.contracts)
        return is_broken and self.case.adapter != "none"


def measure(
    job: Job, description: dict[str, Any], case: Case, settings: Settings, turns: Turns
) -> CaseResult:
    """One case. Collective. Raises RanksFailed where it cannot be built. The last turn is left to
    be ended, so that what is written of the case lies in it."""
    result = CaseResult(case)
    turns.begin()
    recording = _measure(job, description, case, settings, turns, result)
    gc.collect()  # FSDP's modules are cycles: they must not count in the next case's peak
    if recording:  # plain tensors take the memory of the sharded ones
        result.contracts = recording.judge(_numel_of(description))
    return result


def _measure(
    job: Job,
    description: dict[str, Any],
    case: Case,
    settings: Settings,
    turns: Turns,
    result: CaseResult,
) -> StepRecording | None:
    """Fills `result` but for its contracts; returns the recorded steps, if any."""
    model = together(lambda: sharded_model(description, case.sharding, DTYPES[case.dtype], job))
    optimizer = together(lambda: make_optimizer(model, case))
    together(lambda: set_gradients(model))
    failure = first_steps(model, optimizer)
    if failure is not None:
        result.failure = failure
        result.is_finding = case.adapter == "none"
    elif case.subject in ("bitsandbytes", "torch"):
        checked = _checked(model, case, optimizer)
        result.checked, result.failure = checked
    if result.failure:
        turns.let_pass(turns.agree_on_steps(None))
    else:
        reset_peak_resident()
        more = max(settings.warmup_steps - STEPS - 1, 0)
        for _ in range(more):
            optimizer.step()
        affordable = affordable_steps(
            optimizer.step, settings.steps, LEAST_STEPS, settings.seconds, job.device
        )
        steps = turns.agree_on_steps(affordable)
        result.warmup_steps = STEPS + more + 1 + turns.dropped(steps)
        before = turns.around(optimizer.step)
        result.samples = timed_steps(optimizer.step, steps, job.device, before)
    result.ranks = gather(_figures(job, model, case, optimizer, bool(result.failure), settings))
    if not settings.tracing.steps or result.failure or case.subject not in SUBJECTS:
        return None
    recording = StepRecording(job, case, case.benchmark_name(description["name"]), settings.tracing)
    recording.record(optimizer.step)
    return recording


def _numel_of(description: dict[str, Any]) -> dict[str, int]:
    return {one["name"]: math.prod(one["shape"]) for one in description["parameters"]}


def make_optimizer(model: ShardedModel, case: Case) -> torch.optim.Optimizer:
    used = case.used_class()
    arguments = dict(case.arguments)
    if case.adapter == "original-parameters":
        arguments["layout"] = model.layout
    try:
        return used(model.named_parameters(), **arguments)
    except TypeError as error:
        raise CannotRun(
            f"{case.optimizer_class} does not take these arguments: {one_line(error)}"
        ) from None


def first_steps(model: ShardedModel, optimizer: torch.optim.Optimizer) -> str | None:
    """The steps that are checked; what failed in them, on the first rank where it did."""
    failure = None
    for step in range(1, STEPS + 1):
        try:
            optimizer.step()
        except Exception as error:
            names = model.named_parameters()
            failure = describe_failure(error, step, names, optimizer.state)
        failures = gather(failure)
        for rank, one in enumerate(failures):
            if one is not None:
                return one if rank == 0 else f"rank {rank}: {one}"
    return None


def _checked(model: ShardedModel, case: Case, optimizer: torch.optim.Optimizer) -> tuple[str, str]:
    """What was compared, and what differed first; both the same on all ranks."""
    text, reason = "", None
    try:
        text = check_against_plain_tensors(model, case, optimizer)
    except Exception as error:
        reason = one_line(error)
    for rank, one in enumerate(gather(reason)):
        if one is not None:
            return "", f"rank {rank}: {one}"
    return text, ""


def _figures(
    job: Job,
    model: ShardedModel,
    case: Case,
    optimizer: torch.optim.Optimizer,
    failed: bool,
    settings: Settings,
) -> dict[str, Any]:
    parameters = list(model.module.parameters())
    values = [local(p) for p in parameters]
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    parameter_bytes, gradient_bytes = storage_bytes(values), storage_bytes(gradients)
    ranges = [one for p in parameters for one in model.ranges(p)]
    figures = {
        "rank": job.rank,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "threads": settings.threads,
        "local_numel": sum(one.numel for one in ranges),
        "empty_shards": len(model.layout.order) - len({one.name for one in ranges}),
        "parameter_bytes": parameter_bytes,
        "gradient_bytes": gradient_bytes,
    }
    if failed:
        return figures
    state = state_bytes(optimizer.state, case.asks_8bit)
    numel = figures["local_numel"]
    figures |= {
        "moment_bytes": state.moment_bytes,
        "state_bytes": state.state_bytes,
        "parameters_8bit": state.parameters_8bit,
        "parameters_fp32": state.parameters_fp32,
        "bytes_per_parameter": state.moment_bytes / numel if numel else None,
        "resident_bytes": resident_bytes(),
        "peak_resident_bytes": resident_bytes(peak=True),
        "bytes_moved": gradient_bytes + 2 * parameter_bytes + 2 * state.moment_bytes,
    }
    held = [tensor for _, tensor in tensors_of(optimizer.state)]
    held_bytes = storage_bytes([*values, *gradients, *held])
    figures["peak_allocated_bytes"] = peak_of_step(optimizer.step, held_bytes, job.device)
    if job.device.type == "cuda":
        figures["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(job.device)
    return figures
