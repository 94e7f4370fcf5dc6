"""topologies/pytorch/baton.py, between two ends of this process, and against plain packets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from topologies.pytorch.baton import Baton
from topologies.pytorch.errors import CannotRun

SLICE_S = 5.0


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Baton, Baton]]:
    path = str(tmp_path / "s")
    first, second = Baton(path, True, 60), Baton(path, False, 60)
    assert second.open(SLICE_S) and first.open(SLICE_S)
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def partner(tmp_path: Path) -> Iterator[tuple[Baton, socket.socket]]:
    """The first end, and plain packets in place of the second."""
    first = Baton(str(tmp_path / "s"), True, 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(str(tmp_path / "s"))
        assert first.open(SLICE_S)
        yield first, link
    first.close()


def test_the_first_end_has_the_turn_until_it_hands_it_over(ends: tuple[Baton, Baton]) -> None:
    first, second = ends
    assert first.wait(0)
    assert not second.wait(0)
    first.hand_over()
    assert second.wait(SLICE_S)
    assert not first.wait(0)
    second.hand_over()
    assert first.wait(SLICE_S)


def test_both_ends_hear_what_the_other_tells(ends: tuple[Baton, Baton]) -> None:
    first, second = ends
    assert second.hear(0) is None
    first.tell("model=tiny\nsteps=20")
    second.tell("")
    assert second.hear(SLICE_S) == "model=tiny\nsteps=20"
    assert first.hear(SLICE_S) == ""
    with pytest.raises(CannotRun, match="64 KiB"):
        first.tell("x" * (64 << 10))


def test_who_has_finished_is_waited_for_no_more(ends: tuple[Baton, Baton]) -> None:
    first, second = ends
    first.finish()
    first.close()
    assert second.wait(SLICE_S)
    second.hand_over()
    assert second.wait(0)


def test_a_partner_that_finished_and_went_may_be_handed_the_turn(
    ends: tuple[Baton, Baton],
) -> None:
    first, second = ends
    second.finish()
    second.close()
    first.hand_over()
    assert first.wait(0)


@pytest.mark.parametrize("what", ["wait", "hear"])
def test_a_partner_that_ends_too_early_is_noticed_at_once(
    ends: tuple[Baton, Baton], what: str
) -> None:
    first, second = ends
    first.close()
    with pytest.raises(CannotRun, match="the other build of this pair ended before"):
        getattr(second, what)(SLICE_S)


def test_packets_are_those_of_the_baton_in_cpp(partner: tuple[Baton, socket.socket]) -> None:
    """bench/baton.cc sends these; tests/bench/turns_test.py plays its partner with them."""
    first, link = partner
    first.tell("here")
    first.hand_over()
    assert [link.recv(100), link.recv(100)] == [b"xhere", b"turn"]
    link.send(b"turn")
    assert first.wait(SLICE_S)
    link.send(b"xthere")
    assert first.hear(SLICE_S) == "there"
    first.finish()
    assert link.recv(100) == b"finished"


def test_what_is_no_turn_and_no_text_is_of_another_age(
    partner: tuple[Baton, socket.socket],
) -> None:
    first, link = partner
    link.send(b"turn")
    with pytest.raises(CannotRun, match="answers in another way; start two of one age"):
        first.hear(SLICE_S)
    first.hand_over()
    link.send(b"your move")
    with pytest.raises(CannotRun, match="sent something else than a turn"):
        first.wait(SLICE_S)


def test_a_partner_that_is_silent_is_missed_after_the_timeout(
    partner: tuple[Baton, socket.socket],
) -> None:
    first, _ = partner
    first.hand_over()
    with pytest.raises(CannotRun, match=r"did not hand over the turn within 0.05 s"):
        assert not first.wait(0.1) and not first.wait(0.1)


@pytest.mark.parametrize("first", [True, False])
def test_a_partner_that_never_comes_is_missed_after_the_timeout(
    first: bool, tmp_path: Path
) -> None:
    alone = Baton(str(tmp_path / "s"), first, 0.01)
    with pytest.raises(CannotRun, match=r"did not appear within 0.01 s.*--baton-timeout"):
        alone.open(0.1)
    alone.close()
    assert not list(tmp_path.iterdir())


def test_a_socket_that_cannot_be_made_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("something else")
    with pytest.raises(CannotRun, match=r"could not be made: Address already in use.*no other"):
        Baton(str(path), True, 1)
    assert path.read_text() == "something else"
    with pytest.raises(CannotRun, match="has 200 characters"):
        Baton("/" + "s" * 199, True, 1)
