"""One of two bitsandbytes environments that take turns on PyTorch FSDP.

Usage:

    one = subject(ROOT, Path("../bitsandbytes"))
    Side("a", [*one.command, *options], one.environment)

Caveats: the identity holds the files of bitsandbytes and the place of PyTorch: a folder in which
either changed is another subject, and a comparison is not taken up with it.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.paired.problem import Problem

DRIVER = Path("topologies/pytorch/optimizer_step.py")
FINDER = Path("bench/paired/find_packages.py")
SECONDS = 120


@dataclass(frozen=True)
class Subject:
    name: str  # "bitsandbytes-0.50.2-0123abcd"
    command: list[str]  # of a rank, without options
    environment: dict[str, str]
    identity: dict[str, str]
    torch: str = ""  # version of its PyTorch; empty where it has none or does not say


def subject(root: Path, path: Path) -> Subject:
    """The bitsandbytes at `path`: a virtual environment, its bin/python, or a folder that holds
    bitsandbytes/ and goes first on the path of `root`'s own .venv."""
    python, first = _interpreter(root, path.absolute())
    environment = {"PYTHONPATH": os.pathsep.join(first)} if first else {}
    found = _ask(root, python, environment)
    for package in ("torch", "bitsandbytes"):
        if not found[package]:
            raise Problem(
                f"{python} finds no {package}",
                "install it there, or give the folder of another environment",
            )
    if first and Path(found["bitsandbytes"]).parent != Path(first[0]):
        raise Problem(
            f"{first[0]} is not the first on the path: bitsandbytes is {found['bitsandbytes']}",
            "unset PYTHONPATH, and install no editable bitsandbytes into .venv",
        )
    return Subject(
        name=f"bitsandbytes-{found['version'] or 'unknown'}-{found['sha256'][:8]}",
        command=[str(python), str(root / DRIVER)],
        environment=environment,
        identity={"python": str(python), "torch": found["torch"], "sha256": found["sha256"]},
        torch=found["torch_version"],
    )


def unrecordable(root: Path, subjects: list[Subject]) -> str:
    """Why the suite's recorder fits not all of them: it is linked against the PyTorch of `root`'s
    own .venv, and another release has other classes. Empty where it does."""
    own = _ask(root, _own_python(root), {})["torch_version"]
    for side, one in zip("ab", subjects, strict=True):
        # What follows a + tells CPU from CUDA builds of one release.
        if one.torch.partition("+")[0] != own.partition("+")[0]:
            version = one.torch or "of an unknown version"
            return f"side {side} has PyTorch {version}, and the recorder was built for {own}"
    return ""


def _own_python(root: Path) -> Path:
    own = root / ".venv" / "bin" / "python"
    if not own.exists():
        raise Problem(f"{own} is missing", "run ./bench.sh --quick once, which makes it")
    return own


def _interpreter(root: Path, path: Path) -> tuple[Path, list[str]]:
    """The Python, and what goes first on its path."""
    if (path / "bin" / "python").exists():
        return path / "bin" / "python", []
    if path.is_file() and os.access(path, os.X_OK):
        return path, []
    if not (path / "bitsandbytes" / "__init__.py").exists():
        raise Problem(
            f"{path} is no virtual environment (bin/python), no Python, and holds no bitsandbytes/",
            "give one of them: python -m venv, or pip install --target DIR --no-deps bitsandbytes",
        )
    own = _own_python(root)
    earlier = os.environ.get("PYTHONPATH")
    return own, [str(path), *([earlier] if earlier else [])]


def _ask(root: Path, python: Path, environment: dict[str, str]) -> dict[str, str]:
    try:
        done = subprocess.run(
            [python, root / FINDER],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        raise Problem(f"{python} cannot be run: {error.strerror}", "give another one") from None
    except subprocess.TimeoutExpired:
        raise Problem(f"{python} did not answer within {SECONDS} s", "try again") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exited with {done.returncode}"])[-1]
        raise Problem(f"{python} cannot say what it imports: {said}", "is it Python 3.10 or newer?")
    return json.loads(done.stdout)
