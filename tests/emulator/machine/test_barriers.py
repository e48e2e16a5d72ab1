"""Barriers of blocks and clusters: which lanes pass when, what reductions give, and how a deadlock is explained."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import KernelFault
from tests.emulator.machine import launches

SHARED = """
.shared .align 4 .b8 s[4096];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
shr.u32 %r5, %r1, 5; // warp
"""
SPIN = "mov.u32 %r9, 0; {name}: add.u32 %r9, %r9, 1; setp.lt.u32 %p9, %r9, 5000; @%p9 bra {name};"


def fault(code: str, *arrays: np.ndarray, **shape) -> KernelFault:
    """The fault that the code ends in."""
    with pytest.raises(KernelFault) as caught:
        launches.run(code, *arrays, **shape)
    return caught.value


def test_named_barriers_let_two_halves_pass_apart():
    """Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2, each half reversing its own 64 values."""
    code = (
        SHARED
        + """
st.shared.u32 [%r4], %r1;
shr.u32 %r6, %r1, 6; add.u32 %r6, %r6, 1;
bar.sync %r6, 64;
xor.b32 %r7, %r2, 252; add.u32 %r7, %r3, %r7; ld.shared.u32 %r8, [%r7];
"""
    )
    out = np.zeros(128, np.uint32)
    assert launches.run(code + launches.store_result("%r8") + "ret;", out, block=(128, 1, 1)).findings == ()
    assert out.tolist() == [lane ^ 63 for lane in range(128)]


def test_producers_arrive_and_consumers_wait():
    """Warp 0 writes late and only arrives; warp 1 waits for it at barrier 3 before it reads."""
    code = (
        SHARED
        + f"""
setp.eq.u32 %p1, %r5, 1; @%p1 bra CONSUME;
{SPIN.format(name="LATE")}
add.u32 %r6, %r1, 100; st.shared.u32 [%r4], %r6;
bar.arrive 3, 64;
ret;
CONSUME: bar.sync 3, 64;
ld.shared.u32 %r8, [%r4+-128];
"""
    )
    out = np.zeros(64, np.uint32)
    assert launches.run(code + launches.store_result("%r8") + "ret;", out, block=(64, 1, 1)).findings == ()
    assert out[32:].tolist() == [100 + lane for lane in range(32)]


def test_a_barrier_is_used_again_and_again():
    """Ping-pong between two warps over ten phases of two barriers."""
    code = (
        SHARED
        + """
