#!/usr/bin/env python3
"""Whether the wrapping of FSDP1 changes what AdamW8bit computes: upstream issue #2080, on its own
fixture (wrapping_fixture.py)."""

from __future__ import annotations

import argparse
import os
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
import torch.distributed as dist

from topologies.pytorch.options import listed, seconds
from topologies.pytorch.ranks import CannotRun, RanksFailed, connect, error_text
from topologies.pytorch.wrapping_fixture import WRAPPINGS, largest_difference, updates

EPILOG = """\
example:
  torchrun --standalone --nproc-per-node 2 topologies/pytorch/wrapping_difference.py

exit code: 0 the fixture ran, whatever it showed; 2 could not run"""
# Of optimizer_step.py's adapters those that take FSDP1.
ADAPTERS = ("none", "builtin", "original-parameters")


def run(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
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
        print(
            "adapter              wrapping  state of the small ones"
            "  largest difference: small  large"
        )
    for adapter in options.adapter:
        by_wrapping = {wrapping: updates(wrapping, adapter, job) for wrapping in WRAPPINGS}
        fine, coarse = by_wrapping.values()
        if not job.is_root:
            continue
        for wrapping, one in by_wrapping.items():
            bits = {n for name, n in one.bits.items() if name.startswith("small")}
            state = ", ".join(f"{n} bits" for n in sorted(bits))
            print(f"{adapter:<20} {wrapping:<9} {state:<24}", end="")
            print("" if wrapping == "fine" else _differences(fine, coarse), flush=True)


def _differences(fine, coarse) -> str:
    small, large = (largest_difference(fine, coarse, is_large) for is_large in (False, True))
    return f" {small:>25.4e}  {large:.4g}"


def main() -> int:
    try:
        run(sys.argv[1:])
        dist.destroy_process_group()
        return 0
    except CannotRun as error:
        if not isinstance(error, RanksFailed) or dist.get_rank() == 0:
            print(f"wrapping_difference.py: {error}", file=sys.stderr)
    except Exception as error:
        print(f"wrapping_difference.py: {error_text(error)}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(2)  # a rank that failed must not wait for the others in an exit handler


if __name__ == "__main__":
    sys.exit(main())
