#!/usr/bin/env python3
"""Measures optimizer.step() of PyTorch FSDP with a real optimizer. See --help and options.py."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch
from topologies.pytorch import launch

if __name__ == "__main__":
    launch.find_rank_or_end("optimizer_step.py")

# isort: split
import torch

from results.contract_table import contract_table
from results.run_writer import RunWriter
from topologies.pytorch.beside import Beside, beside
from topologies.pytorch.case import CLASSES, Case, default_adapter
from topologies.pytorch.measure import CaseResult, Settings, measure, skip
from topologies.pytorch.memory_guard import require_memory
from topologies.pytorch.options import parse
from topologies.pytorch.programs import run_program
from topologies.pytorch.rank_program import end_rank, run_rank
from topologies.pytorch.ranks import (
    CannotRun,
    Job,
    connect,
    from_root,
    gather,
    together,
)
from topologies.pytorch.same_ranks import require_same_ranks
from topologies.pytorch.sharded_model import Sharding
from topologies.pytorch.step_contracts import Tracing
from topologies.pytorch.step_rows import table_header, table_row, write_contracts, write_rows
from topologies.pytorch.turns import Turns
from topologies.pytorch.versions import versions

ROOT = Path(__file__).resolve().parents[2]
FINE, CHECK_FAILED = 0, 1


def cases_of(options: Any) -> list[Case]:
    """Every combination that the command line asks for; FP32 AdamW first in its group."""
    named = options.optimizer_class and {options.optimizer_class: (options.optimizer_class, {})}
    classes = named or {name: CLASSES[name] for name in options.optimizer}
    sharding = Sharding(options.topology, options.wrap, options.use_orig_params)
    cases = []
    for dtype in options.dtype:
        for name in sorted(classes, key=lambda name: name != "AdamW"):
            optimizer_class, arguments = classes[name]
            given = {**arguments, **options.optimizer_args}
            bitsandbytes = optimizer_class.startswith("bitsandbytes")
            wanted = options.adapter if bitsandbytes or named else None
            for adapter in wanted or [default_adapter(optimizer_class, options.topology)]:
                cases.append(Case(optimizer_class, given, adapter, sharding, dtype))
    return cases


def measured(options: Any, cases: list[Case], model: dict[str, Any], job: Job) -> list[str]:
    """What must be equal on two sides that take turns, a line a fact: as many turns, and the same
    work in each."""
    # The number is that of the order in which turns are begun and ended.
    return [
        "pytorch-turns=1",
        f"model={model['name']} {model['numel']}",
        *(f"case={case.benchmark_name(model['name'])}" for case in cases),
        f"world-size={job.world_size}",
        f"steps={options.steps}",
        f"turn-steps={options.turns.steps}",
        f"turn-dropped={options.turns.dropped}",
    ]


def run_measurements(
    job: Job,
    options: Any,
    cases: list[Case],
    plan: Beside | None,
    description: dict[str, Any],
    turns: Turns,
) -> list[CaseResult]:
    """All cases, in order; rank 0 prints and writes."""
    model = description["model"]
    local_ranks = launch.find_rank().local_world_size
    threads = plan.threads if plan else options.threads
    threads = threads or max(1, len(os.sched_getaffinity(0)) // local_ranks)
    torch.set_num_threads(threads)
    given = plan.model if plan else options.model
    provenance = description["provenance"]
    hosts = gather(provenance["host"])

    def create() -> RunWriter | None:
        if not job.is_root:
            return None
        out = options.out or ROOT / "runs" / f"{description['run_name']}-pytorch"
        if options.beside:
            suffix = f".pytorch-{options.peer}" if options.peer else ".pytorch"
            out = options.beside.with_name(options.beside.name + suffix)
        manifest = {
            **provenance,
            **versions(),
            "program": "topologies/pytorch/optimizer_step.py",
            "launcher": launch.find_rank().launcher,
            "device": job.device.type,
            "device_description": torch.cuda.get_device_name(job.device)
            if job.device.type == "cuda"
            else "cpu",
            "world_size": job.world_size,
            "hosts_by_rank": hosts,
            "threads_a_rank": threads,
            "model": {
                "name": model["name"],
                "given": given,
                "parameters": len(model["parameters"]),
                "numel": model["numel"],
                "skipped_tensors": model["skipped"],
            },
        }
        if options.substitute:
            manifest["substitute"] = options.substitute
        if turns.options:
            manifest["turns"] = {
                "pair": turns.pair,
                "order": "first" if turns.options.first else "second",
                "timed_steps": turns.options.steps,
                "dropped_steps": turns.options.dropped,
            }
        return RunWriter.create(out, manifest)

    folder = together(create)

    def traces() -> str:
        path = folder.working / "traces"
        path.mkdir()
        return str(path)

    tracing = Tracing(options.trace, given, from_root(job, traces) if options.trace else "")
    settings = Settings(
        plan.steps if plan else options.steps,
        options.warmup,
        options.seconds,
        threads,
        tracing,
        options.step_timeout,
        options.try_first,
    )
    if job.is_root and not plan:
        print(
            f"{model['name']} on PyTorch FSDP: {model['numel']:,} parameters in"
            f" {len(model['parameters'])} tensors, {job.world_size} ranks, {job.device.type},"
            f" {threads} threads a rank"
        )
        print(table_header(), flush=True)
    fp32_adamw = dict(plan.fp32_adamw) if plan else {}
    results = []
    for case in cases:
        if options.skip:
            result = skip(job, case, options.skip)
        else:
            result = measure(job, model, case, settings, turns)
        key = (case.sharding.topology, case.dtype)
        if case.optimizer_class == CLASSES["AdamW"][0] and case.dtype == "fp32":
            measured = {one["rank"]: one.get("state_bytes") for one in result.ranks}
            fp32_adamw.setdefault(key, measured)
        results.append(result)
        base = fp32_adamw.get(key, {})

        def record(result: CaseResult = result, base: dict[int, int] = base) -> None:
            if folder is None:
                return
            build_type = provenance["build_type"]
            write_rows(folder, result, model, job.device.type, build_type, base, options.substitute)
            print(table_row(result, base), flush=True)

        together(record)
        turns.end()

    def finish() -> None:
        if folder is None:
            return
        if options.trace:
            named = [(one.case.benchmark_name(model["name"]), one) for one in results]
            cases = write_contracts(folder.working / "contracts.json", named)
            if not plan:
                print("\n".join(["", *contract_table(cases)]))
        print(folder.finish(), flush=True)

    turns.begin()
    together(finish)
    turns.finish()
    return results


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.version:
        print(
            run_program("describe_run", "--version").replace("describe_run", "topologies/pytorch"),
            end="",
        )
        return FINE
    if options.peer:
        # What its compiler finds noteworthy about this machine is no message of this program.
        logging.getLogger("torch").setLevel(logging.ERROR)
    job = connect(options.device, options.timeout)
    if options.substitute == "one-gpu" and job.world_size != 1:
        raise CannotRun(
            f"--substitute one-gpu is one rank, and this job has {job.world_size};"
            " start one rank, or leave --substitute out"
        )
    plan = from_root(job, lambda: beside(options.beside, options.peer)) if options.beside else None
    cases = plan.cases if plan else cases_of(options)
    if plan and plan.left_out and job.is_root:
        print(
            f"optimizer_step.py: {len(plan.left_out)} row(s) have no counterpart on PyTorch FSDP:"
            f" {plan.left_out[0]}{', ...' if len(plan.left_out) > 1 else ''}",
            file=sys.stderr,
        )
    if not cases:
        if plan:
            return FINE  # said above; there is nothing to add to that run
        raise CannotRun("nothing was measured: no case was asked for")
    command = ["--", "topologies/pytorch/optimizer_step.py", *arguments]
    given = plan.model if plan else options.model
    description = from_root(
        job, lambda: json.loads(run_program("describe_run", "--model", given, *command))
    )
    require_same_ranks(arguments)
    turns = Turns(job, options.turns)
    if options.turns:
        turns.meet(measured(options, cases, description["model"], job))
    if not options.skip:
        require_memory(job, description["model"], cases, sides=2 if turns.taken else 1)
    # Both sides have looked at the free memory before either takes of it.
    turns.synchronize()
    results = run_measurements(job, options, cases, plan, description, turns)
    return CHECK_FAILED if any(result.is_wrong for result in results) else FINE


def main() -> int:
    return run_rank("optimizer_step.py", run)


if __name__ == "__main__":
    end_rank(main())
