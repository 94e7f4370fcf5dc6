"""Trains the language model with one optimizer on PyTorch FSDP, and times whole steps."""

from __future__ import annotations

import gc
import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from topologies.pytorch.case import Case
from topologies.pytorch.guarded_step import GuardedStep
from topologies.pytorch.memory import peak_of_step, reset_peak_resident, resident_bytes
from topologies.pytorch.ranks import Job, gather, together
from topologies.pytorch.shard_layout import (
    ShardLayout,
    clean,
    fsdp1_layout,
    fsdp2_layout,
    record_parameters,
)
from topologies.pytorch.sharded_model import local
from topologies.pytorch.state_bytes import state_bytes, storage_bytes, tensors_of
from topologies.pytorch.step_contracts import RankContracts, StepRecording
from topologies.pytorch.step_timing import Samples, timed_steps
from topologies.pytorch.train_network import Block, ByteTransformer, numel_of
from topologies.pytorch.train_text import TrainText

# What is asked of a training: bench/train_case_run.cc asks the same.
LAST_STEPS = 10
MOST_OF_FIRST_LOSS = 0.9
MOST_FROM_ADAMW = 0.1


@dataclass(frozen=True)
class TrainSettings:
    text: TrainText
    width: int
    layers: int
    sequences: int  # a rank and step
    steps: int  # timed ones
    warmup_steps: int
    threads: int
    step_timeout_s: float


@dataclass
class TrainResult:
    case: Case
    failure: str = ""
    is_finding: bool = False  # the failure is what was to be found out
    samples: Samples = field(default_factory=lambda: Samples([], [], [], []))
    losses: list[float] = field(default_factory=list)  # by step, warm-up first; mean over ranks
    ranks: list[dict[str, Any]] = field(default_factory=list)  # columns of results.csv, by rank
    contracts: list[RankContracts] = field(default_factory=list)  # by rank; none: not recorded

    @property
    def is_wrong(self) -> bool:
        """A failed check. What the adapter `none` shows of bitsandbytes is a finding."""
        if self.failure:
            return not self.is_finding
        is_broken = any(one.status == "broken" for one in self.contracts)
        return is_broken and self.case.adapter != "none"

    @property
    def first_loss(self) -> float | None:
        """Of the untrained parameters."""
        return self.losses[0] if self.losses else None

    @property
    def last_loss(self) -> float | None:
        """Mean of the last LAST_STEPS steps."""
        last = self.losses[-LAST_STEPS:]
        return sum(last) / len(last) if last else None


def train(
    job: Job, case: Case, settings: TrainSettings, recording: StepRecording | None
) -> TrainResult:
    """Trains with `case` from the common start; `recording` judges the optimizer's part of steps
    after the timed ones. Collective."""
    result = TrainResult(case)
    is_recorded = _train(job, case, settings, result, recording)
    gc.collect()  # FSDP's modules are cycles: they must not count in the next case's peak
    if is_recorded:  # plain tensors take the memory of the sharded ones
        result.contracts = recording.judge(numel_of(settings.width, settings.layers))
    return result


class _Training:
    """The sharded network, its optimizer, and what it has learnt so far."""

    def __init__(self, job: Job, case: Case, settings: TrainSettings) -> None:
        self._job, self._settings = job, settings
        self.model, self.layout = together(lambda: _sharded(case, settings, job))
        self.optimizer = together(lambda: _optimizer(self.model, self.layout, case))
        self.update = GuardedStep(self.optimizer, self.named_parameters(), settings.step_timeout_s)
        self.losses: list[torch.Tensor] = []

    def backward(self) -> None:
        """Gradients of the next batch, reduced over the ranks."""
        job, settings = self._job, self._settings
        inputs, targets = settings.text.batch(len(self.losses), job.rank, settings.sequences)
        loss = self.model(inputs.to(job.device), targets.to(job.device))
        loss.backward()
        self.losses.append(loss.detach())

    def step(self) -> None:
        self.backward()
        self.update()
        self.optimizer.zero_grad()

    def named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(clean(name), p) for name, p in self.model.named_parameters()]


def _train(
    job: Job,
    case: Case,
    settings: TrainSettings,
    result: TrainResult,
    recording: StepRecording | None,
) -> bool:
    """Fills `result` but for its contracts; returns whether steps were recorded."""
    training = _Training(job, case, settings)
    try:
        return _train_steps(job, training, settings, result, recording)
    finally:
        training.update.close()


