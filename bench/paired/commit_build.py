"""Builds of commits, each in a git work tree of its own below a cache folder, and kept there.

Usage:

    commit = resolve(ROOT, "main~3")
    binaries = build(ROOT, commit, ROOT / ".cache" / "compare_commits")

Caveats: all are built with the checkout's own environment (.venv), which the work trees link to, so
that only the project's code differs. The compiler's output goes to <cache>/<commit>.log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.checkout import head_commit
from bench.paired.leash import leashed, wait
from bench.paired.lock import locked
from bench.paired.problem import Problem

TARGETS = ("optimizer_step", "compare_results")
BUILD_SECONDS = 3 * 3600
LINES_SHOWN = 15


def say(text: str) -> None:
    print(f"compare_commits: {text}", file=sys.stderr, flush=True)


def git(
    root: Path, *words: str, timeout: float = 120, pass_fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            pass_fds=pass_fds,
        )
    except FileNotFoundError:
        raise Problem("git is not installed", "apt-get install git") from None
    except subprocess.TimeoutExpired:
        raise Problem(f"git {words[0]} took more than {timeout:.0f} s", "try again") from None


def require_repository(root: Path) -> None:
    # Its own: an unpacked archive within somebody's repository has none of the project's commits.
    if not head_commit(root):
        raise Problem(
            f"{root} is not a git repository of its own",
            "clone the project with git, or give two builds: --build-a DIR --build-b DIR",
        )


def resolve(root: Path, revision: str) -> str:
    """The commit that `revision` names, 40 digits. It must know the turns that pairs take."""
    # A leading dash would be an option of git.
    asked = git(
        root, "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"
    )
    if asked.returncode != 0 or not asked.stdout.strip():
        raise Problem(
            f"{revision!r} is no commit of {root}", "give a commit, branch or tag; git fetch first?"
        )
    commit = asked.stdout.strip().splitlines()[-1]
    if git(root, "grep", "-q", "-e", '"--baton"', commit, "--", "bench/*.cc").returncode != 0:
        raise Problem(
            f"{revision} ({commit[:12]}) is from before builds could take turns (--baton)",
            "launch both commits in turn by hand and give the run folders to compare_results",
        )
    return commit


def require_committed(root: Path, commits: list[str]) -> None:
    """Uncommitted changes are in no commit: who compares HEAD may believe that they count."""
    head = head_commit(root)
    changes = git(root, "status", "--porcelain", "--untracked-files=no").stdout.splitlines()
    if head in commits and changes:
        raise Problem(
            f"{changes[0][3:]} and {len(changes) - 1} other file(s) of {root} have changes that are"
            f" not part of {head[:12]} and would not be measured",
            "commit or stash them, or give --committed-only",
        )


def build(root: Path, commit: str, cache: Path, command: list[str] | None = None) -> Path:
    """The folder with the programs of `commit`, built now unless they were before.

    `command` builds in the folder it is started in; without it, CMake's preset release does. Raises
    Problem with the last lines of the log when the build fails."""
    cache.mkdir(parents=True, exist_ok=True)
    tree = cache / commit
    binaries = tree / "build" / "bin"
    built = cache / f"{commit}.built"
    busy = Problem(f"another compare_commits is building {commit[:12]}", "wait until it has ended")
    with locked(cache / f"{commit}.lock", busy) as lock:
        if built.exists() and all((binaries / name).exists() for name in TARGETS):
            say(f"{commit[:12]} is built: {tree}")
            return binaries
        built.unlink(missing_ok=True)
        _check_out(root, commit, tree, lock)
        link_environment(root, tree)
        _compile(commit, tree, cache / f"{commit}.log", command, lock)
        missing = [name for name in TARGETS if not (binaries / name).exists()]
        if missing:
            raise Problem(
                f"the build of {commit[:12]} made no {missing[0]}",
                f"see {cache / f'{commit}.log'}",
            )
        built.touch()
    return binaries


def _check_out(root: Path, commit: str, tree: Path, lock: int) -> None:
    """A build that was killed is taken up again where its work tree is whole."""
    if tree.exists():
        # A tree whose .git is lost would be seen as part of the checkout around it.
        whole = head_commit(tree) == commit
        changed = git(tree, "status", "--porcelain", "--untracked-files=no")
        if whole and changed.returncode == 0 and not changed.stdout.strip():
            return
        shutil.rmtree(tree)
    git(root, "worktree", "prune")
    words = ["worktree", "add", "--detach", "--force", str(tree), commit]
    added = git(root, *words, timeout=600, pass_fds=(lock,))
    if added.returncode != 0:
        last = (added.stderr.strip().splitlines() or ["git said nothing"])[-1]
        raise Problem(f"{tree} could not be checked out: {last}", "is the disk full?")


def link_environment(root: Path, tree: Path) -> None:
    environment = tree / ".venv"
    if environment.exists() or environment.is_symlink():
        return
    if not (root / ".venv").exists():
        raise Problem(f"{root}/.venv is missing", "run ./bench.sh --quick once, which makes it")
    environment.symlink_to((root / ".venv").resolve())
    pins = (tree / "pyproject.toml", root / "pyproject.toml")
    if all(one.exists() for one in pins) and pins[0].read_bytes() != pins[1].read_bytes():
        say(f"{tree.name[:12]} has another pyproject.toml; it is built with this checkout's .venv")


def _compile(commit: str, tree: Path, log: Path, command: list[str] | None, lock: int) -> None:
    environment = os.environ | {"PATH": f"{tree}/.venv/bin:{os.environ.get('PATH', '')}"}
    cuda = os.environ.get("STEPSCOPE_CUDA", "AUTO")
    steps = [
        ["cmake", "--preset", "release", f"-DSTEPSCOPE_CUDA={cuda}"],
        ["cmake", "--build", "build", "--target", *TARGETS],
    ]
    say(f"building {commit[:12]} (log: {log})")
    begin = time.monotonic()
    with log.open("w") as output:
        for words in [command] if command else steps:
            code = _run(words, tree, output, environment, lock)
            if code != 0:
                output.flush()
                tail = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
                print(*tail, sep="\n", file=sys.stderr)
                raise Problem(
                    f"the build of {commit[:12]} failed: {' '.join(words)} {code}", f"see {log}"
                )
    say(f"built {commit[:12]} in {time.monotonic() - begin:.0f} s")


def _run(words: list[str], tree: Path, output, environment: dict[str, str], lock: int) -> int | str:
    """0, or how the command ended. It holds the lock too: what outlives this process, for however
    short, keeps the next one out of the folder."""
    process = leashed(
        words,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
    )
    try:
        code = wait(process, BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        return f"took more than {BUILD_SECONDS} s"
    return code and f"exited with {code}"
