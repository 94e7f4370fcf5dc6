"""Says on stderr what goes on where that takes long: a line every few seconds."""

from __future__ import annotations

import sys
import time

SECONDS = 3


class Progress:
    def __init__(self, program: str) -> None:
        self._program = program
        self._next = time.monotonic() + SECONDS

    def say(self, what: str) -> None:
        if time.monotonic() >= self._next:
            print(f"{self._program}: {what}", file=sys.stderr, flush=True)
            self._next = time.monotonic() + SECONDS
