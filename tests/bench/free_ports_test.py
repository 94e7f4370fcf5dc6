"""Ports for ranks to meet: never one that the kernel may give to something else meanwhile."""

from __future__ import annotations

import socket

import pytest

from bench import free_ports as module
from bench.free_ports import free_port, free_ports


def ephemeral() -> range:
    first, last = (int(word) for word in module.EPHEMERAL.read_text().split())
    return range(first, last + 1)


def test_ports_differ_lie_outside_the_ephemeral_range_and_can_be_listened_on():
    found = free_ports(200)
    assert len(set(found)) == 200
    assert not set(found) & set(ephemeral())
    with socket.socket() as one:
        one.bind(("127.0.0.1", found[0]))
        one.listen()


def test_two_that_choose_at_once_do_not_choose_alike():
    assert len({free_port() for _ in range(20)}) > 10


def test_a_port_that_is_taken_is_not_chosen(monkeypatch):
    held, other = free_ports(2)
    monkeypatch.setattr(module, "_candidates", lambda: [held, other])
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", held))
        assert [free_port() for _ in range(5)] == [other] * 5
        with pytest.raises(OSError, match="2 free ports are needed and 1 are there"):
            free_ports(2)


def test_where_every_port_is_ephemeral_one_of_them_is_chosen(monkeypatch, tmp_path):
    everything = tmp_path / "ip_local_port_range"
    everything.write_text("1024\t65535\n")
    monkeypatch.setattr(module, "EPHEMERAL", everything)
    assert 10_000 <= free_port() < 65_536
