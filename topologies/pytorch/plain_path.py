#!/usr/bin/env python3
"""What the class of the adapter local-shards costs where there is nothing to adapt: steps of plain
tensors by the stock class and by the adapter's take turns in one process."""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, which would offer its modules as top-level ones.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import torch

from topologies.pytorch.adapters import local_shards
from topologies.pytorch.by_turns import PairedRatio, by_turns, paired_ratio, timed
from topologies.pytorch.case import CLASSES, Case
from topologies.pytorch.local_tensors import local_tensors
from topologies.pytorch.options import Parser, listed, positive, whole
from topologies.pytorch.ranks import CannotRun
from topologies.pytorch.sharded_model import Sharding

FINE, CHECK_FAILED, COULD_NOT_RUN = 0, 1, 2
WARM_UP = 3
OPTIMIZERS = [name for name, (path, _) in CLASSES.items() if path.startswith("bitsandbytes")]
EPILOG = """\
examples:
  python topologies/pytorch/plain_path.py --model tiny --world-size 2 --pairs 400
  python topologies/pytorch/plain_path.py --model gpt2 --world-size 8 --at-most 5

exit code: 0 measured; 1 with --at-most: slower by more, with 97.5 % confidence; 2 could not run"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="plain_path.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", default="gpt2", help="as for plan_state (default gpt2)")
    add("--world-size", type=whole(1), default=8, help="ranks of the plan (default 8)")
    add(
        "--optimizer",
        type=listed("--optimizer", OPTIMIZERS),
        default=OPTIMIZERS,
        help=f"{', '.join(OPTIMIZERS)} (default all)",
    )
    add("--threads", type=whole(1), default=1, help="threads of PyTorch (default 1)")
    add("--pairs", type=whole(1), default=100, help="steps of each class (default 100)")
    add(
        "--at-most",
        type=positive,
        metavar="PERCENT",
        help="exit with 1 where the adapter's class is slower by more (default: any)",
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> int:
    parameters = local_tensors(options.model, options.world_size)
    numel = sum(parameter.numel() for parameter in parameters)
    print(
        f"{options.model}, rank 0 of {options.world_size}: {numel:,} elements in"
        f" {len(parameters)} plain tensors, {torch.get_num_threads()} threads"
    )
    print(
        f"{'optimizer':<10} {'pairs':>6} {'stock p50 ms':>13} {'adapter p50 ms':>15}"
        f" {'adapter / stock':>16}  95 % interval"
    )
    ratios = [_measure(name, parameters, options.pairs) for name in options.optimizer]
    too_slow = options.at_most is not None and any(
        ratio.low > 1 + options.at_most / 100 for ratio in ratios
    )
    return CHECK_FAILED if too_slow else FINE


def _measure(name: str, parameters: list[torch.nn.Parameter], pairs: int) -> PairedRatio:
    """Prints the line of one optimizer."""
    path, arguments = CLASSES[name]
    stock_class = Case(path, arguments, "none", Sharding("fsdp2"), "fp32").stock_class()
    stock = stock_class(parameters, **arguments)
    adapted = local_shards(stock_class)(parameters, **arguments)
    for _ in range(WARM_UP):
        stock.step()
        adapted.step()
    times = by_turns(lambda: timed(stock.step), lambda: timed(adapted.step), pairs)
    ratio = paired_ratio(times[1], times[0])
    p50 = [statistics.median(one) / 1e6 for one in times]
    print(
        f"{name:<10} {pairs:>6} {p50[0]:>13.3f} {p50[1]:>15.3f} {ratio.median:>16.4f}"
        f"  {ratio.low:.4f} to {ratio.high:.4f}",
        flush=True,
    )
    return ratio


def main() -> int:
    try:
        options = parse(sys.argv[1:])
        torch.set_num_threads(options.threads)
        return measure(options)
    except CannotRun as error:
        print(f"plain_path.py: {error}", file=sys.stderr)
        return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
