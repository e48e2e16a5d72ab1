"""Inputs of the recorded matrix multiplications, drawn from a counter hash so that only results need to be stored.

A *set* is the operands of one `mma.sync`; every kind of input aims at one thing that a model can get wrong.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace

import numpy as np

from cutesmith.emulator.emitters.formats import FORMATS, Format
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import bits_of
from cutesmith.emulator.tensor_cores.arithmetic import container, decode
from cutesmith.emulator.tensor_cores.fragments import a_layout, b_layout, c_layout, pack
from cutesmith.emulator.tensor_cores.multiplication import Multiplication
from cutesmith.emulator.tensor_cores.sparsity import (
    DIFFERENT,
    HALVES,
    ORDERED,
    ROWS,
    chunk_columns,
    metadata_places,
    selectors,
)
from evals.studies.emulator.instruction_operands import random_words

SETS = 32
FLOAT_KINDS = ("normal", "spread", "wide", "cancel", "subnormal", "tiny", "huge", "zeros", "special")
INTEGER_KINDS = ("random", "extreme")


class Stream:
    """Reproducible random numbers, seeded by a name."""

    def __init__(self, name: str) -> None:
        self._seeds = itertools.count(zlib.crc32(name.encode()) << 16)

    def bits(self, *shape: int) -> Array:
        """uint64, all bits random."""
        return random_words(next(self._seeds), int(np.prod(shape))).reshape(shape)

    def below(self, limit: int, *shape: int) -> Array:
        """int64 from 0 to limit - 1."""
        return ((self.bits(*shape) >> np.uint64(11)) % np.uint64(limit)).astype(np.int64)

    def chance(self, probability: float, *shape: int) -> Array:
        """bool, true with this probability."""
        return self.below(1 << 20, *shape) < probability * (1 << 20)

    def normal(self, *shape: int) -> Array:
        """float64, roughly normal (a sum of 12 uniform numbers, exact on every machine)."""
        total: Array = self.below(1 << 20, *shape, 12).sum(axis=-1)
        return (total - 6 * ((1 << 20) - 1)) / 2.0**20


def fields(format: Format, sign: Array, biased: Array, mantissa: Array) -> Array:
    """uint64 bits of a format; bits below a tf32 mantissa are set by the mantissa's own low bits."""
    dropped = container(format) - format.bits
    low = (mantissa >> np.uint64(40)) & np.uint64((1 << dropped) - 1)
    top = (sign << np.uint64(format.exponent_bits)) | biased.astype(np.uint64)
    kept = mantissa & np.uint64((1 << format.mantissa) - 1)
    return (((top << np.uint64(format.mantissa)) | kept) << np.uint64(dropped)) | low


def encode(format: Format, values: Array) -> Array:
    """uint64 bits near float64 values (which neighbour is taken does not matter here)."""
    if container(format) == 64:
        return values.view(np.uint64)
    if container(format) == 32:
        return values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if format.exponent_bits == 8:
        return values.astype(np.float32).view(np.uint32).astype(np.uint64) >> np.uint64(16)
    half = values.astype(np.float16).view(np.uint16).astype(np.uint64)
    if container(format) == 16:
        return half
    if format.name == "e5m2":
        return half >> np.uint64(8)
    table, _ = decode(format, np.arange(0x7F))
    nearest = np.searchsorted(table, np.abs(values)).clip(0, 0x7E).astype(np.uint64)
    return nearest | (np.signbit(values).astype(np.uint64) << np.uint64(7))


def around(stream: Stream, format: Format, centre: int, width: int, *shape: int) -> Array:
    """Random sign and mantissa, exponents uniform from centre - width to centre + width, kept finite."""
    largest = (1 << format.exponent_bits) - (1 if not format.has_infinity else 2)
    biased = (format.bias + centre - width + stream.below(2 * width + 1, *shape)).clip(0, largest)
    mantissa = stream.bits(*shape)
    if not format.has_infinity:
        mantissa = np.where(biased == largest, mantissa & ~np.uint64(1), mantissa)  # all ones is NaN
    return fields(format, stream.bits(*shape) >> np.uint64(63), biased, mantissa)


