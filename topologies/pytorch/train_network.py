"""The language model of build/bin/train_step as a PyTorch module: a transformer over bytes with the
same parameters, in name, order, shape and value (bench/train_network.h)."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch.nn import functional

BYTES, CONTEXT, HEAD_WIDTH = 256, 64, 16
SEED = 20_260_101


class Attention(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequences, places, width = x.shape
        heads = width // HEAD_WIDTH
        qkv = self.qkv(x).view(sequences, places, 3, heads, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        h = functional.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
        return self.out(h.transpose(1, 2).reshape(x.shape))


class Mlp(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class Block(torch.nn.Module):
    """A unit of FSDP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(width)
        self.attention = Attention(width)
        self.norm2 = torch.nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.attention(self.norm1(x))
        return y + self.mlp(self.norm2(y))


class ByteTransformer(torch.nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(BYTES, width)
        self.position = torch.nn.Embedding(CONTEXT, width)
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, BYTES, bias=False)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.fill()

    @torch.no_grad()
    def fill(self) -> None:
        """The values that training starts from: norms 1 and 0, the rest with deviation 0.02."""
        for index, (name, parameter) in enumerate(self.named_parameters()):
            if parameter.dim() == 1:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
            else:
                generator = torch.Generator().manual_seed(SEED + index)
                parameter.normal_(0, 0.02, generator=generator)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy in nats a byte of `targets` [sequences, places]."""
        x = self.embed(inputs) + self.position(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.view(-1, BYTES), targets.reshape(-1))


def parameters_of(width: int, layers: int) -> dict[str, torch.Size]:
    """Shapes by name, in order."""
    with torch.device("meta"):
        network = ByteTransformer(width, layers)
    return {name: parameter.shape for name, parameter in network.named_parameters()}


def numel_of(width: int, layers: int) -> dict[str, int]:
    return {name: shape.numel() for name, shape in parameters_of(width, layers).items()}


def describe_network(width: int, layers: int, folder: Path) -> tuple[Path, Path]:
    """Writes the network and its units as plan_state takes them: --model and --wrap."""
    parameters = parameters_of(width, layers)
    model, units = folder / "network.json", folder / "units.json"
    listed = [{"name": name, "shape": list(shape)} for name, shape in parameters.items()]
    model.write_text(json.dumps(listed) + "\n")
    root = [name for name in parameters if not name.startswith("blocks.")]
    blocks = [[f"blocks.{number}"] for number in range(layers)]
    units.write_text(json.dumps([root, *blocks]) + "\n")
    return model, units
