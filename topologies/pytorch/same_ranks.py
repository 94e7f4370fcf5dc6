"""Whether all ranks of a job are of one build and were given the same options.

require_same_ranks(arguments)  # collective, before anything is measured
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import torch

from topologies.pytorch.programs import run_program
from topologies.pytorch.ranks import RanksFailed, gather


def require_same_ranks(arguments: Sequence[str]) -> None:
    """Raises RanksFailed on every rank, with the builds or the options that differ."""
    build = run_program("describe_run", "--version").strip()
    ranks = gather((f"{build}, PyTorch {torch.__version__}", tuple(arguments)))
    first_build, first_options = ranks[0]
    for rank, (build, options) in enumerate(ranks):
        if build != first_build:
            raise RanksFailed(
                f"rank 0 is {first_build}, and rank {rank} is {build}; start one build"
            )
        if options != first_options:
            first, here = difference(first_options, options), difference(options, first_options)
            text = f"rank 0 {first}, rank {rank} {here}"
            raise RanksFailed(f"the ranks were given different options: {text}")


def difference(options: Sequence[str], others: Sequence[str]) -> str:
    """The option in which `options` begin to differ from the others, with its value."""
    pairs = zip(options, others, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if same > 0 and options[same - 1].startswith("-"):
        same -= 1
    return " ".join(options[same : same + 2]) or "no more"
