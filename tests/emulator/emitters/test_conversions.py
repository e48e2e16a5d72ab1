"""`cvt` against exact fractions and Python's integers, for every pair of types and rounding."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest

from cutesmith.emulator.emitters.formats import E4M3, E5M2, F16, F32, FORMATS
from cutesmith.emulator.faults import UnsupportedInstruction
from evals.studies.emulator.instruction_operands import operands
from tests.emulator.emitters.cases import signed
from tests.emulator.emitters.exact import MODES, REGISTER, finite_operands, rounded, worth
from tests.emulator.native.straight import run

COUNT = 400
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
WHOLE = {"rni": round, "rzi": int, "rmi": floor, "rpi": ceil}


def register(bits: int) -> str:
    return REGISTER[max(16, bits)]


def convert(form: str, source_bits: int, target_bits: int, *columns: np.ndarray) -> list[int]:
    names = [f"{register(source_bits)}{place}" for place in range(1, len(columns) + 1)]
    target = f"{register(target_bits)}9"
    return run(f"{form} {', '.join((target, *names))};", dict(zip(names, columns)), target)[target].tolist()


def bits_of(kind: str) -> int:
    return int(kind.lstrip("us"))


def value_of(pattern: int, kind: str) -> int:
    bits = bits_of(kind)
    return signed(pattern, bits) if kind[0] == "s" else pattern & (1 << bits) - 1


def limited(value: int, kind: str) -> int:
    bits = bits_of(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def extended(value: int, kind: str) -> int:
    """As a register holds it: at least 16 bits, an 8-bit value extended by its sign."""
    return (value_of(value, kind)) & (1 << max(16, bits_of(kind))) - 1


@pytest.mark.parametrize("target", INTEGERS)
def test_integers_are_extended_cut_or_clamped(target):
    for source in INTEGERS:
        column = operands(source, 0, 256)
        values = [value_of(int(pattern), source) for pattern in column]
        bits = (bits_of(source), bits_of(target))
        found = convert(f"cvt.{target}.{source}", *bits, column)
        assert found == [extended(value, target) for value in values], source
        clamped = convert(f"cvt.sat.{target}.{source}", *bits, column)
        assert clamped == [extended(limited(value, target), target) for value in values], source


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_integers_are_rounded_once(target, mode):
    form = FORMATS[target]
    for source in INTEGERS:
        column = operands(source, 0, 256)
        found = convert(f"cvt.{mode}.{target}.{source}", bits_of(source), form.bits, column)
        exact = [Fraction(value_of(int(pattern), source)) for pattern in column]
        assert found == [rounded(value, form, mode) for value in exact], source


@pytest.mark.parametrize("rounding", WHOLE)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_become_integers_within_range(source, rounding):
    form = FORMATS[source]
    column = finite_operands(source, 0, COUNT)
    exact = [worth(int(pattern), form) for pattern in column]
    for target in INTEGERS:
        found = convert(f"cvt.{rounding}.{target}.{source}", form.bits, bits_of(target), column)
        assert found == [extended(limited(WHOLE[rounding](value), target), target) for value in exact], target


def test_nan_becomes_zero_or_the_lowest_integer():
    nan = np.array([0x7FC00000], np.uint64)
    assert convert("cvt.rzi.s32.f32", 32, 32, nan) == [0]
    assert convert("cvt.rzi.s64.f32", 32, 64, nan) == [1 << 63]
    assert convert("cvt.rzi.s32.f64", 64, 32, np.array([0x7FF8 << 48], np.uint64)) == [1 << 31]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("target", "source"), [("f32", "f64"), ("f16", "f32"), ("bf16", "f32"), ("f16", "f64"),
                                                ("bf16", "f64"), ("bf16", "f16"), ("f16", "bf16")])  # fmt: skip
def test_narrower_floats_are_rounded_once(target, source, mode):
    wide, narrow = FORMATS[source], FORMATS[target]
    column = finite_operands(source, 0, COUNT)
    found = convert(f"cvt.{mode}.{target}.{source}", wide.bits, narrow.bits, column)
    exact = [(worth(int(pattern), wide), bool(int(pattern) & wide.sign)) for pattern in column]
    assert found == [rounded(value, narrow, mode, negative) for value, negative in exact]


@pytest.mark.parametrize(("target", "source"), [("f64", "f32"), ("f32", "f16"), ("f32", "bf16"), ("f64", "f16")])
def test_wider_floats_are_exact(target, source):
    wide, narrow = FORMATS[target], FORMATS[source]
    column = finite_operands(source, 0, COUNT)
    found = convert(f"cvt.{target}.{source}", narrow.bits, wide.bits, column)
    assert [worth(pattern, wide) for pattern in found] == [worth(int(pattern), narrow) for pattern in column]


@pytest.mark.parametrize("rounding", WHOLE)
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_floats_are_rounded_to_whole_ones(name, rounding):
    form = FORMATS[name]
    column = finite_operands(name, 0, COUNT)
    found = convert(f"cvt.{rounding}.{name}.{name}", form.bits, form.bits, column)
    exact = [(Fraction(WHOLE[rounding](worth(int(p), form))), bool(int(p) & form.sign)) for p in column]
    assert found == [rounded(value, form, "rn", negative) for value, negative in exact]


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32_keeps_ten_bits_of_the_mantissa(mode):
    column = finite_operands("f32", 0, COUNT)
    found = convert(f"cvt.{mode}.tf32.f32", 32, 32, column)
    form = FORMATS["tf32"]
    wanted = [rounded(worth(int(p), F32), form, mode, bool(int(p) & F32.sign)) << 13 for p in column]
    assert found == wanted


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=lambda form: form.name)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_eight_bit_floats_are_rounded_and_stay_finite(form, relu):
    high, low = (finite_operands("f32", place, COUNT) for place in (0, 1))
    found = convert(f"cvt.rn.satfinite{relu}.{form.name}x2.f32", 32, 16, high, low)
    for upper, lower, pair in zip(high.tolist(), low.tolist(), found):
        for pattern, part in ((lower, pair & 0xFF), (upper, pair >> 8)):
            negative = bool(pattern & F32.sign)
            wanted = rounded(worth(pattern, F32), form, "rn", negative)
            wanted = min(wanted & 0x7F, form.largest) | wanted & 0x80
            assert part == (0 if relu and negative else wanted), hex(pattern)


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=lambda form: form.name)
def test_every_eight_bit_float_is_exact_in_f16(form):
    column = np.arange(256, dtype=np.uint64)
    found = convert(f"cvt.rn.f16x2.{form.name}x2", 16, 32, column | column << np.uint64(8))
    for pattern, pair in enumerate(found):
        assert pair & 0xFFFF == pair >> 16
        if pattern & 0x7F <= form.largest:
            assert worth(pair & 0xFFFF, F16) == worth(pattern, form)
        elif form is E5M2 and pattern & 0x7F == 0x7C:
            assert pair & 0x7FFF == 0x7C00
        else:
            assert pair & 0xFFFF == 0x7FFF


def test_pairs_take_the_first_operand_into_the_upper_half():
    one, two = np.array([0x3F800000], np.uint64), np.array([0x40000000], np.uint64)
    assert convert("cvt.rn.f16x2.f32", 32, 32, one, two) == [0x3C00_4000]
    assert convert("cvt.rn.bf16x2.f32", 32, 32, one, two) == [0x3F80_4000]
    assert convert("cvt.rz.relu.bf16x2.f32", 32, 32, one | np.uint64(1 << 31), two) == [0x4000]


def test_integers_are_packed_with_saturation():
    a, b, c = (np.array([value & 2**32 - 1], np.uint64) for value in (300, -5, 0x1234ABCD))
    assert convert("cvt.pack.sat.u8.s32.b32", 32, 32, a, b, c) == [0xABCD_FF00]
    assert convert("cvt.pack.sat.s16.s32", 32, 32, a, b) == [0x012C_FFFB]


@pytest.mark.parametrize("form", ["cvt.rn.satfinite.e2m1x2.f32", "cvt.rs.f16x2.f32", "cvt.f32.s32", "cvt.rn.s32.f32"])
def test_conversions_that_are_not_executed_are_named(form):
    with pytest.raises(UnsupportedInstruction, match=form):
        convert(form, 32, 32, *[np.zeros(1, np.uint64)] * (2 if "x2" in form else 1))
