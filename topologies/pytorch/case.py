"""One measured case: an optimizer's class on a topology, through an adapter."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import torch

from topologies.pytorch.adapters import ADAPTERS
from topologies.pytorch.package_files import require_distribution
from topologies.pytorch.ranks import CannotRun, one_line
from topologies.pytorch.sharded_model import Sharding

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The optimizers that the suite has itself, by the classes that PyTorch users take.
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW8bit": ("bitsandbytes.optim:AdamW8bit", {}),
    "Lion8bit": ("bitsandbytes.optim:Lion8bit", {}),
    "AdamW": ("torch.optim:AdamW", {"fused": True}),
}
# Other packages with 8-bit optimizers, by their distributions: the module of the fork has the name
# bitsandbytes, too. Neither is installed beside the project's own: see cmake/peers.sh.
PEERS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "torchao": {"AdamW8bit": ("torchao.optim:AdamW8bit", {"block_size": 256})},
    "bitsandbytes-cpu-fork": {name: CLASSES[name] for name in ("AdamW8bit", "Lion8bit")},
}
# The adapter that gives a state policy its meaning with bitsandbytes. A case with another adapter
# says so in its name, which is therefore no other row's.
USUAL_ADAPTERS = {
    "local": "none",
    "global": "local-shards",
    "original": "original-parameters",
}


@dataclass(frozen=True)
class Case:
    optimizer_class: str  # module:Class
    arguments: dict[str, Any] = field(hash=False)
    adapter: str
    sharding: Sharding
    dtype: str
    # Of an optimizer without 8-bit state it means nothing; rows beside native ones take theirs.
    given_policy: str | None = None
    peer: str | None = None  # one of PEERS, from which the class has to come

    @property
    def package(self) -> str:
        """What is imported; two distributions may have the same."""
        return self.optimizer_class.split(".")[0].split(":")[0]

    @property
    def subject(self) -> str:
        return self.peer or self.package

    @property
    def shows_findings(self) -> bool:
        """Whether a failure says something about what is measured, not about the suite."""
        return self.adapter == "none" or self.peer is not None

    @property
    def optimizer(self) -> str:
        return self.optimizer_class.rsplit(":", 1)[1]

    @property
    def asks_8bit(self) -> bool:
        return "8bit" in self.optimizer

    @property
    def state_policy(self) -> str:
        """By the size that decides on 8-bit state: see docs/topologies.md."""
        if self.given_policy:
            return self.given_policy
        if self.adapter == "original-parameters":
            return "original"
        if self.package == "torchao":
            return "local"  # it looks at the local tensor, of a DTensor too
        # A DTensor's size is the global one, a flat parameter's the local one.
        return "global" if self.sharding.topology == "fsdp2" else "local"

    def benchmark_name(self, model: str) -> str:
        parts = [
            "OptimizerStep",
            self.subject,
            self.optimizer,
            self.sharding.topology,
            self.state_policy,
            self.dtype,
            model,
        ]
        usual = USUAL_ADAPTERS[self.state_policy] if self.package == "bitsandbytes" else None
        if self.adapter != usual:
            parts.append(f"adapter:{self.adapter}")
        return "/".join(parts)

    @property
    def wrapping(self) -> str | None:
        """The column of that name."""
        if self.sharding.topology != "fsdp1":
            return None
        suffix = ", use_orig_params" if self.sharding.use_orig_params else ""
        return self.sharding.wrapping + suffix

    def stock_class(self) -> type:
        """The optimizer's class. Raises CannotRun."""
        module_name, _, class_name = self.optimizer_class.partition(":")
        if self.peer:
            require_distribution(self.package, self.peer)
        try:
            found = importlib.import_module(module_name)
            for part in class_name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise CannotRun(
                f"--optimizer-class {self.optimizer_class}: {one_line(error)};"
                " give module:Class of an installed package"
            ) from None
        if not isinstance(found, type):
            raise CannotRun(f"--optimizer-class {self.optimizer_class}: is no class")
        return found

    def used_class(self) -> type:
        """The class that steps the sharded parameters. Raises CannotRun or Unsupported."""
        return ADAPTERS[self.adapter](self.stock_class())


def default_adapter(optimizer_class: str, topology: str) -> str:
    bitsandbytes = optimizer_class.startswith("bitsandbytes")
    return "local-shards" if bitsandbytes and topology == "fsdp2" else "none"
