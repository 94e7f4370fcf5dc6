"""Integer and bit operations on NumPy arrays, as PTX defines them.

OPERATIONS maps an opcode to a function of (modifiers, type, look-up table of lop3) that gives the
operation on arrays.
"""

from __future__ import annotations

import numpy as np

from ptxrun.types import SIGNED, UNSIGNED, bits_of


def operand_types(name: str, kind: str) -> list[str]:
    """Types of the sources: positions, lengths and selectors are u32 whatever the type."""
    return {
        "shl": [kind, "u32"],
        "shr": [kind, "u32"],
        "bfe": [kind, "u32", "u32"],
        "bfi": [kind, kind, "u32", "u32"],
        "prmt": [kind, "u32", "u32"],
        "shf": [kind, "u32", "u32"],
        "lop3": [kind, "u32", "u32"],
    }.get(name, [kind, kind])


# -- integers


def multiply_wide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product in twice the bits (at most 64)."""
    wide = (SIGNED if a.dtype.kind == "i" else UNSIGNED)[min(64, 16 * a.dtype.itemsize)]
    return a.astype(wide) * b.astype(wide)


def multiply_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of the product."""
    if a.dtype.itemsize < 8:
        product = multiply_wide(a, b)
        return (product >> product.dtype.type(8 * a.dtype.itemsize)).astype(a.dtype)
    high = [((int(x) * int(y)) >> 64) & ((1 << 64) - 1) for x, y in np.broadcast(a, b)]
    return np.array(high, np.uint64).view(a.dtype)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero; by zero, all bits are set."""
    dtype = a.dtype
    divisor = np.where(b == 0, 1, b).astype(dtype)
    quotient = a // divisor
    if dtype.kind == "u":
        return np.where(b == 0, dtype.type(np.iinfo(dtype).max), quotient)
    towards_zero = quotient + ((a % divisor != 0) & ((a < 0) != (divisor < 0)))
    return np.where(b == 0, -1, towards_zero).astype(dtype)


# -- bits


def _bitwise(function):
    return lambda op, kind, table: function


def _is_zero(op, kind, table):
    unsigned = UNSIGNED[bits_of(kind)]
    return lambda a: (a == 0).astype(unsigned)


def _shift_left(op, kind, table):
    width = bits_of(kind)

    def run(a, by):
        kept = a << np.where(by >= width, 0, by).astype(a.dtype)
        return np.where(by >= width, a.dtype.type(0), kept).astype(a.dtype)

    return run


def _shift_right(op, kind, table):
    width = bits_of(kind)

    def run(a, by):
        kept = a >> np.where(by >= width, 0, by).astype(a.dtype)
        filled = a >> a.dtype.type(width - 1) if a.dtype.kind == "i" else a.dtype.type(0)
        return np.where(by >= width, filled, kept).astype(a.dtype)

    return run


def _count_ones(op, kind, table):
    return lambda a: np.array([int(x).bit_count() for x in np.atleast_1d(a)], np.uint32)


def highest_bit(a: np.ndarray) -> np.ndarray:
    """Position of the highest set bit (of the highest that is not the sign), -1 for none."""
    if a.dtype.kind == "i":
        a = np.where(a < 0, ~a, a).view(UNSIGNED[8 * a.dtype.itemsize])
    rest, position = a.astype(np.uint64), np.zeros(a.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        above = (rest >> np.uint64(step)) != 0
        position += np.where(above, step, 0)
        rest = np.where(above, rest >> np.uint64(step), rest)
    return np.where(a == 0, -1, position)


def _leading_zeros(op, kind, table):
    width = bits_of(kind)
    return lambda a: (width - 1 - highest_bit(a)).astype(np.int32)


def _find_highest(op, kind, table):
    width, as_shift = bits_of(kind), "shiftamt" in op

    def run(a):
        position = highest_bit(a)
        if as_shift:
            position = np.where(position < 0, -1, width - 1 - position)
        return position.astype(np.int32)

    return run


def _reverse(op, kind, table):
    width = bits_of(kind)

    def run(a):
        reversed_bits = [int(f"{int(x):0{width}b}"[::-1], 2) for x in np.atleast_1d(a)]
        return np.array(reversed_bits, UNSIGNED[width])

    return run


def _look_up(op, kind, table):
    def run(a, b, c):
        result = np.uint32(0)
        for i in range(8):
            if table >> i & 1:
                result = result | (
                    (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
                )
        return np.asarray(result, np.uint32)

    return run


def _pair(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def _permute_bytes(op, kind, table):
    def run(a, b, selector):
        source, selector = _pair(a, b), selector.astype(np.uint64)
        result = np.uint64(0)
        for i in range(4):
            choice = (selector >> np.uint64(4 * i)) & np.uint64(15)
            byte = (source >> ((choice & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            byte = np.where(choice & np.uint64(8), sign, byte)
            result = result | (byte << np.uint64(8 * i))
        return result.astype(np.uint32)

    return run


def _funnel_shift(op, kind, table):
    left, wrap = "l" in op, "wrap" in op

    def run(a, b, by):
        by = by.astype(np.uint64)
        by = by & np.uint64(31) if wrap else np.minimum(by, np.uint64(32))
        pair = _pair(a, b)
        return ((pair << by) >> np.uint64(32) if left else pair >> by).astype(np.uint32)

    return run


def _extract_field(op, kind, table):
    width, signed = bits_of(kind), kind.startswith("s")

    def one(value, position, length):
        value, position, length = int(value), int(position) & 255, int(length) & 255
        value &= (1 << width) - 1
        field = (value >> position) & ((1 << length) - 1)
        if not signed or not length:
            return field
        sign = (value >> min(position + length - 1, width - 1)) & 1
        present = max(0, min(length, width - position))
        return field | (((1 << width) - (1 << present)) if sign else 0)

    of_objects = np.frompyfunc(one, 3, 1)
    return lambda a, b, c: of_objects(a, b, c).astype(np.uint64).astype(UNSIGNED[width])


def _insert_field(op, kind, table):
    width = bits_of(kind)
    one, most = np.uint64(1), np.uint64(63)

    def run(a, into, position, length):
        position = position.astype(np.uint64) & np.uint64(255)
        length = length.astype(np.uint64) & np.uint64(255)
        mask = np.where(length >= 64, ~np.uint64(0), (one << np.minimum(length, most)) - one)
        shift = np.minimum(position, most)
        mask = np.where(position >= width, np.uint64(0), mask << shift)
        kept = into.astype(np.uint64) & ~mask
        return (kept | ((a.astype(np.uint64) << shift) & mask)).astype(UNSIGNED[width])

    return run


OPERATIONS = {
    "and": _bitwise(np.bitwise_and),
    "or": _bitwise(np.bitwise_or),
    "xor": _bitwise(np.bitwise_xor),
    "not": _bitwise(np.invert),
    "cnot": _is_zero,
    "shl": _shift_left,
    "shr": _shift_right,
    "popc": _count_ones,
    "clz": _leading_zeros,
    "bfind": _find_highest,
    "brev": _reverse,
    "lop3": _look_up,
    "prmt": _permute_bytes,
    "shf": _funnel_shift,
    "bfe": _extract_field,
    "bfi": _insert_field,
}
