#!/usr/bin/env python3
"""Whether the wrapping of FSDP1 changes what AdamW8bit computes: upstream issue #2080, on its own
fixture (wrapping_fixture.py). Shows the state of the small and of the large parameters, and how far
the updates are from those with fine wrapping."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch
from topologies.pytorch import launch

if __name__ == "__main__":
    launch.find_rank_or_end("wrapping_difference.py")

# isort: split
from topologies.pytorch.options import Parser, listed, seconds
from topologies.pytorch.rank_program import end_rank, run_rank
from topologies.pytorch.ranks import CannotRun, connect
from topologies.pytorch.wrapping_fixture import (
    WRAPPINGS,
    Updates,
    largest_difference,
    relative_distance,
    updates,
)

EPILOG = """\
example:
  .venv/bin/torchrun --standalone --nproc-per-node 2 topologies/pytorch/wrapping_difference.py

exit code: 0 the fixture ran, whatever it showed; 2 could not run"""
FINE = 0
# Of optimizer_step.py's adapters those that take FSDP1.
ADAPTERS = ("none", "builtin", "original-parameters")


def run(arguments: list[str]) -> int:
    parser = Parser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--adapter",
        type=listed("--adapter", ADAPTERS),
        default=["none", "original-parameters"],
        help=f"of {', '.join(ADAPTERS)} (default none,original-parameters)",
    )
    parser.add_argument("--timeout", type=seconds, default=60.0, help="default 60 seconds")
    options = parser.parse_args(arguments)
    job = connect("cpu", options.timeout)
    if job.world_size != 2:
        raise CannotRun(f"the fixture is for 2 ranks, these are {job.world_size}")
    if job.is_root:
        print(_line("adapter", "wrapping", "small", "large", "largest", "relative L2"))
    for adapter in options.adapter:
        by_wrapping = {wrapping: updates(wrapping, adapter, job) for wrapping in WRAPPINGS}
        if not job.is_root:
            continue
        fine = by_wrapping["fine"]
        for wrapping, one in by_wrapping.items():
            largest = max(largest_difference(fine, one, is_large) for is_large in (False, True))
            print(
                _line(
                    adapter,
                    wrapping,
                    _state(one, "small"),
                    _state(one, "large"),
                    f"{largest:.5g}",
                    f"{relative_distance(fine, one):.3g}",
                ),
                flush=True,
            )
    return FINE


def _state(one: Updates, name: str) -> str:
    bits = {n for parameter, n in one.bits.items() if parameter.startswith(name)}
    return ", ".join(f"{n} bits" for n in sorted(bits))


def _line(*columns: str) -> str:
    adapter, wrapping, small, large, largest, distance = columns
    start = f"{adapter:<20} {wrapping:<9} {small:<8} {large:<8}"
    return f"{start} {largest:>12} {distance:>12}"


def main() -> int:
    return run_rank("wrapping_difference.py", run)


if __name__ == "__main__":
    end_rank(main())
