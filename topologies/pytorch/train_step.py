#!/usr/bin/env python3
"""Trains a small language model on PyTorch FSDP with real optimizers, and times whole steps: the
network, text and batches of build/bin/train_step."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch
from topologies.pytorch import launch

if __name__ == "__main__":
    launch.find_rank_or_end("train_step.py")

# isort: split
import torch

from results.contract_table import contract_table
from results.run_writer import RunWriter
from topologies.pytorch.adapters import ADAPTERS
from topologies.pytorch.case import CLASSES, Case, default_adapter
from topologies.pytorch.options import Parser, add_step_timeout, listed, positive, seconds, whole
from topologies.pytorch.programs import ROOT, run_program
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
from topologies.pytorch.step_contracts import StepRecording, Tracing
from topologies.pytorch.step_rows import write_contracts
from topologies.pytorch.train_network import HEAD_WIDTH, describe_network, numel_of
from topologies.pytorch.train_rows import benchmark_name, table_header, table_row, write_train_rows
from topologies.pytorch.train_text import TrainText
from topologies.pytorch.training import TrainResult, TrainSettings, compare_with_adamw, train
from topologies.pytorch.versions import versions

FINE, CHECK_FAILED = 0, 1
TEXT = "/usr/share/common-licenses/GPL-3"
EPILOG = """\
examples:
  .venv/bin/torchrun --standalone --nproc-per-node 2 topologies/pytorch/train_step.py
  torchrun ... train_step.py --width 256 --optimizer AdamW,AdamW8bit
  torchrun ... train_step.py --topology fsdp1 --optimizer AdamW8bit --adapter original-parameters

A training fails where a loss is not finite, where the last is not below 0.9 of the first, or where
AdamW8bit's is more than 0.1 from that of FP32 AdamW in the same run, or where a contract is broken.
exit code: 0 trained; 1 a training failed (with the adapter none that is a finding: 0); 2 could not
run"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="train_step.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--text", type=Path, default=Path(TEXT), help=f"file to learn (default {TEXT})")
    add("--width", type=whole(HEAD_WIDTH), default=64, help="of a block (default 64)")
    add("--layers", type=whole(1), default=2, help="blocks (default 2)")
    add("--sequences", type=whole(1), default=8, help="a rank and step (default 8)")
    add(
        "--optimizer",
        type=listed("--optimizer", CLASSES),
        default=list(CLASSES),
        help=f"{', '.join(CLASSES)} (default all)",
    )
    add(
        "--adapter",
        type=listed("--adapter", ADAPTERS),
        help=f"{', '.join(ADAPTERS)}; for bitsandbytes (default: by topology)",
    )
    add("--topology", choices=("fsdp2", "fsdp1"), default="fsdp2", help="default fsdp2")
    add("--use-orig-params", action="store_true", help="fsdp1 shows the original parameters")
    add("--learning-rate", type=positive, help="default: the library's own")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    add("--steps", type=whole(1), default=100, help="timed steps (default 100)")
    add("--warmup", type=whole(1), default=10, help="steps before them (default 10)")
    add(
        "--trace",
        type=whole(0),
        default=3,
        help="steps recorded after the timed ones, to judge the contracts"
        " of the optimizer's part (default 3)",
    )
    add("--threads", type=whole(1), help="threads a rank (default: cores / ranks of this host)")
    add("--timeout", type=seconds, default=60.0, help="seconds to wait for others (default 60)")
    add_step_timeout(parser)
    add("--out", type=Path, help="run folder (default runs/<utc>-<commit>-pytorch-train)")
    add("--version", action="store_true", help="print version and commit")
    options = parser.parse_args(arguments)
    if options.width % HEAD_WIDTH:
        raise CannotRun(f"a width of {options.width} is no multiple of {HEAD_WIDTH}")
    if options.use_orig_params and options.topology != "fsdp1":
        raise CannotRun("--use-orig-params is given without --topology fsdp1")
    return options


