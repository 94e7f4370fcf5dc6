"""The cases of a run folder, as the pictures show them: one benchmark, all its rows together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from plot.style import plural, printable, span
from results.run_folder import Row, RunFolder


@dataclass
class Measurement:
    """One repetition of a case. Nanoseconds; `steps` in the order in which they were timed."""

    p10: int
    p50: int
    p90: int
    steps: list[int]


@dataclass
class Case:
    """All rows of one benchmark."""

    benchmark: str
    optimizer: str
    name: str  # first line of its label
    detail: str  # second line: what tells it from the others
    problem: str | None  # why there is no time to show
    measurements: list[Measurement] = field(default_factory=list)
    state_bytes: dict[int, int] = field(default_factory=dict)  # by rank
    peak_allocated: dict[int, int] = field(default_factory=dict)  # by rank
    peak_reserved: dict[int, int] = field(default_factory=dict)  # by rank
    bytes_per_parameter: list[float] = field(default_factory=list)
    savings: list[float] = field(default_factory=list)


# What may tell two cases of one optimizer apart, in the order of the benchmark's name.
TELLING = (
    "subject",
    "adapter",
    "topology",
    "wrapping",
    "replicas",
    "state_policy",
    "dtype",
    "model",
    "device",
    "world_size",
)


def cases_of(run: RunFolder) -> list[Case]:
    """The run's cases in the order in which they were measured."""
    rows_of: dict[str, list[Row]] = {}
    for row in run.results:
        rows_of.setdefault(str(row["benchmark"]), []).append(row)
    steps_of: dict[tuple[str, int], list[int]] = {}
    for row in run.samples:
        if row["step_ns"] is not None:
            key = (str(row["benchmark"]), row["repetition"] or 0)
            steps_of.setdefault(key, []).append(row["step_ns"])

    telling = [
        column for column in TELLING if len(distinct(run.results, column)) > 1 or column == "dtype"
    ]
    if is_kernels(run):
        telling.append("global_numel")
    return [make_case(name, rows, steps_of, telling) for name, rows in rows_of.items()]


def is_kernels(run: RunFolder) -> bool:
    """Whether the rows are of kernels alone, told apart by their size and not by a model."""
    return not distinct(run.results, "model") and len(distinct(run.results, "global_numel")) > 0


def make_case(
    benchmark: str,
    rows: list[Row],
    steps_of: dict[tuple[str, int], list[int]],
    telling: list[str],
) -> Case:
    first = rows[0]
    name = printable(first["optimizer"] or benchmark)
    case = Case(
        benchmark=printable(benchmark),
        optimizer=name,
        name=name,
        detail=" · ".join(told(column, first[column]) for column in telling if first[column]),
        problem=problem_of(rows),
    )
    for repetition in sorted({row["repetition"] or 0 for row in rows}):
        mine = next(row for row in rows if (row["repetition"] or 0) == repetition)
        if None in (mine["p10_ns"], mine["p50_ns"], mine["p90_ns"]):
            continue
        steps = steps_of.get((benchmark, repetition), [])
        case.measurements.append(Measurement(mine["p10_ns"], mine["p50_ns"], mine["p90_ns"], steps))
    if not case.measurements:
        case.problem = case.problem or "no step was timed"
    for row in rows:
        for largest, column in (
            (case.state_bytes, "state_bytes"),
            (case.peak_allocated, "peak_allocated_bytes"),
            (case.peak_reserved, "peak_reserved_bytes"),
        ):
            if row["rank"] is not None and row[column] is not None:
                largest[row["rank"]] = max(largest.get(row["rank"], 0), row[column])
        if row["bytes_per_parameter"] is not None:
            case.bytes_per_parameter.append(row["bytes_per_parameter"])
        if row["saving_vs_fp32_adamw"] is not None:
            case.savings.append(row["saving_vs_fp32_adamw"])
    return case


def told(column: str, value: Any) -> str:
    """A value of a TELLING column, with its unit where it has one."""
    units = {"global_numel": "element", "world_size": "rank", "replicas": "replica"}
    return plural(value, units[column]) if column in units else printable(value)


def problem_of(rows: list[Row]) -> str | None:
    """Why the rows are not a measurement, or None where all are `ok`."""
    problem = None
    for row in rows:
        if row["status"] != "ok":
            problem = ": ".join(printable(row[c]) for c in ("status", "status_reason") if row[c])
            problem = problem or "no status was recorded"
    return problem


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The column's values, each once, in order; without missing ones."""
    return list(dict.fromkeys(row[column] for row in rows if row[column] is not None))


def listed(rows: Iterable[Row], column: str) -> str:
    return ", ".join(printable(value) for value in distinct(rows, column))


def run_title(run: RunFolder) -> tuple[str, str, str]:
    """A title in three parts; the second, the models' names, may be shortened."""
    if is_kernels(run):
        return "Optimizer kernels of ", listed(run.results, "subject"), ""
    models = listed(run.results, "model") or "unknown model"
    numel = distinct(run.results, "global_numel")
    return "Optimizer step of ", models, f" ({numel[0]:,} parameters)" if numel else ""


def substitute_of(run: RunFolder) -> str:
    """What the run is instead of a larger job; empty where it is none."""
    return str(run.manifest.get("substitute") or listed(run.results, "substitute"))


def run_facts(run: RunFolder) -> list[str]:
    """Where the figures of a picture come from, in short."""
    manifest = run.manifest
    parts = [listed(run.results, "topology")]
    parts += [plural(size, "rank") for size in distinct(run.results, "world_size")]
    device = listed(run.results, "device")
    model = manifest.get("cpu_model")
    parts.append(f"{device} ({printable(model)})" if model else device)
    parts += [f"{plural(n, 'thread')} a rank" for n in distinct(run.results, "threads")]
    timed = [row for row in run.results if row["status"] == "ok"]
    steps = span(distinct(timed, "steps") or [0], str)
    warmup = distinct(timed, "warmup_steps")
    after = f" after {span(warmup, str)} of warm-up" if warmup else ""
    if run.results:
        parts.append(f"{steps} timed steps{after}")
    parts.append(commit_of(manifest))
    build_types = [b for b in distinct(run.results, "build_type") if b != "Release"]
    if substitute_of(run):
        parts.insert(0, f"substitute ({printable(substitute_of(run))})")
    parts += [f"{printable(build)} build: times mean nothing" for build in build_types]
    if manifest.get("created_utc"):
        parts.append(printable(manifest["created_utc"]).replace("T", " ").replace("Z", " UTC"))
    return [part for part in parts if part]


def commit_of(manifest: dict[str, Any]) -> str:
    commit = printable(manifest.get("commit") or "unknown")[:12]
    return f"commit {commit}" + (" with local changes" if manifest.get("dirty") else "")
