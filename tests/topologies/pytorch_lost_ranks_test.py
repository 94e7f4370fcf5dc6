"""The PyTorch driver where a rank is lost, differs, or cannot write: every other rank ends in time
and says which rank or what it was. The same list as tests/bench/rank_failures_test.py."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
from tests.small_disk import small_disk
from tests.topologies import program_ranks
from topologies.pytorch import optimizer_step, same_ranks

MODEL = """[
  {"name": "large.weight", "shape": [67, 129], "dtype": "fp32"},
  {"name": "small.weight", "shape": [17, 64], "dtype": "fp32"}
]"""
# Steps 1 and 2 are those that are checked, 3 tells how many can be afforded, the next are timed.
TIMED = 6
WAIT_S = 20  # --timeout: on a busy machine the ranks may come, and step, far apart


def on_ranks(world_size: int, *arguments: str, **more) -> tuple[program_ranks.Ended, float]:
    begin = time.monotonic()
    words = ["--threads", "1", "--trace", "0", "--timeout", str(WAIT_S), *arguments]
    ended = program_ranks.on_ranks(world_size, *words, main=optimizer_step.main, **more)
    return ended, time.monotonic() - begin


def signalled(number: int, rank: int) -> list[str]:
    given = {"number": int(number), "at_step": TIMED, "rank": rank}
    words = ["--optimizer-class", "tests.topologies.failing_optimizers:Signalled", "--steps", "9"]
    return [*words, "--optimizer-args", json.dumps(given)]


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    path = tmp_path / "pieces.json"
    path.write_text(MODEL)
    return ["--model", str(path)]


def one_line(text: str) -> bool:
    return text.count("\n") == 1


def status(folder: Path) -> str:
    return json.loads((folder / "manifest.json").read_text())["status"]


@pytest.mark.parametrize("lost", [1, 0])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_rank_that_is_lost_in_a_step_is_named_by_every_other(model, tmp_path, lost, number):
    out = tmp_path / "run"
    words = [*model, "--out", str(out), *signalled(number, lost)]
    ended, seconds = on_ranks(3, *words, left=[lost])
    assert seconds < 180
    assert ended.codes[lost] in (-number, -signal.SIGKILL)
    for rank in {0, 1, 2} - {lost}:
        assert ended.codes[rank] == 2, ended.errors
        assert one_line(ended.errors[rank]), ended.errors
        assert f"no answer from peer rank {lost};" in ended.errors[rank], ended.errors
    assert not out.exists()
    assert status(tmp_path / "run.incomplete") == "incomplete"


def test_a_rank_that_dies_before_the_ranks_meet_is_named_by_every_other(model, tmp_path):
    def die(rank: int) -> list[str]:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return []

    ended, seconds = on_ranks(3, *model, "--out", str(tmp_path / "run"), before=die)
    assert seconds < 180
    assert ended.codes == [2, -9, 2]
    for rank in (0, 2):
        assert one_line(ended.errors[rank]), ended.errors
        assert f"rank 1 of 3 did not arrive within {WAIT_S} s" in ended.errors[rank]
    assert [path.name for path in tmp_path.iterdir()] == ["pieces.json"]


def test_a_rank_with_another_option_is_found_before_anything_is_measured(model, tmp_path):
    def differ(rank: int) -> list[str]:
        return ["--steps", str(5 + rank // 2)]

    ended, seconds = on_ranks(3, *model, "--out", str(tmp_path / "run"), before=differ)
    assert seconds < 180
    assert ended.codes == [2, 2, 2]
    for error in ended.errors:
        assert one_line(error), ended.errors
        assert "given different options: rank 0 --steps 5, rank 2 --steps 6" in error
    assert [path.name for path in tmp_path.iterdir()] == ["pieces.json"]


def test_a_rank_of_another_build_is_found_before_anything_is_measured(model, tmp_path):
    def differ(rank: int) -> list[str]:
        if rank == 1:
            real = same_ranks.run_program
            same_ranks.run_program = lambda *words: real(*words).replace("commit ", "commit f00d")
        return []

    ended, seconds = on_ranks(3, *model, "--out", str(tmp_path / "run"), before=differ)
    assert seconds < 180
    assert ended.codes == [2, 2, 2]
    for error in ended.errors:
        assert one_line(error), ended.errors
        assert "rank 0 is describe_run" in error and "and rank 1 is" in error
        assert "commit f00d" in error
    assert [path.name for path in tmp_path.iterdir()] == ["pieces.json"]


def test_a_signal_to_all_ranks_keeps_what_was_measured_and_marks_it_incomplete(model, tmp_path):
    """As Slurm sends it before the time limit."""
    given = {"number": int(signal.SIGTERM), "at_step": TIMED}
    words = ["--optimizer-class", "tests.topologies.failing_optimizers:Signalled", "--steps", "9"]
    words += ["--optimizer-args", json.dumps(given), "--out", str(tmp_path / "run")]
    ended, seconds = on_ranks(2, *model, *words)
    assert seconds < 180
    assert -signal.SIGTERM in ended.codes
    assert all(code in (2, -signal.SIGTERM) for code in ended.codes)
    assert not (tmp_path / "run").exists()
    assert status(tmp_path / "run.incomplete") == "incomplete"


def test_a_disk_that_fills_up_ends_every_rank_and_says_so(model, tmp_path):
    with small_disk(tmp_path / "disk", "16k") as disk:
        # Its samples take more than the disk holds.
        words = ["--optimizer", "AdamW", "--steps", "400", "--out", str(disk / "run")]
        ended, seconds = on_ranks(2, *model, *words)
        assert seconds < 180
        assert ended.codes == [2, 2]
        for error in ended.errors:
            assert one_line(error), ended.errors
            assert "No space left on device" in error
        assert not (disk / "run").exists()
        assert status(disk / "run.incomplete") == "incomplete"


@pytest.mark.parametrize("out", ["a-file/run", "/proc/stepscope/run"])
def test_a_run_folder_that_cannot_be_written_ends_every_rank_at_once(model, tmp_path, out):
    (tmp_path / "a-file").write_text("")
    ended, seconds = on_ranks(2, *model, "--optimizer", "AdamW", "--out", str(tmp_path / out))
    assert seconds < 180
    assert ended.codes == [2, 2]
    for error in ended.errors:
        assert one_line(error) and str(tmp_path / out) in error, ended.errors


def test_a_second_run_into_the_same_folder_is_refused_on_every_rank(model, tmp_path):
    (tmp_path / "run.incomplete").mkdir()
    ended, _ = on_ranks(2, *model, "--optimizer", "AdamW", "--out", str(tmp_path / "run"))
    assert ended.codes == [2, 2]
    for error in ended.errors:
        assert one_line(error), ended.errors
        assert "another run is writing here" in error
    assert list((tmp_path / "run.incomplete").iterdir()) == []
