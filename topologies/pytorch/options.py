"""The command line of optimizer_step.py."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from results.command_line import OneLineParser
from results.run_folder import schema
from topologies.pytorch.adapters import ADAPTERS
from topologies.pytorch.case import CLASSES, DTYPES, PEERS
from topologies.pytorch.ranks import CannotRun
from topologies.pytorch.sharded_model import WRAPPINGS
from topologies.pytorch.turns import TurnOptions

DESCRIPTION = """\
Measures optimizer.step() of PyTorch FSDP with a real optimizer, as build/bin/optimizer_step
measures the suite's own: same values, same percentiles, same run folder."""

EPILOG = """\
examples:
  .venv/bin/torchrun --standalone --nproc-per-node 2 topologies/pytorch/optimizer_step.py --quick
  torchrun ... optimizer_step.py --model gpt2 --optimizer AdamW8bit --adapter local-shards,none
  torchrun ... optimizer_step.py --topology fsdp1 --wrap whole-model --optimizer Lion8bit \\
      --adapter none,original-parameters
  torchrun ... optimizer_step.py --optimizer-class torchao.optim:AdamW8bit \\
      --optimizer-args '{"lr": 1e-3}'

adapters:
  none                 the class as it is; its failure is a finding (status failed), not an error
  local-shards         FSDP2: the local tensors of DTensors, precision by the global size
  original-parameters  precision and blocks of the parameters before wrapping, FSDP1 and FSDP2
  builtin              as none, for a bitsandbytes that claims to support FSDP: a failure is one

Rank, world size and address come from torchrun's variables, else from those of a Slurm step, or by
hand from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
A table goes to stdout, and the run folder's path as its last line; messages go to stderr.
exit code: 0 measured and checked; 1 a case failed, differs from its reference or breaks a contract
(with the adapter none that is a finding: 0); 2 could not run"""


