"""Floating-point operations with one rounding, as the device makes them.

Sums and products of float32 are formed in float64, rounded to odd where inexact, and then rounded
to the wanted format: that gives the correctly rounded result, because float64 has more than twice
the digits.
"""

from __future__ import annotations

import ctypes

import numpy as np

from ptxrun.errors import Unsupported

CANONICAL_NAN = np.uint32(0x7FFFFFFF).view(np.float32)

_libm_fma = ctypes.CDLL("libm.so.6").fma
_libm_fma.restype = ctypes.c_double
_libm_fma.argtypes = [ctypes.c_double] * 3
_fma_of_objects = np.frompyfunc(lambda a, b, c: _libm_fma(a, b, c), 3, 1)


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c in float64 with one rounding."""
    return np.asarray(_fma_of_objects(a, b, c)).astype(np.float64)


def add_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64, an inexact result moved to the neighbour with an odd last bit."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)  # exact (Knuth's two-sum)
    bits = total.view(np.uint64).copy()
    inexact = (error != 0) & np.isfinite(total) & ((bits & np.uint64(1)) == 0)
    if inexact.any():
        outwards = (error > 0) == (total > 0)
        moved = np.where(outwards, bits + np.uint64(1), bits - np.uint64(1))
        bits = np.where(inexact, moved, bits)
        cancelled = inexact & (total == 0)
        if cancelled.any():
            bits = np.where(cancelled, error.view(np.uint64), bits)
    return bits.view(np.float64)


def round_f64(values, ptx_type: str, mode: str = "rn") -> np.ndarray:
    """float64 values rounded once to a type; bf16 comes back as its bits."""
    values = np.asarray(values, np.float64)
    if ptx_type == "f64":
        return values
    if ptx_type == "f16":
        if mode != "rn":
            raise Unsupported("f16 rounding " + mode)
        return values.astype(np.float16)
    if ptx_type == "bf16":
        return _round_to_bf16(values, mode)
    nearest = values.astype(np.float32)
    if mode == "rn":
        return nearest
    back, infinity = nearest.astype(np.float64), np.float32(np.inf)
    if mode == "rz":
        towards_zero = np.nextafter(nearest, np.float32(0))
        return np.where(np.abs(back) > np.abs(values), towards_zero, nearest)
    if mode == "rm":
        return np.where(back > values, np.nextafter(nearest, -infinity), nearest)
    if mode == "rp":
        return np.where(back < values, np.nextafter(nearest, infinity), nearest)
    raise Unsupported("rounding " + mode)


def _round_to_bf16(values: np.ndarray, mode: str) -> np.ndarray:
    cut = round_f64(values, "f32", "rz")
    bits = cut.view(np.uint32).copy()
    lost = (cut.astype(np.float64) != values) & ~np.isnan(values)
    bits |= lost.astype(np.uint32)  # a sticky bit for what float32 could not hold
    if mode == "rn":
        even = (bits >> np.uint32(16)) & np.uint32(1)
        bits = bits + np.uint32(0x7FFF) + even
    elif mode != "rz":
        raise Unsupported("bf16 rounding " + mode)
    rounded = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def flush_denormals(values: np.ndarray) -> np.ndarray:
    """float32 below the smallest normal number becomes zero of its sign."""
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), values), values)


def canonical_nan(values: np.ndarray) -> np.ndarray:
    """float32 NaN as the device's arithmetic makes them: positive, all bits set."""
    nan = np.isnan(values)
    return np.where(nan, CANONICAL_NAN, values) if nan.any() else values


def minimum_or_maximum(a: np.ndarray, b: np.ndarray, largest: bool, propagate_nan: bool):
    """min and max of PTX: NaN loses unless it is propagated, and -0 is below +0."""
    if propagate_nan:
        return np.maximum(a, b) if largest else np.minimum(a, b)
    a, b = np.broadcast_arrays(a, b)
    result = np.fmax(a, b) if largest else np.fmin(a, b)
    zeros = (a == 0) & (b == 0)
    if np.any(zeros):
        signs = np.signbit(a), np.signbit(b)
        negative = (signs[0] & signs[1]) if largest else (signs[0] | signs[1])
        signed_zero = np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0))
        result = np.where(zeros, signed_zero, result)
    return result.astype(a.dtype, copy=False)
