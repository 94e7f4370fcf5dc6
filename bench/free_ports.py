"""Ports of this host for somebody who will listen on them in a moment.

    port = free_port()

Caveats: nothing holds them. The kernel gives the ports of its ephemeral range to whatever connects
next, which is why they are chosen elsewhere, at random, so that two that choose at once differ.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

FIRST, END = 10_000, 65_536
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """All different. Raises OSError where this host has not as many."""
    candidates = _candidates()
    random.SystemRandom().shuffle(candidates)
    sockets: list[socket.socket] = []
    try:
        for port in candidates:
            if len(sockets) == count:
                break
            probe = socket.socket()
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                probe.close()
            else:
                sockets.append(probe)
        if len(sockets) < count:
            raise OSError(f"{count} free ports are needed and {len(sockets)} are there")
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def free_port() -> int:
    return free_ports(1)[0]


def _candidates() -> list[int]:
    first, last = (int(word) for word in EPHEMERAL.read_text().split())
    outside = [port for port in range(FIRST, END) if not first <= port <= last]
    return outside or list(range(FIRST, END))