def _spread(stream: Stream, kind: str, format: Format, *shape: int) -> Array:
    if kind == "normal":
        return encode(format, stream.normal(*shape))
    if kind == "wide":
        return around(stream, format, 0, format.bias, *shape)
    if kind == "subnormal":
        low = around(stream, format, -format.bias, 2, *shape)
        return np.where(stream.chance(0.7, *shape), low, around(stream, format, 0, 3, *shape))
    if kind == "tiny":
        return around(stream, format, -min(format.bias // 2, 63), 7, *shape)
    if kind == "huge":
        return around(stream, format, min((format.bias + 1) // 2, 64), 2, *shape)
    return around(stream, format, 0, min(8, format.bias), *shape)


def _insert(stream: Stream, bits: Array, choices: list[int], probability: float) -> Array:
    picked = np.array(choices, np.uint64)[stream.below(len(choices), *bits.shape)]
    return np.where(stream.chance(probability, *bits.shape), picked, bits)


def _specials(format: Format) -> list[int]:
    sign = 1 << (container(format) - 1)
    infinity = ((1 << format.exponent_bits) - 1) << (container(format) - 1 - format.exponent_bits)
    if not format.has_infinity:
        return [0, sign, sign - 1, 2 * sign - 1]
    quiet = 1 << (container(format) - 2 - format.exponent_bits)
    return [0, sign, infinity, infinity, infinity | sign, infinity | quiet, infinity | sign | quiet >> 1]


def matrices(stream: Stream, kind: str, form: Multiplication, sets: int) -> tuple[Array, Array, Array]:
    """Bits of A (sets, m, stored), B (sets, k, n) and C (sets, m, n) of a kind of input."""
    draw = _integer_matrices if form.result == "s32" else _float_matrices
    if not form.sparse:
        return draw(stream, kind, form, sets)
    stored = replace(form, k=form.stored, sparse=False)
    a, b, c = draw(stream, kind, stored, sets)
    other = b if kind == "cancel" else draw(stream, kind, stored, sets)[1]
    pairs = 2 if bits_of(form.a) == 4 else 1  # neighbours that are stored together
    halves = np.stack([part.reshape(sets, -1, pairs, form.n) for part in (b, other)], axis=2)
    return a, halves.reshape(sets, form.k, form.n), c


def metadata(stream: Stream, form: Multiplication, selector: int, ordered: bool, *shape: int) -> Array:
    """uint64 (*shape, 32): registers of metadata with codes that have a meaning; the lanes that hold none are noise."""
    bits = bits_of(form.a)
    known = HALVES if bits == 32 else ORDERED if ordered else DIFFERENT
    chunks = form.k // chunk_columns(bits)
    codes = np.array(known, np.uint32)[stream.below(len(known), *shape, ROWS, chunks)]
    words = (stream.bits(*shape, 32) >> np.uint64(32)).astype(np.uint32)
    order = 8 if chunks == 16 else 16  # all places of the lanes that hold metadata are filled, in one order or another
    lane, code = metadata_places(selector, chunks, order)
    for row, chunk in np.ndindex(ROWS, chunks):
        at, shift = lane[row, chunk], np.uint32(4 * code[row, chunk])
        words[..., at] = words[..., at] & ~(np.uint32(15) << shift) | codes[..., row, chunk] << shift
    return words.astype(np.uint64)


def _float_matrices(stream: Stream, kind: str, form: Multiplication, sets: int) -> tuple[Array, Array, Array]:
    first, second = FORMATS[form.a], FORMATS[form.b]
    result = FORMATS[form.result]
    a = _spread(stream, kind, first, sets, form.m, form.k)
    b = _spread(stream, kind, second, sets, form.k, form.n)
    c = _addend(stream, kind, result, sets, form.m, form.n)
    if kind == "cancel":
        half = form.k // 2
        lowest = np.uint64(13 if container(first) == 32 else 0)
        a[:, :, half:] = a[:, :, :half] ^ (stream.bits(sets, form.m, half) >> np.uint64(63) << lowest)
        b[:, half:] = b[:, :half] ^ (np.uint64(1) << np.uint64(container(second) - 1))
    if kind in ("zeros", "tiny"):
        a = np.where(stream.chance(0.5, *a.shape), np.uint64(0), a)
        zero = stream.chance(0.5, *b.shape)
        b = np.where(zero, np.uint64(1 << (container(second) - 1)), b)
        loud = (a[:, :1] == 0).transpose(0, 2, 1) & stream.chance(0.5, *b.shape)  # a large factor of zero
        b = np.where(loud & (kind == "zeros"), around(stream, second, 3 * second.bias // 4, 1, *b.shape), b)
        signed_zero = stream.bits(*c.shape) >> np.uint64(63) << np.uint64(container(result) - 1)
        c = np.where(stream.chance(0.5, *c.shape), signed_zero, c)
    if kind == "special":
        a, b = _insert(stream, a, _specials(first), 0.02), _insert(stream, b, _specials(second), 0.02)
        c = _insert(stream, c, _specials(result), 0.1)
    return a, b, c


def _addend(stream: Stream, kind: str, result: Format, *shape: int) -> Array:
    """C, of about the products' size."""
    if kind in ("normal", "special"):
        return encode(result, 4 * stream.normal(*shape))
    if kind == "wide":
        return around(stream, result, 0, result.bias, *shape)
    if kind == "cancel":
        return around(stream, result, -8, 12, *shape)
    if kind in ("subnormal", "tiny"):
        return around(stream, result, -result.bias, 12, *shape)
    if kind == "huge":
        return around(stream, result, result.bias, 2, *shape)
    return around(stream, result, 0, min(16, result.bias), *shape)


def _integer_matrices(stream: Stream, kind: str, form: Multiplication, sets: int) -> tuple[Array, Array, Array]:
    a, b = stream.bits(sets, form.m, form.k), stream.bits(sets, form.k, form.n)
    c = stream.bits(sets, form.m, form.n)
    if kind == "extreme":  # sums beyond 32 bits, and the largest factors
        c = np.where(stream.chance(0.5, *c.shape), np.uint64(0x7FFF_FFF0), np.uint64(0x8000_000F))
        a = np.where(stream.chance(0.5, *a.shape), np.uint64(0x80), np.uint64(0x7F))
        b = np.where(stream.chance(0.5, *b.shape), np.uint64(0xFF), np.uint64(0x78))
    return tuple(x & np.uint64((1 << bits) - 1) for x, bits in ((a, bits_of(form.a)), (b, bits_of(form.b)), (c, 32)))  # type: ignore[return-value]


def kinds_of(form: Multiplication) -> tuple[str, ...]:
    """The kinds of input that make sense for a form."""
    return INTEGER_KINDS if form.result == "s32" else FLOAT_KINDS


def registers(name: str, kind: str, form: Multiplication) -> Array:
    """uint64 (sets, registers of A then B then C, 32): the operands of SETS multiplications as lanes hold them.

    Of a sparse A a register of metadata follows.
    """
    stream = Stream(f"{name} {kind}")
    a, b, c = matrices(stream, kind, form, SETS)
    parts = [
        _spread_over_lanes(a, a_layout(form.m, form.stored, bits_of(form.a)), bits_of(form.a)),
        _spread_over_lanes(b, b_layout(form.k, bits_of(form.b)), bits_of(form.b)),
        _spread_over_lanes(c, c_layout(form.m, bits_of(form.result)), bits_of(form.result)),
    ]
    if form.sparse:
        parts.append(metadata(stream, form, selector_of(form), "ordered_metadata" in name, SETS, 1))
    return np.concatenate(parts, axis=1)


def selector_of(form: Multiplication) -> int:
    """The sparsity selector that is recorded: the last one."""
    return len(selectors(form.k, bits_of(form.a))) - 1


def _spread_over_lanes(matrix: Array, layout: tuple[Array, Array], bits: int) -> Array:
    rows, columns = layout
    elements = matrix[:, rows, columns]  # (sets, registers, per, 32)
    return pack(elements, bits)
