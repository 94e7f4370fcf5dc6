"""Whether the step fits into the memory that this node has, by plan_state's arithmetic."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bench.preflight_checks.finding import Finding, mebibytes, ok, stop, warning

SECONDS = 30
# What a rank takes besides its tensors; the same allowance as bench/memory_guard.cc.
OVERHEAD = 384 << 20
TIGHT = 0.9


def largest_rank(binaries: Path, words: list[str]) -> tuple[int | None, str]:
    """Bytes of tensors of the largest rank of what `words` ask plan_state for; or nothing and
    why."""
    command = [binaries / "plan_state", *words, "--json"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if said.returncode != 0:
        return None, said.stderr.strip()
    return json.loads(said.stdout)["a_rank"]["total_bytes"]["max"], ""


def check(need: int | None, why: str, share: int, what: str) -> Finding:
    """`need`: bytes of tensors of the largest rank; `share`: bytes that one rank may use of
    `what`."""
    if need is None:
        return stop("fit", why, "name a model and topology that plan_state can plan")
    need += OVERHEAD
    found = f"{mebibytes(need)} a rank, {mebibytes(share)} {what}"
    if need > share:
        return stop("fit", found, "use more ranks, a smaller model, or bf16")
    if need > share * TIGHT:
        return warning("fit", found, "little is left: ask for more memory")
    return ok("fit", found)


def host_share(ranks: int) -> int:
    """Bytes of free memory of this node, or of the job's control group, for each of its ranks."""
    available = _meminfo("MemAvailable")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            available = min(available, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return available // ranks


def _meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return 0
