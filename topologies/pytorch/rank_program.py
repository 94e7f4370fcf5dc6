"""How a program that runs as the rank of a job ends: exit codes, and one line for what went wrong.

def main() -> int:
    return run_rank("optimizer_step.py", run)

if __name__ == "__main__":
    end_rank(main())
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import torch.distributed as dist

from results.run_folder import RunFolderError
from topologies.pytorch.launch import CANNOT_RUN
from topologies.pytorch.ranks import CannotRun, error_text

INTERRUPTED = 130


def run_rank(program: str, run: Callable[[list[str]], int]) -> int:
    """What `run` returns for the command line; where it raises, CANNOT_RUN and a line on stderr."""
    code = CANNOT_RUN
    try:
        code = run(sys.argv[1:])
        if dist.is_initialized():
            dist.destroy_process_group()
    except (CannotRun, RunFolderError) as error:
        # Each says what all know: where ranks have a file each, each file has the reason.
        print(f"{program}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        print(f"{program}: {error_text(error)}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def end_rank(code: int) -> NoReturn:
    """A rank that failed must not wait for the others in an exit handler, and one that is done must
    not be aborted by a thread of PyTorch that outlives the interpreter."""
    os._exit(code)
