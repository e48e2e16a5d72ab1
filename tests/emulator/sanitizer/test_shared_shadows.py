"""Cells of 16 bytes and cells of bytes in shared memory: chunks are split and joined; no race is lost or invented."""

from __future__ import annotations

import pytest

from tests.emulator.machine.launches import emulate, zeros

# %r1: thread, %r2: its 16 bytes of `tile`, %r4: those of the thread 64 further on (of 128)
PROLOGUE = """mov.u32 %r1, %tid.x;
mov.u32 %r9, tile;
mad.lo.u32 %r2, %r1, 16, %r9;
add.u32 %r3, %r1, 64;
and.b32 %r3, %r3, 127;
mad.lo.u32 %r4, %r3, 16, %r9;
"""
FIRST = PROLOGUE.count("\n") + 1
WIDE_WRITE = "st.shared.v4.u32 [%r2], {%r1,%r1,%r1,%r1};"
BYTE_WRITE = "st.shared.u8 [%r2+5], %r1;"
BARRIER, NOTHING = "bar.sync 0;", "mov.u32 %r20, 0;"
READS = {"wide": "ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r4];", "byte": "ld.shared.u8 %r10, [%r4+5];"}


def run(*lines, **options):
    """Run lines after the prologue, by 128 threads in each of two blocks."""
    code = PROLOGUE + "\n".join([*lines, "ret;"])
    return emulate(code, zeros(64), block=128, grid=2, **options)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("writes", [[WIDE_WRITE], [WIDE_WRITE, BYTE_WRITE], [WIDE_WRITE, BYTE_WRITE, WIDE_WRITE]])
def test_a_race_is_found_whoever_has_cells_and_a_barrier_ends_it(writes, read):
    outcome = run(*writes, NOTHING, READS[read])
    reading, written = FIRST + len(writes) + 1, range(FIRST, FIRST + len(writes))
    assert "race" in outcome.kinds
    assert any(reading in lines and set(lines) & {*written} for lines in outcome.lines)
    assert run(*writes, BARRIER, READS[read]).findings == ()


@pytest.mark.parametrize("read", READS)
def test_what_a_byte_was_written_by_is_kept_when_its_chunk_is_split(read):
    """The byte is written in time, the rest of its chunk is not: only who reads that rest is in a race."""
    code = [WIDE_WRITE, BARRIER, READS[read].replace("%r4+5", "%r2+5"), "st.shared.u32 [%r2+8], %r1;", READS[read]]
    found = [finding.kind for finding in run(*code).findings]
    assert ("race" in found) == (read == "wide")


@pytest.mark.parametrize("read", READS)
def test_a_write_of_a_whole_chunk_that_others_read_in_part_is_a_race_until_a_barrier(read):
    code = [WIDE_WRITE, BARRIER, READS[read], NOTHING, WIDE_WRITE]
    assert "race" in run(*code).kinds
    code[3] = BARRIER
    assert run(*code, BARRIER, READS["byte"], BARRIER, WIDE_WRITE).findings == ()


def test_a_part_of_a_chunk_that_was_never_written_is_uninitialised_alone():
    assert run("st.shared.u32 [%r2], %r1;", "ld.shared.u32 %r10, [%r2];").findings == ()
    assert run("st.shared.u32 [%r2], %r1;", "ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r2];").kinds == [
        "uninitialised_read"
    ]


@pytest.mark.parametrize("size", [1, 5, 24, 4104])
def test_shared_memory_of_any_size_has_cells_and_bounds(size):
    """Rows of blocks are padded to whole chunks; the bounds are those of the kernel."""
    code = f"mov.u32 %r1, dynamic;\nst.shared.u8 [%r1+{{}}], %r1;\nld.shared.u8 %r2, [%r1+{size - 1}];\nret;"
    declare, options = ".extern .shared .align 16 .b8 dynamic[];", {"dynamic": size, "block": 1, "grid": 3}
    assert emulate(code.format(size - 1), zeros(4), declare=declare, **options).findings == ()
    assert emulate(code.format(size), zeros(4), declare=declare, **options).kinds == ["out_of_bounds"]
