"""From a training to the rows of the run folder, and to its line in the table on stdout."""

from __future__ import annotations

import math

from results.percentile import METHOD, percentile
from results.run_writer import RunWriter
from topologies.pytorch.case import Case
from topologies.pytorch.step_rows import write_samples
from topologies.pytorch.training import TrainResult

COLUMNS = (
    ("subject", "<12"),
    ("adapter", "<19"),
    ("optimizer", "<10"),
    ("topology", "<8"),
    ("first loss", ">10"),
    ("last loss", ">10"),
    ("p10 ms", ">9"),
    ("p50 ms", ">9"),
    ("p90 ms", ">9"),
    ("state KiB/r", ">11"),
    ("saved", ">7"),
    ("peak MiB/r", ">10"),
)


def benchmark_name(case: Case, model: str) -> str:
    return case.benchmark_name(model).replace("OptimizerStep/", "TrainStep/", 1)


def savings(result: TrainResult, adamw: TrainResult | None) -> list[float | None]:
    """By rank: 1 - state bytes / those of FP32 AdamW; None where there is nothing to compare."""
    if adamw is None or result is adamw:
        return [None] * len(result.ranks)
    pairs = zip(result.ranks, adamw.ranks, strict=True)
    states = [(mine.get("state_bytes"), base.get("state_bytes")) for mine, base in pairs]
    return [1 - mine / base if mine and base else None for mine, base in states]


def write_train_rows(
    folder: RunWriter,
    result: TrainResult,
    adamw: TrainResult | None,
    model: str,
    device: str,
    build_type: str,
    warmup_steps: int,
) -> None:
    """One row of results.csv a rank, one of samples.csv a timed step."""
    case, samples = result.case, result.samples
    name = benchmark_name(case, model)
    for rank, (figures, saved) in enumerate(zip(result.ranks, savings(result, adamw), strict=True)):
        slowest = samples.slowest_rank.count(rank)
        row = {
            "benchmark": name,
            "repetition": 0,
            "subject": case.subject,
            "adapter": case.adapter,
            "optimizer": case.optimizer,
            "topology": case.sharding.topology,
            "state_policy": case.state_policy,
            "wrapping": _wrapping(case),
            "dtype": case.dtype,
            "model": model,
            "device": device,
            "world_size": len(result.ranks),
            "build_type": build_type,
            "status": "failed" if result.failure else "ok",
            "status_reason": result.failure or None,
            "warmup_steps": warmup_steps,
            "steps": len(samples.step_ns),
            "p10_ns": percentile(samples.step_ns, 10),
            "p50_ns": percentile(samples.step_ns, 50),
            "p90_ns": percentile(samples.step_ns, 90),
            "percentile_method": METHOD,
            "saving_vs_fp32_adamw": saved,
            "max_over_rank_share": slowest / len(samples.step_ns) if samples.step_ns else None,
            "first_loss": _finite(result.first_loss),
            "last_loss": _finite(result.last_loss),
            "checked": "loss: finite and falling" if result.losses else None,
            "contract": result.contracts[rank].status if result.contracts else "unverified",
            **figures,
        }
        folder.add_result(row)
    timed_losses = result.losses[warmup_steps:]
    write_samples(folder, name, samples, [{"loss": _finite(loss)} for loss in timed_losses])


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _wrapping(case: Case) -> str | None:
    if case.sharding.topology != "fsdp1":
        return None
    return "blocks, use_orig_params" if case.sharding.use_orig_params else "blocks"


def table_header() -> str:
    return _line([name for name, _ in COLUMNS])


def table_row(result: TrainResult, adamw: TrainResult | None) -> str:
    case, steps = result.case, result.samples.step_ns
    fields = [case.subject, case.adapter, case.optimizer, case.sharding.topology]
    if result.failure:
        return _line(fields) + " failed: " + result.failure.split("; by then")[0]
    saved = savings(result, adamw)[0]
    fields += [f"{result.first_loss:.4f}", f"{result.last_loss:.4f}"]
    fields += [f"{percentile(steps, p) / 1e6:.3f}" for p in (10, 50, 90)]
    fields += [
        f"{max(one['state_bytes'] for one in result.ranks) / 1024:.1f}",
        "n/a" if saved is None else f"{100 * saved:.1f} %",
        f"{max(one['peak_allocated_bytes'] for one in result.ranks) / (1 << 20):.1f}",
    ]
    return _line(fields)


def _line(fields: list[str]) -> str:
    shown = (f"{text:{width}}" for text, (_, width) in zip(fields, COLUMNS, strict=False))
    return " ".join(shown)
