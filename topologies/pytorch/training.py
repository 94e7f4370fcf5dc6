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
from topologies.pytorch.failure import describe_failure
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
from topologies.pytorch.step_timing import Samples, timed_steps
from topologies.pytorch.train_network import Block, ByteTransformer
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


@dataclass
class TrainResult:
    case: Case
    failure: str = ""
    is_finding: bool = False  # the failure is what was to be found out
    samples: Samples = field(default_factory=lambda: Samples([], [], [], []))
    losses: list[float] = field(default_factory=list)  # by step, warm-up first; mean over ranks
    ranks: list[dict[str, Any]] = field(default_factory=list)  # columns of results.csv, by rank

    @property
    def first_loss(self) -> float | None:
        """Of the untrained parameters."""
        return self.losses[0] if self.losses else None

    @property
    def last_loss(self) -> float | None:
        """Mean of the last LAST_STEPS steps."""
        last = self.losses[-LAST_STEPS:]
        return sum(last) / len(last) if last else None


def train(job: Job, case: Case, settings: TrainSettings) -> TrainResult:
    """Trains with `case` from the common start. Collective."""
    result = TrainResult(case)
    _train(job, case, settings, result)
    gc.collect()  # FSDP's modules are cycles: they must not count in the next case's peak
    return result


def _train(job: Job, case: Case, settings: TrainSettings, result: TrainResult) -> None:
    model, layout = together(lambda: _sharded(case, settings, job))
    optimizer = together(lambda: _optimizer(model, layout, case))
    losses: list[torch.Tensor] = []

    def step() -> None:
        inputs, targets = settings.text.batch(len(losses), job.rank, settings.sequences)
        loss = model(inputs.to(job.device), targets.to(job.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())

    failure = None
    for number in range(1, settings.warmup_steps + 1):
        try:
            step()
        except Exception as error:
            names = [(clean(name), p) for name, p in model.named_parameters()]
            failure = describe_failure(error, number, names, optimizer.state)
        found = [one for one in gather(failure) if one is not None]
        if found:
            result.failure, result.is_finding = found[0], case.adapter == "none"
            break
    if not result.failure:
        reset_peak_resident()
        result.samples = timed_steps(step, settings.steps, job.device)
        by_rank = gather([float(loss) for loss in losses])
        result.losses = [sum(one) / len(one) for one in zip(*by_rank, strict=True)]
        result.failure = _judged(result)
    further = step if result.samples.step_ns else None
    result.ranks = gather(_figures(job, model, layout, optimizer, further, settings))


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
    for number, loss in enumerate(result.losses):
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
    job: Job,
    model: torch.nn.Module,
    layout: ShardLayout,
    optimizer: torch.optim.Optimizer,
    step: Any,  # None where it fails
    settings: TrainSettings,
) -> dict[str, Any]:
    parameters = list(model.parameters())
    values = [local(p) for p in parameters]
    numel = sum(one.numel for p in parameters for one in layout.ranges(p, job.rank))
    figures = {
        "rank": job.rank,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "threads": settings.threads,
        "local_numel": numel,
        "parameter_bytes": storage_bytes(values),
    }
    if step is None:
        return figures
    state = state_bytes(optimizer.state, "8bit" in type(optimizer).__name__)
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
    figures["peak_allocated_bytes"] = peak_of_step(
        step, storage_bytes([*values, *held]), job.device
    )
    if job.device.type == "cuda":
        figures["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(job.device)
    return figures
