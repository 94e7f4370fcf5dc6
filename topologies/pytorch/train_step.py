#!/usr/bin/env python3
"""Trains a small language model on PyTorch FSDP with real optimizers, and times whole steps: the
network, text and batches of build/bin/train_step."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import torch
import torch.distributed as dist

from results.run_folder import RunFolderError
from results.run_writer import RunWriter
from topologies.pytorch.adapters import ADAPTERS
from topologies.pytorch.case import CLASSES, Case, default_adapter
from topologies.pytorch.options import Parser, listed, seconds, whole
from topologies.pytorch.programs import ROOT, run_program
from topologies.pytorch.ranks import (
    CannotRun,
    Job,
    RanksFailed,
    connect,
    error_text,
    from_root,
    gather,
    together,
)
from topologies.pytorch.sharded_model import Sharding
from topologies.pytorch.train_network import HEAD_WIDTH, ByteTransformer
from topologies.pytorch.train_rows import table_header, table_row, write_train_rows
from topologies.pytorch.train_text import TrainText
from topologies.pytorch.training import TrainResult, TrainSettings, compare_with_adamw, train
from topologies.pytorch.versions import versions

FINE, CHECK_FAILED, CANNOT_RUN = 0, 1, 2
TEXT = "/usr/share/common-licenses/GPL-3"
EPILOG = """\
examples:
  torchrun --standalone --nproc-per-node 2 topologies/pytorch/train_step.py
  torchrun ... train_step.py --width 256 --optimizer AdamW,AdamW8bit
  torchrun ... train_step.py --topology fsdp1 --optimizer AdamW8bit --adapter original-parameters

A training fails where a loss is not finite, where the last is not below 0.9 of the first, or where
AdamW8bit's is more than 0.1 from that of FP32 AdamW in the same run.
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
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    add("--steps", type=whole(1), default=100, help="timed steps (default 100)")
    add("--warmup", type=whole(1), default=10, help="steps before them (default 10)")
    add("--threads", type=whole(1), help="threads a rank (default: cores / ranks of this host)")
    add("--timeout", type=seconds, default=60.0, help="seconds to wait for others (default 60)")
    add("--out", type=Path, help="run folder (default runs/<utc>-<commit>-pytorch-train)")
    add("--version", action="store_true", help="print version and commit")
    options = parser.parse_args(arguments)
    if options.width % HEAD_WIDTH:
        raise CannotRun(f"a width of {options.width} is no multiple of {HEAD_WIDTH}")
    return options


def cases_of(options: argparse.Namespace) -> list[Case]:
    """FP32 AdamW first, because the others are compared with it."""
    cases = []
    for name in sorted(options.optimizer, key=lambda name: name != "AdamW"):
        optimizer_class, arguments = CLASSES[name]
        wanted = options.adapter if optimizer_class.startswith("bitsandbytes") else None
        for adapter in wanted or [default_adapter(optimizer_class, options.topology)]:
            sharding = Sharding(options.topology)
            cases.append(Case(optimizer_class, arguments, adapter, sharding, "fp32"))
    return cases


def run_trainings(job: Job, options: argparse.Namespace, arguments: list[str]) -> int:
    text = together(lambda: TrainText(options.text))
    command = ["--model", "tiny", "--", "topologies/pytorch/train_step.py", *arguments]
    described = from_root(job, lambda: json.loads(run_program("describe_run", *command)))
    provenance = described["provenance"]
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", job.world_size))
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
    )
    model = f"bytes-{options.layers}x{options.width}"
    shapes = [p.shape for p in ByteTransformer(options.width, options.layers).parameters()]
    size = {"global_numel": sum(map(math.prod, shapes)), "parameters": len(shapes)}
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
    if job.is_root:
        print(
            f"{model} on PyTorch FSDP: {size['global_numel']:,} parameters, {job.world_size} ranks,"
            f" {job.device.type}, {threads} threads a rank, {options.steps} steps"
        )
        print(table_header(), flush=True)
    adamw: TrainResult | None = None
    results = []
    for case in cases_of(options):
        result = train(job, case, settings)
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
    together(lambda: print(folder.finish(), flush=True) if folder else None)
    failed = any(one.failure and not one.is_finding for one in results)
    return CHECK_FAILED if failed else FINE


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.version:
        version = run_program("describe_run", "--version")
        print(version.replace("describe_run", "topologies/pytorch"), end="")
        return FINE
    job = connect(options.device, options.timeout)
    if len(set(gather(tuple(arguments)))) > 1:
        raise RanksFailed("the ranks were given different options")
    return run_trainings(job, options, arguments)


def main() -> int:
    code = CANNOT_RUN
    try:
        code = run(sys.argv[1:])
        if dist.is_initialized():
            dist.destroy_process_group()
    except (CannotRun, RunFolderError) as error:
        # What all ranks know, rank 0 says.
        if not isinstance(error, RanksFailed) or dist.get_rank() == 0:
            print(f"train_step.py: {error}", file=sys.stderr)
    except Exception as error:
        print(f"train_step.py: {error_text(error)}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    if code not in (FINE, CHECK_FAILED):
        os._exit(code)  # a rank that failed must not wait for the others in an exit handler
    return code


if __name__ == "__main__":
    sys.exit(main())
