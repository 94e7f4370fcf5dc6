"""A folder for what is of no use after its process, which no end of that process leaves for good.

Usage:

    with ScratchFolder() as folder:      # removed at the end of the block
        (folder / "plan.json").write_text(text)

    scratch = ScratchFolder()            # or: removed with the object
    scratch.path

Beside each folder lies a file that its owner holds a lock on, which the system gives back however
the owner ends. Whoever makes the next folder removes those whose lock nobody holds; a process that
is killed thus leaves its folder for as long as no other is made.

Caveats: processes forked from the owner hold the lock, too, those that start another program do
not. Folders are in the temporary folder (TMPDIR), which must be able to lock files: local ones and
NFS are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

PREFIX = "stepscope-"
LOCK = ".lock"
_LOCK_NAME = re.compile(re.escape(PREFIX) + "[0-9a-f]{16}" + re.escape(LOCK))


class ScratchFolder:
    """In `place`, or the temporary folder. Raises OSError where none can be made. A folder that
    cannot be removed is left to the next one to make one."""

    def __init__(self, place: Path | None = None) -> None:
        place = place or Path(tempfile.gettempdir())
        _remove_abandoned(place)
        self.path, lock = _make(place)
        self._end = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_unused: object) -> None:
        self._end()


def _make(place: Path) -> tuple[Path, int]:
    while True:
        folder = place / (PREFIX + secrets.token_hex(8))
        file = folder.with_suffix(LOCK)
        # The lock first: a folder without one would be nobody's to remove.
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if _locked(lock, file):
                folder.mkdir(mode=0o700)
                return folder, lock
        except OSError:
            file.unlink(missing_ok=True)
            os.close(lock)
            raise
        # Who looks for abandoned ones took it before it was locked.
        os.close(lock)


def _locked(lock: int, file: Path) -> bool:
    """Takes the lock, unless another has it or has removed the file."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), file.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _remove_abandoned(place: Path) -> None:
    for file in place.glob(PREFIX + "*" + LOCK):
        if not _LOCK_NAME.fullmatch(file.name):
            continue
        # Another may remove it at the same time, or it is another user's.
        with contextlib.suppress(OSError):
            lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            if _is_own(lock) and _locked(lock, file):
                _remove(file.with_suffix(""), lock)
            else:
                os.close(lock)


def _is_own(lock: int) -> bool:
    found = os.fstat(lock)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _remove(folder: Path, lock: int) -> None:
    """The folder before its lock: killed between them, the next one goes on."""
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        folder.with_suffix(LOCK).unlink()
    os.close(lock)
