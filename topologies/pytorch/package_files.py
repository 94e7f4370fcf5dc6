"""Which files a package of Python really is, wherever it was put on the path: needs no PyTorch.

Usage:

    found = find_package("bitsandbytes")          # the one that `import` would take
    found.folder, found.version, found.sha256()
    distribution = found.distribution()           # what was installed that put it there
    require_distribution("bitsandbytes", "bitsandbytes-cpu-fork")

Caveats: importlib.metadata alone may speak of another one, installed behind it on the path: two
distributions may hold a package of the same name.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import os
import re
from dataclasses import dataclass
from pathlib import Path

from topologies.pytorch.errors import CannotRun

NOT_THE_PACKAGE = {"__pycache__"}


@dataclass(frozen=True)
class PackageFiles:
    folder: Path
    version: str  # as its __init__.py or version.py says; empty where neither does

    def distribution(self) -> importlib.metadata.Distribution | None:
        """What an installer put at this place; None for a checkout or a copy."""
        first = f"{self.folder.name}/__init__.py"
        for one in importlib.metadata.distributions(path=[str(self.folder.parent)]):
            if any(str(file) == first for file in one.files or []):
                return one
        return None

    def sha256(self) -> str:
        """Of the names and contents of all its files."""
        total = hashlib.sha256()
        for place, folders, names in os.walk(self.folder, followlinks=True):
            folders[:] = sorted(set(folders) - NOT_THE_PACKAGE)
            for name in sorted(names):
                path = Path(place, name)
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                total.update(f"{path.relative_to(self.folder)}\0{content}\n".encode())
        return total.hexdigest()


def find_package(name: str) -> PackageFiles | None:
    spec = importlib.machinery.PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations or not spec.origin:
        return None
    folder = Path(spec.submodule_search_locations[0])
    version = _version_in(Path(spec.origin)) or _version_in(folder / "version.py")
    return PackageFiles(folder, version)


def require_distribution(package: str, distribution: str) -> None:
    """Raises CannotRun unless `import package` would take what `distribution` installed."""
    found = find_package(package)
    if found is None:
        raise CannotRun(f"{distribution} is not installed: there is no {package} on Python's path")
    actual = found.distribution()
    name = actual.metadata["Name"] if actual else "no installed distribution"
    if normalized(name) != normalized(distribution):
        raise CannotRun(
            f"{found.folder} is of {name}, not of {distribution}; put the folder that holds"
            f" {distribution} first into PYTHONPATH"
        )


def normalized(distribution: str) -> str:
    """As package indices compare names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _version_in(file: Path) -> str:
    if not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace")
    version = re.search(r"""^__version__ *= *["']([^"']+)""", text, re.MULTILINE)
    return version[1] if version else ""
