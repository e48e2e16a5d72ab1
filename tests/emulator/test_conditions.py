"""Conditions that sizes decide are computed for launches of any size; what data or a loop decides is left aside."""

from __future__ import annotations

import pytest

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.positions.conditions import Conditions, Outcome
from cutesmith.emulator.ptx.parser import parse
from tests.emulator.machine.launches import KERNEL, launch

TEXT = """
.version 8.8
.target sm_90a
.address_size 64
.file 1 "kernel.py"
.visible .entry k(.param .u64 p0, .param .u64 p1) {{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<20>;
ld.param.b64 %d1, [p0];
ld.param.b64 %d2, [p1];
cvt.u32.u64 %r1, %d2;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %tid.x;
mad.lo.s32 %r4, %r2, 32, %r3;
.loc 1 7 0
{code}
ret;
}}
"""


def outcomes(code, size, blocks):
    """Values of the conditions in a launch of so many blocks of 32 threads on inputs of a size; None without any."""
    conditions = Conditions.of(parse(TEXT.format(code=code)), "k")
    if conditions is None:
        return None
    recorded = launch((1 << 40, size), grid=(blocks, 1, 1), block=(32, 1, 1))
    found = conditions.outcomes(recorded, KERNEL, SM_VERSIONS[90])
    assert {compare.location.line for compare in conditions.compare.values()} == {7}
    return {outcome.holds for outcome in found}


def test_a_size_that_is_compared_with_a_constant_decides():
    code = "shl.b32 %r5, %r1, 2;\nsetp.ge.s32 %p1, %r5, 4096;\n@%p1 bra L;\nL:"
    assert outcomes(code, 1000, 4) == {False} and outcomes(code, 1024, 4) == {True}


def test_a_place_in_the_grid_that_is_compared_with_a_constant_decides():
    code = "setp.lt.s32 %p1, %r4, 1000000;\nselp.b32 %r5, 1, 2, %p1;"
    assert outcomes(code, 1, 4) == {True}
    assert outcomes(code, 1, 1 << 16) == {True, False}


@pytest.mark.parametrize(
    "code",
    [
        "setp.lt.s32 %p1, %r4, %r1;",  # the usual end of the inputs, which each launch has
        "setp.lt.s32 %p1, %r3, 16;",  # threads are as many at every size
        "ld.global.b32 %r5, [%d1];\nsetp.lt.s32 %p1, %r5, 16;",
        "mov.b32 %r5, 0;\nL:\nadd.s32 %r5, %r5, 1;\nsetp.lt.s32 %p1, %r5, %r1;\n@%p1 bra L;",
        "setp.lt.s32 %p2, %r3, 16;\n@%p2 mov.b32 %r5, %r1;\nsetp.lt.s32 %p1, %r5, 16;",
    ],
)
def test_what_sizes_alone_do_not_decide_is_left_aside(code):
    assert outcomes(code, 1000, 4) is None


def test_an_outcome_is_known_by_its_instruction():
    conditions = Conditions.of(parse(TEXT.format(code="setp.ge.s32 %p1, %r1, 9;\nsetp.ge.s32 %p2, %r1, 99;")), "k")
    recorded = launch((1 << 40, 50), grid=(1, 1, 1), block=(32, 1, 1))
    found = conditions.outcomes(recorded, KERNEL, SM_VERSIONS[90])
    assert found == {Outcome(6, holds=True), Outcome(7, holds=False)}
