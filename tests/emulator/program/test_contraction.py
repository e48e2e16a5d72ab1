"""Products and sums that ptxas fuses are fused; what it may not fuse is left as it is written."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.ptx.printer import format_instruction
from tests.emulator.native.straight import run
from tests.emulator.program.graphs import program_of


def lines(code):
    return [format_instruction(instruction) for instruction in program_of(code).instructions]


@pytest.mark.parametrize(
    ("code", "fused"),
    [
        ("mul.f32 %r4, %r1, %r2; add.f32 %r5, %r4, %r3;", "fused.add.f32 %r5, %r1, %r2, %r3;"),
        ("mul.f32 %r4, %r1, %r2; add.f32 %r5, %r3, %r4;", "fused.add.f32 %r5, %r1, %r2, %r3;"),
        ("mul.f32 %r4, %r1, %r2; sub.f32 %r5, %r4, %r3;", "fused.subtract_addend.f32 %r5, %r1, %r2, %r3;"),
        ("mul.f32 %r4, %r1, %r2; sub.f32 %r5, %r3, %r4;", "fused.subtract_product.f32 %r5, %r1, %r2, %r3;"),
        ("mul.ftz.f32 %r4, %r1, %r2; add.ftz.f32 %r5, %r4, %r3;", "fused.add.ftz.f32 %r5, %r1, %r2, %r3;"),
    ],
)
def test_a_product_with_one_use_is_fused_and_gone(code, fused):
    assert lines(f"{code} st.global.b32 [%rd1], %r5; ret;")[:-1] == [fused, "st.global.b32 [%rd1], %r5;"]


@pytest.mark.parametrize(
    "code",
    [
        "mul.rn.f32 %r4, %r1, %r2; add.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; add.rn.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; add.ftz.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; @%p1 add.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; add.f32 %r5, %r4, %r3; st.global.b32 [%rd1], %r4;",  # two uses
        "mul.f32 %r4, %r1, %r2; mov.b32 %r1, 0; add.f32 %r5, %r4, %r3;",  # a factor is gone
        "mul.f32 %r4, %r1, %r2; bra NEXT; NEXT: add.f32 %r5, %r4, %r3;",  # another block
        "mul.lo.s32 %r4, %r1, %r2; add.s32 %r5, %r4, %r3;",
    ],
)
def test_what_must_round_twice_does(code):
    assert not any("fused" in line for line in lines(f"{code} st.global.b32 [%rd1], %r5; ret;"))


def test_fused_sums_round_once():
    generator = np.random.default_rng(0)
    a, b, c = (generator.standard_normal(512).astype(np.float32) for _ in range(3))
    registers = {f"%r{place}": values.view(np.uint32) for place, values in enumerate((a, b, c), start=1)}
    wide = a.astype(np.float64) * b  # exact
    expected = {"add": wide + c, "subtract_addend": wide - c, "subtract_product": c - wide}
    for how, exact in expected.items():
        found = run(f"fused.{how}.f32 %r4, %r1, %r2, %r3;", registers, "%r4")["%r4"].astype(np.uint32).view(np.float32)
        assert np.array_equal(found, exact.astype(np.float32)), how
