"""The link between two processes of one host that take turns on it: only the one that holds the
baton works, the other waits. The protocol is that of bench/baton.h.

Usage:

    baton = Baton("runs/pair.sock", first=True, timeout_s=300)
    while not baton.open(slice_s): ...
    baton.tell(mine)                              # once or more, before the first turn
    while (theirs := baton.hear(slice_s)) is None: ...
    while not baton.wait(slice_s): ...
    work()
    baton.hand_over()
    baton.finish()                                # no more turns are wanted

Caveats: a Unix socket, so both processes are on one host. The kernel tells at once when the partner
ends; one that is stopped is noticed after the timeout. Every error is a CannotRun.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from pathlib import Path
from typing import NoReturn

from topologies.pytorch.errors import CannotRun

# A message begins with its kind, so that a hello cannot be taken for a turn.
TEXT = b"x"
TURN = b"turn"
FINISHED = b"finished"
MOST_BYTES = 64 << 10
# A path in sockaddr_un ends with a zero byte.
LONGEST_PATH = 107
# How often the second process looks whether the first has made the socket.
RETRY_S = 0.02


class Baton:
    """Raises CannotRun when the socket's path is too long or cannot be used."""

    def __init__(self, path: str, first: bool, timeout_s: float) -> None:
        self._path = path
        self._first = first
        self._timeout_s = timeout_s
        self._mine = first
        self._partner_finished = False
        self._listener: socket.socket | None = None
        self._link: socket.socket | None = None
        self._deadline: float | None = time.monotonic() + timeout_s
        length = len(os.fsencode(path))
        if length > LONGEST_PATH:
            raise CannotRun(
                f"{path}: the path of the baton's socket has {length} characters;"
                f" use one of at most {LONGEST_PATH}"
            )
        if first:
            # Packets keep the borders of messages.
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._listener.bind(path)
                self._listener.listen(1)
            except OSError as error:
                self._listener.close()
                self._fail("the baton's socket could not be made", error)

    def open(self, slice_s: float) -> bool:
        """Waits up to `slice_s` for the partner to appear; whether it did."""
        if self._listener:
            if self._readable(self._listener, slice_s):
                self._link = self._listener.accept()[0]
                # One partner only; the name is free for the next pair.
                self._listener.close()
                self._listener = None
                Path(self._path).unlink()
        else:
            until = time.monotonic() + slice_s
            while not self._link and time.monotonic() < until:
                self._link = self._connected()
                if not self._link:
                    time.sleep(RETRY_S)
        if self._link:
            self._deadline = None
            return True
        self._check_deadline("appear")
        return False

    def _connected(self) -> socket.socket | None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            link.connect(self._path)
        except (FileNotFoundError, ConnectionRefusedError):
            # Not there yet; a left-over socket of a killed process refuses too, until the first
            # process complains about it.
            link.close()
            return None
        except OSError as error:
            link.close()
            self._fail("the baton cannot be reached", error)
        return link

    def tell(self, text: str) -> None:
        """Sends `text`, at most 64 KiB, to the partner's next `hear`."""
        message = TEXT + text.encode()
        if len(message) > MOST_BYTES:
            raise CannotRun(
                "what the two sides tell each other exceeds 64 KiB; measure fewer cases at once"
            )
        self._send(message)

    def hear(self, slice_s: float) -> str | None:
        """Waits up to `slice_s` for what the partner tells; None when it has not yet."""
        if not self._arrived("answer", slice_s):
            return None
        answer = self._receive()
        if not answer.startswith(TEXT):
            self._other_age("answers in another way")
        return answer[len(TEXT) :].decode(errors="replace")

    def wait(self, slice_s: float) -> bool:
        """Waits up to `slice_s` for the turn; whether it came."""
        if not self._mine and not self._partner_finished:
            if not self._arrived("hand over the turn", slice_s):
                return False
            message = self._receive()
            self._partner_finished = message == FINISHED
            if not self._partner_finished and message != TURN:
                self._other_age("sent something else than a turn")
        self._mine = True
        return True

    def hand_over(self) -> None:
        """Gives the turn to the partner."""
        self._mine = False
        if not self._partner_finished:
            self._send(TURN)

    def finish(self) -> None:
        """Says that no more turns are wanted; the partner then has all of them. It may be gone
        already: that is no error any more."""
        if self._link and not self._partner_finished:
            with contextlib.suppress(OSError):
                self._link.send(FINISHED)

    def close(self) -> None:
        if self._link:
            self._link.close()
        if self._listener:
            self._listener.close()
            with contextlib.suppress(OSError):
                Path(self._path).unlink()

    def _readable(self, end: socket.socket, limit_s: float) -> bool:
        return bool(select.select([end], [], [], limit_s)[0])

    def _send(self, message: bytes) -> None:
        assert self._link, "open() first"
        try:
            self._link.send(message)
        except (BrokenPipeError, ConnectionResetError):
            # Its last words may still be there: a partner that has finished may go.
            if self._readable(self._link, 0) and self._receive() == FINISHED:
                self._partner_finished = True
                return
            self._partner_gone()
        except OSError as error:
            self._fail("the partner cannot be told", error)

    def _receive(self) -> bytes:
        assert self._link, "open() first"
        try:
            message = self._link.recv(MOST_BYTES)
        except ConnectionResetError:
            message = b""
        except OSError as error:
            self._fail("the partner cannot be heard", error)
        if not message:
            self._partner_gone()
        return message

    def _arrived(self, waited_for: str, slice_s: float) -> bool:
        assert self._link, "open() first"
        if self._deadline is None:
            self._deadline = time.monotonic() + self._timeout_s
        if not self._readable(self._link, slice_s):
            self._check_deadline(waited_for)
            return False
        self._deadline = None
        return True

    def _check_deadline(self, waited_for: str) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        raise CannotRun(
            f"{self._path}: the other build of this pair did not {waited_for} within"
            f" {self._timeout_s:g} s; check that it runs and was given the same --baton, with the"
            " other --turn; --baton-timeout waits longer"
        )

    def _partner_gone(self) -> NoReturn:
        raise CannotRun(
            f"{self._path}: the other build of this pair ended before the pair was measured; see"
            " what it says; if it says nothing, it was killed: measure the pair again"
        )

    def _other_age(self, what: str) -> NoReturn:
        raise CannotRun(f"{self._path}: the other build of this pair {what}; start two of one age")

    def _fail(self, what: str, error: OSError) -> NoReturn:
        raise CannotRun(
            f"{self._path}: {what}: {error.strerror}; give --baton a path in a folder that both"
            " sides can write to, and that no other pair uses"
        ) from None
