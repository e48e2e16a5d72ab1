"""Lanes that diverge, meet, wait and never end, on PTX of a few lines."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.errors import EndlessLoop
from cutesmith.emulator.faults import KernelFault
from cutesmith.emulator.instructions.table import execution_of
from cutesmith.emulator.machine.barriers import BlockBarrierSuspension
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.machine.suspensions import LaneSuspension
from tests.emulator.machine import launches

SHUFFLE = "shfl.sync.bfly.b32 %r3, %r2, 1, 31, {mask};"


def test_lanes_that_loop_differently_long_end_with_their_own_counts():
    code = """
mov.u32 %r1, %tid.x; mov.u32 %r2, 0;
LOOP: setp.ge.u32 %p1, %r2, %r1; @%p1 bra END; add.u32 %r2, %r2, 1; bra LOOP;
END:
"""
    out = np.zeros(64, np.uint32)
    report = launches.run(
        code + launches.store_result("%r2") + "ret;", out, block=(64, 1, 1), settings=Settings(fuel=5)
    )
    assert out.tolist() == list(range(64))
    assert report.completed


def test_shuffle_after_divergence_waits_for_the_whole_warp():
    code = f"""
mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 10;
and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra EVEN;
mov.u32 %r5, 0;
SPIN: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 100; @%p2 bra SPIN;
EVEN: {SHUFFLE.format(mask=-1)}
"""
    out = np.zeros(64, np.uint32)
    launches.run(code + launches.store_result("%r3") + "ret;", out, grid=(2, 1, 1), settings=Settings(fuel=8))
    assert out.tolist() == [10 * (lane ^ 1) for lane in range(32)] * 2


def test_lanes_of_different_membermasks_meet_apart():
    code = f"""
mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 10;
setp.lt.u32 %p1, %r1, 16; selp.b32 %r6, 0xffff, 0xffff0000, %p1;
{SHUFFLE.format(mask="%r6")}
"""
    out = np.zeros(32, np.uint32)
    report = launches.run(code + launches.store_result("%r3") + "ret;", out)
    assert out.tolist() == [10 * (lane ^ 1) for lane in range(32)]
    assert report.findings == ()


def test_exited_lanes_are_not_waited_for():
    code = f"""
mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; setp.ge.u32 %p1, %r1, 8; @%p1 ret;
{SHUFFLE.format(mask=-1)}
"""
    out = np.full(32, 99, np.uint32)
    launches.run(code + launches.store_result("%r3") + "ret;", out)
    assert out.tolist() == [lane ^ 1 for lane in range(8)] + [99] * 24


def test_a_lane_outside_its_own_mask_is_named():
    code = f"mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; {SHUFFLE.format(mask=0xFFFF)} ret;"
    with pytest.raises(KernelFault) as caught:
        launches.run(code)
    (finding,) = caught.value.findings
    assert finding.kind == "invalid_operand"
    assert finding.thread == (16, 0, 0)
    assert finding.count == 16


@pytest.mark.parametrize(("shuffle", "is_uniform"), [(SHUFFLE, False), (SHUFFLE.replace("bfly", "idx"), True)])
def test_shuffle_that_half_a_warp_never_reaches_is_explained(shuffle, is_uniform):
    code = f"""
mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW;
bar.sync 0; ret;
LOW: {shuffle.format(mask=-1)} bar.sync 0; ret;
"""
    with pytest.raises(KernelFault) as caught:
        launches.run(code)
    message = next(f.message for f in caught.value.findings if "shfl" in f.message)
    assert "lanes 0-15 of warp 0" in message
    assert "lanes 16-31 of warp 0 wait at" in message
    assert ("`cute.arch.warp_idx()`" in message) == is_uniform
    assert {finding.kind for finding in caught.value.findings} == {"deadlock", "divergent_barrier"}


def test_activemask_sees_the_lanes_that_are_there_when_no_other_can_come():
    code = """
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; setp.lt.u32 %p1, %r1, 4; @%p1 bra END;
activemask.b32 %r2;
END:
"""
    out = np.zeros(32, np.uint32)
    launches.run(code + launches.store_result("%r2") + "ret;", out)
    assert out.tolist() == [0] * 4 + [0xFFFF_FFF0] * 28


def test_an_endless_loop_ends_at_the_step_limit():
    with pytest.raises(
        EndlessLoop, match=r"64 threads of 2 blocks still run: .* after 1000000 steps; thread \(0, 0, 0\)"
    ):
        launches.run("LOOP: bra LOOP;", grid=(2, 1, 1), settings=Settings(step_limit=1_000_000))


def test_steps_count_over_all_waves():
    code = "mov.u32 %r1, 0; LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 64; @%p1 bra LOOP; ret;"
    settings = Settings(lanes_per_wave=32, fuel=16, step_limit=10_000)
    report = launches.run(code, grid=(4, 1, 1), settings=settings)
    assert report.waves == 4
    with pytest.raises(EndlessLoop):
        launches.run(code, grid=(64, 1, 1), settings=settings)


def test_blocks_hand_over_through_memory_while_they_spin():
    """Block 0 waits for a flag that block 1 writes: both must run although the first never gives way by itself."""
    code = """
