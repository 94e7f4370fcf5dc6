"""Writes run folders for the tests of their readers, in the form of results/schema.json."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from results.run_folder import schema


def write_run(
    folder: Path,
    results: list[dict[str, Any]],
    samples: list[dict[str, Any]],
    manifest: dict[str, Any] | None = None,
) -> Path:
    """A complete run folder with these rows; what a row leaves out is written empty."""
    folder.mkdir(parents=True)
    for name, rows in (("results", results), ("samples", samples)):
        table = schema()["tables"][name]
        columns = [column["name"] for column in table["columns"]]
        with (folder / table["file"]).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({"schema_version": 1, **row})
    text = {
        "schema_version": 1,
        "status": "complete",
        "rows": {"results": len(results), "samples": len(samples)},
        "commit": "0123abcd4567ef890123abcd4567ef890123abcd",
        "dirty": False,
        "created_utc": "2026-12-01T17:15:00Z",
        "cpu_model": "Test CPU",
        **(manifest or {}),
    }
    (folder / "manifest.json").write_text(json.dumps(text), encoding="utf-8")
    return folder


def case_rows(
    optimizer: str = "AdamW8bit",
    dtype: str = "fp32",
    ranks: int = 2,
    median_ns: int = 40_000_000,
    repetition: int = 0,
    samples: list[int] | None = None,
    **columns: Any,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of one case in both tables. `columns` replaces values of its rows in results.csv."""
    model = columns.get("model", "gpt2")
    subject = columns.get("subject", "native")
    benchmark = f"OptimizerStep/{subject}/{optimizer}/fsdp2/global/{dtype}/{model}"
    bytes_per_parameter = {"AdamW": 8.0, "Lion8bit": 1.015625}.get(optimizer, 2.03125)
    if samples is None:
        # A skewed spread: 90 steps around the median, ten slower ones.
        samples = [
            int(median_ns * (0.95 + 0.001 * (37 * i % 100) + (0.2 if i % 10 == 9 else 0)))
            for i in range(100)
        ]
    numel = 124_439_808
    results = []
    for rank in range(ranks):
        local = numel // ranks
        row = {
            "benchmark": benchmark,
            "repetition": repetition,
            "subject": "native",
            "optimizer": optimizer,
            "topology": "fsdp2",
            "state_policy": "global",
            "dtype": dtype,
            "model": model,
            "device": "cpu",
            "world_size": ranks,
            "rank": rank,
            "threads": 1,
            "build_type": "Release",
            "status": "ok",
            "warmup_steps": 10,
            "steps": len(samples),
            "p10_ns": int(0.95 * median_ns),
            "p50_ns": median_ns,
            "p90_ns": int(1.2 * median_ns),
            "percentile_method": "linear-type7",
            "local_numel": local,
            "global_numel": numel,
            "state_bytes": int(bytes_per_parameter * local) + 2048,
            "bytes_per_parameter": bytes_per_parameter,
            "saving_vs_fp32_adamw": None if optimizer == "AdamW" else 1 - bytes_per_parameter / 8,
            **columns,
        }
        results.append(row)
    steps = [
        {
            "benchmark": benchmark,
            "repetition": repetition,
            "step": i,
            "step_ns": step_ns,
            "slowest_rank": i % ranks,
            "middle_rank_ns": step_ns - (i % 10) * 1000,
            "start_ns": sum(samples[:i]),
        }
        for i, step_ns in enumerate(samples)
    ]
    return results, steps


def many_cases(count: int, ranks: int, **columns: Any) -> tuple[list[dict], list[dict]]:
    """`count` different cases on `ranks` ranks."""
    results, samples = [], []
    for i in range(count):
        optimizer = ("AdamW", "AdamW8bit", "Lion8bit")[i % 3]
        dtype = ("fp32", "bf16", "fp16", "fp8")[i // 3 % 4]
        more_results, more_samples = case_rows(
            optimizer, dtype, ranks, 20_000_000 + 7_000_000 * (i % 5), **columns
        )
        results += more_results
        samples += more_samples
    return results, samples
