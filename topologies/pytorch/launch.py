"""Who this process is in its job, by the rules of the programs in C++ (topologies/rendezvous.h):
torchrun's variables, else those of a Slurm step, or set by hand.

    from topologies.pytorch import launch
    launch.find_rank_or_end("optimizer_step.py")  # before PyTorch is loaded, which takes seconds
"""

from __future__ import annotations

import functools
import json
import os
import sys
from dataclasses import dataclass

from topologies.pytorch.errors import CannotRun
from topologies.pytorch.programs import run_program

CANNOT_RUN = 2
ANSWERS = {"-h", "--help", "--version"}  # need no rank


@dataclass(frozen=True)
class Rank:
    """`launcher`: whose variables these were, torchrun, slurm or environment. `interface`: through
    which the other ranks reach this one."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int
    launcher: str
    interface: str


def asked_device() -> str:
    """The value of --device on the command line: the options are read only once PyTorch is there. A
    wrong one is refused then."""
    device = "cpu"
    for word, following in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--device":
            device = value if equals else following
    return device if device == "cuda" else "cpu"


@functools.cache
def find_rank() -> Rank:
    """Also sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
    PyTorch reads them, and GLOO_SOCKET_IFNAME where several hosts meet: Gloo would take the address
    of the host's own name, which often means loopback. Raises CannotRun, with the variables that
    contradict each other or are missing, or an interface that this host does not have."""
    found = Rank(**json.loads(run_program("describe_run", "--rank", "--device", asked_device())))
    for name in ("rank", "world_size", "local_rank", "local_world_size"):
        os.environ[name.upper()] = str(getattr(found, name))
    os.environ["MASTER_ADDR"] = found.master_addr
    os.environ["MASTER_PORT"] = str(found.master_port)
    if found.interface != "lo":
        os.environ["GLOO_SOCKET_IFNAME"] = found.interface
    return found


def find_rank_or_end(program: str) -> None:
    """Where find_rank() raises, ends the process with one line. Does nothing for --help."""
    if ANSWERS & set(sys.argv[1:]):
        return
    try:
        find_rank()
    except CannotRun as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(CANNOT_RUN)
