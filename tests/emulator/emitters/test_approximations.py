"""Approximate functions: within the errors that the PTX manual states; its special values; the shape of the unit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cutesmith.emulator.emitters.unit_tables import TABLES, TANH_ROWS
from tests.emulator.native.straight import run

INFINITY, NAN = 0x7F800000, 0x7FFFFFFF


def apply(form: str, *columns: np.ndarray) -> np.ndarray:
    names = [f"%r{place}" for place in range(1, len(columns) + 1)]
    return run(f"{form} %r9, {', '.join(names)};", dict(zip(names, columns)), "%r9")["%r9"]


def patterns(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).view(np.uint32).astype(np.uint64)


def numbers(words: np.ndarray) -> np.ndarray:
    return words.astype(np.uint32).view(np.float32).astype(np.float64)


GRID = np.random.default_rng(3).uniform(1, 4, 4000)
WIDE = np.concatenate([GRID * 2.0**e for e in (-120, -40, -3, 0, 5, 60, 120)])
RELATIVE = {
    "rcp": (lambda x: 1 / x, 2.0**-23),
    "rsqrt": (lambda x: x**-0.5, 2.0**-22.9),
    "sqrt": (np.sqrt, 2.0**-23),
}


@pytest.mark.parametrize("flush", ["", ".ftz"])
@pytest.mark.parametrize("function", RELATIVE)
def test_relative_errors_are_those_of_the_manual(function, flush):
    x = numbers(patterns(WIDE))
    exact, bound = RELATIVE[function]
    error = numbers(apply(f"{function}.approx{flush}.f32", patterns(WIDE))) / exact(x) - 1
    assert 2.0**-26 < abs(error).max() <= bound  # never exact: an approximation was asked for


def test_ex2_and_lg2_errors_are_those_of_the_manual():
    x = numbers(patterns(np.random.default_rng(4).uniform(-126, 127, 20000)))
    assert abs(numbers(apply("ex2.approx.ftz.f32", patterns(x))) / np.exp2(x) - 1).max() <= 2.0**-22.5
    near = numbers(patterns(np.random.default_rng(5).uniform(0.5, 2, 20000)))
    assert abs(numbers(apply("lg2.approx.ftz.f32", patterns(near))) - np.log2(near)).max() <= 2.0**-22
    wide = numbers(patterns(WIDE))
    relative = numbers(apply("lg2.approx.ftz.f32", patterns(WIDE))) / np.log2(wide) - 1
    assert abs(relative[np.abs(np.log2(wide)) > 1]).max() <= 2.0**-22


def test_sin_cos_and_tanh_errors_are_those_of_the_manual():
    x = numbers(patterns(np.random.default_rng(6).uniform(-math.pi, math.pi, 20000)))
    for function, exact in (("sin", np.sin), ("cos", np.cos)):
        assert abs(numbers(apply(f"{function}.approx.f32", patterns(x))) - exact(x)).max() <= 2.0**-20.5
    assert abs(numbers(apply("tanh.approx.f32", patterns(x))) / np.tanh(x) - 1).max() <= 2.0**-11


@pytest.mark.parametrize("form", ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"])
def test_quotients_are_within_two_units(form):
    a, b = numbers(patterns(WIDE)), numbers(patterns(WIDE[::-1].copy()))
    fits = (abs(b) < 2.0**126) & (abs(np.log2(a / b)) < 125)
    quotients = numbers(apply(form, patterns(a), patterns(b)))
    assert abs(quotients / (a / b) - 1)[fits].max() <= 2.0**-22


def test_division_by_a_huge_number_gives_zero_or_is_scaled():
    a, b = patterns(np.array([2.0**127])), patterns(np.array([1.5 * 2.0**126]))
    assert apply("div.approx.ftz.f32", a, b)[0] == 0
    assert abs(numbers(apply("div.full.f32", a, b))[0] * 0.75 - 1) < 2.0**-22


SPECIAL = {
    "rcp.approx.ftz": ("inf -inf 0 -0 inf", "0 -0 inf -inf 0"),
    "rsqrt.approx.ftz": ("inf 0 -0 -1 -inf", "0 inf -inf nan nan"),
    "sqrt.approx.ftz": ("inf 0 -0 -1 1", "inf 0 -0 nan 1"),
    "lg2.approx.ftz": ("inf 0 -0 -1 1", "inf -inf -inf nan 0"),
    "ex2.approx.ftz": ("inf -inf 0 -0 128 -150 3 -3", "inf 0 1 1 inf 0 8 0.125"),
    "sin.approx": ("inf -inf 0 -0", "nan nan 0 -0"),
    "cos.approx": ("inf -inf 0 -0", "nan nan 1 1"),
    "tanh.approx": ("inf -inf 0 -0 9 -9 1e-40", "1 -1 0 -0 1 -1 1e-40"),
}


@pytest.mark.parametrize("function", SPECIAL)
def test_special_values_follow_the_tables_of_the_manual(function):
    operands, wanted = (np.array([float(word) for word in text.split()]) for text in SPECIAL[function])
    expected = np.where(np.isnan(wanted), np.uint64(NAN), patterns(wanted))
    assert apply(f"{function}.f32", patterns(operands)).tolist() == expected.tolist()
    assert apply(f"{function}.f32", np.array([0x7FC00001, 0xFF800001], np.uint64)).tolist() == [NAN, NAN]


def test_subnormals_are_flushed_or_scaled():
    tiny = np.array([1, 0x80000001], np.uint64)
    assert apply("rcp.approx.ftz.f32", tiny).tolist() == [INFINITY, 1 << 31 | INFINITY]
    assert numbers(apply("sqrt.approx.f32", tiny[:1]))[0] == pytest.approx(2.0**-74.5, rel=2.0**-22)
    assert numbers(apply("lg2.approx.f32", tiny[:1]))[0] == -149
    assert apply("ex2.approx.f32", patterns(np.array([-149.0])))[0] == 1
    assert apply("ex2.approx.ftz.f32", patterns(np.array([-149.0])))[0] == 0


def test_doubles_are_approximated_from_their_upper_half():
    values = np.array([3.0, 0.7, 1e300, 1e-300])
    words = values.view(np.uint64)
    found = run("rcp.approx.ftz.f64 %rd2, %rd1; rsqrt.approx.f64 %rd3, %rd1;", {"%rd1": words}, "%rd2", "%rd3")
    assert (found["%rd2"] & np.uint64(2**32 - 1) == 0).all()
    assert abs(found["%rd2"].view(np.float64) * values - 1).max() < 2.0**-19
    assert abs(found["%rd3"].view(np.float64) ** 2 * values - 1).max() < 2.0**-50


def test_coefficients_are_as_narrow_as_the_hardware_keeps_them():
    bits = {"rcp": (26, 16, 10), "rsqrt": (26, 16, 10), "ex2": (26, 16, 10), "lg2": (26, 16, 10), "sin": (26, 15, 11)}
    for name, widths in bits.items():
        rows = [[int(part, 16).bit_length() for part in row.split(".")] for row in TABLES[name].rows.split()]
        assert tuple(max(column) for column in zip(*rows)) <= widths
    counts = {name: len(table.coefficients()) for name, table in TABLES.items()}
    assert counts == {"rcp": 128, "rsqrt": 128, "sqrt": 128, "ex2": 64, "lg2": 64, "sin": 64, "tanh": sum(TANH_ROWS)}
