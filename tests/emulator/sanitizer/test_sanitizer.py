"""Races and reads of unwritten memory: found at both lines, and silent where the accesses are ordered."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.program.abi import Space
from cutesmith.emulator.sanitizer.cells import MAX_SITE
from tests.emulator.machine.launches import emulate, zeros

# %r1: thread, %r2: its word of `tile`, %d2: its word of array 0 (by its number in the grid), %d1: array 0
PROLOGUE = """mov.u32 %r1, %tid.x;
mov.u32 %r9, tile;
mad.lo.u32 %r2, %r1, 4, %r9;
mov.u32 %r10, %ctaid.x;
mov.u32 %r11, %ntid.x;
mad.lo.u32 %r11, %r10, %r11, %r1;
ld.param.u64 %d1, [p0];
mul.wide.u32 %d2, %r11, 4;
add.u64 %d2, %d1, %d2;
"""
FIRST = PROLOGUE.count("\n") + 1  # the number of the line after it


def run(code, *arrays, **options):
    """Run code after the prologue."""
    return emulate(PROLOGUE + code + "\nret;", *(arrays or (zeros(4096),)), **options)


def neighbour(middle, distance=4, write="st.shared.u32 [%r2], %r1;"):
    """Write a word, then `middle`, then read the word of the next thread (the last one's is the first's)."""
    return f"""{write}
{middle}
add.u32 %r3, %r1, {distance // 4};
mov.u32 %r4, %ntid.x;
rem.u32 %r3, %r3, %r4;
mad.lo.u32 %r3, %r3, 4, %r9;
ld.shared.u32 %r5, [%r3];
st.global.u32 [%d2], %r5;"""


NOTHING = "mov.u32 %r20, 0;"
WRITE, MIDDLE, READ = FIRST, FIRST + 1, FIRST + 6


# ---------------------------------------------------------------------------------------------------- shared memory


@pytest.mark.parametrize("middle", ["bar.sync 0;", "barrier.sync 0, 128;", "bar.sync 3;"])
def test_a_barrier_orders_the_block(middle):
    target = zeros(256)
    assert run(neighbour(middle), target, block=128, grid=2).findings == ()
    assert (target[:128] == (np.arange(128) + 1) % 128).all()


def test_without_a_barrier_both_lines_are_named():
    outcome = run(neighbour(NOTHING), block=128)
    assert set(outcome.kinds) == {"race", "uninitialised_read"}
    races = [finding for finding in outcome.findings if finding.kind == "race"]
    assert {(f.location.line, f.other.line) for f in races} == {(READ, WRITE), (WRITE, READ)}
    assert "shared memory at byte 0 that thread (0, 0, 0) has written" in races[-1].message
    assert races[-1].thread == (127, 0, 0)
    assert run(neighbour(NOTHING), block=128, sanitize=False).findings == ()


def test_a_barrier_of_half_the_block_orders_that_half():
    halves = """setp.lt.u32 %p1, %r1, 64;
@%p1 bra low;
{write}
bar.sync 1, 64;
xor.b32 %r3, %r1, {flip};
mad.lo.u32 %r3, %r3, 4, %r9;
ld.shared.u32 %r5, [%r3];
st.global.u32 [%d2], %r5;
ret;
low: st.shared.u32 [%r2], %r1;
bar.sync 2, 64;"""
    write = "st.shared.u32 [%r2], %r1;"
    assert run(halves.format(write=write, flip=63), block=128).findings == ()
    across = run(halves.format(write=write, flip=127), block=128)
    assert "race" in across.kinds
    assert {line for pair in across.lines for line in pair} <= {0, FIRST + 2, FIRST + 6, FIRST + 9}


def test_arrivals_at_a_named_barrier_are_ordered_before_its_waiters_only():
    code = """setp.lt.u32 %p1, %r1, 32;
@%p1 bra producer;
bar.sync 1, 64;
xor.b32 %r3, %r2, 128;
ld.shared.u32 %r5, [%r3];
st.global.u32 [%d2], %r5;
ret;
producer: st.shared.u32 [%r2], %r1;
bar.arrive 1, 64;
{after}"""
    target = zeros(64)
    assert run(code.format(after=NOTHING), target, block=64).findings == ()
    assert (target[32:] == np.arange(32)).all()
    late = run(code.format(after="add.u32 %r7, %r1, 1;\nst.shared.u32 [%r2], %r7;"), block=64)
    assert late.kinds == ["race"]
    assert set(late.lines[0]) == {FIRST + 4, FIRST + 10}


def test_threads_of_a_warp_need_a_warp_barrier():
    assert run(neighbour("bar.warp.sync -1;"), block=32).findings == ()
    exchange = "shfl.sync.idx.b32 %r20, %r1, 0, 31, -1;"  # which orders no memory
    assert (READ, WRITE) in run(neighbour(exchange), block=32).lines


def test_a_warp_barrier_orders_no_other_warp():
    code = neighbour("bar.warp.sync -1;", distance=128)
    assert "race" in run(code, block=64).kinds


def test_one_value_written_by_all_is_no_race_two_values_are():
    code = "mov.u32 %r3, {};\nst.shared.u32 [%r9], %r3;"
    assert run(code.format(5), block=128).findings == ()
    outcome = run(code.format("%tid.x"), block=128)
    assert (outcome.kinds, outcome.lines) == (["race"], [(FIRST + 1, FIRST + 1)])
    assert "writes 4 bytes of shared memory at byte 0 that thread (0, 0, 0) has written" in outcome.findings[0].message


def test_a_value_written_by_a_warp_may_not_be_read_by_another_without_a_barrier():
    code = """setp.gt.u32 %p1, %r1, 31;
@%p1 bra reader;
mov.u32 %r3, 5;
st.shared.u32 [%r9], %r3;
ret;
reader: ld.shared.u32 %r4, [%r9];"""
    outcome = run(code, block=64)
    assert (outcome.kinds, outcome.lines[0]) == (["race"], (FIRST + 5, FIRST + 3))
    assert "threads of warp 0" in outcome.findings[0].message


def test_neighbouring_bytes_of_a_word_do_not_race():
    assert run("add.u32 %r3, %r9, %r1;\nst.shared.u8 [%r3], %r1;", block=128).findings == ()


def test_a_word_read_by_all_may_be_written_after_the_barrier_only():
    code = """setp.eq.u32 %p1, %r1, 0;
@%p1 st.shared.u32 [%r9], %r1;
bar.sync 0;
ld.shared.u32 %r4, [%r9];
{middle}
add.u32 %r5, %r4, 1;
@%p1 st.shared.u32 [%r9], %r5;"""
    assert run(code.format(middle="bar.sync 0;"), block=256).findings == ()
    outcome = run(code.format(middle=NOTHING), block=256)
    assert (outcome.kinds, outcome.lines) == (["race"], [(FIRST + 3, FIRST + 6)])


def test_shared_atomics_do_not_race_with_each_other_but_with_plain_reads():
    code = """setp.eq.u32 %p1, %r1, 0;
mov.u32 %r3, 0;
@%p1 st.shared.u32 [%r9], %r3;
bar.sync 0;
atom.shared.add.u32 %r4, [%r9], 1;
{middle}
ld.shared.u32 %r5, [%r9];
st.global.u32 [%d2], %r5;"""
    target = zeros(64)
    assert run(code.format(middle="bar.sync 0;"), target, block=64).findings == ()
    assert (target == 64).all()
    outcome = run(code.format(middle=NOTHING), block=64)
    assert set(outcome.kinds) == {"race"}
    assert {line for pair in outcome.lines for line in pair} == {FIRST + 4, FIRST + 6}


def test_a_flag_orders_threads_of_a_block():
    code = """setp.gt.u32 %p1, %r1, 31;
mov.u32 %r3, 0;
@!%p1 st.volatile.shared.u32 [%r9+2048], %r3;
bar.sync 0;
@%p1 bra reader;
setp.ne.u32 %p2, %r1, 0;
@%p2 ret;
mov.u32 %r3, 9;
st.shared.u32 [%r9], %r3;
{fence}
st.volatile.shared.u32 [%r9+2048], %r3;
ret;
reader: ld.volatile.shared.u32 %r4, [%r9+2048];
setp.ne.u32 %p3, %r4, 9;
@%p3 bra reader;
ld.shared.u32 %r5, [%r9];"""
    assert run(code.format(fence="membar.cta;"), block=64).findings == ()
    assert run(code.format(fence=NOTHING), block=64).lines == [(FIRST + 15, FIRST + 8)]


@pytest.mark.parametrize("wait", [True, False])
def test_the_shared_memory_of_a_cluster_is_ordered_by_its_barrier(wait):
    barrier = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" if wait else "bar.sync 0;\nbar.sync 0;"
    code = f"""st.shared.u32 [%r2], %r11;
{barrier}
mov.u32 %r3, %ctaid.x;
xor.b32 %r3, %r3, 1;
mapa.shared::cluster.u32 %r4, %r2, %r3;
ld.shared::cluster.u32 %r5, [%r4];
st.global.u32 [%d2], %r5;
{barrier}"""
    outcome = run(code, zeros(128), grid=2, cluster=2, block=64)
    assert ("race" in outcome.kinds or "uninitialised_read" in outcome.kinds) is not wait


@lane_operation("testsite.store")
def store_beyond_the_last_site(batch):
    """A store by an instruction whose number a cell cannot hold."""
    data = np.zeros((len(batch.lanes), 4), np.uint8)
    addresses = batch.address(batch.instruction.operands[0])
    batch.memory.store(batch.lanes, Space.SHARED, addresses, data, MAX_SITE + 6)


def test_instructions_of_numbers_that_no_cell_holds_are_ordered_like_others():
    code = f"bar.sync 0;\n{neighbour('{middle}', write='testsite.store [%r2];')}"
    assert run(code.format(middle="bar.sync 0;"), block=128).findings == ()
    outcome = run(code.format(middle=NOTHING), block=128)
    assert ("race", (READ + 1, 0)) in zip(outcome.kinds, outcome.lines, strict=True)


def test_reused_shared_memory_in_a_loop_needs_two_barriers():
    code = """mov.u32 %r6, 0;
loop: add.u32 %r7, %r1, %r6;
st.shared.u32 [%r2], %r7;
bar.sync 0;
xor.b32 %r3, %r2, 128;
ld.shared.u32 %r5, [%r3];
{middle}
add.u32 %r6, %r6, 1;
setp.lt.u32 %p1, %r6, 4;
@%p1 bra loop;"""
    assert run(code.format(middle="bar.sync 0;"), block=64).findings == ()
    outcome = run(code.format(middle=NOTHING), block=64)
    assert set(outcome.lines) == {(FIRST + 2, FIRST + 5), (FIRST + 5, FIRST + 2)}


# ---------------------------------------------------------------------------------------------------- global memory


def test_threads_of_a_block_are_ordered_by_its_barriers_in_global_memory_too():
    code = "st.global.u32 [%d2], %r1;\n{}\nxor.b32 %r3, %r1, 32;\nmul.wide.u32 %d3, %r3, 4;\nadd.u64 %d3, %d1, %d3;\nld.global.u32 %r4, [%d3];"  # noqa: E501
    assert run(code.format("bar.sync 0;"), zeros(64), block=64).findings == ()
    outcome = run(code.format(NOTHING), zeros(64), block=64)
    assert (FIRST + 5, FIRST) in outcome.lines
    assert "of array 0 at byte" in outcome.findings[0].message


@pytest.mark.parametrize("lanes_per_wave", [32, 1024])
def test_nothing_orders_blocks_not_even_that_one_ran_before(lanes_per_wave):
    code = "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.u32 [%d1], %r10;"
    outcome = run(code, grid=4, lanes_per_wave=lanes_per_wave)
    assert (outcome.kinds, outcome.lines) == (["race"], [(FIRST + 1, FIRST + 1)])
    assert "block" in outcome.findings[0].message
    assert run(code.replace("[%d1]", "[%d2]"), grid=4, lanes_per_wave=lanes_per_wave).findings == ()


def test_a_word_that_other_blocks_read_may_not_be_written():
    code = "ld.global.u32 %r3, [%d1];\nsetp.eq.u32 %p1, %r11, 96;\n@%p1 st.global.u32 [%d1], %r11;"
    outcome = run(code, grid=4)
    assert ("race", (FIRST + 2, FIRST)) in zip(outcome.kinds, outcome.lines, strict=True)
    assert any("that threads of several blocks have read" in finding.message for finding in outcome.findings)


def test_atomics_of_many_blocks_do_not_race():
    target = zeros(1)
    assert run("red.global.add.u32 [%d1], 1;", target, grid=8).findings == ()
    assert target[0] == 256


LAST_BLOCK = """add.u32 %r3, %r10, 1;
add.u64 %d3, %d1, 256;
mul.wide.u32 %d4, %r10, 4;
add.u64 %d5, %d3, %d4;
setp.eq.u32 %p1, %r1, 0;
@%p1 st.global.u32 [%d5], %r3;
{fence}
bar.sync 0;
@!%p1 ret;
atom.global.add.u32 %r4, [%d1], 1;
setp.ne.u32 %p2, %r4, 3;
@%p2 ret;
ld.global.u32 %r5, [%d3];
ld.global.u32 %r6, [%d3+4];
ld.global.u32 %r7, [%d3+8];
add.u32 %r5, %r5, %r6;
add.u32 %r5, %r5, %r7;
st.global.u32 [%d1+128], %r5;"""


@pytest.mark.parametrize("lanes_per_wave", [32, 1024])
def test_the_last_block_may_read_what_the_others_released(lanes_per_wave):
    target = zeros(128)
    assert run(LAST_BLOCK.format(fence="membar.gl;"), target, grid=4, lanes_per_wave=lanes_per_wave).findings == ()
    assert target[32] == 6


def test_the_last_block_races_without_the_fence():
    outcome = run(LAST_BLOCK.format(fence=NOTHING), zeros(128), grid=4)
    assert set(outcome.lines) == {(FIRST + line, FIRST + 5) for line in (12, 13, 14)}


def test_release_and_acquire_order_blocks():
    code = """setp.ne.u32 %p2, %r1, 0;
@%p2 ret;
setp.eq.u32 %p1, %r10, 1;
@%p1 bra reader;
st.global.u32 [%d1], %r11;
st{release}.global.u32 [%d1+64], 1;
ret;
reader: ld{acquire}.global.u32 %r3, [%d1+64];
setp.eq.u32 %p3, %r3, 0;
@%p3 bra reader;
ld.global.u32 %r4, [%d1];"""
    assert run(code.format(release=".release.gpu", acquire=".acquire.gpu"), grid=2).findings == ()
    relaxed = run(code.format(release=".relaxed.gpu", acquire=".relaxed.gpu"), grid=2)
    assert relaxed.lines == [(FIRST + 10, FIRST + 4)]
    plain = run(code.format(release="", acquire=".relaxed.gpu"), grid=2)
    assert (FIRST + 7, FIRST + 5) in plain.lines or (FIRST + 5, FIRST + 7) in plain.lines


def test_elements_of_an_array_are_kept_apart():
    code = """mul.wide.u32 %d3, %r11, 2;
add.u64 %d3, %d1, %d3;
st.global.u16 [%d3], %r11;"""
    assert run(code, np.zeros(256, np.uint16), grid=8).findings == ()


# --------------------------------------------------------------------------------------------------- initialisation


def test_fresh_global_memory_must_be_written_before_it_is_read():
    read = "ld.global.u32 %r3, [%d2];"
    outcome = run(read, zeros(32), fresh=(0,))
    assert (outcome.kinds, outcome.lines, outcome.findings[0].count) == (["uninitialised_read"], [(FIRST, 0)], 32)
    assert run(f"st.global.u32 [%d2], %r1;\n{read}", zeros(32), fresh=(0,)).findings == ()
    assert run(read, zeros(32)).findings == ()


def test_a_vector_of_which_one_byte_was_never_written():
    code = "st.shared.u32 [%r9], %r1;\nst.shared.u16 [%r9+4], %r1;\nst.shared.u8 [%r9+{}], %r1;\nld.shared.v2.u32 {{%r3,%r4}}, [%r9];"  # noqa: E501
    assert run(code.format(6), block=1).kinds == ["uninitialised_read"]
    both = code.format(6).replace("ld.shared.v2", "st.shared.u8 [%r9+7], %r1;\nld.shared.v2")
    assert run(both, block=1).findings == ()


def test_local_memory_is_each_threads_own():
    code = """mov.u64 %d5, stack;
setp.lt.u32 %p1, %r1, 16;
@%p1 st.local.u32 [%d5], %r1;
ld.local.u32 %r3, [%d5];"""
    outcome = run(code)
    assert (outcome.kinds, outcome.lines) == (["uninitialised_read"], [(FIRST + 3, 0)])
    assert (outcome.findings[0].thread, outcome.findings[0].count) == ((16, 0, 0), 16)


def test_shared_memory_is_uninitialised_in_every_wave():
    code = "setp.eq.u32 %p1, %r10, 0;\n@%p1 st.shared.u32 [%r2], %r1;\nld.shared.u32 %r3, [%r2];"
    outcome = run(code, grid=3, lanes_per_wave=32)
    assert (outcome.kinds, outcome.findings[0].count) == (["uninitialised_read"], 64)
    assert outcome.findings[0].block == (1, 0, 0)
