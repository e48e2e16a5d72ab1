"""Floats as exact fractions: what a pattern is worth, and the pattern of a fraction in any format and rounding mode."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np

from cutesmith.emulator.emitters.formats import FORMATS, Format
from evals.studies.emulator.instruction_operands import edge_values, moderate_values, random_words

MODES = ("rn", "rz", "rm", "rp")
REGISTER = {16: "%rs", 32: "%r", 64: "%rd"}


def worth(pattern: int, form: Format) -> Fraction:
    """The number that a finite pattern stands for."""
    exponent = pattern >> form.mantissa & (1 << form.exponent_bits) - 1
    fraction = pattern & form.least_normal - 1
    significand = fraction | (form.least_normal if exponent else 0)
    sign = -1 if pattern & form.sign else 1
    return sign * significand * Fraction(2) ** (max(exponent, 1) - form.bias - form.mantissa)


def rounded(value: Fraction, form: Format, mode: str, negative_zero: bool = False) -> int:
    """The pattern of a number; one beyond the largest is infinite or the largest, as the mode says."""
    negative = value < 0 or (value == 0 and negative_zero)
    sign, magnitude = (form.sign if negative else 0), abs(value)
    if not magnitude:
        return sign
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, 1 - form.bias) - form.mantissa)
    units, rest = divmod(magnitude, unit)
    away = {"rz": False, "rm": negative, "rp": not negative}.get(mode)
    if away is None:
        up = rest > unit / 2 or (rest == unit / 2 and (mode == "rna" or units % 2 == 1))
    else:
        up = away and rest > 0
    pattern = int(units) + up
    if exponent > 1 - form.bias:
        pattern += (exponent - (1 - form.bias)) << form.mantissa
    if pattern > form.largest:
        return sign | (form.largest if away is False or not form.has_infinity else form.infinity)
    return sign | pattern


def root(value: Fraction) -> Fraction:
    """A fraction that rounds as the square root does: exact, or half a unit of 2^-1200 above its truncation."""
    scaled = value * 4**1200
    whole = isqrt(int(scaled))
    return Fraction(2 * whole + (whole * whole != scaled), 2**1201)


def finite_operands(name: str, place: int, count: int) -> np.ndarray:
    """Finite patterns: edge values, moderate and random ones, uint64."""
    form = FORMATS[name]
    hashed, chosen = (random_words(1000 + 10 * place + use, count) for use in (0, 1))
    edges = edge_values(name)
    values = edges[(chosen % np.uint64(len(edges))).astype(int)]
    values = np.where(chosen >> np.uint64(62) == 0, values, moderate_values(name, hashed))
    values = np.where(chosen >> np.uint64(61) == 7, hashed, values) & np.uint64(2**form.bits - 1)
    finite = values & np.uint64(form.sign - 1) <= np.uint64(form.largest)
    return np.where(finite, values, np.uint64(form.least_normal + place))