def cases_of(options: argparse.Namespace) -> list[Case]:
    """FP32 AdamW first, because the others are compared with it."""
    cases = []
    given = {} if options.learning_rate is None else {"lr": options.learning_rate}
    sharding = Sharding(options.topology, use_orig_params=options.use_orig_params)
    for name in sorted(options.optimizer, key=lambda name: name != "AdamW"):
        optimizer_class, arguments = CLASSES[name]
        wanted = options.adapter if optimizer_class.startswith("bitsandbytes") else None
        for adapter in wanted or [default_adapter(optimizer_class, options.topology)]:
            cases.append(Case(optimizer_class, {**arguments, **given}, adapter, sharding, "fp32"))
    return cases


def run_trainings(job: Job, options: argparse.Namespace, arguments: list[str]) -> int:
    text = together(lambda: TrainText(options.text))
    command = ["--model", "tiny", "--", "topologies/pytorch/train_step.py", *arguments]
    described = from_root(job, lambda: json.loads(run_program("describe_run", *command)))
    provenance = described["provenance"]
    local_ranks = launch.find_rank().local_world_size
    threads = options.threads or max(1, len(os.sched_getaffinity(0)) // local_ranks)
    torch.set_num_threads(threads)
    settings = TrainSettings(
        text,
        options.width,
        options.layers,
        options.sequences,
        options.steps,
        options.warmup,
        threads,
        options.step_timeout,
    )
    model = f"bytes-{options.layers}x{options.width}"
    numels = numel_of(options.width, options.layers).values()
    size = {"global_numel": sum(numels), "parameters": len(numels)}
    hosts = gather(provenance["host"])

    def create() -> RunWriter | None:
        if not job.is_root:
            return None
        manifest = {
            **provenance,
            **versions(),
            "program": "topologies/pytorch/train_step.py",
            "device": job.device.type,
            "world_size": job.world_size,
            "hosts_by_rank": hosts,
            "threads_a_rank": threads,
            "text": {"path": str(options.text), "bytes": options.text.stat().st_size},
            "model": {"name": model, "numel": size["global_numel"]},
        }
        out = options.out or ROOT / "runs" / f"{described['run_name']}-pytorch-train"
        return RunWriter.create(out, manifest)

    folder = together(create)

    def describe() -> tuple[str, str, str]:
        model_file, units = describe_network(options.width, options.layers, folder.working)
        traces = folder.working / "traces"
        traces.mkdir()
        return str(model_file), str(traces), str(units)

    tracing = Tracing(options.trace, *from_root(job, describe)) if options.trace else None
    if job.is_root:
        print(
            f"{model} on PyTorch FSDP: {size['global_numel']:,} parameters, {job.world_size} ranks,"
            f" {job.device.type}, {threads} threads a rank, {options.steps} steps"
        )
        print(table_header(), flush=True)
    adamw: TrainResult | None = None
    results: list[TrainResult] = []
    for case in cases_of(options):
        name = benchmark_name(case, model)
        recording = StepRecording(job, case, name, tracing) if tracing else None
        result = train(job, case, settings, recording)
        if case.optimizer == "AdamW":
            adamw = result
        compare_with_adamw(result, adamw)
        for one in result.ranks:
            one.update(size)
        results.append(result)

        def record(result: TrainResult = result, adamw: TrainResult | None = adamw) -> None:
            if folder is None:
                return
            build_type = provenance["build_type"]
            write_train_rows(
                folder, result, adamw, model, job.device.type, build_type, options.warmup
            )
            print(table_row(result, adamw), flush=True)

        together(record)

    def finish() -> None:
        if folder is None:
            return
        if tracing:
            named = [(benchmark_name(one.case, model), one) for one in results]
            cases = write_contracts(folder.working / "contracts.json", named)
            print("\n".join(["", *contract_table(cases)]))
        print(folder.finish(), flush=True)

    together(finish)
    return CHECK_FAILED if any(one.is_wrong for one in results) else FINE


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.version:
        version = run_program("describe_run", "--version")
        print(version.replace("describe_run", "topologies/pytorch"), end="")
        return FINE
    job = connect(options.device, options.timeout)
    require_same_ranks(arguments)
    return run_trainings(job, options, arguments)


def main() -> int:
    return run_rank("train_step.py", run)


if __name__ == "__main__":
    end_rank(main())