mov.u32 %r6, 0; mov.u32 %r8, 0;
LOOP:
setp.ne.u32 %p1, %r1, 0; @%p1 bra NOT_FIRST; st.shared.u32 [s+256], %r6;
NOT_FIRST: bar.sync 1, 64; ld.shared.u32 %r7, [s+256]; add.u32 %r8, %r8, %r7; bar.sync 2, 64;
add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 10; @%p2 bra LOOP;
"""
    )
    out = np.zeros(64, np.uint32)
    launches.run(code + launches.store_result("%r8") + "ret;", out, block=(64, 1, 1))
    assert out.tolist() == [45] * 64


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("bar.red.popc.u32 %r8, 0, %p1", 20),
        ("bar.red.and.pred %p2, 0, %p1; selp.u32 %r8, 1, 0, %p2", 0),
        ("bar.red.or.pred %p2, 0, %p1; selp.u32 %r8, 1, 0, %p2", 1),
        ("bar.red.popc.u32 %r8, 2, 96, %p1", 20),
        ("barrier.cta.red.popc.aligned.u32 %r8, 0, !%p1", 76),
    ],
)
def test_reductions_over_a_block(operation, expected):
    code = SHARED + f"setp.lt.u32 %p1, %r1, 20; {operation};" + launches.store_result("%r8") + "ret;"
    out = np.zeros(192, np.uint32)
    launches.run(code, out, grid=(2, 1, 1), block=(96, 1, 1))
    assert out.tolist() == [expected] * 192


def test_whole_warps_that_exited_are_not_waited_for():
    code = SHARED + "setp.ge.u32 %p1, %r1, 64; @%p1 ret; bar.sync 0; mov.u32 %r8, 5;"
    out = np.zeros(128, np.uint32)
    report = launches.run(code + launches.store_result("%r8") + "ret;", out, block=(128, 1, 1))
    assert out.tolist() == [5] * 64 + [0] * 64
    assert report.findings == ()


def test_blocks_that_are_no_multiple_of_a_warp():
    code = SHARED + "st.shared.u32 [%r4], %r1; bar.sync 0; ld.shared.u32 %r8, [s+156];"
    out = np.zeros(80, np.uint32)
    report = launches.run(code + launches.store_result("%r8") + "ret;", out, grid=(2, 1, 1), block=(40, 1, 1))
    assert out.tolist() == [39] * 80
    assert report.findings == ()


def test_two_instructions_of_one_barrier_within_a_warp_are_divergent():
    code = SHARED + "and.b32 %r6, %r1, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra A; bar.sync 0; ret; A: bar.sync 0; ret;"
    report = launches.run(code, block=(64, 1, 1))
    assert {finding.kind for finding in report.findings} == {"divergent_barrier"}
    assert "a part of a warp" in report.findings[0].message


def test_barriers_that_are_not_aligned_may_diverge():
    code = SHARED + "and.b32 %r6, %r1, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra A; barrier.sync 0; ret; A: barrier.sync 0;"
    assert launches.run(code + "ret;", block=(64, 1, 1)).findings == ()


def test_a_part_of_a_warp_that_exited_is_divergent():
    report = launches.run(SHARED + "setp.ge.u32 %p1, %r1, 40; @%p1 ret; bar.sync 0; ret;", block=(64, 1, 1))
    (finding,) = report.findings
    assert finding.kind == "divergent_barrier"
    assert finding.thread == (32, 0, 0)
    assert "other threads of it have exited" in finding.message


def test_a_deadlock_names_the_missing_warps_and_where_they_are():
    code = SHARED + "setp.eq.u32 %p1, %r5, 2; @%p1 bra OTHER; bar.sync 0; ret;\nOTHER: bar.sync 4, 96; ret;"
    error = fault(code, block=(96, 1, 1), grid=(3, 1, 1))
    first, second = error.findings
    assert first.kind == second.kind == "deadlock"
    assert "warps 0-1 of block (0, 0, 0)" in first.message
    assert "for barrier 0, where 64 of 96 threads have arrived: warps 2 wait at" in first.message
    assert "2 more blocks do too" in first.message
    assert "for barrier 4, where 32 of 96 threads have arrived: warps 0-1 wait at" in second.message


def test_a_warp_that_waits_for_one_that_exited():
    code = SHARED + "setp.eq.u32 %p1, %r5, 1; @%p1 ret; bar.sync 1, 64; ret;"
    error = fault(code, block=(64, 1, 1))
    assert "32 of 64 threads have arrived: warps 1 have exited" in error.message


@pytest.mark.parametrize(
    ("instruction", "says"),
    [("bar.sync %r9;", "barrier 16: a block has barriers 0 to 15"), ("bar.sync 1, 40;", "a multiple of 32")],
)
def test_operands_that_no_barrier_takes(instruction, says):
    assert says in fault(f"mov.u32 %r9, 16; {instruction} ret;", block=(64, 1, 1)).message


def test_arrivals_alone_end_a_phase_and_the_warp_that_waits_misses_it():
    """Two warps arrive at a barrier of 64 threads, the third waits there: a GPU resets it before."""
    code = SHARED + "setp.eq.u32 %p1, %r5, 2; @%p1 bra WAITS; bar.arrive 3, 64; ret;\nWAITS: bar.sync 3, 64; ret;"
    first, second = fault(code, block=(96, 1, 1)).findings
    assert first.kind == "mismatched_barrier"
    assert "64 threads end a phase of barrier 3 for which no warp waits" in first.message
    assert second.kind == "deadlock"
    assert "32 of 64 threads have arrived" in second.message


def test_a_phase_ends_with_its_count_and_the_next_arrival_belongs_to_the_next_phase():
    """Warp 2 waits at first, so warp 0 lets it go; the arrival of warp 1 is left, for three warps take part."""
    late = SPIN.format(name="LATE") + "setp.eq.u32 %p2, %r5, 0; @%p2 bra GO;" + SPIN.format(name="LATER")
    code = SHARED + f"setp.eq.u32 %p1, %r5, 2; @%p1 bra WAITS; {late} GO: bar.arrive 3, 64; ret; WAITS: bar.sync 3, 64;"
    (finding,) = launches.run(code + "ret;", block=(96, 1, 1)).findings
    assert finding.kind == "mismatched_barrier"
    assert finding.thread == (32, 0, 0)
    assert "barrier 3 ends with 32 of 64 threads arrived: 3 warps take part in it, which are 96" in finding.message


def test_the_last_turn_of_two_warps_may_leave_an_arrival():
    """Each lets the other go; what the last one says is heard by no warp, and nothing is wrong with that."""
    code = (
        SHARED
        + """
