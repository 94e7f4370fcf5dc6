"""Two builds that take turns with a baton: real ranks of both, and a partner played by the test."""

from __future__ import annotations

import csv
import json
import os
import re
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import Ended, Job, run

TINY = ["--quick", "--threads", "1", "--optimizer", "Lion8bit", "--dtype", "fp32"]


def rows(folder: Path, file: str) -> list[dict[str, str]]:
    with (folder / file).open(newline="") as stream:
        return list(csv.DictReader(stream))


class Pair:
    """The ranks of both sides; ended when the `with` block is left."""

    def __init__(
        self,
        folder: Path,
        arguments: list[str],
        more: dict[str, list[str]],
        ranks: int,
        environments: dict[str, dict[str, str]],
    ):
        self.stack = ExitStack()
        self.out = {side: folder / side for side in ("first", "second")}
        self.jobs = {}
        for side in self.out:
            words = [*arguments, *more.get(side, [])]
            words += ["--baton", str(folder / "s"), "--turn", side, "--out", str(self.out[side])]
            self.jobs[side] = Job(words, ranks, environment=environments.get(side, {}))

    def __enter__(self) -> Pair:
        for job in self.jobs.values():
            self.stack.enter_context(job)
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.__exit__(*error)

    def wait(self) -> dict[str, list[Ended]]:
        return {side: job.wait_all() for side, job in self.jobs.items()}


def pair(
    folder: Path,
    arguments: list[str],
    ranks: int = 2,
    environments: dict[str, dict[str, str]] | None = None,
    **more: list[str],
) -> Pair:
    return Pair(folder, arguments, more, ranks, environments or {})


def turns_of(folder: Path, steps: int, optimizer: str = "") -> list[list[tuple[int, int]]]:
    """(start, time) of the steps of every turn, in nanoseconds since the first step."""
    table = [
        (int(row["start_ns"]), int(row["step_ns"]))
        for row in rows(folder, "samples.csv")
        if optimizer in row["benchmark"]
    ]
    return [table[i : i + steps] for i in range(0, len(table), steps)]


def length(turn: list[tuple[int, int]]) -> int:
    return turn[-1][0] - turn[0][0]


def test_no_turn_of_one_build_lies_within_a_turn_of_the_other(tmp_path):
    arguments = [*TINY, "--steps", "30", "--warmup", "4", "--turn-steps", "6"]
    with pair(tmp_path, [*arguments, "--turn-dropped", "3"]) as both:
        for ended in both.wait().values():
            assert [e.code for e in ended] == [0, 0], [e.err for e in ended]
    first = turns_of(both.out["first"], 6)
    second = turns_of(both.out["second"], 6)
    assert len(first) == len(second) == 5

    for i in range(4):
        # Between two turns of one build lies a whole turn of the other.
        assert first[i + 1][0][0] - first[i][-1][0] > length(second[i])
        assert second[i + 1][0][0] - second[i][-1][0] > length(first[i + 1])
    for out in both.out.values():
        # Four before the first, and three at the start of each of five turns.
        assert {row["warmup_steps"] for row in rows(out, "results.csv")} == {"19"}
        assert {row["steps"] for row in rows(out, "results.csv")} == {"30"}


def test_both_builds_know_the_pair_and_no_other_pair_has_its_name(tmp_path):
    names = []
    for turn in ("a", "b"):
        (tmp_path / turn).mkdir()
        with pair(tmp_path / turn, [*TINY, "--trace", "0"], ranks=1) as both:
            ended = both.wait()
        assert all(e.code == 0 for side in ended.values() for e in side), ended
        manifests = {
            side: json.loads((out / "manifest.json").read_text())["turns"]
            for side, out in both.out.items()
        }
        assert manifests["first"]["pair"] == manifests["second"]["pair"]
        assert {side: turns["order"] for side, turns in manifests.items()} == {
            "first": "first",
            "second": "second",
        }
        names.append(manifests["first"]["pair"])
    assert len(set(names)) == 2


def test_every_case_and_repetition_keeps_both_builds_in_step(tmp_path):
    # 7 steps are a turn of 5 and one of 2.
    arguments = [*TINY, "--optimizer", "AdamW8bit", "--steps", "7", "--turn-steps", "5"]
    with pair(tmp_path, [*arguments, "--trace", "1", "--benchmark_repetitions=2"]) as both:
        for ended in both.wait().values():
            assert [e.code for e in ended] == [0, 0], [e.err for e in ended]
    for out in both.out.values():
        assert len(rows(out, "results.csv")) == 2 * 2 * 2
        assert {row["contract"] for row in rows(out, "results.csv")} == {"ok"}


