#!/usr/bin/env python3
"""What recording a step costs a real PyTorch optimizer on the CPU: recorded and unrecorded steps by
turns, in one process, on the shards of one rank. The counterpart of build/bin/recording_cost.

examples:
  .venv/bin/python topologies/pytorch/recording_cost.py
  .venv/bin/python topologies/pytorch/recording_cost.py --model tiny --optimizer AdamW,AdamW8bit
  .venv/bin/python topologies/pytorch/recording_cost.py --pairs 10 --at-most 2

"median" and "least" are the percent by which the median and the fastest recorded step are slower.
exit code: 0 fine, 1 recording slows a median step by more than --at-most percent, 2 could not run.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import torch

from results.command_line import OneLineParser
from results.scratch_folder import ScratchFolder
from topologies.pytorch.by_turns import by_turns, timed
from topologies.pytorch.case import CLASSES
from topologies.pytorch.local_tensors import local_tensors
from topologies.pytorch.process_tracer import ProcessTracer
from topologies.pytorch.ranks import CannotRun

FINE, CHECK_FAILED, COULD_NOT_RUN = 0, 1, 2
WARM_UP = 2


def recorded_by_turns(optimizer: torch.optim.Optimizer, pairs: int) -> tuple[list[int], list[int]]:
    """Nanoseconds of `pairs` unrecorded and recorded steps."""
    for _ in range(WARM_UP):
        optimizer.step()
    tracer = ProcessTracer(0, 1)
    with ScratchFolder() as folder:
        trace = folder / "step.sqlite"

        def recorded() -> int:
            taken: list[int] = []
            tracer.record(lambda: taken.append(timed(optimizer.step)), 1, trace)
            return taken[0]

        return by_turns(lambda: timed(optimizer.step), recorded, pairs)


def percent(slower: float, base: float) -> float:
    return 100 * (slower / base - 1)


def measure(names: list[str], options: argparse.Namespace) -> int:
    parameters = local_tensors(options.model, options.world_size)
    numel = sum(parameter.numel() for parameter in parameters)
    print(f"{options.model}, rank 0 of {options.world_size}: {numel} elements in ", end="")
    print(f"{len(parameters)} tensors, {torch.get_num_threads()} threads")
    print(f"{'optimizer':<30} {'pairs':>5} {'p50 off ms':>11} {'p50 on ms':>11}", end="")
    print(f" {'median':>10} {'least':>10}")
    code = FINE
    for name in names:
        path, arguments = CLASSES[name]
        module, _, class_name = path.partition(":")
        optimizer_class = getattr(importlib.import_module(module), class_name)
        optimizer = optimizer_class(parameters, **arguments)
        unrecorded, recorded = recorded_by_turns(optimizer, options.pairs)
        off, on = statistics.median(unrecorded), statistics.median(recorded)
        least = percent(min(recorded), min(unrecorded))
        print(f"{path:<30} {options.pairs:>5} {off / 1e6:>11.3f} {on / 1e6:>11.3f}", end="")
        print(f" {percent(on, off):>+8.2f} % {least:>+8.2f} %", flush=True)
        if options.at_most is not None and percent(on, off) > options.at_most:
            code = CHECK_FAILED
    return code


def main() -> int:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="gpt2", help="as for plan_state (default gpt2)")
    parser.add_argument("--world-size", type=int, default=8, help="ranks of the plan (default 8)")
    parser.add_argument("--optimizer", default="AdamW8bit", help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch (default 1)")
    parser.add_argument("--pairs", type=int, default=20, help="steps of each kind (default 20)")
    parser.add_argument(
        "--at-most",
        type=float,
        metavar="PERCENT",
        help="exit with 1 where recording slows the median step by more (default: any)",
    )
    options = parser.parse_args()
    names = options.optimizer.split(",")
    for name in names:
        if name not in CLASSES:
            parser.error(f"--optimizer {name}: give some of {', '.join(CLASSES)}")
    if min(options.pairs, options.threads, options.world_size) < 1:
        parser.error("--pairs, --threads and --world-size must be at least 1")
    torch.set_num_threads(options.threads)
    try:
        return measure(names, options)
    except CannotRun as error:
        print(f"recording_cost: {error}", file=sys.stderr)
        return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
