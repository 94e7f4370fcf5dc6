"""Where the ranks of a job meet, and how they find out which of them is lost.

    meeting = Meeting(find_rank(), timeout_s=60)     # every rank has signed in
    dist.init_process_group("gloo", store=meeting.store, rank=..., world_size=...)
    meeting.watch(end)                               # end(reason) once another rank saw a failure
    ...
    meeting.missing()                                # "no answer from peer rank 1"

A rank that sees a collective fail signs the store; those that do not sign within a moment are lost.
A rank that waits for another survivor would see nothing, so each looks once in a while whether some
rank has signed. As in topologies/rendezvous_store.h.

Caveat: where rank 0 serves the store and is lost itself, nobody can say more than that.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable

import torch.distributed as dist

from topologies.pytorch.errors import CannotRun
from topologies.pytorch.launch import Rank

# How long the survivors wait for each other's signature, and how often each looks for one.
LAST_WORDS_S = 4.0
LOOK_S = 0.5
POLL_S = 0.05


class Meeting:
    def __init__(self, place: Rank, timeout_s: float) -> None:
        """Raises CannotRun, which names a rank that did not arrive within `timeout_s`."""
        self._place, self._timeout_s = place, timeout_s
        # torchrun's agent serves the store; it is the same one when its ranks are started again.
        self._agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if self._agent_serves else "0"
        self._keys = f"stepscope/{attempt}"
        self._serves = place.rank == 0 and not self._agent_serves
        self._found: str | None = None
        self._lock = threading.Lock()
        self._store = dist.TCPStore(
            place.master_addr,
            place.master_port,
            place.world_size,
            is_master=self._serves,
            timeout=datetime.timedelta(seconds=timeout_s),
            wait_for_workers=False,
        )
        self._roll_call()

    @property
    def store(self) -> dist.Store:
        return dist.PrefixStore(f"{self._keys}/group", self._store)

    def watch(self, end: Callable[[str], None]) -> None:
        """Calls `end` with who is missing, on a thread, once another rank has seen a failure that
        this one has not; missing() waits meanwhile."""

        def look() -> None:
            while self._found is None:
                time.sleep(LOOK_S)
                try:
                    failed = self._has("failed")
                except RuntimeError:
                    return  # whoever served the store has ended
                if failed and self._lock.acquire(blocking=False):
                    end(self._decide())
                    self._lock.release()
                if failed:
                    return

        if self._place.world_size > 1:
            threading.Thread(target=look, name="watch of other ranks", daemon=True).start()

    def missing(self) -> str:
        """Who gives no answer, after a failed collective. The first call decides."""
        with self._lock:
            return self._decide()

    def _decide(self) -> str:
        if self._found is None:
            self._found = self._find_missing()
            if self._serves:
                # The store ends with this process: whoever still asks would miss this rank.
                self._bounded(self._let_others_find_out, 3 * LAST_WORDS_S)
        return self._found

    def _roll_call(self) -> None:
        self._set(f"here/{self._place.rank}")
        deadline = time.monotonic() + self._timeout_s
        for peer in range(self._place.world_size):
            while not self._has(f"here/{peer}"):
                if time.monotonic() > deadline or self._has("absent"):
                    self._set("absent")
                    self._set(f"heard/{self._place.rank}")
                    self._wait_for("heard")
                    raise CannotRun(
                        f"rank {peer} of {self._place.world_size} did not arrive within"
                        f" {self._timeout_s:g} s; check that it was started and reaches"
                        f" {self._place.master_addr} port {self._place.master_port}"
                    )
                time.sleep(POLL_S)

    def _wait_for(self, answer: str) -> None:
        """The server of the store waits a moment until every rank that came has that answer."""
        end = time.monotonic() + LAST_WORDS_S
        for peer in range(self._place.world_size if self._serves else 0):
            while self._has(f"here/{peer}") and not self._has(f"{answer}/{peer}"):
                if time.monotonic() > end:
                    return
                time.sleep(POLL_S)

    def _find_missing(self) -> str:
        found: list[list[int]] = []
        self._bounded(lambda: found.append(self._unsigned()), 3 * LAST_WORDS_S)
        if not found:
            return (
                "the launcher does not answer"
                if self._agent_serves
                else "no answer from peer rank 0"
            )
        lost = " ".join(map(str, found[0]))
        return f"no answer from peer rank {lost}" if lost else "all ranks are alive"

    def _unsigned(self) -> list[int]:
        mine = self._place.rank
        self._set(f"failed/{mine}")
        self._set("failed")
        end = time.monotonic() + LAST_WORDS_S
        missing = [peer for peer in range(self._place.world_size) if peer != mine]
        while missing and time.monotonic() < end:
            time.sleep(POLL_S)
            missing = [peer for peer in missing if not self._has(f"failed/{peer}")]
        self._set(f"found/{mine}")
        return missing

    def _let_others_find_out(self) -> None:
        for peer in range(self._place.world_size):
            while self._has(f"failed/{peer}") and not self._has(f"found/{peer}"):
                time.sleep(POLL_S)

    @staticmethod
    def _bounded(body: Callable[[], object], limit_s: float) -> None:
        """Runs `body` aside: a call to a store whose server is stopped never ends."""

        def run() -> None:
            try:
                body()
            except RuntimeError:  # the store is gone
                return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(limit_s)

    def _set(self, key: str) -> None:
        self._store.set(f"{self._keys}/{key}", "1")

    def _has(self, key: str) -> bool:
        return self._store.check([f"{self._keys}/{key}"])
