"""What the node's GPUs are asked before a run, in nvidia-smi's words.

Not seen on a GPU: the words are those of NVIDIA's documentation, and tests put them in.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from bench.preflight_checks.finding import Finding, mebibytes, ok, stop, warning

SECONDS = 30
FIELDS = (
    "index",
    "uuid",
    "name",
    "compute_cap",
    "driver_version",
    "persistence_mode",
    "mig.mode.current",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
    "clocks_throttle_reasons.active",
    "ecc.errors.uncorrected.volatile.total",
)
# The suite is compiled for these, as sm_NN.
TARGETS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0")
# CUDA 13 needs this driver (its release notes).
OLDEST_DRIVER = 580
# Bits of NVML's throttle reasons that slow a busy GPU down; 0x1 is an idle one.
THROTTLE = {
    0x4: "a power cap",
    0x8: "a hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power brake",
}
BUSY_PERCENT = 5
BUSY_BYTES = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One row of nvidia-smi; a field that it does not know is empty."""

    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.fields[name]

    def number(self, name: str) -> int | None:
        found = re.match(r"-?\d+", self.fields[name])
        return int(found[0]) if found else None

    @property
    def label(self) -> str:
        return f"GPU {self['index']}"


def query() -> list[Gpu] | None:
    """The GPUs of this node; nothing where there is no nvidia-smi or it fails. A field that this
    driver does not know, as they get other names over the years, is left empty."""
    known = list(FIELDS)
    while known:
        command = ["nvidia-smi", f"--query-gpu={','.join(known)}", "--format=csv,noheader,nounits"]
        try:
            said = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if said.returncode == 0:
            return parse(said.stdout, known)
        unknown = re.search(r'Field "([^"]+)" is not a valid field', said.stdout + said.stderr)
        if not unknown or unknown[1] not in known:
            return None
        known.remove(unknown[1])
    return None


def parse(text: str, fields: Sequence[str] = FIELDS) -> list[Gpu]:
    gpus = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) == len(fields):
            cells = ["" if "N/A" in cell or "Not Supported" in cell else cell for cell in row]
            gpus.append(Gpu(dict.fromkeys(FIELDS, "") | dict(zip(fields, cells, strict=True))))
    return gpus


def check(
    gpus: list[Gpu] | None, ranks: int, capability: str | None, may_share: bool = False
) -> list[Finding]:
    """`ranks` of this node want a GPU each, unless they `may_share`; `capability`: what the
    allocation promised."""
    if not gpus:
        return [stop("gpus", "nvidia-smi shows none", "ask for a node with GPUs, or --device cpu")]
    found = ", ".join(f"{gpu['name']} ({gpu['uuid']})" for gpu in gpus)
    findings = []
    if len(gpus) < ranks and may_share:
        advice = "asked for (--oversubscribed): ranks that share one measure each other"
        findings.append(warning("gpus", f"{len(gpus)} for {ranks} ranks: {found}", advice))
    elif len(gpus) < ranks:
        findings.append(stop("gpus", f"{len(gpus)} for {ranks} ranks: {found}", "one GPU a rank"))
    else:
        findings.append(ok("gpus", f"{len(gpus)} for {ranks} ranks: {found}"))
    for gpu in gpus:
        findings += _one(gpu, capability)
    return findings


def _one(gpu: Gpu, capability: str | None) -> list[Finding]:
    findings = [_capability(gpu, capability), _driver(gpu), _idle(gpu), _clocks(gpu)]
    findings += [_mig(gpu), _persistence(gpu)]
    if gpu.number("ecc.errors.uncorrected.volatile.total"):
        findings.append(stop("memory errors", f"{gpu.label} has uncorrected ones", "another node"))
    return findings


def _mig(gpu: Gpu) -> Finding:
    if gpu["mig.mode.current"] == "Enabled":
        advice = "a slice is no GPU: its figures compare with nothing else"
        return warning("mig", f"{gpu.label} is in MIG mode", advice)
    return ok("mig", f"{gpu.label}: {gpu['mig.mode.current'].lower() or 'not there'}")


def _persistence(gpu: Gpu) -> Finding:
    mode = gpu["persistence_mode"]
    if mode == "Disabled":
        advice = "the first step pays for waking it: nvidia-smi -pm 1, or more warm-up"
        return warning("persistence", f"{gpu.label} is not kept awake", advice)
    if not mode:
        return warning("persistence", f"{gpu.label}: unknown", "nvidia-smi -q shows it")
    return ok("persistence", f"{gpu.label}: {mode.lower()}")


def _capability(gpu: Gpu, wanted: str | None) -> Finding:
    have = gpu["compute_cap"]
    if wanted and have != wanted:
        return stop("capability", f"{gpu.label}: {have}, not {wanted}", "ask for the other GPU")
    if have not in TARGETS:
        advice = f"built for {', '.join(TARGETS)}: add the target to CMAKE_CUDA_ARCHITECTURES"
        return stop("capability", f"{gpu.label}: {have}", advice)
    return ok("capability", f"{gpu.label}: {have}")


def _driver(gpu: Gpu) -> Finding:
    version = gpu["driver_version"]
    major = gpu.number("driver_version")
    if major is None:
        return warning("driver", f"{gpu.label}: {version or 'unknown'}", "CUDA 13 needs 580")
    if major < OLDEST_DRIVER:
        return stop("driver", f"{gpu.label}: {version}", f"CUDA 13 needs {OLDEST_DRIVER} or later")
    return ok("driver", f"{gpu.label}: {version}")


def _idle(gpu: Gpu) -> Finding:
    used = (gpu.number("memory.used") or 0) << 20
    busy = gpu.number("utilization.gpu")
    found = f"{gpu.label}: {busy if busy is not None else '?'} % busy, {mebibytes(used)} in use"
    if (busy or 0) > BUSY_PERCENT or used > BUSY_BYTES:
        return stop("idle", found, "somebody else uses it: nvidia-smi shows who")
    return ok("idle", found)


def _clocks(gpu: Gpu) -> Finding:
    found = f"{gpu.label}: {gpu['clocks.sm']} of {gpu['clocks.max.sm']} MHz"
    try:
        mask = int(gpu["clocks_throttle_reasons.active"], 16)
    except ValueError:
        return warning(
            "clocks", f"{found}, throttle reasons unknown", "watch nvidia-smi -q -d CLOCK"
        )
    reasons = [name for bit, name in THROTTLE.items() if mask & bit]
    if reasons:
        return warning("clocks", f"{found}, slowed by {', '.join(reasons)}", "wait, or note it")
    return ok("clocks", found)
