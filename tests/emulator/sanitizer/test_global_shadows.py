"""Cells of 128 bytes and of elements in global memory: chunks are split and joined; no race is lost or invented."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.sanitizer.layout import GLOBAL_CHUNK
from tests.emulator.machine.launches import emulate, zeros

# Thread 0 copies 256 bytes of `tile` to the array by the copy engine; %d2: byte 4 of its second chunk.
DECLARE = f".shared .align 128 .b8 tile[{2 * GLOBAL_CHUNK}];"
PROLOGUE = f"""mov.u32 %r1, %tid.x;
ld.param.u64 %d1, [p0];
add.u64 %d2, %d1, {GLOBAL_CHUNK + 4};
setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r1, 33;
mad.lo.u32 %r2, %r1, 4, tile;
st.shared.u32 [%r2], %r1;
fence.proxy.async;
bar.sync 0;
"""
FIRST = PROLOGUE.count("\n") + 1
COPY = f"@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1], [tile], {2 * GLOBAL_CHUNK};"
COMMIT, WAIT = "@%p1 cp.async.bulk.commit_group;", "@%p1 cp.async.bulk.wait_group 0;"
BARRIER, FENCE = "bar.sync 0;", "fence.proxy.async;"
READ, WRITE = "@%p2 ld.global.u32 %r5, [%d2];", "@%p2 st.global.u32 [%d2], %r2;"
ELEMENTS = [np.uint8, np.uint16, np.uint32]


def run(*lines, element=np.uint32, grid=1):
    """Run lines after the prologue, by 64 threads."""
    array = np.zeros(1 << 14, element)
    outcome = emulate(PROLOGUE + "\n".join([*lines, "ret;"]), array, block=64, declare=DECLARE, grid=grid)
    return outcome, array.view(np.uint32)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("access", [READ, WRITE])
def test_a_part_of_what_an_engine_writes_is_in_a_race_until_a_wait_and_a_barrier(element, access):
    outcome, _ = run(COPY, COMMIT, access, WAIT, element=element)
    assert "race" in outcome.kinds
    assert any({FIRST, FIRST + 2} <= {*lines} for lines in outcome.lines)
    assert run(COPY, COMMIT, WAIT, access, element=element)[0].kinds == ["race"]
    outcome, array = run(COPY, COMMIT, WAIT, BARRIER, access, element=element)
    assert outcome.findings == ()
    assert (array[:64] == np.where((np.arange(64) == 33) & (access == WRITE), array[33], np.arange(64))).all()


@pytest.mark.parametrize("element", ELEMENTS)
def test_an_engine_that_writes_whole_chunks_finds_who_accessed_a_part(element):
    assert "race" in run(WRITE, COPY, COMMIT, WAIT, element=element)[0].kinds
    assert run(WRITE, FENCE, BARRIER, COPY, COMMIT, WAIT, element=element)[0].findings == ()
    assert run(WRITE, BARRIER, COPY, COMMIT, WAIT, element=element)[0].kinds == ["missing_fence"]
    assert "race" in run(READ, COPY, COMMIT, WAIT, element=element)[0].kinds
    assert run(READ, BARRIER, COPY, COMMIT, WAIT, element=element)[0].findings == ()


def test_a_chunk_that_was_split_and_joined_again_keeps_its_writer():
    again = (COPY, COMMIT, WAIT, BARRIER, WRITE, FENCE, BARRIER, COPY, COMMIT)
    assert run(*again, WAIT, BARRIER, READ)[0].findings == ()
    outcome, _ = run(*again, READ, WAIT)
    assert [{*lines} for lines in outcome.lines] == [{FIRST + len(again), FIRST + len(again) - 2}]


def test_blocks_that_copy_to_one_place_are_in_a_race_and_to_neighbours_are_not():
    assert "race" in run(COPY, COMMIT, WAIT, grid=2)[0].kinds
    own = ("mov.u32 %r6, %ctaid.x;", f"mad.wide.u32 %d1, %r6, {2 * GLOBAL_CHUNK}, %d1;")
    assert run(*own, COPY, COMMIT, WAIT, grid=3)[0].findings == ()


def test_threads_that_share_a_chunk_but_no_element_are_in_no_race():
    code = """mov.u32 %r1, %tid.x;
ld.param.u64 %d1, [p0];
mad.wide.u32 %d2, %r1, 4, %d1;
st.global.u32 [%d2], %r1;
ld.global.u32 %r3, [%d2];
{}ret;"""
    for size in (1, 31, 32, 33, 64):  # also where the last chunk is not whole
        assert emulate(code.format(""), zeros(size), block=size).findings == ()
    wide = "ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d1];\n"
    assert "race" in emulate(code.format(wide), zeros(64), block=64).kinds
    assert emulate(code.format("bar.sync 0;\n" + wide), zeros(64), block=64).findings == ()