setp.eq.u32 %p1, %r5, 0; mov.u32 %r6, 0; add.u32 %r7, %r5, 1; sub.u32 %r8, 2, %r5;
@!%p1 bra TURN; bar.arrive 1, 64;
TURN: bar.sync %r7, 64; bar.arrive %r8, 64; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra TURN;
ret;
"""
    )
    assert launches.run(code, block=(64, 1, 1)).findings == ()


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("bar.arrive 3, 96; bar.arrive 3, 96;", "bar.sync 3, 96;", "a warp arrives again before its last arrival"),
        ("bar.arrive 3, 96;", "bar.sync 3, 64;", "warps ask for 64 and 96 threads in one phase of barrier 3"),
    ],
)
def test_arrivals_that_do_not_agree(first, second, says):
    code = (
        SHARED + f"setp.eq.u32 %p1, %r5, 1; @%p1 bra LATER; {first} ret; LATER: {SPIN.format(name='A')} {second} ret;"
    )
    findings = launches.emulate(code, block=64).findings
    assert findings[0].kind == "mismatched_barrier"
    assert says in findings[0].message


CLUSTER = """
mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %tid.x;
"""


def test_cluster_barrier_orders_writes_to_the_neighbour():
    code = """
.shared .align 4 .b8 s[128];
mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; mov.u32 %r4, s; add.u32 %r5, %r4, %r3;
setp.eq.u32 %p1, %r1, 0; @!%p1 bra GO;
mov.u32 %r9, 0; SPIN: add.u32 %r9, %r9, 1; setp.lt.u32 %p9, %r9, 9000; @%p9 bra SPIN;
GO: mad.lo.u32 %r6, %r1, 100, %r2; st.shared.u32 [%r5], %r6;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 %r7, %r1, 1; mapa.shared::cluster.u32 %r8, %r5, %r7; ld.shared::cluster.u32 %r10, [%r8];
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
    out = np.zeros(128, np.uint32)
    report = launches.run(code + launches.store_result("%r10") + "ret;", out, grid=(4, 1, 1), cluster=(2, 1, 1))
    assert report.findings == ()
    expected = [100 * (1 - block % 2) + lane for block in range(4) for lane in range(32)]
    assert out.tolist() == expected


def test_a_block_that_leaves_its_cluster_is_not_waited_for():
    code = CLUSTER + "setp.eq.u32 %p1, %r1, 1; @%p1 ret; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r8, 3;"
    out = np.zeros(64, np.uint32)
    launches.run(code + launches.store_result("%r8") + "ret;", out, grid=(2, 1, 1), cluster=(2, 1, 1))
    assert out.tolist() == [3] * 32 + [0] * 32


def test_a_cluster_barrier_that_a_block_never_reaches():
    code = CLUSTER + "setp.eq.u32 %p1, %r1, 1; @%p1 bra B; barrier.cluster.arrive; barrier.cluster.wait; ret;\nB: bar.sync 1, 64; ret;"  # fmt: skip  # noqa: E501
    error = fault(code, grid=(2, 1, 1), cluster=(2, 1, 1))
    assert "threads of (1, 0, 0) have not arrived" in error.findings[0].message + error.findings[1].message


def test_a_cluster_barrier_is_waited_for_after_arriving():
    error = fault("barrier.cluster.wait; ret;", grid=(2, 1, 1), cluster=(2, 1, 1))
    assert error.findings[0].kind == "deadlock"
    assert "without barrier.cluster.arrive before" in error.message


def test_a_cluster_barrier_is_waited_for_before_arriving_again():
    code = "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait; ret;"
    assert "twice" in fault(code, grid=(2, 1, 1), cluster=(2, 1, 1)).message
