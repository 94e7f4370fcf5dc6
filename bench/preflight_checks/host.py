"""What the host is asked before a run: build, packages, cores, disk, and what else runs here."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.checkout import head_commit
from bench.preflight_checks.finding import Finding, mebibytes, ok, stop, warning

SECONDS = 20
# A folder with traces of a large model is some hundred MiB; without any room the run is lost.
DISK_STOP = 200 << 20
DISK_WARNING = 2 << 30
# Packages that decide figures, by their names on PyPI.
PACKAGES = ("torch", "bitsandbytes")
CUDA_PACKAGES = ("nvidia-nccl-cu13", "nvidia-cuda-runtime")
# Programs that hold the GPU's profiling interface, of which there is one user at a time.
PROFILERS = ("nv-hostengine", "dcgm-exporter", "nsys", "ncu", "nvprof", "rocprof")
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def build(binaries: Path, root: Path) -> Finding:
    program = binaries / "optimizer_step"
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return stop("build", f"{program} does not run ({error})", "build it: ./bench.sh --quick")
    version = said.stdout.strip()
    found = re.search(r"\(commit (\w+)(, dirty)?, (\w+)\)", version)
    if said.returncode != 0 or not found:
        return stop("build", f"{program} --version says: {version or said.stderr.strip()}", "build")
    if found[3] != "Release":
        return stop("build", f"{version}", "measure a Release build: ./bench.sh builds one")
    head = head_commit(root)
    if head and not head.startswith(found[1]):
        return warning(
            "build", f"{version}, the checkout is at {head[:12]}", "build again: ./bench.sh"
        )
    return ok("build", version)


def packages(site_packages: Path, pins: dict[str, str], names: Sequence[str]) -> list[Finding]:
    """A line for each of `names`; one that nothing pins is right in every version."""
    findings = []
    for name in names:
        folders = list(site_packages.glob(f"{name.replace('-', '_')}-*.dist-info"))
        have = folders[0].name.removesuffix(".dist-info").partition("-")[2] if folders else ""
        want = pins.get(name, "")
        if not have:
            findings.append(stop(name, "is not installed", "run ./bench.sh --quick once"))
        elif want and have.partition("+")[0] != want:
            advice = "say so beside the figures, or run cmake/setup.sh"
            findings.append(warning(name, f"{have}, the project pins {want}", advice))
        else:
            findings.append(ok(name, have))
    return findings


def pinned(pyproject: Path) -> dict[str, str]:
    """Name and version of everything that pyproject.toml pins."""
    return dict(re.findall(r'"([A-Za-z0-9_.-]+)==([^";]+)', pyproject.read_text("utf-8")))


def cores(ranks: int, may_share: bool = False) -> Finding:
    have = len(os.sched_getaffinity(0))
    if have < ranks and may_share:
        return warning(
            "cores",
            f"{have} for {ranks} ranks of this node",
            "asked for (--oversubscribed): ranks that share one measure each other",
        )
    if have < ranks:
        return stop(
            "cores",
            f"{have} for {ranks} ranks of this node",
            "ask for a core a rank at least: ranks that share one measure each other",
        )
    return ok("cores", f"{have} for {ranks} ranks of this node")


def load(average: float, cores_usable: int) -> Finding:
    """`average` over a minute, this program's own start included."""
    if average > max(1.0, 0.5 * cores_usable):
        return warning(
            "load",
            f"{average:.1f} on {cores_usable} cores",
            "other work runs here: its share is in every figure",
        )
    return ok("load", f"{average:.1f} on {cores_usable} cores")


def governor(sys_folder: Path = Path("/sys/devices/system/cpu")) -> Finding:
    names = {
        path.read_text().strip() for path in sys_folder.glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    if not names:
        return ok("governor", "the kernel shows none (a virtual machine, or fixed clocks)")
    if names != {"performance"}:
        return warning(
            "governor", ", ".join(sorted(names)), "cpupower frequency-set -g performance"
        )
    return ok("governor", "performance")


def disk(folder: Path) -> Finding:
    while not folder.exists():
        folder = folder.parent
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        return stop("disk", f"{folder}: {error.strerror}", "choose another --out")
    free = facts.f_bavail * facts.f_frsize
    found = f"{mebibytes(free)} free at {folder}"
    if not os.access(folder, os.W_OK):
        return stop("disk", f"{folder} is not writable", "choose another --out")
    if free < DISK_STOP or (facts.f_files and facts.f_favail < 1000):
        return stop("disk", f"{found}, {facts.f_favail} files", "choose another --out")
    if free < DISK_WARNING:
        return warning("disk", found, "traces of a large model may not fit")
    return ok("disk", found)


def profilers(commands: Iterable[str], environment: dict[str, str]) -> Finding:
    """`commands`: the names of the processes of this node."""
    holders = sorted(set(commands) & set(PROFILERS))
    injected = [f"{name}={environment[name]}" for name in INJECTIONS if environment.get(name)]
    if holders:
        return warning(
            "profilers",
            f"{', '.join(holders)} run here",
            "they hold CUPTI: traces will be empty; pause them (dcgmi profile --pause)",
        )
    if injected:
        return warning("profilers", ", ".join(injected), "every CUDA call goes through it: unset")
    return ok("profilers", "none")


def running_commands() -> list[str]:
    names = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:  # ended meanwhile
            continue
    return names
