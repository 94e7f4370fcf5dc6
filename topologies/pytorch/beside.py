"""The cases of a native run, on PyTorch FSDP: what is measured beside each other is the same model,
topology, data type, policy, steps and threads, and the table shows them together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.run_folder import RunFolder, RunFolderError, read_run_folder
from topologies.pytorch.case import CLASSES, PEERS, USUAL_ADAPTERS, Case
from topologies.pytorch.ranks import CannotRun
from topologies.pytorch.sharded_model import WRAPPINGS, Sharding


@dataclass(frozen=True)
class Beside:
    model: str  # as it was given
    cases: list[Case]
    steps: int
    threads: int
    left_out: list[str]  # what has no counterpart on PyTorch FSDP
    # (topology, dtype) -> rank -> state bytes of FP32 AdamW
    fp32_adamw: dict[tuple[str, str], dict[int, int]]


def beside(path: Path, peer: str | None = None) -> Beside:
    """What to measure beside the run folder at `path`; of the package `peer` (one of PEERS), where
    it is given. Raises CannotRun."""
    try:
        run = read_run_folder(path)
    except RunFolderError as error:
        raise CannotRun(str(error)) from None
    try:
        return _beside(run, peer)
    except (KeyError, TypeError) as error:
        raise CannotRun(f"{path}: lacks {error}; give a run of build/bin/optimizer_step") from None


def _beside(run: RunFolder, peer: str | None) -> Beside:
    cases: list[Case] = []
    left_out: list[str] = []
    fp32_adamw: dict[tuple[str, str], dict[int, int]] = {}
    # Those of the suite: rows of PyTorch FSDP may have joined them.
    own = [row for row in run.results if row.get("adapter") is None]
    for row in own:
        if row["optimizer"] == "AdamW" and row["state_bytes"] is not None:
            by_rank = fp32_adamw.setdefault((row["topology"], row["dtype"]), {})
            by_rank[row["rank"]] = row["state_bytes"]
        if row["rank"] != 0 or row["repetition"] != 0:
            continue
        found = _counterparts(run.manifest, row, peer)
        cases += [case for case in found if case not in cases]
        if not found and not peer:  # none has all optimizers
            left_out.append(row["benchmark"])
    measured = [row for row in own if row["steps"]]
    return Beside(
        model=run.manifest["model"]["given"],
        cases=cases,
        steps=max((row["steps"] for row in measured), default=1),
        threads=max((row["threads"] for row in own), default=1),
        left_out=left_out,
        fp32_adamw=fp32_adamw,
    )


def _counterparts(manifest: dict[str, Any], row: dict[str, Any], peer: str | None) -> list[Case]:
    """The real optimizer of a native row, with the adapter of its state policy; where that is not
    what users get without an adapter, also without one, but for a peer."""
    topology, policy = row["topology"], row["state_policy"]
    classes = PEERS[peer] if peer else CLASSES
    if row["optimizer"] not in classes or topology not in ("fsdp2", "fsdp1"):
        return []
    wrapping = row["wrapping"] or "per-module"
    if topology == "fsdp1" and wrapping not in WRAPPINGS:
        return []
    sharding = Sharding(topology, wrapping) if topology == "fsdp1" else Sharding(topology)
    optimizer_class, arguments = classes[row["optimizer"]]
    arguments = {**arguments, "lr": row["learning_rate"]}
    if manifest["weight_decay"] is not None:
        arguments["weight_decay"] = manifest["weight_decay"]
    if optimizer_class.startswith("torchao"):
        return [Case(optimizer_class, arguments, "none", sharding, row["dtype"], peer=peer)]
    if not optimizer_class.startswith("bitsandbytes"):
        return [Case(optimizer_class, arguments, "none", sharding, row["dtype"], policy)]
    arguments["min_8bit_size"] = manifest["min_8bit_size"]
    adapters = {
        ("fsdp2", "global"): [USUAL_ADAPTERS["global"], "none"],
        ("fsdp2", "original"): [USUAL_ADAPTERS["original"]],
        ("fsdp1", "local"): [USUAL_ADAPTERS["local"]],
        ("fsdp1", "original"): [USUAL_ADAPTERS["original"]],
    }.get((topology, policy), [])
    if peer:
        adapters = adapters[:1]
    return [
        Case(optimizer_class, arguments, one, sharding, row["dtype"], peer=peer) for one in adapters
    ]
