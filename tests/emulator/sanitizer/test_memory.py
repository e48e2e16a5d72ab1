"""Addresses: what is in bounds reaches the right bytes, what is not is refused and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutesmith.emulator.faults import FaultKind, Finding, KernelFault, once, told
from cutesmith.emulator.ptx.syntax import Location
from cutesmith.emulator.state.allocations import Allocation, Allocations
from tests.emulator.machine.launches import address_of, emulate, prepare, zeros

LANE = """mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 4;
ld.param.u64 %d1, [p0];
add.u64 %d4, %d1, %d3;
"""


def message(outcome) -> str:
    assert len(outcome.findings) == 1, outcome
    return outcome.findings[0].message


def test_vectors_of_every_width_reach_their_bytes():
    source, target = np.arange(64, dtype=np.uint32), zeros(64)
    code = """ld.param.u64 %d1, [p0];
ld.param.u64 %d2, [p1];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 16;
add.u64 %d4, %d1, %d3;
add.u64 %d5, %d2, %d3;
ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%d4];
st.global.v2.u32 [%d5], {%r10,%r11};
st.global.u16 [%d5+8], %r12;
st.global.u8 [%d5+12], %r13;
ret;"""
    assert emulate(code, source, target, block=16).findings == ()
    assert (target == source & 0xFF | np.where(np.arange(64) % 4 < 2, source, 0)).all()


def test_an_access_out_of_bounds_is_told_alone_and_not_with_the_barrier_that_its_threads_miss():
    outcome = emulate(f"{LANE}ld.global.u32 %r2, [%d4+8];\nbar.sync 0;\nret;", zeros(64), block=64)
    assert (outcome.kinds, outcome.lines) == (["out_of_bounds"], [(5, 0)])


UNORDERED_INDEX = """ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mad.lo.u32 %r2, %r1, 4, 1024;
mul.lo.u32 %r3, %r1, 64;
st.shared.u32 [%r2], %r3;
xor.b32 %r4, %r2, 128;
ld.shared.u32 %r5, [%r4];
mul.wide.u32 %d2, %r5, 4;
add.u64 %d3, %d1, %d2;
ld.global.u32 %r6, [%d3];
ret;"""


def test_a_race_that_gives_an_index_is_told_before_the_access_that_it_leads_out_of_bounds():
    launch = prepare(UNORDERED_INDEX, zeros(64), block=(64, 1, 1), dynamic_smem=256)
    with pytest.raises(KernelFault) as caught:
        launch.run()
    assert (caught.value.cause.kind, caught.value.fatal.kind) == (FaultKind.RACE, FaultKind.OUT_OF_BOUNDS)
    text = caught.value.describe(Path("code.ptx"))
    races, end = text.split("; with what was read there the launch ends: ")
    assert races.startswith("race at kernel.ptx:5") and end.startswith("out of bounds at kernel.ptx:10")
    assert "race" not in end and "out of bounds" not in races


def test_a_race_that_both_of_its_accesses_met_is_told_once():
    write, read, other = (Location("kernel.py", line, 0) for line in (5, 7, 9))
    races = [
        Finding(FaultKind.RACE, "not ordered", line, (0, 0, 0), (0, 0, 0), other=against)
        for line, against in ((write, read), (read, write), (write, other), (write, write))
    ]
    assert once(races) == (races[0], races[2], races[3])
    text = told(races, Path("kernel.py"))
    assert text.count("race at") == 3 and text.startswith("race at kernel.py:5")


@pytest.mark.parametrize("sanitize", [True, False])
def test_a_read_past_the_end_names_the_array_and_the_distance(sanitize):
    outcome = emulate(f"{LANE}ld.global.u32 %r2, [%d4+8];\nret;", zeros(32), sanitize=sanitize)
    (finding,) = outcome.findings
    assert (finding.kind, outcome.lines, finding.thread, finding.count) == ("out_of_bounds", [(5, 0)], (30, 0, 0), 2)
    assert "4 bytes past the end of array 0 (128 bytes, elements of 4 bytes)" in finding.message


def test_an_access_that_straddles_the_end_is_out_of_bounds():
    assert "8 bytes past the end of array 0" in message(emulate(f"{LANE}ld.global.v4.u32 {{%r2,%r3,%r4,%r5}}, [%d1+16];\nret;", zeros(6)))  # noqa: E501  # fmt: skip


def test_a_write_before_the_start_names_the_array():
    code = f"{LANE}st.global.u32 [%d4+-8], %r1;\nret;"
    assert "`st.global.u32` writes 4 bytes" in (text := message(emulate(code, zeros(32))))
    assert "8 bytes before the start of array 0" in text


def test_the_nearest_of_several_arrays_is_named():
    code = "ld.param.u64 %d1, [p1];\nld.global.u32 %r1, [%d1+-4];\nret;"
    assert "4 bytes before the start of array 1" in message(emulate(code, zeros(4), zeros(4), block=1))


def test_a_wild_address_names_no_tensor():
    assert "no tensor is near" in message(emulate("mov.u64 %d1, 64;\nld.global.u32 %r1, [%d1];\nret;", zeros(4)))


def test_a_launch_without_any_memory_refuses_every_address():
    assert emulate("mov.u64 %d1, 0;\nld.global.u32 %r1, [%d1];\nret;").kinds == ["out_of_bounds"]


def test_a_misaligned_vector_says_what_is_needed():
    code = "ld.param.u64 %d1, [p0];\nadd.u64 %d1, %d1, 4;\nld.global.v2.u32 {%r1,%r2}, [%d1];\nret;"
    outcome = emulate(code, zeros(8), block=1)
    assert (outcome.kinds, outcome.lines) == (["misaligned"], [(3, 0)])
    assert "(byte 4 of array 0), which is 4 past a multiple of 8" in outcome.findings[0].message


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("tile+4096", "4 bytes past the end of the block's 4096 bytes of shared memory"),
        ("tile+-4", "4 bytes before the start of the block's shared memory"),
        ("tile+16777216", "block 1 of a cluster of 1"),
    ],
)
def test_shared_memory_has_bounds(address, text):
    outcome = emulate(f"mov.u32 %r1, {address};\nst.shared.u32 [%r1], %r1;\nret;", block=1)
    assert outcome.kinds == ["out_of_bounds"]
    assert text in message(outcome)


def test_dynamic_shared_memory_extends_the_bounds():
    code = "mov.u32 %r1, {};\nmov.u32 %r2, tile;\nst.shared.u32 [%r1+{}], %r1;\nret;"
    declare = ".extern .shared .align 16 .b8 dynamic[];"
    assert emulate(code.format("dynamic", 252), declare=declare, dynamic=256, block=1).findings == ()
    outcome = emulate(code.format("dynamic", 256), declare=declare, dynamic=256, block=1)
    assert "4 bytes past the end of the block's 4352 bytes" in message(outcome)


def test_local_memory_belongs_to_the_thread():
    target = zeros(32)
    code = f"""{LANE}mov.u64 %d5, stack;
