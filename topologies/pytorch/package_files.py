"""Which files a package of Python really is, wherever it was put on the path: needs no PyTorch.

Usage:

    found = find_package("bitsandbytes")          # the one that `import` would take
    found.folder, found.version, found.sha256()

Caveats: importlib.metadata may speak of another one, installed behind it on the path.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import re
from dataclasses import dataclass
from pathlib import Path

NOT_THE_PACKAGE = {"__pycache__"}


@dataclass(frozen=True)
class PackageFiles:
    folder: Path
    version: str  # as its __init__.py says; empty where it does not

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
    text = Path(spec.origin).read_text(encoding="utf-8", errors="replace")
    version = re.search(r"""^__version__ *= *["']([^"']+)""", text, re.MULTILINE)
    return PackageFiles(folder, version[1] if version else "")
