"""Indices that wrap at full size are found by their addresses alone; what only looks like one is left alone."""

from __future__ import annotations

import pytest

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.device import Unexecuted
from cutesmith.emulator.positions.search import LARGE, Tensor, search
from cutesmith.recording.sessions import Module
from tests.emulator.machine.launches import KERNEL, launch

SM = SM_VERSIONS[90]
INPUT, OUTPUT = 0x7F00_0000_0000, 0x7F80_0000_0000
TEXT = """
.version 8.8
.target sm_90a
.address_size 64
.file 1 "kernel.py"
.visible .entry k(.param .u64 p0, .param .u64 p1) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %d<20>;
.shared .align 16 .b8 tile[1024];
.loc 1 7 0
ld.param.b64 %d1, [p0];
ld.param.b64 %d2, [p1];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %tid.x;
mad.lo.s32 %r3, %r1, 128, %r2;
{code}
add.s64 %d5, %d1, %d4;
ld.global.b16 %h1, [%d5];
add.s64 %d6, %d2, %d4;
.loc 1 9 0
st.global.b16 [%d6], %h1;
ret;
}}
"""


def searched(code, elements, *, returned=True):
    """What is found in a copy of 16-bit elements, 128 a block, whose position `code` makes of %r3 into %d4."""
    recorded = launch((INPUT, OUTPUT), grid=(-(-elements // 128), 1, 1), block=(128, 1, 1))
    ptx = TEXT.format(code=code)
    module = Module(function="k", arch="sm_90a", seconds=0.0, ptx=ptx, cubin=b"", kernels={}, spills={})
    tensors = [Tensor("input 0", INPUT, 2 * elements), Tensor("output 0", OUTPUT, 2 * elements, returned)]
    return search(Unexecuted(recorded, KERNEL, module, ()), tensors, SM)


BEYOND_31, BEYOND_32 = (1 << 31) + 1000, (1 << 32) + 1000
WRAPS = {
    "signed product": ("mul.wide.s32 %d4, %r3, 2;", BEYOND_31),
    "unsigned product": ("mul.wide.u32 %d4, %r3, 2;", BEYOND_32),
    "bytes in 32 bits": ("shl.b32 %r4, %r3, 1; cvt.s64.s32 %d4, %r4;", (1 << 30) + 1000),
    "row and column of a wrapped index": (
        "shr.s32 %r4, %r3, 10; and.b32 %r5, %r3, 1023; mad.lo.s32 %r6, %r4, 1024, %r5; mul.wide.s32 %d4, %r6, 2;",
        BEYOND_31,
    ),
    "divided by seven": (
        "mul.hi.s32 %r4, %r3, -1840700269; add.s32 %r4, %r4, %r3; shr.s32 %r4, %r4, 2; shr.u32 %r5, %r3, 31;"
        "add.s32 %r4, %r4, %r5; mul.lo.s32 %r6, %r4, 7; sub.s32 %r7, %r3, %r6;"
        "mul.wide.s32 %d4, %r4, 14; mad.wide.s32 %d4, %r7, 2, %d4;",
        BEYOND_31,
    ),
    "the smaller of two": ("min.s32 %r4, %r3, 2147483647; mul.wide.s32 %d4, %r4, 2;", BEYOND_31),
}


@pytest.mark.parametrize("name", WRAPS)
def test_an_index_of_32_bits_that_wraps_is_found(name):
    code, elements = WRAPS[name]
    wrap = searched(code, elements).wrap
    assert wrap is not None and wrap.bits == 32
    assert wrap.tensor.name == "input 0" and wrap.location.line == 7
    assert 0 <= wrap.meant < wrap.tensor.size and wrap.got != wrap.meant


def test_thread_and_block_are_those_that_wrap():
    wrap = searched("mul.wide.s32 %d4, %r3, 2;", BEYOND_31).wrap
    position = 128 * wrap.block[0] + wrap.thread[0]
    assert wrap.meant == 2 * position and wrap.got == 2 * (position - (1 << 32))


HONEST = {
    "64 bits": ("cvt.u64.u32 %d3, %r1; mul.lo.s64 %d3, %d3, 256; mul.wide.u32 %d4, %r2, 2; add.s64 %d4, %d3, %d4;"),
    "a guard before the access": (
        "setp.lt.u32 %p1, %r1, 16777216; @!%p1 ret; mul.wide.s32 %d4, %r3, 2;"  # as many blocks as 2^31 elements need
    ),
    "a hash of the position": (
        "mul.lo.s32 %r4, %r3, -1640531527; shr.u32 %r5, %r4, 16; xor.b32 %r4, %r4, %r5; and.b32 %r4, %r4, 1048575;"
        "mul.wide.u32 %d4, %r4, 2;"
    ),
    "an unsigned index beyond 2^31": "mul.wide.u32 %d4, %r3, 2;",
    "division without remainder": (
        "mul.lo.s32 %r4, %r1, 3; mul.lo.s32 %r4, %r4, -1431655765; mul.wide.u32 %d4, %r4, 256; "
        "mad.wide.u32 %d4, %r2, 2, %d4;"
    ),
    "what is loaded and loaded": "cvt.u64.u32 %d3, %r2; ld.shared.b32 %r9, [tile]; mul.wide.s32 %d4, %r9, 2;",
}


@pytest.mark.parametrize("name", HONEST)
def test_what_does_not_wrap_is_left_alone(name):
    found = searched(HONEST[name], BEYOND_31)
    assert found.wrap is None and not found.untried and found.blocks > 20


SIXTEEN = {
    "signed": "shl.b32 %r4, %r3, 16; shr.s32 %r4, %r4, 16; mul.wide.s32 %d4, %r4, 2;",
    "unsigned": "and.b32 %r4, %r3, 65535; mul.wide.u32 %d4, %r4, 2;",
    "a conversion": "cvt.u16.u32 %h2, %r3; cvt.u32.u16 %r4, %h2; mul.wide.u32 %d4, %r4, 2;",
    "a sum of 16 bits": (
        "cvt.u16.u32 %h2, %r3; add.s16 %h3, %h2, 1; add.s16 %h3, %h3, -1;"
        "cvt.s32.s16 %r4, %h3; mul.wide.s32 %d4, %r4, 2;"
    ),
}


@pytest.mark.parametrize("name", SIXTEEN)
def test_an_index_of_16_bits_that_wraps_is_found(name):
    wrap = searched(SIXTEEN[name], 100_000).wrap
    assert wrap is not None and wrap.bits == 16
    assert searched(SIXTEEN[name], 32_000).wrap is None


def test_halves_that_are_put_together_again_are_no_index_of_16_bits():
    code = "and.b32 %r4, %r3, 65535; shr.u32 %r5, %r3, 16; mad.lo.s32 %r6, %r5, 65536, %r4; mul.wide.s32 %d4, %r6, 2;"
    assert searched(code, 10_000_000).wrap is None


def test_two_positions_at_one_address_count_in_outputs_only():
    """A ring of 65 536 entries may be a workspace."""
    assert searched(SIXTEEN["unsigned"], 100_000, returned=False).wrap is None


def test_small_tensors_and_wide_integers_cost_nothing():
    assert searched("mul.wide.s32 %d4, %r3, 2;", LARGE // 4).blocks == 0


def test_a_launch_that_cannot_be_run_says_why():
    endless = "loop: setp.ge.s32 %p1, %r2, 0; @%p1 bra loop; mul.wide.s32 %d4, %r3, 2;"
    found = searched(endless, BEYOND_31)
    assert found.wrap is None and "steps" in found.untried


def test_a_wait_for_a_copy_counts_as_passed():
    code = (
        "mov.u32 %r8, tile; mbarrier.init.shared.b64 [%r8], 1;"
        "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0; @!%p2 bra wait; mul.wide.s32 %d4, %r3, 2;"
    )
    assert searched(code, BEYOND_31).wrap is not None


ROW_OF_8192 = "mul.f32 %r5, %r4, 0f39000000; cvt.rzi.s32.f32 %r6, %r5;"  # 2^-13
BACK = "shl.b32 %r7, %r6, 13; and.b32 %r8, %r3, 8191; add.s32 %r9, %r7, %r8; mul.wide.s32 %d4, %r9, 2;"


def test_a_position_that_float32_does_not_hold_is_found_above_2_24():
    code = f"cvt.rn.f32.s32 %r4, %r3; {ROW_OF_8192} {BACK}"
    assert searched(code, 1 << 24).wrap is None
    wrap = searched(code, (1 << 26) + 1000).wrap
    assert wrap is not None and wrap.bits == 24 and wrap.got != wrap.meant


def test_floats_of_small_positions_and_of_values_are_no_such_index():
    small = "shr.s32 %r10, %r3, 13; cvt.rn.f32.s32 %r4, %r10; cvt.rzi.s32.f32 %r6, %r4;"
    assert searched(f"{small} {BACK}", (1 << 26) + 1000).wrap is None
    beside = "cvt.rn.f32.s32 %r4, %r3; cvt.rzi.s32.f32 %r6, %r4; mul.wide.s32 %d4, %r3, 2;"
    assert searched(beside, (1 << 26) + 1000).wrap is None
