"""The turns that the ranks of this job take with those of another one on the same host, so that
both see the same phase of a noisy machine; as bench/turns.h, for two environments of Python.

Usage:

    turns = Turns(job, options)                   # None: every call is free
    turns.meet(what_is_measured)                  # raises where the sides differ
    turns.begin(); ...all ranks work...; turns.end()
    steps = turns.agree_on_steps(affordable)
    turns.finish()

Caveats: every call is collective. While the other side has its turn, the ranks sleep in a
collective of this job, again and again for a part of its timeout, so that none runs into it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from topologies.pytorch.baton import Baton
from topologies.pytorch.errors import CannotRun
from topologies.pytorch.ranks import Job, from_root, gather, together

LONGEST_SLICE_S = 1.0
FAILED = "failed"


@dataclass(frozen=True)
class TurnOptions:
    socket: str
    first: bool  # makes the socket and has the first turn
    steps: int  # timed ones in a turn
    dropped: int  # steps before them in every turn: the caches were the other side's
    timeout_s: float


class Turns:
    """Returns when the partner is there; raises RanksFailed when it is not within the timeout."""

    def __init__(self, job: Job, options: TurnOptions | None) -> None:
        self._job = job
        self.options = options
        self.pair = ""  # the same text on both sides, and in no other pair
        self._slice_s = min(LONGEST_SLICE_S, job.timeout_s / 4)
        self._baton: Baton | None = None
        if options is None:
            return

        def make() -> Baton | None:
            if not job.is_root:
                return None
            return Baton(options.socket, options.first, options.timeout_s)

        self._baton = together(make)
        self._until(lambda baton: baton.open(self._slice_s) or None)

    @property
    def taken(self) -> bool:
        return self.options is not None

    def meet(self, measured: list[str]) -> None:
        """Tells the partner what this side measures (lines "key=value"); raises RanksFailed on both
        sides unless the partner measures the same."""
        if self.options is None:
            return
        name = from_root(self._job, secrets.token_hex) if self.options.first else ""
        their_name, *theirs = self._exchange("\n".join([name, *measured])).split("\n")
        together(lambda: _require_same(measured, theirs))
        self.pair = name or their_name

    def synchronize(self) -> None:
        """Returns when the partner has reached its call of the same number."""
        if self.options:
            self._exchange("here")

    def begin(self) -> None:
        """Returns when it is this side's turn."""
        if self.options:
            self._until(lambda baton: baton.wait(self._slice_s) or None)

    def end(self) -> None:
        """Ends the turn once every rank has called it."""
        if self.options is None:
            return
        gather(None)
        together(lambda: self._baton and self._baton.hand_over())

    def agree_on_steps(self, affordable: int | None) -> int:
        """How many steps both sides time: the fewer. None: this side's case failed, and the other's
        number holds; 0 where both failed. Ends the turn in which the case was set up."""
        if self.options is None:
            return affordable or 0
        self.end()
        if self.options.first:
            # What the partner says comes behind its turn.
            self.begin()
        theirs = self._exchange(FAILED if affordable is None else str(affordable))
        known = [affordable, None if theirs == FAILED else int(theirs)]
        return min((one for one in known if one is not None), default=0)

    def let_pass(self, steps: int) -> None:
        """As many turns as `steps` timed steps take, for a case that is not timed on this side; the
        last of them is left to be ended, as that of a timed case is."""
        if self.options is None:
            return
        for begun in range(0, max(steps, 1), self.options.steps):
            if begun:
                self.end()
            self.begin()

    def around(self, step: Callable[[], None]) -> Callable[[int], None]:
        """What is to be called before timed step i: begins and ends turns, and drops the first
        steps of each."""

        def before(i: int) -> None:
            if self.options is None or i % self.options.steps:
                return
            if i:
                self.end()
            self.begin()
            for _ in range(self.options.dropped):
                step()

        return before

    def dropped(self, steps: int) -> int:
        """Steps that `around` adds to `steps` timed ones."""
        if self.options is None:
            return 0
        return -(-steps // self.options.steps) * self.options.dropped

    def finish(self) -> None:
        """Tells the partner that this side needs no more turns."""
        if self._baton:
            self._baton.finish()
            self._baton.close()

    def _exchange(self, mine: str) -> str:
        """What the partner tells in its call of the same number, on every rank."""
        together(lambda: self._baton and self._baton.tell(mine))
        return self._until(lambda baton: baton.hear(self._slice_s))

    def _until(self, ask: Callable[[Baton], str | bool | None]):
        """What `ask` returns on rank 0 as soon as it is not None, on every rank."""
        while True:
            found = from_root(self._job, lambda: ask(self._baton) if self._baton else None)
            if found is not None:
                return found


def _require_same(mine: list[str], theirs: list[str]) -> None:
    for ours, others in zip_longest(mine, theirs):
        if ours != others:
            shown = ["nothing" if one is None else f'"{one}"' for one in (ours, others)]
            raise CannotRun(
                f"this side has {shown[0]} and the other side of the pair {shown[1]}; give both the"
                " same options, and one --turn first, the other --turn second"
            )
