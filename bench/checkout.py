"""What git says of the project's own checkout.

    head_commit(ROOT), is_dirty(ROOT)

Caveat: git looks for a repository in all folders above, too. An unpacked archive that lies within
somebody's repository would be given that repository's commit; such a folder is no checkout here.
cmake/WriteBuildInfo.cmake follows the same rule.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SECONDS = 20


def head_commit(root: Path) -> str:
    """The commit, 40 digits; empty where `root` is not the top of a checkout, or git is absent."""
    # The way up to the top of the work tree is an empty line at the top itself.
    way_up, _, commit = _said(root, "rev-parse", "--show-cdup", "HEAD").partition("\n")
    return "" if way_up else commit.strip()


def is_dirty(root: Path) -> bool:
    """Whether tracked files of the checkout differ from its commit."""
    return bool(head_commit(root)) and bool(
        _said(root, "status", "--porcelain", "--untracked-files=no")
    )


def _said(root: Path, *words: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
