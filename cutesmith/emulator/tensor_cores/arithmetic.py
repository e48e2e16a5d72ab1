"""How tensor cores add: exact products, aligned to the largest exponent, cut off there, summed, rounded once.

Every product and the addend C is truncated to `fraction` bits below the largest exponent among them, the sum of what is
left is exact, and the result is truncated to float32 or rounded to nearest float16. A long k is done in several such
sums, each of which takes the last one as its C. The exponent of a product is the sum of its factors' exponents: its
significand lies in [1, 4). Subnormal numbers keep their exponent, zero aligns nothing; no result is -0, results from
2^128 on are infinite, NaN is 0x7fffffff or 0x7fff.

Sources: Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021); Xie et al., "MMA-Sim:
bit-accurate reference model of tensor cores and matrix cores" (2025). The model of sm_90 here gives every bit of the
recordings of an H200 (evals/studies/emulator/record_mma.py), and fp8 there follows the machine code that ptxas writes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.emitters.formats import F16, F32, TF32, Format
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores.native_sums import NO_EXPONENT, fused_sums


def container(format: Format) -> int:
    """Bits that a number takes in a register: 32 for tf32."""
    return 32 if format is TF32 else format.bits


def decode(format: Format, bits: Array) -> tuple[Array, Array]:
    """float64 values and int16 exponents (subnormal numbers have the smallest; zero has none) of bit patterns."""
    if container(format) > 16:  # float32, and tf32 as its upper 19 bits
        kept = bits.astype(np.uint32) & np.uint32(0xFFFF_FFFF << (32 - format.bits) & 0xFFFF_FFFF)
        exponents = np.maximum(kept >> np.uint32(23) & np.uint32(0xFF), 1).astype(np.int16) - np.int16(F32.bias)
        exponents[kept << np.uint32(1) == 0] = NO_EXPONENT
        return kept.view(np.float32).astype(np.float64), exponents
    values, exponents = tables_of(format)
    return values[bits], exponents[bits]


@functools.cache
def tables_of(format: Format) -> tuple[Array, Array]:
    """The values and exponents of all patterns of at most 16 bits, by arithmetic on the fields."""
    bits = np.arange(1 << format.bits, dtype=np.uint32)
    mantissa = bits & np.uint32((1 << format.mantissa) - 1)
    biased = (bits >> format.mantissa & ((1 << format.exponent_bits) - 1)).astype(np.int64)
    significand = mantissa | np.where(biased > 0, 1 << format.mantissa, 0)
    exponents = np.maximum(biased, 1) - format.bias
    values = np.ldexp(significand.astype(np.float64), exponents - format.mantissa)
    magnitude = bits & np.uint32(format.sign - 1)
    values[magnitude > format.largest] = np.nan
    if format.has_infinity:
        values[magnitude == format.infinity] = np.inf
    exponents[significand == 0] = NO_EXPONENT
    return np.where(bits & format.sign, -values, values), exponents.astype(np.int16)


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

WARPGROUP_CORE = TensorCore(32, 25, fp8="short")
"""`wgmma` of sm_90a."""


def tensor_core_of(sm: int) -> TensorCore:
    """The arithmetic of an SM number such as 80 or 90."""
    return _GENERATIONS[max(first for first in _GENERATIONS if first <= max(sm, 70))]


def multiply(a: Array, b: Array, c: Array, inputs: tuple[Format, Format], result: Format, core: TensorCore) -> Array:
    """D = A B + C of w matrices: bits of A (w, m, k), B (w, k, n) and C (w, m, n), to the uint32 bits of D.

    `result` is the format of C and D, F32 or F16; n is a multiple of 8.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN are part of the arithmetic
        left, right = decode(inputs[0], a), decode(inputs[1], b)
        if inputs[0].bits != 8:
            return sums(left, right, c, result, core.chunk * 8 // container(inputs[0]), core.fraction)
        if core.fp8 == "as_f16":
            return _fp8_as_f16(left[0], right[0], c, result, core)
        short = core.fp8 == "short"
        return sums(left, right, c, result, core.chunk, 13 if short else core.fraction, cut=10 if short else 0)


def _fp8_as_f16(a: Array, b: Array, c: Array, result: Format, core: TensorCore) -> Array:
    """The code of ptxas for sm_90: the low two bytes of every register, then the high two, then C is added."""
    high = np.arange(b.shape[1]) % 4 >= 2
    total = np.zeros(c.shape, np.uint32)
    for half in (~high, high):
        total = sums(_as_f16(a[:, :, half]), _as_f16(b[:, half]), total, result, core.chunk // 2, core.fraction)
    float_type = np.float32 if result is F32 else np.float16
    bits = f"u{result.bits // 8}"
    added = c.astype(bits).view(float_type) + total.astype(bits).view(float_type)
    return np.where(np.isnan(added), np.uint32(result.nan), added.view(bits)).astype(np.uint32)


def _as_f16(values: Array) -> tuple[Array, Array]:
    """Values and exponents after conversion to f16, where subnormal numbers of e4m3 are normal."""
    return decode(F16, np.ascontiguousarray(values, np.float16).view(np.uint16))


def sums(
    left: tuple[Array, Array],
    right: tuple[Array, Array],
    c: Array,
    result: Format,
    length: int,
    fraction: int,
    cut: int = 0,
) -> Array:
    """One fused sum after another over k; `cut` low bits of a float32 result are dropped."""
    if result is F32:
        bits = fused_sums(left, right, decode(result, c), length, fraction, cut).astype(np.float32).view(np.uint32)
        bits[bits & np.uint32(F32.nan) > F32.infinity] = F32.nan
        return bits
    for start in range(0, left[0].shape[2], length):
        part = tuple(np.ascontiguousarray(values[:, :, start : start + length]) for values in left)
        rows = tuple(np.ascontiguousarray(values[:, start : start + length]) for values in right)
        c = _to_f16(fused_sums(part, rows, decode(result, c), length, fraction, None))  # type: ignore[arg-type]
    return c


def truncated(values: Array) -> Array:
    """float32 bits of float64 values, truncated; from 2^128 on infinity; NaN is 0x7fffffff, zero never negative."""
    rounded = values.astype(np.float32)
    away = (np.abs(rounded) > np.abs(values)) & (np.abs(values) < 2.0**128)
    bits = np.where(np.isnan(values), F32.nan, rounded.view(np.uint32) - away)
    return np.where(bits == 1 << 31, 0, bits).astype(np.uint32)


def _to_f16(values: Array) -> Array:
    """float16 bits (in uint32) of float64 values, to nearest even; NaN is 0x7fff, zero never negative."""
    bits = np.where(np.isnan(values), F16.nan, values.astype(np.float16).view(np.uint16))
    return np.where(bits == 1 << 15, 0, bits).astype(np.uint32)
