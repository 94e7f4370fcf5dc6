"""The header reader against the safetensors library."""

import json
import random
import struct
from pathlib import Path

import pytest
import torch

from tests.topologies.dump import dump, error, run

safetensors = pytest.importorskip("safetensors", reason="the package safetensors is not installed")
safetensors_torch = pytest.importorskip("safetensors.torch")

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def write(path: Path, header: bytes, data: bytes) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def test_a_file_of_the_library_is_read_whole(tmp_path: Path) -> None:
    tensors = {
        "weight": torch.zeros(3, 4, 5),
        "half": torch.zeros(7, dtype=torch.float16),
        "brain": torch.zeros(2, 9, dtype=torch.bfloat16),
        "scalar": torch.zeros(()),
        "empty": torch.zeros(0, 4),
        'naïve, "quoted"': torch.zeros(1),
        "ids": torch.arange(6),
        "mask": torch.ones(3, dtype=torch.bool),
        "bytes": torch.zeros(2, dtype=torch.uint8),
    }
    path = tmp_path / "mixed.safetensors"
    safetensors_torch.save_file(tensors, path, metadata={"format": "pt"})
    model = dump(path)
    assert model["name"] == "mixed"
    assert sorted(model["skipped"]) == ["bytes", "ids", "mask"]
    found = {p["name"]: (tuple(p["shape"]), DTYPES[p["dtype"]]) for p in model["parameters"]}
    assert found == {
        name: (tuple(t.shape), t.dtype)
        for name, t in tensors.items()
        if name not in model["skipped"]
    }


@pytest.mark.parametrize("dtype", ["float64", "complex64", "float8_e4m3fn", "float8_e5m2"])
def test_a_type_that_no_kernel_steps_is_refused_by_name(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "wide.safetensors"
    safetensors_torch.save_file({"w": torch.zeros(4).to(getattr(torch, dtype))}, path)
    assert f"{path}: parameter w: its data type" in error(path)
    assert error(path).endswith("convert it to F32, BF16 or F16, or leave it out")


def library_accepts(path: Path) -> bool:
    try:
        with safetensors.safe_open(path, "pt") as file:
            file.keys()
    except (safetensors.SafetensorError, OSError):
        return False
    return True


# What the suite refuses although the library takes it, each for a stated reason.
STRICTER = (
    "occurs twice in one object",  # the library takes the last of the two
    "cannot be shown",
    "has an empty name",
    "cannot be stepped",
    "has no parameters",
    "its entry is not",  # the library ignores keys it does not know
)


def test_what_the_library_refuses_is_refused(tmp_path: Path) -> None:
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "z": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "a": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [24, 28]},
            "ids": {"dtype": "I64", "shape": [2], "data_offsets": [28, 44]},
            "none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [44, 44]},
        }
    ).encode()
    chance = random.Random(7)
    both_accept = both_refuse = 0
    for _ in range(250):
        text = bytearray(header)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(text))
            if chance.random() < 0.1:
                del text[at]
            elif chance.random() < 0.7:
                text[at] = chance.choice(b'0123456789[]{}",:-. eE\\')
            else:
                text[at] = chance.randrange(256)
        path = write(tmp_path / "damaged.safetensors", bytes(text), bytes(44))
        done = run(path)
        assert done.returncode in (0, 2), (bytes(text), done.stderr)
        if library_accepts(path):
            stricter = any(reason in done.stderr for reason in STRICTER)
            assert done.returncode == 0 or stricter, (bytes(text), done.stderr)
            both_accept += done.returncode == 0
        else:
            assert done.returncode == 2, bytes(text)
            both_refuse += 1
    assert both_accept > 5
    assert both_refuse > 100
