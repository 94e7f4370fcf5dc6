"""The commit of the project's own checkout, and of no other repository, in Python and the build."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench.checkout import head_commit, is_dirty

ROOT = Path(__file__).resolve().parents[2]


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", "-C", root, *identity, *words], capture_output=True, text=True, check=True
    ).stdout


def built_in(root: Path, out: Path) -> tuple[str, bool]:
    """What the build would carry: commit, and whether dirty."""
    script = ROOT / "cmake/WriteBuildInfo.cmake"
    values = [f"-DSOURCE_DIR={root}", "-DVERSION=1", "-DBUILD_TYPE=Release", f"-DOUT={out}"]
    subprocess.run(["cmake", *values, "-P", script], check=True, capture_output=True)
    text = out.read_text()
    commit = re.search(r'STEPSCOPE_COMMIT "(\w*)"', text)
    return commit[1] if commit else "", "STEPSCOPE_DIRTY 1" in text


@pytest.fixture
def repository(tmp_path) -> Path:
    root = tmp_path / "a clone"
    root.mkdir()
    git(root, "init", "-q")
    (root / "file").write_text("one")
    git(root, "add", "file")
    git(root, "commit", "-q", "-m", "one")
    return root


def test_a_checkout_is_named_by_its_commit_and_its_changes(repository, tmp_path):
    commit = git(repository, "rev-parse", "HEAD").strip()
    assert (head_commit(repository), is_dirty(repository)) == (commit, False)
    assert built_in(repository, tmp_path / "h") == (commit, False)
    (repository / "file").write_text("two")
    assert (head_commit(repository), is_dirty(repository)) == (commit, True)
    assert built_in(repository, tmp_path / "h") == (commit, True)


def test_a_work_tree_inside_of_the_checkout_is_its_own(repository, tmp_path):
    tree = repository / "trees/one"
    git(repository, "worktree", "add", "-q", "--detach", str(tree))
    commit = git(repository, "rev-parse", "HEAD").strip()
    (repository / "file").write_text("two")
    assert (head_commit(tree), is_dirty(tree)) == (commit, False)
    assert built_in(tree, tmp_path / "h") == (commit, False)


def test_a_folder_within_another_repository_is_no_checkout(repository, tmp_path):
    unpacked = repository / "stepscope-0.1"
    unpacked.mkdir()
    (repository / "file").write_text("two")
    assert (head_commit(unpacked), is_dirty(unpacked)) == ("", False)
    assert built_in(unpacked, tmp_path / "h") == ("unknown", False)


def test_a_repository_without_a_commit_is_no_checkout(tmp_path):
    git(tmp_path, "init", "-q")
    assert (head_commit(tmp_path), is_dirty(tmp_path)) == ("", False)
    assert built_in(tmp_path, tmp_path / "h") == ("unknown", False)
