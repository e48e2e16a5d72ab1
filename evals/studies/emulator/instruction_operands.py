"""Operand values of the differential test: edge values and hashed bits, the same on every machine and for ever."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np

from evals.studies.emulator.instruction_forms import KINDS

Words = np.ndarray[Any, np.dtype[np.uint64]]
FORMATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52), "tf32": (32, 23)}
OUT_OF_BOUNDS = 0x7FF7  # the NaN that `.oob` turns into 0
BELOW = {"few": 4, "p": 2, "small": 33, "byte": 70}  # types that have no random bits: limit of moderate values
_PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "s16x2": "s16", "u16x2": "s16"}
_NUMBERS = (
    "0.5 0.75 1 1.25 1.5 2 2.5 3 3.5 4 7 8 10 16 0.1 0.333333 3.14159265 0.0009765625 0.6931471805599453 "
    "6.103515625e-05 5.960464477539063e-08 2.98023223876953125e-08 2.9802326e-08 0.015625 0.0078125 0.0009765625 "
    "0.001953125 0.00048828125 1.52587890625e-05 7.62939453125e-06 127 127.5 128 128.5 129 254.5 255 255.5 256 "
    "448 463.9 464 465 479.9 480 2048 2049 32767 32767.5 32768 32768.5 57344 61439 61440 61441 65504 65519.996 "
    "65520 65535 65535.5 65536 8388608 8388607.5 16777216 2147483520 2147483647 2147483647.5 2147483648 "
    "4294967040 4294967295 4294967295.5 4294967296 4503599627370496 9007199254740992 9223371487098961920 "
    "9223372036854774784 9223372036854775808 18446742974197923840 18446744073709549568 18446744073709551616 1e30 "
    "3.3895313892515355e38 3.40282346e38 3.4028235677973366e38 1e-30 1e-44 1.1754943508222875e-38 "
    "1.1754942807573643e-38 1.401298464324817e-45 7.006492321624085e-46 1e300 1e-300 1e-310 "
    "1.1754943332529e-38 1.175494333e-38 1.1754943508e-38 6.1035156e-05 6.1020255e-05 6.10e-05 "
)
"""Edge values of floats by value: ties of f16 and f8, limits of integer types, ends of the formats."""


@cache
def operands(kind: str, place: int, count: int) -> Words:
    """`count` values for operand number `place` of a type of KINDS, one a 64-bit word; bits above the type are zero."""
    if kind in _PACKED:
        half = KINDS[kind] // 2
        low, high = (_scalar(_PACKED[kind], place + shift, count) for shift in (0, 101))
        return low | high << np.uint64(half)
    return _scalar(kind, place, count)


def _scalar(kind: str, place: int, count: int) -> Words:
    """Floats: first all pairs of special values. Then operand 0 takes each edge value once; the rest goes by hash."""
    first, second, third = (random_words(zlib.crc32(f"{kind} {place} {use}".encode()), count) for use in "abc")
    edges = edge_values(kind)
    values = edges[(first % np.uint64(len(edges))).astype(np.int64)]
    choice = second % np.uint64(20)
    begin = _set_specials(values, kind, place)
    swept = min(len(edges), count - begin - count // 8) if place == 0 else 0
    values[begin : begin + swept] = edges[:swept]
    choice[: begin + swept] = 0
    if kind in BELOW:
        third = moderate_values(kind, third)
    values = np.where(choice < 11, values, np.where(choice < 17, moderate_values(kind, third), third))
    return values & np.uint64((1 << KINDS[kind]) - 1)


def _set_specials(values: Words, kind: str, place: int) -> int:
    """Set the first vectors so that operands 0 and 1 go through all pairs of special values; how many were set."""
    if kind not in FORMATS:
        return 0
    special = special_values(*FORMATS[kind], place)
    index = np.arange(len(special) ** 2)
    order = {0: index % len(special), 1: index // len(special)}.get(place, index * (7 + place) % 29 % len(special))
    if len(index) > len(values) // 2:
        raise ValueError(f"{len(values)} vectors are too few for {len(index)} pairs of special values")
    values[: len(index)] = special[order]
    return len(index)


def special_values(bits: int, mantissa: int, place: int) -> Words:
    """Values where rules decide, not rounding; NaN payloads tell operands apart; the last products meet underflow."""
    infinity, least_normal = ((1 << bits - 1 - mantissa) - 1) << mantissa, 1 << mantissa
    quiet, one = infinity | least_normal >> 1, infinity >> 1 & ~(least_normal - 1)
    sign = 1 << bits - 1
    other_nan = OUT_OF_BOUNDS if bits == 16 else sign | quiet | 9 + place
    values = [0, sign, infinity, sign | infinity, quiet | 5 + place, other_nan, infinity | 1 + place]
    return np.array([*values, 1, least_normal, sign | least_normal, 2 * least_normal - 1, one - 1, one], np.uint64)


def edge_values(kind: str) -> Words:
    """Zeros, ends of ranges, infinities, quiet and signalling NaN, denormals, ties, limits of other types."""
    bits = KINDS[kind]
    if kind in FORMATS:
        return _float_edges(*FORMATS[kind])
    if kind in ("angle", "unit"):
        return _float_edges(32, 23)
    if kind in ("few", "p"):
        return np.arange(min(4, 1 << bits), dtype=np.uint64)
    if kind == "small":
        return np.arange(-40, 41).astype(np.uint64)
    if kind == "byte":
        return np.arange(256, dtype=np.uint64)
    if kind in ("e4m3x2", "e5m2x2"):
        low = np.arange(256, dtype=np.uint64)
        return low | (low * np.uint64(37) + np.uint64(11) & np.uint64(255)) << np.uint64(8)
    powers = [1 << shift for shift in range(0, bits, max(1, bits // 8))]
    near = [value + delta for value in (*powers, 1 << bits - 1, 1 << bits) for delta in (-1, 0, 1)]
    fixed = [
        int(word, 0)
        for word in "0 1 2 3 5 8 9 15 16 31 32 33 63 64 65 100 127 128 255 256 0x55555555 0x5A5A5A5A5A5A5A5A".split()
    ]
    negative = [-value for value in (1, 2, 3, 7, 8, 31, 32, 33, 128, 129, 32768, 32769, 2147483648, 2147483649)]
    values = dict.fromkeys(value & (1 << bits) - 1 for value in (*fixed, *near, *negative))
    return np.array(list(values), np.uint64)


def moderate_values(kind: str, hashed: Words) -> Words:
    """Floats near 1 (exponent -6 to 6), where sums and products are ordinary; small integers; else the bits."""
    if kind in FORMATS:
        bits, mantissa = FORMATS[kind]
        exponent = (hashed >> np.uint64(56)) % np.uint64(13) + np.uint64((1 << bits - 2 - mantissa) - 7)
        sign = hashed >> np.uint64(55) & np.uint64(1)
        fraction = hashed & np.uint64((1 << mantissa) - 1)
        return sign << np.uint64(bits - 1) | exponent << np.uint64(mantissa) | fraction
    if kind in ("angle", "unit"):
        scaled = (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = scaled * 16 - 8 if kind == "angle" else scaled * 4
        return values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if kind in BELOW:
        return hashed % np.uint64(BELOW[kind])
    return hashed % np.uint64(64)


def _float_edges(bits: int, mantissa: int) -> Words:
    top = (1 << bits - 1 - mantissa) - 1
    infinity, one = top << mantissa, (top >> 1) << mantissa
    least_normal = 1 << mantissa
    quiet = infinity | 1 << mantissa - 1
    special = [
        0,
        1,
        2,
        least_normal - 1,
        least_normal,
        least_normal + 1,
        infinity - 1,
        infinity,
        quiet,
        infinity | 1,
        quiet | 5,
    ]
    special += [infinity | least_normal - 1, one - 1, one, one + 1, least_normal >> 1, least_normal << 1]
    magnitudes = dict.fromkeys([*special, *(_bits_of(float(text), bits, mantissa) for text in _NUMBERS.split())])
    return np.array([word for value in magnitudes for word in (value, value | 1 << bits - 1)], np.uint64)


def _bits_of(value: float, bits: int, mantissa: int) -> int:
    """The nearest float of the format, ties away; too large becomes infinity."""
    wide = int(np.float64(value).view(np.uint64))
    if bits == 64:
        return wide
    top = (1 << bits - 1 - mantissa) - 1
    exponent = (wide >> 52) - 1023 + (top >> 1)
    significand = wide & (1 << 52) - 1
    if exponent <= 0:
        shift = 52 - mantissa + 1 - exponent
        return ((significand | 1 << 52) + (1 << shift - 1)) >> shift if shift < 54 else 0
    return min((exponent << mantissa) + ((significand + (1 << 51 - mantissa)) >> 52 - mantissa), top << mantissa)


def random_words(seed: int, count: int) -> Words:
    """splitmix64 of a counter (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        state = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return state ^ state >> np.uint64(31)
