"""Forms of which there is no recording (test_differential.py holds the others): equal to recorded ones, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from cutesmith.emulator.emitters.unit_tables import TABLES, TANH_ROWS
from cutesmith.emulator.faults import UnsupportedInstruction
from evals.studies.emulator.instruction_operands import operands
from tests.emulator.machine.launches import emulate
from tests.emulator.native.straight import run

COUNT = 2048
KINDS = {
    "%p1": "p", "%rs1": "b16", "%rs2": "b16", "%rs3": "bf16", "%r1": "b32", "%r2": "b32", "%r3": "s32",
    "%r4": "f16x2", "%r5": "f16x2", "%rd1": "b64", "%rd2": "b64", "%rd3": "f32x2", "%rd4": "f32x2", "%rd5": "f32x2",
}  # fmt: skip
"""What the input registers hold."""

INPUTS = {name: operands(kind, place, COUNT) for place, (name, kind) in enumerate(KINDS.items())}
REGISTER = {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd"}
INTEGERS = {f"{letter}{bits}": bits for bits in (8, 16, 32, 64) for letter in "us"}


def comparisons() -> Iterator[tuple[str, str]]:
    """Integer `set`, and predicates and halves that are combined.

    Each row: a form that sets a register 9, and recorded forms that set the register 8 to the same.
    """
    for kind, bits in INTEGERS.items():
        if bits > 8:
            pair = f"{REGISTER[bits]}1, {REGISTER[bits]}2"
            one = f"setp.le.{kind} %p8, {pair}; selp.b32 %r8, -1, 0, %p8;"
            yield f"set.le.u32.{kind} %r9, {pair};", one
            yield f"set.gt.f32.{kind} %r9, {pair};", f"setp.gt.{kind} %p8, {pair}; selp.b32 %r8, 0f3F800000, 0, %p8;"
            unequal = f"setp.ne.{kind} %p8, {pair}; xor.pred %p8, %p8, %p1; selp.b32 %r8, -1, 0, %p8;"
            yield f"set.ne.xor.s32.{kind} %r9, {pair}, %p1;", unequal
    for boolean in ("and", "or", "xor"):
        combined = f"setp.ge.u32 %p8, %r1, %r2; not.pred %p7, %p1; {boolean}.pred %p8, %p8, %p7;"
        yield f"setp.ge.{boolean}.u32 %p9, %r1, %r2, !%p1;", combined
    for kind, register in (("u32", "%r"), ("s64", "%rd")):
        either = f"{register}1, {register}2"
        chosen = f"setp.ge.s32 %p8, %r3, 0; selp.{kind} {register}8, {either}, %p8;"
        yield f"slct.{kind}.s32 {register}9, {either}, %r3;", chosen
    yield "set.gt.f16x2.f16x2 %r9, %r4, %r5;", "set.lt.f16x2.f16x2 %r8, %r5, %r4;"
    yield "setp.gt.f16x2 %p9|%p2, %r4, %r5;", "setp.lt.f16x2 %p8|%p2, %r5, %r4;"


def conversions() -> Iterator[tuple[str, str]]:
    """`.sat` into a type that holds every value, and 8-bit integers from and to bf16."""
    for (source, bits), (target, wider) in product(INTEGERS.items(), INTEGERS.items()):
        if source == target or (wider > bits and (source[0] == "u" or target[0] == "s")):
            result, value = REGISTER[wider], f"{REGISTER[bits]}1"
            yield f"cvt.sat.{target}.{source} {result}9, {value};", f"cvt.{target}.{source} {result}8, {value};"
    for kind, mode in product(("u8", "s8", "u16", "s16"), ("rn", "rz", "rm", "rp")):
        yield f"cvt.{mode}.bf16.{kind} %rs9, %rs1;", f"cvt.s32.{kind} %r9, %rs1; cvt.{mode}.bf16.s32 %rs8, %r9;"
    for kind, mode in product(("u8", "s8"), ("rni", "rzi", "rmi", "rpi")):
        yield f"cvt.{mode}.{kind}.bf16 %rs9, %rs3;", f"cvt.f32.bf16 %r9, %rs3; cvt.{mode}.{kind}.f32 %rs8, %r9;"


def arithmetic() -> Iterator[tuple[str, str]]:
    """Halves and pairs one by one; a chain of carries."""
    for kind in ("u16x2", "s16x2"):
        parts = "mov.b32 {%rs4, %rs5}, %r1; mov.b32 {%rs6, %rs7}, %r2; sub.u16 %rs4, %rs4, %rs6; "
        yield f"sub.{kind} %r9, %r1, %r2;", f"{parts} sub.u16 %rs5, %rs5, %rs7; mov.b32 %r8, {{%rs4, %rs5}};"
    for form, count in (("add.rn", 2), ("mul.rz.ftz", 2), ("fma.rn", 3), ("fma.rp", 3)):
        words = [f"%rd{place}" for place in range(3, 3 + count)]
        parts = "".join(f"mov.b64 {{%r{10 + place}, %r{20 + place}}}, {word};" for place, word in enumerate(words))
        for first in (10, 20):
            parts += f"{form}.f32 %r{first}, {', '.join(f'%r{first + place}' for place in range(count))};"
        yield f"{form}.f32x2 %rd9, {', '.join(words)};", f"{parts} mov.b64 %rd8, {{%r10, %r20}};"
    chain = """mov.b64 {%r10, %r11}, %rd1; mov.b64 {%r12, %r13}, %rd2;
    mul.hi.u32     %r21, %r10, %r12;
    mad.lo.cc.u32  %r21, %r10, %r13, %r21;
    madc.hi.u32    %r22, %r10, %r13, 0;
    mad.lo.cc.u32  %r21, %r11, %r12, %r21;
    madc.hi.cc.u32 %r22, %r11, %r12, %r22;
    addc.u32       %r23, 0, 0;
    mad.lo.cc.u32  %r22, %r11, %r13, %r22;
    madc.hi.u32    %r23, %r11, %r13, %r23;
    mov.b64 %rd9, {%r22, %r23};"""
    yield chain, "mul.hi.u64 %rd8, %rd1, %rd2;"


@pytest.mark.parametrize("rows", [comparisons, conversions, arithmetic], ids=lambda rows: rows.__name__)
def test_a_form_gives_what_recorded_ones_give(rows):
    for form, recorded in rows():
        first = re.findall(r"%[a-z]+9\b", form)[0]
        second = f"{first[:-1]}8"
        found = run(f"{form}\n{recorded}", INPUTS, first, second)
        assert (found[first] == found[second]).all(), form


def test_all_256_functions_of_three_bits():
    inputs = {f"%r{place}": np.array([bits], np.uint64) for place, bits in enumerate((0xF0, 0xCC, 0xAA), 1)}
    code = "\n".join(f"lop3.b32 %r{100 + table}, %r1, %r2, %r3, {table};" for table in range(256))
    results = run(code, inputs, *(f"%r{100 + table}" for table in range(256)))
    assert [int(column[0]) & 0xFF for column in results.values()] == list(range(256))


def test_coefficients_are_as_narrow_as_the_hardware_keeps_them():
    bits = {"rcp": (26, 16, 10), "rsqrt": (26, 16, 10), "ex2": (26, 16, 10), "lg2": (26, 16, 10), "sin": (26, 15, 11)}
    for name, widths in bits.items():
        rows = [[int(part, 16).bit_length() for part in row.split(".")] for row in TABLES[name].rows.split()]
        assert tuple(max(column) for column in zip(*rows)) <= widths
    counts = {name: len(table.coefficients()) for name, table in TABLES.items()}
    assert counts == {"rcp": 128, "rsqrt": 128, "sqrt": 128, "ex2": 64, "lg2": 64, "sin": 64, "tanh": sum(TANH_ROWS)}


REFUSED = {
    "shf.l.clamp.b64 %r9, %r1, %r2, %r2": "shf",
    "lop3.b32 %r9, %r1, %r2, %r2, %r1": "not a literal",
    "setp.lt.and.s32 %p9, %r1, %r2": "third predicate",
    **{f"{form} %r9, %r1, %r2, %r2": form for form in ("mul.hi.sat.s32", "sad.sat.s32", "mul24.wide.s32")},
    **{f"{form} %r9, %r1, %r2": form for form in ("cvt.rn.satfinite.e2m3x2.f32", "cvt.rs.f16x2.f32", "min.relu.f32")},
    **{f"{form} %r9, %r1": form for form in ("cvt.f32.s32", "cvt.rn.s32.f32")},
    "add.rn.sat.f64 %rd9, %rd1, %rd2": "add.rn.sat.f64",
    "add.rz.f16 %rs9, %rs1, %rs2": "add.rz.f16",
    "fma.rn.ftz.bf16 %rs9, %rs1, %rs2, %rs3": "fma.rn.ftz.bf16",
    "fma.f32 %r9, %r1, %r2, %r3": "fma.f32",
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_form_that_does_not_exist_is_refused_by_name(code):
    with pytest.raises(UnsupportedInstruction, match=REFUSED[code]):
        run(f"{code};", INPUTS, re.findall(r"%[a-z]+9\b", code)[0])


def on_a_number_a_lane(body, values):
    """uint32 (32,): %r1 of each lane after a body that finds the lane's float32 in %f0."""
    out = np.zeros(32, np.uint32)
    code = (
        ".reg .f32 %f<4>; .reg .b8 %b0; mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; "
        "ld.param.u64 %d1, [p1]; mul.wide.u32 %d2, %r0, 4; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2; "
        f"ld.global.f32 %f0, [%d0]; {body} st.global.b32 [%d1], %r1; ret;"
    )
    assert emulate(code, np.resize(np.array(values, np.float32), 32), out).findings == ()
    return out[: len(values)]


