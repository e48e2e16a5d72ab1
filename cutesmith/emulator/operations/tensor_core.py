"""How tensor cores add: exact products, aligned to the largest exponent, cut off there, summed, rounded once.

Every product and the addend C is truncated to `fraction` bits below the largest exponent among them, the sum of what is
left is exact, and the result is truncated to float32 or rounded to nearest float16. A long k is done in several such
sums, each of which takes the last one as its C. The exponent of a product is the sum of its factors' exponents: its
significand lies in [1, 4). Sources: Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores"
(2021); Xie et al., "MMA-Sim: bit-accurate reference model of tensor cores and matrix cores" (2025); sm_90 is held to
recordings of an H200 (evals/record_mma.py).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutesmith.emulator.native.formats import F16, F32, TF32, Format

Array = np.ndarray[Any, np.dtype[Any]]

_NO_EXPONENT = -4096  # of zero, so that it aligns nothing
_LEAST_EXPONENT = -2 * 126  # of a product of subnormal bf16 or tf32 numbers
_WARPS_AT_ONCE = 32  # 32 warps x 2048 products of 8 bytes stay in the L2 cache


def container(format: Format) -> int:
    """Bits that a number takes in a register: 32 for tf32."""
    return 32 if format is TF32 else format.bits


def decode(format: Format, bits: Array) -> tuple[Array, Array]:
    """float64 values and int16 exponents (subnormal numbers have the smallest; zero has none) of bit patterns."""
    if container(format) > 16:
        return _decode(format, bits)
    values, exponents = _tables(format)
    return values[bits], exponents[bits]


@functools.cache
def _tables(format: Format) -> tuple[Array, Array]:
    return _decode(format, np.arange(1 << format.bits, dtype=np.uint32))


def _decode(format: Format, bits: Array) -> tuple[Array, Array]:
    """Values and exponents by arithmetic on the fields; bits below the mantissa of tf32 are ignored."""
    fields = bits.astype(np.int64) >> (container(format) - format.bits)
    mantissa = fields & ((1 << format.mantissa) - 1)
    largest = (1 << format.exponent_bits) - 1
    biased = (fields >> format.mantissa) & largest
    significand = mantissa | np.where(biased > 0, 1 << format.mantissa, 0)
    exponents = np.maximum(biased, 1) - format.bias
    values = np.ldexp(significand.astype(np.float64), exponents - format.mantissa)
    magnitude = fields & (format.sign - 1)
    values[magnitude > format.largest] = np.nan
    if format.has_infinity:
        values[magnitude == format.infinity] = np.inf
    exponents[significand == 0] = _NO_EXPONENT
    return np.where(fields & format.sign, -values, values), exponents.astype(np.int16)


@dataclass(frozen=True)
class TensorCore:
    """The arithmetic of one generation: `chunk` bytes of k a sum, `fraction` bits below the largest exponent.

    `fp8`: "native" sums bytes like other formats, "short" does so with 13 fraction bits and a float32 result cut to 13,
    "as_f16" is what ptxas makes of it on sm_90: conversion to f16, two sums, an ordinary addition of C.
    """

    chunk: int
    fraction: int
    fp8: str = "native"


_GENERATIONS = {
    70: TensorCore(8, 23),
    75: TensorCore(16, 24),
    80: TensorCore(16, 24),
    89: TensorCore(16, 24, fp8="short"),
    90: TensorCore(32, 25, fp8="as_f16"),
    100: TensorCore(32, 25),
}
"""By the first SM that has it; only sm_90 has been compared with a device here."""


def tensor_core_of(sm: int) -> TensorCore:
    """The arithmetic of an SM number such as 80 or 90."""
    return _GENERATIONS[max(first for first in _GENERATIONS if first <= max(sm, 70))]


def multiply(a: Array, b: Array, c: Array, inputs: tuple[Format, Format], result: Format, core: TensorCore) -> Array:
    """D = A B + C for many warps: bits of A (k, m, w), B (k, n, w) and C (m, n, w), to the uint32 bits of D.

    `result` is the format of C and D, F32 or F16.
    """
    d = np.empty(c.shape, np.uint32)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN are part of the arithmetic
        for start in range(0, c.shape[2], _WARPS_AT_ONCE):
            part = np.s_[..., start : start + _WARPS_AT_ONCE]
            d[part] = _multiply(a[part], b[part], c[part], inputs, result, core)
    return d


def _multiply(a: Array, b: Array, c: Array, inputs: tuple[Format, Format], result: Format, core: TensorCore) -> Array:
    left, right = decode(inputs[0], a), decode(inputs[1], b)
    if inputs[0].bits != 8:
        return _sums(left, right, c, result, core.chunk * 8 // container(inputs[0]), core.fraction)
    if core.fp8 == "as_f16":
        return _fp8_as_f16(left, right, c, result, core)
    short = core.fp8 == "short"
    return _sums(left, right, c, result, core.chunk, 13 if short else core.fraction, cut=10 if short else 0)


def _fp8_as_f16(
    left: tuple[Array, Array], right: tuple[Array, Array], c: Array, result: Format, core: TensorCore
) -> Array:
    """The code of ptxas for sm_90: the low two bytes of every register, then the high two, then C is added."""
    left, right = _as_f16(left[0]), _as_f16(right[0])
    high = np.arange(len(left[0])) % 4 >= 2
    total = np.zeros_like(c)
    for half in (~high, high):
        parts = [(values[half], exponents[half]) for values, exponents in (left, right)]
        total = _sums(parts[0], parts[1], total, result, core.chunk // 2, core.fraction)
    float_type = np.float32 if result is F32 else np.float16
    bits = f"u{result.bits // 8}"
    added = c.astype(bits).view(float_type) + total.astype(bits).view(float_type)
    return np.where(np.isnan(added), result.nan, added.view(bits))


def _as_f16(values: Array) -> tuple[Array, Array]:
    """Values and exponents after conversion to f16, where subnormal numbers of e4m3 are normal."""
    return decode(F16, values.astype(np.float16).view(np.uint16))


def _sums(
    left: tuple[Array, Array],
    right: tuple[Array, Array],
    c: Array,
    result: Format,
    length: int,
    fraction: int,
    cut: int = 0,
) -> Array:
    """One fused sum after another over k; `cut` low bits of a float32 result are dropped."""
    for start in range(0, left[0].shape[0], length):
        part = slice(start, start + length)
        total = fused_sum(
            (left[0][part, :, None], left[1][part, :, None]),
            (right[0][part, None], right[1][part, None]),
            decode(result, c),
            fraction,
        )
        c = _to_f16(total) if result is F16 else _to_f32(total) >> np.uint32(cut) << np.uint32(cut)
    return c


def fused_sum(left: tuple[Array, Array], right: tuple[Array, Array], c: tuple[Array, Array], fraction: int) -> Array:
    """The truncated fused sum of products over axis 0 and of C, before rounding; float64 holds it exactly.

    Each argument is a pair of values and exponents, the factors broadcast against each other.
    """
    exponents = np.maximum((left[1] + right[1]).max(axis=0), c[1])
    np.maximum(exponents, _LEAST_EXPONENT, out=exponents)
    scale = _power_of_two(fraction - exponents)
    products = left[0] * right[0]
    products *= scale
    np.trunc(products, out=products)
    total: Array = products.sum(axis=0)
    total += np.trunc(c[0] * scale)
    total *= _power_of_two(exponents - fraction)
    return total


def _power_of_two(exponents: Array) -> Array:
    return ((exponents.astype(np.int64) + 1023) << 52).view(np.float64)


def _to_f32(values: Array) -> Array:
    """float32 bits of float64 values, truncated; from 2^128 on infinity; NaN is 0x7fffffff, zero never negative."""
    rounded = values.astype(np.float32)
    away = (np.abs(rounded) > np.abs(values)) & (np.abs(values) < 2.0**128)
    bits = np.where(np.isnan(values), F32.nan, rounded.view(np.uint32) - away)
    return np.where(bits == 1 << 31, 0, bits).astype(np.uint32)


def _to_f16(values: Array) -> Array:
    """float16 bits (in uint32) of float64 values, to nearest even; NaN is 0x7fff, zero never negative."""
    bits = np.where(np.isnan(values), F16.nan, values.astype(np.float16).view(np.uint16))
    return np.where(bits == 1 << 15, 0, bits).astype(np.uint32)
