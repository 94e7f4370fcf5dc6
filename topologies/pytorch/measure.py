"""Measures one case on all ranks: builds, checks, times, counts bytes."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, field
from typing import Any

import torch

from topologies.pytorch.case import DTYPES, Case
from topologies.pytorch.guarded_step import GuardedStep
from topologies.pytorch.memory import peak_of_step, reset_peak_resident, resident_bytes
from topologies.pytorch.ranks import CannotRun, Job, first_reason, gather, one_line, together
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
from topologies.pytorch.trial import may_crash, try_first_steps
from topologies.pytorch.turns import Turns

LEAST_STEPS = 5


@dataclass(frozen=True)
class Settings:
    steps: int  # timed ones that are wanted
    warmup_steps: int
    seconds: float  # a case's timed steps may take, unless LEAST_STEPS take longer
    threads: int
    tracing: Tracing = NO_TRACING
    step_timeout_s: float = 600.0  # a step that takes longer ends its rank
    try_first: bool = False  # the first steps in child processes, whatever the case


@dataclass
class CaseResult:
    case: Case
    failure: str = ""  # why it was not timed
    is_finding: bool = False  # the failure is what was to be found out: not the suite's
    is_skipped: bool = False  # nothing was tried; `failure` says why
    checked: str = ""
    warmup_steps: int = 0
    samples: Samples = field(default_factory=lambda: Samples([], [], [], []))
    ranks: list[dict[str, Any]] = field(default_factory=list)  # columns of results.csv, by rank
    contracts: list[RankContracts] = field(default_factory=list)  # by rank; none: not recorded

    def fail(self, failure: str | None) -> None:
        """Takes what a step failed with, if anything: the samples of such a case are none."""
        if failure and not self.failure:
            self.failure, self.is_finding = failure, self.case.shows_findings
            self.samples = Samples([], [], [], [])

    @property
    def status(self) -> str:
        """The column of that name."""
        if self.is_skipped:
            return "skipped"
        return "failed" if self.failure else "ok"

    @property
    def is_wrong(self) -> bool:
        """A failed check. What the adapter `none` or another package shows, whatever it is, is a
        finding."""
        if self.failure:
            return not self.is_finding
        is_broken = any(one.status == "broken" for one in self.contracts)
        return is_broken and not self.case.shows_findings


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
    if settings.try_first or may_crash(case, job.device):
        result.fail(try_first_steps(job, description, case, settings.step_timeout_s))
        if result.failure:
            # It is not repeated here, where it would end the run.
            turns.let_pass(turns.agree_on_steps(None))
            threads = settings.threads
            result.ranks = [{"rank": r, "threads": threads} for r in range(job.world_size)]
            return None
    model = together(lambda: sharded_model(description, case.sharding, DTYPES[case.dtype], job))
    optimizer = together(lambda: make_optimizer(model, case))
    together(lambda: set_gradients(model))
    step = GuardedStep(optimizer, model.named_parameters(), settings.step_timeout_s)
    try:
        return _steps(job, description, model, optimizer, step, settings, turns, result)
    finally:
        step.close()


def _steps(
    job: Job,
    description: dict[str, Any],
    model: ShardedModel,
    optimizer: torch.optim.Optimizer,
    step: GuardedStep,
    settings: Settings,
    turns: Turns,
    result: CaseResult,
) -> StepRecording | None:
    """As _measure."""
    case = result.case
    failure = first_steps(step)
    if failure is not None:
        result.fail(failure)
    elif case.package in ("bitsandbytes", "torch"):
        checked = _checked(model, case, optimizer)
        result.checked, result.failure = checked
        result.is_finding = bool(result.failure) and case.peer is not None
    if result.failure:
        turns.let_pass(turns.agree_on_steps(None))
    else:
        reset_peak_resident()
        more = max(settings.warmup_steps - STEPS - 1, 0)
        for _ in range(more):
            step()
        affordable = affordable_steps(
            step, settings.steps, LEAST_STEPS, settings.seconds, job.device
        )
        steps = turns.agree_on_steps(affordable)
        result.warmup_steps = STEPS + more + 1 + turns.dropped(steps)
        before = turns.around(step)
        result.samples = timed_steps(step, steps, job.device, before)
        result.fail(step.agreed_failure())
    figures = _figures(job, model, case, optimizer, step, bool(result.failure), settings)
    result.ranks = gather(figures)
    result.fail(step.agreed_failure())
    if not settings.tracing.steps or result.failure or case.package not in SUBJECTS:
        return None
    recording = StepRecording(job, case, case.benchmark_name(description["name"]), settings.tracing)
    recording.record(step, model.layout)
    result.fail(step.agreed_failure())
    return None if result.failure else recording


def skip(job: Job, case: Case, reason: str) -> CaseResult:
    """The case as one that was not tried."""
    ranks = [{"rank": rank} for rank in range(job.world_size)]
    return CaseResult(case, reason, is_finding=True, is_skipped=True, ranks=ranks)


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


def first_steps(step: GuardedStep) -> str | None:
    """The steps that are checked; what failed in them, on the first rank where it did."""
    for _ in range(STEPS):
        step()
        failure = step.agreed_failure()
        if failure is not None:
            return failure
    return None


def _checked(model: ShardedModel, case: Case, optimizer: torch.optim.Optimizer) -> tuple[str, str]:
    """What was compared, and what differed first; both the same on all ranks."""
    text, reason = "", None
    try:
        text = check_against_plain_tensors(model, case, optimizer)
    except Exception as error:
        reason = one_line(error)
    failure = first_reason(reason)
    return ("", failure) if failure else (text, "")


def _figures(
    job: Job,
    model: ShardedModel,
    case: Case,
    optimizer: torch.optim.Optimizer,
    step: GuardedStep,
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
    figures["peak_allocated_bytes"] = peak_of_step(step, held_bytes, job.device)
    if job.device.type == "cuda":
        figures["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(job.device)
    return figures
