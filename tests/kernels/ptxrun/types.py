"""PTX types as NumPy types, and the values of immediate operands."""

from __future__ import annotations

import re

import numpy as np

UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

# bf16 and the packed pairs are kept as bits.
NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": np.uint16,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "pred": np.bool_,
}
for _bits in UNSIGNED:
    NUMPY[f"u{_bits}"] = NUMPY[f"b{_bits}"] = UNSIGNED[_bits]
    NUMPY[f"s{_bits}"] = SIGNED[_bits]


def size_of(ptx_type: str) -> int:
    """Bytes of a value."""
    return np.dtype(NUMPY[ptx_type]).itemsize


def bits_of(ptx_type: str) -> int:
    return 8 * size_of(ptx_type)


def is_float(ptx_type: str) -> bool:
    return ptx_type.startswith(("f", "bf"))


def immediate(text: str, ptx_type: str) -> np.ndarray:
    """The constant `text`, as an array of one value of the type."""
    kind = NUMPY[ptx_type]
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        value = np.array([int(text[2:], 16)], np.uint32).view(np.float32)
        if ptx_type == "f64":
            return value.astype(np.float64)
        return value if ptx_type == "f32" else value.view(np.uint32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        value = np.array([int(text[2:], 16)], np.uint64).view(np.float64)
        if ptx_type == "f32":
            return value.astype(np.float32)
        return value if ptx_type == "f64" else value.view(np.uint64)
    digits = text.lstrip("-").rstrip("U")
    if digits[:2] in ("0x", "0X"):
        number = int(digits, 16)
    elif len(digits) > 1 and digits[0] == "0":
        number = int(digits, 8)
    else:
        number = int(digits)
    if text.startswith("-"):
        number = -number
    if ptx_type in ("f32", "f64", "f16"):
        return np.array([number], kind)
    if ptx_type == "pred":
        return np.array([number != 0])
    bits = bits_of(ptx_type)
    return np.array([number & ((1 << bits) - 1)], np.uint64).astype(UNSIGNED[bits]).view(kind)