def _train_steps(
    job: Job,
    training: _Training,
    settings: TrainSettings,
    result: TrainResult,
    recording: StepRecording | None,
) -> bool:
    """As _train."""
    case = result.case
    failure = _warm_up(training, settings.warmup_steps)
    if not failure:
        reset_peak_resident()
        samples = timed_steps(training.step, settings.steps, job.device)
        by_rank = gather([float(loss) for loss in training.losses])
        failure = training.update.agreed_failure()
        if not failure:
            result.samples = samples
            result.losses = [sum(one) / len(one) for one in zip(*by_rank, strict=True)]
            result.failure = _judged(result)
    if failure:
        result.failure, result.is_finding = failure, case.adapter == "none"
    result.ranks = gather(_figures(job, training, case, settings, not failure))
    if recording is None or failure:
        return False
    together(training.backward)
    recording.record(training.update, training.layout)
    return True


def _warm_up(training: _Training, steps: int) -> str | None:
    """What failed in an update, on the first rank where it did."""
    for _ in range(steps):
        training.step()
        failure = training.update.agreed_failure()
        if failure:
            return failure
    return None


def compare_with_adamw(result: TrainResult, adamw: TrainResult | None) -> None:
    """Fails AdamW8bit where it ended too far from FP32 AdamW in the same run."""
    if result.case.optimizer != "AdamW8bit" or adamw is None or result.failure or adamw.failure:
        return
    distance = abs(result.last_loss - adamw.last_loss)
    if distance > MOST_FROM_ADAMW:
        result.failure = (
            f"the last loss is {distance:.4f} from FP32 AdamW's {adamw.last_loss:.4f}, and may be"
            f" {MOST_FROM_ADAMW}"
        )


def _judged(result: TrainResult) -> str:
    for number, loss in enumerate(result.losses, start=1):
        if not math.isfinite(loss):
            return f"the loss of step {number} is {loss}"
    if result.last_loss >= MOST_OF_FIRST_LOSS * result.first_loss:
        return (
            f"the last loss is {result.last_loss:.4f}, not below {MOST_OF_FIRST_LOSS} of the"
            f" first, {result.first_loss:.4f}"
        )
    return ""


def _sharded(case: Case, settings: TrainSettings, job: Job) -> tuple[torch.nn.Module, ShardLayout]:
    model = ByteTransformer(settings.width, settings.layers).to(job.device)
    if case.sharding.topology == "fsdp2":
        mesh = init_device_mesh(job.device.type, (job.world_size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, fsdp2_layout(model)
    recorded = record_parameters(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # W = 1 becomes NO_SHARD, and a CPU is no GPU
        wrapped = FullyShardedDataParallel(
            model,
            use_orig_params=case.sharding.use_orig_params,
            device_id=job.device,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
        )
    return wrapped, fsdp1_layout(wrapped, recorded)


def _optimizer(model: torch.nn.Module, layout: ShardLayout, case: Case) -> torch.optim.Optimizer:
    arguments = dict(case.arguments)
    if case.adapter == "original-parameters":
        arguments["layout"] = layout
    named = [(clean(name), parameter) for name, parameter in model.named_parameters()]
    return case.used_class()(named, **arguments)


def _figures(
    job: Job, training: _Training, case: Case, settings: TrainSettings, stepped: bool
) -> dict[str, Any]:
    optimizer, layout = training.optimizer, training.layout
    parameters = list(training.model.parameters())
    values = [local(p) for p in parameters]
    ranges = [one for p in parameters for one in layout.ranges(p, job.rank)]
    numel = sum(one.numel for one in ranges)
    figures = {
        "rank": job.rank,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "threads": settings.threads,
        "local_numel": numel,
        "empty_shards": len(layout.order) - len({one.name for one in ranges}),
        "parameter_bytes": storage_bytes(values),
    }
    if not stepped:
        return figures
    state = state_bytes(optimizer.state, case.asks_8bit)
    figures |= {
        "moment_bytes": state.moment_bytes,
        "state_bytes": state.state_bytes,
        "parameters_8bit": state.parameters_8bit,
        "parameters_fp32": state.parameters_fp32,
        "bytes_per_parameter": state.moment_bytes / numel if numel else None,
        "resident_bytes": resident_bytes(),
        "peak_resident_bytes": resident_bytes(peak=True),
    }
    held = [tensor for _, tensor in tensors_of(optimizer.state)]
    held_bytes = storage_bytes([*values, *held])
    figures["peak_allocated_bytes"] = peak_of_step(training.step, held_bytes, job.device)
    if job.device.type == "cuda":
        figures["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(job.device)
    training.backward()
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    figures["gradient_bytes"] = storage_bytes(gradients)
    optimizer.zero_grad()
    return figures