@pytest.mark.skipif(
    "STEPSCOPE_WRONG_POW" not in os.environ, reason="sanitizers allow no library before theirs"
)
@pytest.mark.parametrize("side", ["first", "second"])
def test_a_case_that_fails_in_one_build_keeps_both_in_step(side, tmp_path):
    """libtorch computes wrongly in one build: its case is not timed there, the next one is."""
    arguments = ["--quick", "--threads", "1", "--optimizer", "AdamW,Lion8bit", "--dtype", "fp32"]
    arguments += ["--steps", "25", "--turn-steps", "10", "--trace", "0"]
    wrong = {side: {"LD_PRELOAD": os.environ["STEPSCOPE_WRONG_POW"]}}
    with pair(tmp_path, arguments, environments=wrong) as both:
        ended = both.wait()
    other = "second" if side == "first" else "first"
    assert [e.code for e in ended[side]] == [1, 1], [e.err for e in ended[side]]
    assert [e.code for e in ended[other]] == [0, 0], [e.err for e in ended[other]]
    found = {}
    for one, out in both.out.items():
        results = [row for row in rows(out, "results.csv") if row["rank"] == "0"]
        found[one] = {row["optimizer"]: (row["status"], row["steps"]) for row in results}
    assert found[other] == {"AdamW": ("ok", "25"), "Lion8bit": ("ok", "25")}
    assert found[side] == {"AdamW": ("failed", "0"), "Lion8bit": ("ok", "25")}
    first, second = (turns_of(both.out[one], 10, "Lion8bit") for one in ("first", "second"))
    assert [len(turn) for turn in first] == [len(turn) for turn in second] == [10, 10, 5]
    for i in range(2):
        assert first[i + 1][0][0] - first[i][-1][0] > length(second[i])
        assert second[i + 1][0][0] - second[i][-1][0] > length(first[i + 1])


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_both_builds_and_leaves_incomplete_folders(side, rank, tmp_path):
    # So many steps that neither side can be done before the kill.
    arguments = [*TINY, "--steps", "1000000", "--optimizer", "AdamW", "--benchmark_repetitions=1"]
    with pair(tmp_path, arguments) as both:
        deadline = time.monotonic() + 60
        while not all(
            (tmp_path / f"{side}.incomplete/manifest.json").exists() for side in both.out
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        both.jobs[side].processes[rank].kill()
        other = "second" if side == "first" else "first"
        left = both.jobs[side].wait(1 - rank)
        ended = both.jobs[other].wait_all()
    assert left.code == 2, left.err
    assert f"rank {rank}" in left.err, left.err
    for rank_of_other in ended:
        assert rank_of_other.code == 2
        assert "the other build of this pair ended before the pair was measured" in (
            rank_of_other.err
        )
        assert rank_of_other.err.count("\n") == 1
    for out in both.out.values():
        assert not out.exists()
        manifest = json.loads((tmp_path / f"{out.name}.incomplete" / "manifest.json").read_text())
        assert manifest["status"] == "incomplete"


def test_builds_that_measure_different_things_both_name_the_difference(tmp_path):
    with pair(tmp_path, TINY, second=["--steps", "7"]) as both:
        ended = both.wait()
    for rank in (*ended["first"], *ended["second"]):
        assert rank.code == 2
        assert '"steps=20"' in rank.err and '"steps=7"' in rank.err, rank.err
    assert not any(tmp_path.glob("first*")) and not any(tmp_path.glob("second*"))


def test_a_partner_that_never_comes_is_missed_after_the_timeout(tmp_path):
    words = [*TINY, "--baton", str(tmp_path / "s"), "--baton-timeout", "1"]
    for turn in ("first", "second"):
        ended = run([*words, "--turn", turn, "--out", str(tmp_path / "no")])
        for rank in ended:
            assert rank.code == 2
            assert "the other build of this pair did not appear within 1 s" in rank.err
    assert not list(tmp_path.iterdir())


def test_two_pairs_cannot_share_a_socket(tmp_path):
    path = tmp_path / "s"
    path.write_text("something else")
    (ended,) = run([*TINY, "--baton", str(path), "--out", str(tmp_path / "no")], 1)
    assert ended.code == 2
    assert str(path) in ended.err and "that no other pair uses" in ended.err
    assert path.read_text() == "something else"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--turn", "second"], "--turn is given without --baton"),
        (["--turn-steps", "3"], "--turn-steps is given without --baton"),
        (["--baton", "s", "--turn", "third"], '--turn is "third"'),
        (["--baton", "s", "--turn-steps", "0"], "--turn-steps"),
        (["--baton", ""], "--baton is empty"),
        (["--baton", "/tmp/" + "s" * 200], "205 characters"),
    ],
)
def test_usage_errors_are_one_line_that_helps(arguments, word, tmp_path):
    (ended,) = run([*TINY, *arguments, "--out", str(tmp_path / "no")], 1)
    assert ended.code == 2
    assert word in ended.err
    assert ended.err.count("\n") == 1