ld.param.u64 %d1, [p1]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 1; @%p1 bra WRITE;
SPIN: ld.volatile.global.u32 %r2, [%d1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
bra END;
WRITE: mov.u32 %r2, 7; st.volatile.global.u32 [%d1], %r2;
END:
"""
    out, flag = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    report = launches.run(
        code + launches.store_result("%r2") + "ret;", out, flag, grid=(2, 1, 1), settings=Settings(lanes_per_wave=32)
    )
    assert out.tolist() == [7] * 64
    assert report.waves == 1  # a kernel that waits on memory gets the blocks that a GPU holds at once


@pytest.mark.slow
def test_a_block_that_waits_for_one_beyond_what_the_gpu_holds_is_told():
    code = """
ld.param.u64 %d1, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r3, %nctaid.x; sub.u32 %r3, %r3, 1;
setp.eq.u32 %p1, %r1, %r3; @%p1 bra WRITE;
SPIN: ld.volatile.global.u32 %r2, [%d1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
ret;
WRITE: st.volatile.global.u32 [%d1], 1; ret;
"""
    settings = Settings(step_limit=20_000_000, sanitize=False)
    with pytest.raises(EndlessLoop) as caught:
        launches.run(code, np.zeros(1, np.uint32), grid=(5000, 1, 1), settings=settings)
    assert "blocks have not started" in caught.value.hint


def test_suspension_points_have_their_kinds():
    run = launches.prepare("bar.sync 0; nanosleep.u32 5; membar.gl; ret;")
    kinds = [type(execution_of(point.instruction)) for point in run.program.suspension_points]
    assert kinds == [BlockBarrierSuspension, LaneSuspension, LaneSuspension]


def test_copies_land_while_every_thread_that_can_run_polls():
    """Block 0 polls for a flag that block 1 sets after its bulk copy has landed."""
    code = """
ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2]; mov.u32 %r1, %ctaid.x; mov.u32 %r8, tile; mov.u32 %r3, %tid.x;
setp.eq.u32 %p1, %r1, 1; @%p1 bra COPY;
SPIN: ld.volatile.global.u32 %r2, [%d1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
bra END;
COPY: setp.ne.u32 %p3, %r3, 0; @%p3 bra END;
mbarrier.init.shared.b64 [%r8], 1; fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r8+16], [%d2], 16, [%r8];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r8], 0; @!%p4 bra WAIT;
ld.shared.u32 %r2, [%r8+16]; st.volatile.global.u32 [%d1], %r2;
END: ret;
"""
    flag = np.zeros(1, np.uint32)
    source = np.full(4, 7, np.uint32)
    settings = Settings(step_limit=20_000_000)
    launches.run(code, np.zeros(1), flag, source, grid=(2, 1, 1), block=(64, 1, 1), settings=settings)
    assert flag.tolist() == [7]


def test_who_spins_and_who_waits_meanwhile_are_named():
    code = """
ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra WAIT;
SPIN: ld.volatile.global.u32 %r2, [%d1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
WAIT: bar.sync 0; ret;
"""
    run = launches.prepare(code, np.zeros(1, np.uint32), block=(64, 1, 1), settings=Settings(step_limit=1_000_000))
    with pytest.raises(EndlessLoop, match="32 threads of 1 blocks still run: warps 0 of block"):
        run.run()
    spins, waits = run.report().findings
    assert spins.count == waits.count == 32 and spins.location != waits.location
    assert "meanwhile warps 1 of block (0, 0, 0) wait at `bar.sync` for barrier 0" in waits.message
