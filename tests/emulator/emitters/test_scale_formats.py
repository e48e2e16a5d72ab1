"""Conversions to and from UE8M0 against the definition: the exponent, rounded up or down, without the sign."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.emulator.machine.launches import run_warps

VALUES = (1.0, 1.0000001, 1.5, 2.0, 3.999, -3.0, 0.0, -0.0, 2.0**-127, 2.0**-127 * 1.01, 2.0**-128, 2.0**-126, 1e-45,
          2.0**127, 2.0**127 * 1.5, 3.4e38, float("inf"), float("-inf"), float("nan"), 0.1, 448.0, 6.0)  # fmt: skip


def power(value, rounding, finite):
    """The byte for a float32."""
    magnitude = abs(float(np.float32(value)))
    if math.isnan(magnitude):
        return 255
    if math.isinf(magnitude):
        return 254 if finite else 255
    if magnitude < 2.0**-126:  # subnormal numbers: 2^-127 is the least power
        return 1 if rounding == "rp" and magnitude > 2.0**-127 else 0
    exponent = math.floor(math.log2(magnitude))
    up = rounding == "rp" and magnitude != 2.0**exponent
    return min(exponent + up + 127, 254 if finite else 255)


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_two_floats_become_powers_of_two(rounding, finite):
    words = np.zeros((1, 32), np.uint64)
    words[0, : len(VALUES)] = np.array(VALUES, np.float32).view(np.uint32)
    other = np.roll(words, 1)
    opcode = f"cvt.{rounding}{'.satfinite' if finite else ''}.ue8m0x2.f32"
    code = f"{{ .reg .b16 %pair; {opcode} %pair, %r1, %r0; cvt.u32.u16 %r2, %pair; }}"
    (found,) = run_warps(code, {"%r0": words, "%r1": other}, "%r2")
    expected = [power(value, rounding, finite) for value in VALUES]
    assert (found[0, : len(VALUES)] & 0xFF).tolist() == expected
    assert (found[0, 1 : len(VALUES)] >> np.uint64(8)).tolist() == expected[:-1]


def test_powers_of_two_become_bfloat16():
    pairs = np.arange(32, dtype=np.uint64)[None] * 8 | np.uint64(255) << np.uint64(8)
    code = "{ .reg .b16 %pair; cvt.u16.u32 %pair, %r0; cvt.rn.bf16x2.ue8m0x2 %r1, %pair; }"
    (found,) = run_warps(code, {"%r0": pairs}, "%r1")
    low = ((found[0] & 0xFFFF) << 16).astype(np.uint32).view(np.float32)
    assert low.tolist() == [2.0 ** (8 * index - 127) for index in range(32)]
    assert (found[0] >> np.uint64(16) == 0x7FFF).all()
