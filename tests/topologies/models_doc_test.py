"""docs/models.md: its lines of Python work, and the programs say what it says they say."""

import json
import os
import re
import struct
from pathlib import Path

import pytest
import torch

from tests.topologies.dump import dump, error

DOC = Path(__file__).parents[2] / "docs/models.md"
DATA = Path(__file__).parent.parent / "data/models"


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 8)
        self.norm = torch.nn.LayerNorm(8, dtype=torch.bfloat16)
        self.head = torch.nn.Linear(8, 5, bias=False)
        self.head.weight = self.embed.weight
        self.norm.bias.requires_grad_(False)


def test_the_lines_of_python_describe_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.S)
    exec(code, {"model": Small()})
    model = dump(tmp_path / "mine.json")
    assert model["numel"] == 5 * 8 + 8 + 8
    assert model["parameters"] == [
        {"name": n, "shape": s, "dtype": d, "is_stepped": stepped, "tied_to": tie}
        for n, s, d, stepped, tie in [
            ("embed.weight", [5, 8], "fp32", True, ""),
            ("norm.weight", [8], "bf16", True, ""),
            ("norm.bias", [8], "bf16", False, ""),
            ("head.weight", [5, 8], "fp32", False, "embed.weight"),
        ]
    ]


def test_presets_are_as_listed() -> None:
    rows = re.findall(r"^\| `(\S+)` \| ([\d,]+) \| ([\d,]+)", DOC.read_text(), re.M)
    assert len(rows) == 4
    for name, numel, tensors in rows:
        model = dump(name)
        assert model["numel"] == int(numel.replace(",", ""))
        assert len(model["parameters"]) == int(tensors.replace(",", ""))


def refusals(folder: Path) -> list[str]:
    """The lines of error for one bad input of every kind in the table, in its order."""

    def parameters(*entries: dict) -> Path:
        path = folder / "m.json"
        path.write_text(json.dumps(entries))
        return path

    def tensors(header: str, data: int) -> Path:
        path = folder / "m.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(data))
        return path

    pipe = folder / "pipe.json"
    os.mkfifo(pipe)
    text = folder / "text.safetensors"
    text.write_bytes(b"\x05\0\0\0\0\0\0\0abc")
    w = {"name": "w", "shape": [2]}
    wide = {"name": "w", "shape": [2**62, 4]}
    embed = {"name": "embed.weight", "shape": [5, 8]}
    f64 = '{"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}'
    f32 = '{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    twice = f32[:-1] + ", " + f32[1:]
    return [
        error("GPT2"),
        error(folder / "none.json"),
        error(pipe),
        error(DATA / "scalar.json", "fsdp2", 2),
        error("tiny", "single", 2),
        error(parameters(w | {"tied_to": "embed"})),
        error(parameters(embed, w | {"tied_to": "embed.weight"})),
        error(parameters(w, w)),
        error(parameters(w | {"require_grad": False})),
        error(parameters(w | {"shape": [-1]})),
        error(parameters(wide)),
        error(parameters()),
        error(tensors(f64, 8)),
        error(tensors(f32, 7)),
        error(text),
        error(tensors(twice, 8)),
    ]


def test_refusals_are_worded_as_listed(tmp_path: Path) -> None:
    table = DOC.read_text().split("## What is refused")[1]
    listed = re.findall(r"^\| `(.+?)` \|", table, re.M)
    said = refusals(tmp_path)
    assert len(said) == len(listed)
    for line, expected in zip(said, listed, strict=True):
        assert line.endswith(expected), line
