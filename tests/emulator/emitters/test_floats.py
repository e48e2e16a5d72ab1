"""Float arithmetic against exact fractions in every format and rounding; NaN, zero, `.ftz`, `.sat` and `.relu`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cutesmith.emulator.emitters.formats import FORMATS
from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.emitters.exact import MODES, REGISTER, finite_operands, root, rounded, worth
from tests.emulator.native.straight import run

COUNT = 400
EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "sqrt": root,
    "rcp": lambda a: 1 / a,
}
SOURCES = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "sqrt": 1, "rcp": 1}
CASES = [(opcode, name, mode) for opcode in SOURCES for name in ("f32", "f64") for mode in MODES]
CASES += [(opcode, name, "rn") for opcode in ("add", "sub", "mul", "fma") for name in ("f16", "bf16")]


def execute(form: str, bits: int, *columns: np.ndarray, result: int | None = None) -> np.ndarray:
    """What one instruction makes of columns of patterns; its operands are filled in."""
    names = [f"{REGISTER[bits]}{place}" for place in range(1, len(columns) + 1)]
    target = f"{REGISTER.get(result or bits, '%p')}9"
    return run(f"{form} {', '.join((target, *names))};", dict(zip(names, columns)), target)[target]


def negative_zero(opcode: str, patterns: tuple[int, ...], sign: int, mode: str) -> bool:
    """Whether an exact zero is negative: by the signs of factors, or of terms with the same sign, else only in rm."""
    signs = [bool(pattern & sign) for pattern in patterns]
    if opcode in ("mul", "div"):
        return signs[0] ^ signs[1]
    if opcode in ("sqrt", "rcp"):
        return signs[0]
    terms = {"sub": [signs[0], not signs[-1]], "fma": [signs[0] ^ signs[1 % len(signs)], signs[-1]]}.get(opcode, signs)
    return terms[0] if terms[0] == terms[1] else mode == "rm"


@pytest.mark.parametrize(("opcode", "name", "mode"), CASES)
def test_results_are_the_exact_ones_rounded_once(opcode, name, mode):
    form = FORMATS[name]
    columns = [finite_operands(name, place, COUNT) for place in range(SOURCES[opcode])]
    if opcode == "sqrt":
        columns[0] &= np.uint64(form.sign - 1)
    if opcode in ("div", "rcp"):
        columns[-1] = np.where(columns[-1] & np.uint64(form.sign - 1), columns[-1], np.uint64(form.least_normal))
    results = execute(f"{opcode}.{mode}.{name}", form.bits, *columns)
    for patterns, result in zip(zip(*(column.tolist() for column in columns)), results.tolist()):
        exact = EXACT[opcode](*(worth(pattern, form) for pattern in patterns))
        wanted = rounded(exact, form, mode, negative_zero(opcode, patterns, form.sign, mode))
        assert result == wanted, f"{[hex(p) for p in patterns]} gives {result:#x}, not {wanted:#x}"


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_fused_result_is_not_rounded_twice(name):
    # 1 + ulp/2 lies between two numbers; a term far below decides, and would be lost if a wider format rounded first.
    form = FORMATS[name]
    one, ulp = form.bias << form.mantissa, Fraction(2) ** -form.mantissa
    factor = rounded(1 + ulp, form, "rn")
    other = rounded(1 - ulp / 2, form, "rn")
    tiny = [1, form.sign | 1]
    columns = [np.full(2, factor, np.uint64), np.full(2, other, np.uint64), np.array(tiny, np.uint64)]
    results = execute(f"fma.rn.{name}", 16, *columns)
    exact = [worth(factor, form) * worth(other, form) + worth(low, form) for low in tiny]
    assert results.tolist() == [rounded(value, form, "rn") for value in exact]
    assert one in results.tolist()


def test_what_is_tiny_after_rounding_is_flushed():
    least, below, half_up = 0x00800000, 0x3F7FFFFF, 0x3F000000
    a = np.array([below, 0x00FFFFFF, 0x00FFFFFF, least, 1], np.uint64)
    b = np.array([least, half_up, 0xBF000000, 0x3F800000, 0x7E800000], np.uint64)
    assert execute("mul.rn.f32", 32, a, b)[:2].tolist() == [least, least]  # rounded up to the least normal number
    assert execute("mul.rn.ftz.f32", 32, a, b).tolist() == [0, 0, 0x80000000, least, 0]
    # 2^-252 - 2^-126: with an endless exponent it rounds to -2^-126, which is not tiny
    c = np.array([0x80800000], np.uint64)
    assert execute("fma.rn.ftz.f32", 32, a[3:4], a[3:4], c).tolist() == [0x80800000]


NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


@pytest.mark.parametrize("name", NAN)
def test_every_nan_is_the_canonical_one(name):
    form = FORMATS[name]
    quiet = form.infinity | form.least_normal >> 1
    a = np.array([quiet | 5, form.sign | quiet, form.infinity | 1, form.infinity, 0], np.uint64)
    b = np.array([0, 0, 0, form.sign | form.infinity, form.infinity], np.uint64)
    assert (execute(f"add.rn.{name}", form.bits, a, b)[:4] == NAN[name]).all()
    assert (execute(f"mul.rn.{name}", form.bits, a, b)[[0, 1, 2, 4]] == NAN[name]).all()


def test_the_nan_of_a_double_is_that_of_an_operand():
    quiet, one, default = 0x7FF8 << 48, 0x3FF0 << 48, 0xFFF8 << 48
    a = np.array([quiet | 1, quiet | 1, 0x7FF0 << 48 | 1, 0], np.uint64)
    b = np.array([quiet | 2, one, one, 0x7FF0 << 48], np.uint64)
    c = np.array([quiet | 3, quiet | 3, one, one], np.uint64)
    assert execute("fma.rn.f64", 64, a, b, c).tolist() == [quiet | 2, quiet | 3, quiet | 1, default]
    assert execute("add.rn.f64", 64, a, b)[0] == quiet | 2
    assert execute("div.rn.f64", 64, a, b)[0] == quiet | 1


@pytest.mark.parametrize("name", ["f16", "f32"])
def test_saturation_clamps_and_turns_nan_into_zero(name):
    form = FORMATS[name]
    one = form.bias << form.mantissa
    a = np.array([form.infinity, form.sign | form.infinity, form.infinity | 1, one + 1, form.sign, one - 1], np.uint64)
    assert execute(f"add.rn.sat.{name}", form.bits, a, np.zeros(6, np.uint64)).tolist() == [one, 0, 0, one, 0, one - 1]


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_relu_keeps_nan(name):
    form = FORMATS[name]
    one = form.bias << form.mantissa
    a = np.array([one, form.sign | one, form.infinity | 1, form.sign], np.uint64)
    zeros, ones = np.zeros(4, np.uint64), np.full(4, one, np.uint64)
    assert execute(f"fma.rn.relu.{name}", 16, a, ones, zeros).tolist() == [one, 0, NAN[name], 0]


def test_the_out_of_bounds_nan_gives_zero():
    a = np.array([0x7FF7, 0x7FF8, 0x3C00], np.uint64)
    one = np.full(3, 0x3C00, np.uint64)
    assert execute("fma.rn.oob.f16", 16, a, one, one).tolist() == [0, 0x7FFF, 0x4000]


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_minimum_and_maximum_prefer_numbers_and_order_zeros(name):
    form = FORMATS[name]
    nan, zero = form.infinity | 1, form.sign
    a = np.array([nan, 1, 0, zero, form.infinity], np.uint64)
    b = np.array([1, nan, zero, 0, zero | form.infinity], np.uint64)
    assert execute(f"min.{name}", form.bits, a, b).tolist() == [1, 1, zero, zero, zero | form.infinity]
    assert execute(f"max.{name}", form.bits, a, b).tolist() == [1, 1, 0, 0, form.infinity]
    if name != "f64":
        assert execute(f"min.NaN.{name}", form.bits, a, b)[:2].tolist() == [NAN[name]] * 2
        signed = execute(f"max.xorsign.abs.{name}", form.bits, a, b)[2:]
        assert signed.tolist() == [zero, zero, zero | form.infinity]


COMPARISONS = {
    "eq": "0100", "ne": "1010", "lt": "1000", "le": "1100", "gt": "0010", "ge": "0110", "num": "1110", "nan": "0001",
    "equ": "0101", "neu": "1011", "ltu": "1001", "leu": "1101", "gtu": "0011", "geu": "0111",
}  # fmt: skip
"""Whether each comparison holds for less, equal, greater, unordered."""


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_comparisons_know_unordered_operands(comparison, name):
    form = FORMATS[name]
    one = form.bias << form.mantissa
    a = np.array([one, form.sign, one + 1, one], np.uint64)
    b = np.array([one + 1, 0, one, form.infinity | 1], np.uint64)
    found = execute(f"setp.{comparison}.{name}", form.bits, a, b, result=1)
    assert "".join(str(int(bit) & 1) for bit in found) == COMPARISONS[comparison]


def test_comparisons_combine_with_a_predicate():
    inputs = {"%r1": np.array([0, 0, 0x3F800000], np.uint64), "%r2": np.zeros(3, np.uint64)}
    inputs["%p3"] = np.array([0, 1, 1], np.uint64)
    code = "setp.eq.and.f32 %p1|%p2, %r1, %r2, !%p3; setp.gt.xor.f32 %p4, %r1, %r2, %p3;"
    code += "set.eq.or.u32.f32 %r4, %r1, %r2, %p3;"
    found = run(code, inputs, "%p1", "%p2", "%p4", "%r4")
    assert [found[name].tolist() for name in ("%p1", "%p2", "%p4")] == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert found["%r4"].tolist() == [2**32 - 1] * 3


@pytest.mark.parametrize("form", ["add.rn.sat.f64", "fma.rn.ftz.bf16", "add.rz.f16", "min.relu.f32", "fma.f32"])
def test_forms_that_do_not_exist_are_refused_by_name(form):
    columns = {f"%{kind}{place}": np.zeros(1, np.uint64) for kind in ("r", "rs", "rd") for place in (1, 2, 3)}
    register = {"f64": "%rd", "f32": "%r"}.get(form[-3:], "%rs")
    sources = ", ".join(f"{register}{place}" for place in range(1, 4 if form.startswith("fma") else 3))
    with pytest.raises(UnsupportedInstruction, match=form):
        run(f"{form} {register}9, {sources};", columns, f"{register}9")