st.local.u32 [%d5+4], %r1;
ld.local.u32 %r2, [%d5+4];
st.global.u32 [%d4], %r2;
ret;"""
    assert emulate(code, target).findings == ()
    assert (target == np.arange(32)).all()
    outside = emulate(code.replace("ld.local.u32 %r2, [%d5+4]", "ld.local.u32 %r2, [%d5+64]"), target)
    assert (outside.kinds, outside.lines) == (["out_of_bounds"], [(7, 0)])
    assert "64 bytes of local memory" in message(outside)


def test_generic_addresses_reach_every_window():
    target = zeros(4)
    code = """ld.param.u64 %d1, [p0];
mov.u32 %r1, 7;
mov.u64 %d2, tile;
st.shared.u32 [%d2], %r1;
cvta.shared.u64 %d3, %d2;
ld.u32 %r2, [%d3];
mov.u64 %d4, stack;
st.local.u32 [%d4], %r2;
cvta.local.u64 %d5, %d4;
ld.u32 %r3, [%d5];
mov.u64 %d6, p0;
ld.u64 %d7, [%d6];
st.u32 [%d7+4], %r3;
ret;"""
    assert emulate(code, target, block=1).findings == ()
    assert target.tolist() == [0, 7, 0, 0]


def test_parameters_are_only_read_and_have_an_end():
    outcome = emulate("mov.u64 %d6, p0;\nld.u64 %d7, [%d6+8];\nret;", zeros(4), block=1)
    assert "8 bytes of parameters, which are only read" in message(outcome)
    outcome = emulate("mov.u64 %d6, p0;\nst.u64 [%d6], %d6;\nret;", zeros(4), block=1)
    assert outcome.kinds == ["out_of_bounds"]


def test_a_block_reads_the_shared_memory_of_another_of_its_cluster():
    target = zeros(64)
    code = """mov.u32 %r1, %ctaid.x;
ld.param.u64 %d1, [p0];
mov.u32 %r2, tile;
st.shared.u32 [%r2], %r1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r3, %r1, 1;
and.b32 %r3, %r3, 1;
mapa.shared::cluster.u32 %r4, %r2, %r3;
ld.shared::cluster.u32 %r5, [%r4];
mul.wide.u32 %d2, %r1, 4;
add.u64 %d2, %d1, %d2;
st.global.u32 [%d2], %r5;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;"""
    assert emulate(code, target, grid=4, cluster=2).findings == ()
    assert target[:4].tolist() == [1, 0, 3, 2]


def test_module_variables_are_initialised_and_keep_their_values_over_launches():
    declare = ".global .align 4 .u32 counter = 5;\n.const .align 4 .u32 step[2] = {10, 20};"
    code = """mov.u64 %d1, counter;
mov.u64 %d2, step;
ld.const.u32 %r1, [%d2+4];
ld.global.u32 %r2, [%d1];
add.u32 %r2, %r2, %r1;
st.global.u32 [%d1], %r2;
ld.param.u64 %d3, [p0];
st.global.u32 [%d3], %r2;
ret;"""
    target = zeros(1)
    allocations = Allocations()
    allocations.add_array(target, address_of(0), "array 0")
    options = {"allocations": allocations, "declare": declare, "block": 1}
    assert emulate(code, target, **options).findings == ()
    assert target[0] == 25
    outcome = emulate(code.replace("[%d2+4]", "[%d2+8]"), target, **options)
    assert "4 bytes past the end of the variable step" in message(outcome)


def test_allocations_do_not_overlap_and_are_found():
    allocations = Allocations()
    first = allocations.add(Allocation(0x1000, 64, 0, "first"))
    second = allocations.add(Allocation(0x2000, 64, 0, "second", element=12))
    with pytest.raises(ValueError, match="overlaps first"):
        allocations.add(Allocation(0x103F, 8, 0, "third"))
    assert allocations.at(0x103F) is first
    assert allocations.at(0x1040) is None
    assert allocations.nearest(0x1FF0, 4) is second
    assert (first.distance(0x1040, 4), first.distance(0xFF8, 4), first.distance(0x1000, 64)) == (4, -8, 0)
    assert second.granule == 0
    allocations.remove(0x1000)
    assert allocations.at(0x1000) is None