class Parser(OneLineParser):
    def error(self, message: str) -> NoReturn:
        raise CannotRun(f"{message} (see --help)")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Raises CannotRun; --help and --version end the program."""
    parser = Parser(
        prog="optimizer_step.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", help="preset, .json list or .safetensors file (default gpt2; tiny with --quick)")
    add(
        "--optimizer",
        type=listed("--optimizer", CLASSES),
        help=f"{', '.join(CLASSES)} (default all)",
    )
    add("--optimizer-class", help="module:Class instead of --optimizer")
    add("--optimizer-args", type=json_object, default={}, help="JSON object of its arguments")
    add("--adapter", type=listed("--adapter", ADAPTERS), help="see below (default: by topology)")
    add("--topology", choices=("fsdp2", "fsdp1"), default="fsdp2", help="default fsdp2")
    add("--wrap", choices=WRAPPINGS, help="units of fsdp1 (default per-module)")
    add("--use-orig-params", action="store_true", help="fsdp1 shows the original parameters")
    add("--dtype", type=listed("--dtype", DTYPES), default=["fp32"], help="default fp32")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    add("--steps", type=whole(1), help="timed steps (default 100; 20 with --quick)")
    add("--warmup", type=whole(0), help="steps before them (default 3)")
    add(
        "--seconds",
        type=seconds,
        default=20.0,
        help="fewer timed steps where they would take"
        " longer than this, but five at the least (default 20)",
    )
    add(
        "--trace",
        type=whole(0),
        default=3,
        help="steps recorded after the timed ones, to judge the contracts (default 3)",
    )
    add(
        "--substitute",
        choices=substitutes(),
        help="this job is instead of a larger one that was wanted: one rank alone, or ranks that"
        " share cores; every row is marked with it",
    )
    add("--threads", type=whole(1), help="threads a rank (default: cores / ranks of this host)")
    add(
        "--timeout", type=seconds, default=60.0, help="seconds to wait for other ranks (default 60)"
    )
    add_step_timeout(parser)
    add(
        "--try-first",
        action="store_true",
        help="do the first steps in child processes before: a crash is a failed row then (always so"
        " for --peer, and on cuda for bitsandbytes with the adapters none and builtin)",
    )
    add("--quick", action="store_true", help="the tiny model and few steps: shows that all works")
    add("--out", type=Path, help="run folder (default runs/<utc>-<commit>-pytorch)")
    add(
        "--beside",
        type=Path,
        metavar="RUN",
        help="the cases of this run folder, measured on PyTorch FSDP into RUN.pytorch; prints rows"
        " alone, which go below that run's",
    )
    add(
        "--peer",
        choices=PEERS,
        help="with --beside: the cases that this package has, which must come first on PYTHONPATH"
        " (./bench.sh --peers does it all)",
    )
    add("--skip", metavar="REASON", help="with --peer: measures nothing; its rows say REASON")
    add(
        "--baton",
        metavar="SOCKET",
        help="take turns with another environment on this host: the socket through which they"
        " speak (bench/compare_commits --subject-a ... does it all)",
    )
    add("--turn", choices=("first", "second"), help="first (makes the socket; default) or second")
    add("--turn-steps", type=whole(1), help="timed steps in a turn (default 10)")
    add(
        "--turn-dropped",
        type=whole(0),
        help="steps before them in every turn, as warm-up (default 2)",
    )
    add("--baton-timeout", type=seconds, help="seconds to wait for the other one (default 300)")
    add("--version", action="store_true", help="print version and commit")
    options = parser.parse_args(arguments)
    _require_consistent(options)
    options.turns = _turns(options)
    options.model = options.model or ("tiny" if options.quick else "gpt2")
    options.steps = options.steps or (20 if options.quick else 100)
    options.warmup = 3 if options.warmup is None else options.warmup
    options.wrap = options.wrap or "per-module"
    options.optimizer = options.optimizer or (None if options.optimizer_class else list(CLASSES))
    return options


def add_step_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step-timeout",
        type=seconds,
        default=600.0,
        help="seconds after which a step that has not ended ends its rank (default 600)",
    )


def _require_consistent(options: argparse.Namespace) -> None:
    def refuse(given: Any, text: str) -> None:
        if given:
            raise CannotRun(text)

    if options.topology != "fsdp1":
        refuse(options.wrap, "--wrap is given without --topology fsdp1")
        refuse(options.use_orig_params, "--use-orig-params is given without --topology fsdp1")
    if options.optimizer_class:
        refuse(options.optimizer, "give --optimizer or --optimizer-class, not both")
        refuse(":" not in options.optimizer_class, "--optimizer-class takes module:Class")
    if options.baton is None:
        for name in ("turn", "turn_steps", "turn_dropped", "baton_timeout"):
            option = f"--{name.replace('_', '-')}"
            refuse(getattr(options, name) is not None, f"{option} is given without --baton")
    else:
        refuse(options.beside, "--baton does not go with --beside; give the cases themselves")
    refuse(options.peer and not options.beside, "--peer is given without --beside")
    refuse(options.skip is not None and not options.peer, "--skip is given without --peer")
    if options.beside:
        for name in ("model", "optimizer", "optimizer_class", "adapter", "out"):
            given = getattr(options, name)
            refuse(given, f"--{name.replace('_', '-')} comes from --beside; leave one of them out")


def _turns(options: argparse.Namespace) -> TurnOptions | None:
    if options.baton is None:
        return None
    return TurnOptions(
        socket=options.baton,
        first=options.turn != "second",
        steps=options.turn_steps or 10,
        dropped=2 if options.turn_dropped is None else options.turn_dropped,
        timeout_s=300.0 if options.baton_timeout is None else options.baton_timeout,
    )


def substitutes() -> list[str]:
    """What a job can be instead of a larger one, as the column of the run folder names it."""
    columns = schema()["tables"]["results"]["columns"]
    return next(column["values"] for column in columns if column["name"] == "substitute")


def listed(option: str, allowed: Any):
    """A list with commas of allowed names, each once."""

    def parse_list(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f'"{name}" is none of {", ".join(allowed)}')
        if len(set(names)) != len(names):
            raise argparse.ArgumentTypeError(f"{option} names a value twice")
        return names

    return parse_list


def whole(least: int):
    def parse_whole(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= 10**9:
            raise argparse.ArgumentTypeError(f'"{text}" is no whole number from {least} to 10^9')
        return int(text)

    return parse_whole


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value <= 86400:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds from 0.001 to 86400')
    return value


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is no positive number')
    return value


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("is no JSON object")
    return value
