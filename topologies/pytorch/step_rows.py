"""From a measured case to the rows of the run folder, and to its line in the table on stdout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.percentile import METHOD, percentile
from results.run_writer import RunWriter
from topologies.pytorch.measure import CaseResult
from topologies.pytorch.step_timing import Samples

MIB = 1024 * 1024
# The layout of the table that optimizer_step prints (bench/step_report.cc).
COLUMNS = (
    ("subject", "<12"),
    ("adapter", "<19"),
    ("optimizer", "<10"),
    ("topology", "<8"),
    ("policy", "<8"),
    ("dtype", "<5"),
    ("p10 ms", ">9"),
    ("p50 ms", ">9"),
    ("p90 ms", ">9"),
    ("state MiB/r", ">12"),
    ("B/param", ">8"),
    ("saved", ">7"),
    ("GB/s", ">6"),
    ("peak MiB/r", ">10"),
)


def write_rows(
    folder: RunWriter,
    result: CaseResult,
    model: dict[str, Any],
    device: str,
    build_type: str,
    fp32_adamw: dict[int, int],
    substitute: str | None = None,
) -> None:
    """One row of results.csv a rank, one of samples.csv a timed step. `fp32_adamw`: state bytes by
    rank of FP32 AdamW on the same topology and dtype, where they were measured. `substitute`: what
    the job is instead of a larger one."""
    case, samples = result.case, result.samples
    name = case.benchmark_name(model["name"])
    median = percentile(samples.step_ns, 50)
    for rank, figures in enumerate(result.ranks):
        row = {
            "benchmark": name,
            "repetition": 0,
            "subject": case.subject,
            "adapter": case.adapter,
            "optimizer": case.optimizer,
            "topology": case.sharding.topology,
            "state_policy": case.state_policy,
            "wrapping": case.wrapping,
            "dtype": case.dtype,
            "model": model["name"],
            "device": device,
            "world_size": len(result.ranks),
            "substitute": substitute,
            "build_type": build_type,
            "status": result.status,
            "status_reason": result.failure or None,
            "warmup_steps": result.warmup_steps,
            "steps": len(samples.step_ns),
            "p10_ns": percentile(samples.step_ns, 10),
            "p50_ns": median,
            "p90_ns": percentile(samples.step_ns, 90),
            "percentile_method": METHOD,
            "global_numel": model["numel"],
            "parameters": len(model["parameters"]),
            "checked": result.checked or None,
            "contract": result.contracts[rank].status if result.contracts else "unverified",
            **figures,
        }
        if median:
            row["effective_bandwidth_bytes_per_s"] = figures["bytes_moved"] * 10**9 // median
            row["max_over_rank_share"] = samples.slowest_rank.count(rank) / len(samples.step_ns)
        row["saving_vs_fp32_adamw"] = saving(result, rank, fp32_adamw)
        folder.add_result(row)
    write_samples(folder, name, samples)


def write_samples(
    folder: RunWriter, name: str, samples: Samples, more: Sequence[dict[str, Any]] | None = None
) -> None:
    """One row of samples.csv a timed step; `more`: further columns, by step."""
    for step, nanoseconds in enumerate(samples.step_ns):
        folder.add_sample(
            {
                "benchmark": name,
                "repetition": 0,
                "step": step,
                "step_ns": nanoseconds,
                "slowest_rank": samples.slowest_rank[step],
                "middle_rank_ns": samples.middle_rank_ns[step],
                "start_ns": samples.start_ns[step],
                **(more[step] if more else {}),
            }
        )


def write_contracts(path: Path, results: list[tuple[str, CaseResult]]) -> list[dict[str, Any]]:
    """Writes contracts.json, in the form of bench/contract_report.cc, and returns its cases."""
    cases = [
        {
            "benchmark": name,
            "repetition": 0,
            "traces": [rank.trace for rank in result.contracts],
            "verdicts": [verdict for rank in result.contracts for verdict in rank.verdicts],
        }
        for name, result in results
    ]
    path.write_text(json.dumps({"schema_version": 1, "cases": cases}) + "\n")
    return cases


def saving(result: CaseResult, rank: int, fp32_adamw: dict[int, int]) -> float | None:
    """1 - state bytes / those of FP32 AdamW; None for an optimizer that does not ask for 8 bits."""
    mine, base = result.ranks[rank].get("state_bytes"), fp32_adamw.get(rank)
    if mine is None or not base or not result.case.asks_8bit:
        return None
    return 1 - mine / base


def table_header() -> str:
    return _line([name for name, _ in COLUMNS], "local n by rank")


def table_row(result: CaseResult, fp32_adamw: dict[int, int]) -> str:
    case, steps = result.case, result.samples.step_ns
    policy = case.state_policy if case.asks_8bit else "-"
    fields = [case.subject, case.adapter, case.optimizer, case.sharding.topology, policy]
    fields.append(case.dtype)
    if result.failure:
        # The whole of it is in results.csv.
        return _line(fields, f"{result.status}: " + result.failure.split("; by then")[0])
    fields += [f"{percentile(steps, p) / 1e6:.3f}" for p in (10, 50, 90)]
    ranks = result.ranks
    numel = sum(one["local_numel"] for one in ranks)
    saved = saving(result, 0, fp32_adamw)
    moved = sum(one["bytes_moved"] for one in ranks)
    fields += [
        f"{max(one['state_bytes'] for one in ranks) / MIB:.2f}",
        f"{sum(one['moment_bytes'] for one in ranks) / numel:.3f}" if numel else "n/a",
        "n/a" if saved is None else f"{100 * saved:.1f} %",
        f"{moved / percentile(steps, 50):.1f}",
        f"{max(one['peak_allocated_bytes'] for one in ranks) / MIB:.1f}",
    ]
    sizes = [one["local_numel"] for one in ranks]
    if len(sizes) > 4:
        return _line(fields, f"{min(sizes):,} to {max(sizes):,} a rank")
    return _line(fields, " + ".join(f"{n:,}" for n in sizes))


def _line(fields: list[str], last: str) -> str:
    """A field that is wider than its column takes the blanks of those behind it."""
    line, end = "", 0
    for text, (_, column) in zip(fields, COLUMNS, strict=False):
        align, width = column[0], int(column[1:])
        end += width
        room = end - len(line)
        line += (text.ljust(room) if align == "<" else text.rjust(room)) + " "
        end += 1
    return line + (" " if len(fields) == len(COLUMNS) else "") + last
