"""optimizer.step(), whose failure is a result and no end of the run.

Usage:

    step = GuardedStep(optimizer, named_parameters, limit_s=600)
    for _ in range(count): step()                 # after a failure it does nothing more
    failure = step.agreed_failure()               # the same on every rank, or None

So the ranks stay together: a rank whose step raised goes on to the next barrier, where the others
are. Whatever is raised counts, SystemExit too, but for KeyboardInterrupt.

Caveats: a step that does not return cannot be taken back: after `limit_s` its rank says so in a
line and ends with CANNOT_RUN, and the others see that it is lost. A step that raises before an
exchange with other ranks leaves them waiting there, for their timeout.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from topologies.pytorch.failure import describe_failure
from topologies.pytorch.launch import CANNOT_RUN
from topologies.pytorch.ranks import first_reason

LONGEST_LOOK_S = 1.0


class GuardedStep:
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: list[tuple[str, torch.Tensor]],
        limit_s: float,
    ) -> None:
        """`names`: the parameters in the order in which they are stepped."""
        self._optimizer, self._names, self._limit_s = optimizer, names, limit_s
        self.begun = 0
        self.failure: str | None = None  # of this rank
        self._since: float | None = None  # when the step that goes on began
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="step watch", daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        if self.failure is not None:
            return
        self.begun += 1
        self._since = time.monotonic()
        try:
            self._optimizer.step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.failure = describe_failure(error, self.begun, self._names, self._optimizer.state)
        finally:
            self._since = None

    def agreed_failure(self) -> str | None:
        """What failed, on the first rank where it did. Collective."""
        return first_reason(self.failure)

    def close(self) -> None:
        """Ends the watch, which would keep the optimizer alive."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(min(LONGEST_LOOK_S, self._limit_s / 4)):
            since = self._since
            if since is None or time.monotonic() - since < self._limit_s:
                continue
            print(
                f"{Path(sys.argv[0]).name}: rank {dist.get_rank()}: step {self.begun} of"
                f" {type(self._optimizer).__name__} has not ended within {self._limit_s:g} s;"
                " give --step-timeout if it needs longer",
                file=sys.stderr,
                flush=True,
            )
            os._exit(CANNOT_RUN)
