"""`mma.sync` of sm_120a with narrow formats and scale factors, against float64; elements are placed one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.machine.launches import run_warps

FIELDS = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}  # exponent, mantissa
D, A, B, C = range(4), range(4, 8), range(8, 10), range(10, 14)
OPERANDS = ", ".join("{" + ", ".join(f"%r{index}" for index in part) + "}" for part in (D, A, B, C))


def number(bits: int, kind: str) -> float:
    """The value of a finite bit pattern."""
    exponent, mantissa = FIELDS[kind]
    sign, low = bits >> (exponent + mantissa) & 1, bits & ((1 << mantissa) - 1)
    biased, bias = bits >> mantissa & ((1 << exponent) - 1), (1 << (exponent - 1)) - 1
    value = (low / (1 << mantissa) + (biased > 0)) * 2.0 ** (max(biased, 1) - bias)
    return -value if sign else value


def drawn(generator, shape, kind):
    """Bit patterns of moderate numbers: exponents within 2 of that of one."""
    exponent, mantissa = FIELDS[kind]
    bias = (1 << (exponent - 1)) - 1
    biased = np.clip(generator.integers(bias - 2, bias + 3, shape), 0, (1 << exponent) - (2 if exponent > 3 else 1))
    fraction, sign = generator.integers(0, 1 << mantissa, shape), generator.integers(0, 2, shape)
    return sign << (exponent + mantissa) | biased << mantissa | fraction


def in_register(bits, kind, width):
    """An element as it lies in its 8 or 4 bits."""
    return int(bits) << (2 if width == 8 and kind == "e2m1" else 0)


def registers(a, b, kinds, width):
    """Registers of A and of B by name, (1, 32) each: the PTX ISA's figures, element by element."""
    per, found = 32 // width, {f"%r{index}": np.zeros((1, 32), np.uint64) for index in (*A, *B)}
    for (row, k), bits in np.ndenumerate(a):
        lane, part = 4 * (row % 8) + k // per % 4, row // 8 + 2 * (k // (4 * per))
        found[f"%r{A[part]}"][0, lane] |= np.uint64(in_register(bits, kinds[0], width) << width * (k % per))
    for (column, k), bits in np.ndenumerate(b):
        lane, part = 4 * column + k // per % 4, k // (4 * per)
        found[f"%r{B[part]}"][0, lane] |= np.uint64(in_register(bits, kinds[1], width) << width * (k % per))
    return found


def product(opcode, kinds, scale="", vector=0, selectors=((0, 0), (0, 0))):
    """(what the emulated GPU gives, the sums in float64), (16, 8) each."""
    generator = np.random.default_rng(sum(map(ord, opcode)))
    width = 4 if "mxf4" in opcode else 8
    depth = 64 if width == 4 else 32
    a, b = drawn(generator, (16, depth), kinds[0]), drawn(generator, (8, depth), kinds[1])
    c = generator.integers(-8, 8, (16, 8)).astype(np.float32)
    values = registers(a, b, kinds, width)
    for (row, column), one in np.ndenumerate(c):
        index = C[column % 2 + 2 * (row // 8)]
        held = values.setdefault(f"%r{index}", np.zeros((1, 32), np.uint64))
        held[0, 4 * (row % 8) + column // 2] = one.view(np.uint32)
    left, right = (np.vectorize(number)(bits, kind) for bits, kind in zip((a, b), kinds))
    code = f"{opcode} {OPERANDS}"
    if vector:
        low, high = (118, 135) if scale == "ue8m0" else (0x30, 0x44)
        factors = [generator.integers(low, high, (rows, vector)) for rows in (16, 8)]
        words = np.random.default_rng(1).integers(0, 1 << 32, (2, 32)).astype(np.uint32)
        (byte_a, thread_a), (byte_b, thread_b) = selectors
        for row, column in itertools.product(range(16), range(vector)):
            place = words[0:1, 4 * (row % 8) + 2 * thread_a + row // 8 : 4 * (row % 8) + 2 * thread_a + row // 8 + 1]
            place.view(np.uint8)[0, byte_a + column] = factors[0][row, column]
        for row, column in itertools.product(range(8), range(vector)):
            place = words[1:2, 4 * row + thread_b : 4 * row + thread_b + 1]
            place.view(np.uint8)[0, byte_b + column] = factors[1][row, column]
        values |= {"%r14": words[:1], "%r15": words[1:]}
        scaled = [2.0 ** (part - 127.0) if scale == "ue8m0" else np.vectorize(number)(part, "e4m3") for part in factors]
        left, right = (np.repeat(s, depth // vector, axis=1) * v for s, v in zip(scaled, (left, right)))
        code += f", {{%r14}}, {{{byte_a}, {thread_a}}}, {{%r15}}, {{{byte_b}, {thread_b}}}"
    outputs = run_warps(f"{code};", values, *(f"%r{index}" for index in D))
    found = np.zeros((16, 8), np.float32)
    for row, column in np.ndindex(16, 8):
        found[row, column] = outputs[column % 2 + 2 * (row // 8)][0, 4 * (row % 8) + column // 2].astype(np.uint32).view(np.float32)  # noqa: E501  # fmt: skip
    return found, c + left @ right.T


@pytest.mark.parametrize("kinds", [("e2m1", "e4m3"), ("e2m3", "e3m2"), ("e5m2", "e2m1"), ("e4m3", "e4m3")])
def test_formats_of_six_and_four_bits_lie_in_bytes(kinds):
    opcode = f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{kinds[0]}.{kinds[1]}.f32"
    found, expected = product(opcode, kinds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


SCALED = (
    ("mxf8f6f4", "1X", "ue8m0", ("e4m3", "e2m1"), 1, ((3, 1), (2, 3))),
    ("mxf8f6f4", "1X", "ue8m0", ("e3m2", "e5m2"), 1, ((0, 0), (1, 2))),
    ("mxf4", "2X", "ue8m0", ("e2m1", "e2m1"), 2, ((2, 0), (0, 1))),
    ("mxf4nvf4", "4X", "ue4m3", ("e2m1", "e2m1"), 4, ((0, 1), (0, 3))),
    ("mxf4nvf4", "2X", "ue8m0", ("e2m1", "e2m1"), 2, ((0, 1), (2, 0))),
)


@pytest.mark.parametrize("shape_first", [True, False])
@pytest.mark.parametrize(("kind", "words", "scale", "kinds", "vector", "selectors"), SCALED)
def test_scale_factors_come_from_the_chosen_bytes_and_threads(
    kind, words, scale, kinds, vector, selectors, shape_first
):
    shape = f"m16n8k{64 if kind.startswith('mxf4') else 32}.row.col"
    named = f"kind::{kind}.block_scale.scale_vec::{words}"
    front = f"{shape}.{named}" if shape_first else f"{named}.{shape}"
    opcode = f"mma.sync.aligned.{front}.f32.{kinds[0]}.{kinds[1]}.f32.{scale}"
    found, expected = product(opcode, kinds, scale, vector, selectors)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-3)


def test_forms_that_ptx_lacks_are_refused_by_name():
    wrong = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0"
    with pytest.raises(UnsupportedInstruction, match="scale_vec::4X"):
        product(wrong, ("e2m1", "e2m1"), "ue8m0", 4)
