"""Which PyTorch and which bitsandbytes a run used, for its manifest."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import torch

from topologies.pytorch.package_files import find_package


def versions() -> dict[str, Any]:
    """PyTorch's version, and of each optimizer's package that is installed what identifies it."""
    packages = {name: package(name) for name in ("bitsandbytes", "torchao")}
    return {
        "pytorch": torch.__version__,
        "pytorch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "packages": {name: found for name, found in packages.items() if found},
    }


def package(name: str) -> dict[str, str] | None:
    """Distribution, version; the commit where it was installed from a repository; and the SHA-256
    of the wheel's RECORD, which lists the hash of every file of the wheel. Of a package that no
    installer put there: version, and SHA-256 of its files."""
    files = find_package(name)
    if files is None:
        return None
    distribution = files.distribution()
    if distribution is None:
        return {"version": files.version, "files_sha256": files.sha256()}
    found = {"distribution": distribution.metadata["Name"], "version": distribution.version}
    record = distribution.read_text("RECORD")
    if record:
        # An installer adds lines of its own: those of the wheel carry hashes of the wheel's files.
        lines = sorted(
            line
            for line in record.splitlines()
            if ",sha256=" in line and not re.match(r"[^/,]+\.dist-info/|\.\./", line)
        )
        found["wheel_files_sha256"] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    source = distribution.read_text("direct_url.json")
    commit = json.loads(source).get("vcs_info", {}).get("commit_id") if source else None
    if commit:
        found["commit"] = commit
    return found
