"""Run with the Python of a subject: prints as JSON which PyTorch and bitsandbytes it would import.

python bench/paired/find_packages.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    # As topologies/pytorch/optimizer_step.py does it: what follows is searched as there.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from topologies.pytorch.package_files import find_package

if __name__ == "__main__":
    found = {name: find_package(name) for name in ("torch", "bitsandbytes")}
    library = found["bitsandbytes"]
    print(
        json.dumps(
            {
                "torch": str(found["torch"].folder) if found["torch"] else None,
                "torch_version": found["torch"].version if found["torch"] else "",
                "bitsandbytes": str(library.folder) if library else None,
                "version": library.version if library else "",
                "sha256": library.sha256() if library else "",
            }
        )
    )
