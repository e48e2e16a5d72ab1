"""Comparisons and selections against Python's."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.emitters.cases import TYPES, Case, bits, check, each, operands, typed
from tests.emulator.native.straight import run

ORDERED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
BOOLEAN = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@pytest.mark.parametrize("kind", TYPES)
def test_every_comparison_of_every_type(kind: str):
    cases = [
        Case(f"setp.{name}.{kind}", (kind, kind), 1, lambda a, b, compare=compare: int(compare(a, b)))
        for name, compare in (ORDERED | (UNSIGNED if kind[0] == "u" else {})).items()
    ]
    check(cases)


def test_bits_compare_for_equality():
    check(each("set.eq.u32", ("b32",), 2, lambda _, a, b: -int(a == b)))
    cases = [
        Case(f"setp.{name}.b{width}", (f"b{width}",) * 2, 1, lambda a, b, compare=compare: int(compare(a, b)))
        for name, compare in (("eq", operator.eq), ("ne", operator.ne))
        for width in (16, 32, 64)
    ]
    check(cases)


@pytest.mark.parametrize("name", BOOLEAN)
def test_a_third_predicate_is_combined_with_both_results(name: str):
    a, b, c = operands(3)
    a, b, c = a & np.uint64(3), b & np.uint64(3), c & np.uint64(1)
    code = f"setp.lt.{name}.s32 %p2|%p3, %r1, %r2, %p1;\nsetp.ge.{name}.u32 %p4, %r1, %r2, !%p1;"
    results = run(code, {"%r1": a, "%r2": b, "%p1": c}, "%p2", "%p3", "%p4")
    combine = BOOLEAN[name]
    assert (results["%p2"] == combine(a < b, c == 1)).all()
    assert (results["%p3"] == combine(a >= b, c == 1)).all()
    assert (results["%p4"] == combine(a >= b, c == 0)).all()


def test_set_gives_all_ones_or_one_point_zero():
    cases = []
    for kind in TYPES:
        cases.append(Case(f"set.le.u32.{kind}", (kind, kind), 32, lambda a, b: -int(a <= b)))
        cases.append(Case(f"set.gt.f32.{kind}", (kind, kind), 32, lambda a, b: 0x3F800000 * int(a > b)))
        combined = lambda a, b, p: -int((a != b) ^ p)
        cases.append(Case(f"set.ne.xor.s32.{kind}", (kind, kind, "pred"), 32, combined))
    check(cases)


def test_selections():
    def as_float(value: int) -> float:
        return float(np.array(value & 0xFFFFFFFF, np.uint32).view(np.float32))

    cases = []
    for kind in ("b16", "u32", "s64", "f32", "f64"):
        width = bits(kind)
        source = f"b{width}"
        cases.append(Case(f"selp.{kind}", (source, source, "pred"), width, lambda a, b, p: a if p else b))
        cases.append(Case(f"slct.{kind}.s32", (source, source, "s32"), width, lambda a, b, c: a if c >= 0 else b))
        positive = lambda a, b, c: a if as_float(c) >= 0 else b
        cases.append(Case(f"slct.{kind}.f32", (source, source, "b32"), width, positive))
        flushed = lambda a, b, c: a if as_float(c) >= 0 or 0x80000000 <= c <= 0x807FFFFF else b
        cases.append(Case(f"slct.ftz.{kind}.f32", (source, source, "b32"), width, flushed))
    check(cases)


def test_a_boolean_operation_needs_its_predicate():
    inputs = {"%r1": np.zeros(1, np.uint64), "%r2": np.zeros(1, np.uint64)}
    with pytest.raises(UnsupportedInstruction, match="third predicate"):
        run("setp.lt.and.s32 %p1, %r1, %r2;", inputs, "%p1")


def test_typed_follows_the_letter():
    assert typed(-1, "b32") == 0xFFFF_FFFF