class Partner(threading.Thread):
    """Plays the second build: introduces itself with what the first said, then does `script`."""

    def __init__(self, path: Path, script):
        super().__init__(daemon=True)
        self.path, self.script = path, script
        self.turns = 0

    def run(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(60)
            while link.connect_ex(str(self.path)) != 0:
                time.sleep(0.02)
            hello = link.recv(1 << 16)
            link.send(b"x\n" + hello.split(b"\n", 1)[1])
            assert link.recv(1 << 16) == b"xhere"
            link.send(b"xhere")
            self.script(self, link)


def play(tmp_path: Path, script, *arguments: str) -> tuple[Ended, Partner]:
    partner = Partner(tmp_path / "s", script)
    partner.start()
    words = [*TINY, "--trace", "0", "--baton", str(tmp_path / "s"), "--out", str(tmp_path / "run")]
    (ended,) = run([*words, *arguments], 1)
    partner.join(timeout=60)
    assert not partner.is_alive()
    return ended, partner


def answer_every_turn(partner: Partner, link: socket.socket) -> None:
    while (message := link.recv(1 << 16)) == b"turn":
        partner.turns += 1
        link.send(b"turn")
    assert message == b"finished"


def test_a_turn_is_handed_over_after_setting_up_after_each_turn_and_after_the_rows(tmp_path):
    ended, partner = play(tmp_path, answer_every_turn, "--steps", "30", "--turn-steps", "10")
    assert ended.code == 0, ended.err
    assert partner.turns == 1 + 3


def test_a_partner_that_has_finished_is_not_waited_for(tmp_path):
    def finish_at_once(_partner: Partner, link: socket.socket) -> None:
        assert link.recv(1 << 16) == b"turn"
        link.send(b"finished")

    ended, _ = play(tmp_path, finish_at_once, "--steps", "30")
    assert ended.code == 0, ended.err


def test_a_partner_that_keeps_the_turn_is_missed_after_the_timeout(tmp_path):
    ended, _ = play(tmp_path, lambda _, link: link.recv(1 << 16) and link.recv(1 << 16),
                    "--baton-timeout", "3")  # fmt: skip
    assert ended.code == 2
    assert "the other build of this pair did not hand over the turn within 3 s" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_partner_of_another_age_is_refused(tmp_path):
    def talk(_partner: Partner, link: socket.socket) -> None:
        link.recv(1 << 16)
        link.send(b"your move")
        assert link.recv(1 << 16) == b""

    ended, _ = play(tmp_path, talk)
    assert ended.code == 2
    assert "start two builds of one age" in ended.err


def test_a_model_must_fit_twice_when_two_builds_are_alive(tmp_path):
    listing = ["--benchmark_list_tests", "--optimizer", "AdamW", "--dtype", "fp32"]
    listing += ["--topology", "single", "--trace", "0"]
    (refused,) = run([*listing, "--model", "llama-3.1-405b"], 1)
    assert refused.code == 2
    (free,) = re.findall(r"share ([0-9.]+) GiB of free memory", refused.err)
    # Parameter, gradient and two moments of 4 bytes: three quarters of the memory.
    numel = int(float(free) * 2**30 * 0.75) // 16
    if float(free) * 0.25 < 0.5:
        pytest.skip(f"{free} GiB of free memory are too few to tell the half from the whole")
    model = tmp_path / "model.json"
    model.write_text(json.dumps([{"name": "w", "shape": [numel], "dtype": "fp32"}]))
    (alone,) = run([*listing, "--model", str(model)], 1)
    assert alone.code == 0, alone.err
    with pair(tmp_path, [*listing, "--model", str(model)], ranks=1) as both:
        ended = both.wait()
    refusals = [e.err for side in ended.values() for e in side if "half of which" in e.err]
    assert [e.code for side in ended.values() for e in side] == [2, 2]
    # Both may have found out, or one heard that the other ended.
    assert refusals, ended
