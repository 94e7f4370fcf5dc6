"""Scratch folders: what a killed process leaves goes with the next one, and nothing else does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from results.scratch_folder import ScratchFolder

OWNER = """
import sys, time
from results.scratch_folder import ScratchFolder
scratch = ScratchFolder()
(scratch.path / "data").write_text("of use")
print(scratch.path, flush=True)
{then}
"""
# Makes folders without end; each must stay for as long as it is in use.
BUSY = """
import sys
from results.scratch_folder import ScratchFolder
print("began", flush=True)
while True:
    with ScratchFolder() as folder:
        for i in range(3):
            (folder / str(i)).mkdir()
            if not (folder / "0").exists():
                sys.exit(f"{folder} was taken away")
"""
LEFT = "stepscope-0123456789abcdef"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def owner(then: str = "time.sleep(100)") -> tuple[subprocess.Popen[str], Path]:
    process = start(OWNER.format(then=then))
    return process, Path(process.stdout.readline().strip())


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def test_what_a_killed_owner_left_goes_with_the_next_folder(place: Path) -> None:
    process, left = owner()
    kill(process)
    assert (left / "data").exists() and left.parent == place
    with ScratchFolder() as folder:
        assert sorted(place.iterdir()) == [folder, folder.with_suffix(".lock")]


@pytest.mark.parametrize("then", ["", "sys.exit(3)", "raise ValueError", "del scratch"])
def test_an_owner_that_ends_leaves_nothing(then: str, place: Path) -> None:
    process, _ = owner(then)
    process.communicate(timeout=60)
    assert not list(place.iterdir())


def test_the_folder_of_a_living_owner_stays(place: Path) -> None:
    process, folder = owner()
    with ScratchFolder():
        assert (folder / "data").read_text() == "of use"
    kill(process)


def test_a_forked_process_keeps_the_folder_of_its_killed_parent(place: Path) -> None:
    fork = "import os\nchild = os.fork()\nif child: print(child, flush=True)\ntime.sleep(100)"
    process, folder = owner(fork)
    child = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=60)
    with ScratchFolder():
        assert (folder / "data").exists()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)  # until the child's end of the pipe is closed
    with ScratchFolder():
        assert not folder.exists()


def test_nothing_else_is_removed(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data").touch()
    # Without a lock; with a lock of another's naming; a lock that is none.
    for name in (LEFT, "stepscope-mine", "stepscope-0123456789abcde0"):
        (place / name).mkdir()
        (place / name / "data").touch()
    (place / "stepscope-mine.lock").touch()
    (place / "other.lock").touch()
    (place / "stepscope-0123456789abcde0.lock").symlink_to(elsewhere / "data")
    os.mkfifo(place / "stepscope-0123456789abcde1.lock")
    # Its place was taken by a link.
    (place / "stepscope-0123456789abcde2").symlink_to(elsewhere)
    (place / "stepscope-0123456789abcde2.lock").touch()
    before = sorted(place.rglob("*"))
    with ScratchFolder():
        pass
    assert sorted(place.rglob("*")) == before
    assert (elsewhere / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_belongs_to_another_user_stays(place: Path) -> None:
    (place / LEFT).mkdir()
    (place / f"{LEFT}.lock").touch()
    os.chown(place / f"{LEFT}.lock", 12345, 12345)
    with ScratchFolder():
        pass
    assert (place / LEFT).exists() and (place / f"{LEFT}.lock").exists()


def test_a_lock_without_its_folder_goes_too(place: Path) -> None:
    (place / f"{LEFT}.lock").touch()
    with ScratchFolder():
        pass
    assert not list(place.iterdir())


def test_a_folder_that_cannot_be_made_leaves_no_lock(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_unused: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(OSError, match="No space left"):
        ScratchFolder()
    assert not list(place.iterdir())


def test_processes_killed_anywhere_leave_nothing_and_take_nothing_from_others(place: Path) -> None:
    chance = random.Random(9)
    running = [start(BUSY) for _ in range(3)]
    for _ in range(12):
        process = running.pop(0)
        assert process.stdout.readline() == "began\n"
        time.sleep(chance.uniform(0, 0.05))
        assert process.poll() is None, "a folder in use was taken away"
        kill(process)
        running.append(start(BUSY))
    for process in running:
        kill(process)
        assert process.returncode == -signal.SIGKILL
    with ScratchFolder():
        pass
    assert not list(place.iterdir())
