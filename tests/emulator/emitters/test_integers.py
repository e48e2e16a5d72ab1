"""Integer arithmetic against Python's integers, over edge values and random bits of every width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.emitters.cases import TYPES, Case, bits, check, each, operands, signed, typed
from tests.emulator.native.straight import run


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def clamp(value: int) -> int:
    return min(max(value, -(2**31)), 2**31 - 1)


def test_add_subtract_multiply_wrap_at_their_width():
    check(each("add", TYPES, 2, lambda _, a, b: a + b) + each("sub", TYPES, 2, lambda _, a, b: a - b))
    check(each("mul.lo", TYPES, 2, lambda _, a, b: a * b) + each("mad.lo", TYPES, 3, lambda _, a, b, c: a * b + c))


def test_the_high_half_and_the_wide_product_keep_the_sign():
    cases = each("mul.hi", TYPES, 2, lambda kind, a, b: a * b >> bits(kind))
    cases += each("mad.hi", TYPES, 3, lambda kind, a, b, c: (a * b >> bits(kind)) + c)
    for kind in ("u16", "s16", "u32", "s32"):
        double = f"{kind[0]}{2 * bits(kind)}"
        cases.append(Case(f"mul.wide.{kind}", (kind, kind), 2 * bits(kind), lambda a, b: a * b))
        cases.append(Case(f"mad.wide.{kind}", (kind, kind, double), 2 * bits(kind), lambda a, b, c: a * b + c))
    check(cases)


def test_24_bit_products_take_the_low_24_bits():
    def product(kind: str, a: int, b: int) -> int:
        a, b = (signed(v, 24) if kind == "s32" else v & 0xFFFFFF for v in (a, b))
        return a * b

    kinds = ("u32", "s32")
    check(
        each("mul24.lo", kinds, 2, product)
        + each("mul24.hi", kinds, 2, lambda kind, a, b: product(kind, a, b) >> 16)
        + each("mad24.lo", kinds, 3, lambda kind, a, b, c: product(kind, a, b) + c)
        + each("mad24.hi", kinds, 3, lambda kind, a, b, c: (product(kind, a, b) >> 16) + c)
        + each("mad24.hi.sat", ("s32",), 3, lambda k, a, b, c: clamp(signed(product(k, a, b) >> 16, 32) + c))
    )


def test_division_truncates_and_by_zero_gives_what_a_gpu_gives():
    def remainder(_: str, a: int, b: int) -> int:
        return a - b * towards_zero(a, b) if b else -1

    cases = each("div", TYPES, 2, lambda _, a, b: towards_zero(a, b) if b else -1)
    check(cases + each("rem", TYPES, 2, remainder))


def test_saturation_clamps_to_the_range():
    check(
        [
            Case("add.sat.s32", ("s32", "s32"), 32, lambda a, b: clamp(a + b)),
            Case("sub.sat.s32", ("s32", "s32"), 32, lambda a, b: clamp(a - b)),
            Case("mad.hi.sat.s32", ("s32", "s32", "s32"), 32, lambda a, b, c: clamp((a * b >> 32) + c)),
        ]
    )


def test_abs_neg_min_max_sad():
    signed_types = ("s16", "s32", "s64")
    cases = each("abs", signed_types, 1, lambda _, a: abs(a)) + each("neg", signed_types, 1, lambda _, a: -a)
    cases += each("min", TYPES, 2, lambda _, a, b: min(a, b)) + each("max", TYPES, 2, lambda _, a, b: max(a, b))
    cases += each("sad", TYPES, 3, lambda _, a, b, c: c + abs(a - b))
    cases.append(Case("min.relu.s32", ("s32", "s32"), 32, lambda a, b: max(0, min(a, b))))
    cases.append(Case("max.relu.s32", ("s32", "s32"), 32, lambda a, b: max(0, a, b)))
    check(cases)


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_pairs_of_halves_do_not_carry_into_each_other(kind: str):
    def halves(operation: Callable[[int, int], int]) -> Callable[[int, int], int]:
        half = "s16" if kind == "s16x2" else "u16"

        def both(a: int, b: int) -> int:
            low, high = (operation(typed(a >> s, half), typed(b >> s, half)) & 0xFFFF for s in (0, 16))
            return low | high << 16

        return both

    relu = {"min": lambda a, b: max(0, min(a, b)), "max": lambda a, b: max(0, a, b)}
    cases = [Case(f"{name}.relu.{kind}", ("b32", "b32"), 32, halves(relu[name])) for name in relu if kind == "s16x2"]
    plain = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "min": min, "max": max}
    cases += [Case(f"{name}.{kind}", ("b32", "b32"), 32, halves(plain[name])) for name in plain]
    check(cases)


def test_dot_products_of_bytes_and_halves():
    def fields(value: int, width: int, is_signed: bool) -> list[int]:
        parts = [value >> shift & ((1 << width) - 1) for shift in range(0, 32, width)]
        return [signed(part, width) for part in parts] if is_signed else parts

    def dot(a: int, b: int, c: int, kinds: tuple[str, str], width: int, skip: int) -> int:
        left, right = fields(a, width, kinds[0] == "s32"), fields(b, 8, kinds[1] == "s32")[skip:]
        return c + sum(x * y for x, y in zip(left, right))

    cases = []
    for kinds in (("u32", "u32"), ("s32", "s32"), ("u32", "s32"), ("s32", "u32")):
        for form, width, skip in (("dp4a", 8, 0), ("dp2a.lo", 16, 0), ("dp2a.hi", 16, 2)):
            oracle = lambda a, b, c, kinds=kinds, width=width, skip=skip: dot(a, b, c, kinds, width, skip)
            cases.append(Case(f"{form}.{'.'.join(kinds)}", ("b32",) * 3, 32, oracle))
    check(cases)


def test_carries_chain_additions_and_borrows_chain_subtractions():
    low, high, other_low, other_high = operands(4)
    inputs = dict(zip(("%rd1", "%rd2", "%rd3", "%rd4"), (low, high, other_low, other_high)))
    code = """
    add.cc.u64 %rd10, %rd1, %rd3;   addc.u64 %rd11, %rd2, %rd4;
    sub.cc.s64 %rd12, %rd1, %rd3;   subc.u64 %rd13, %rd2, %rd4;
    """
    results = run(code, inputs, "%rd10", "%rd11", "%rd12", "%rd13")
    for lane in range(len(low)):
        a, b = int(low[lane]) | int(high[lane]) << 64, int(other_low[lane]) | int(other_high[lane]) << 64
        total, difference = (a + b) % 2**128, (a - b) % 2**128
        assert int(results["%rd10"][lane]) | int(results["%rd11"][lane]) << 64 == total
        assert int(results["%rd12"][lane]) | int(results["%rd13"][lane]) << 64 == difference


def test_multiply_add_chains_give_a_128_bit_product():
    a, b = operands(2)
    split = {"%r1": a & np.uint64(2**32 - 1), "%r2": a >> np.uint64(32)}
    split |= {"%r3": b & np.uint64(2**32 - 1), "%r4": b >> np.uint64(32)}
    code = """
    mul.lo.u32     %r10, %r1, %r3;
    mul.hi.u32     %r11, %r1, %r3;
    mad.lo.cc.u32  %r11, %r1, %r4, %r11;
    madc.hi.u32    %r12, %r1, %r4, 0;
    mad.lo.cc.u32  %r11, %r2, %r3, %r11;
    madc.hi.cc.u32 %r12, %r2, %r3, %r12;
    addc.u32       %r13, 0, 0;
    mad.lo.cc.u32  %r12, %r2, %r4, %r12;
    madc.hi.u32    %r13, %r2, %r4, %r13;
    """
    words = run(code, split, "%r10", "%r11", "%r12", "%r13")
    for lane in range(len(a)):
        product = sum(int(words[f"%r{10 + word}"][lane]) << 32 * word for word in range(4))
        assert product == int(a[lane]) * int(b[lane])


@pytest.mark.parametrize("form", ["mul.hi.sat.s32", "sad.sat.s32", "mul24.wide.s32"])
def test_an_unknown_modifier_is_refused_by_name(form: str):
    with pytest.raises(UnsupportedInstruction, match=form):
        run(f"{form} %r3, %r1, %r2, %r2;", {"%r1": np.zeros(1, np.uint64), "%r2": np.zeros(1, np.uint64)}, "%r3")