def test_numbers_of_four_bits():
    """Ties to even, the largest beyond 6 and for NaN, and back to float16."""
    given = [0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7, -0.5, -100, np.nan]
    body = "cvt.rn.satfinite.e2m1x2.f32 %b0, %f0, %f0; cvt.rn.f16x2.e2m1x2 %r1, %b0;"
    halves = on_a_number_a_lane(body, given).view(np.float16).reshape(-1, 2)
    expected = np.array([0, 0, 1, 1, 2, 2, 4, 4, 6, -0.5, -6, 6], np.float16)
    assert (halves == expected[:, None]).all()


def test_sums_of_a_narrow_and_a_wide_number():
    given = [1.5, -3, 1e-6, 65504]
    body = "cvt.rn.bf16.f32 %h0, %f0; add.rn.f32.bf16 %f1, %h0, %f0; mov.b32 %r1, %f1;"
    narrow = (np.array(given, np.float32).view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)
    assert (on_a_number_a_lane(body, given).view(np.float32) == narrow + np.array(given, np.float32)).all()
    body = "cvt.rn.f16.f32 %h0, %f0; fma.rn.f32.f16 %f1, %h0, %h0, %f0; mov.b32 %r1, %f1;"
    halves = np.array(given[:2], np.float16).astype(np.float32)
    assert (on_a_number_a_lane(body, given[:2]).view(np.float32) == halves * halves + given[:2]).all()


def test_the_least_and_the_greatest_of_three():
    body = "mov.f32 %f1, 0f3F800000; neg.f32 %f2, %f1; max.f32 %f3, %f0, %f1, %f2; mov.b32 %r1, %f3;"
    assert on_a_number_a_lane(body, [-5, 0, 5]).view(np.float32).tolist() == [1, 1, 5]
    assert on_a_number_a_lane(body.replace("max", "min"), [-5, 0, 5]).view(np.float32).tolist() == [-5, -1, -1]
