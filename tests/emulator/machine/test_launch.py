"""From a recorded launch to waves: where threads are, what special registers say, what the hardware refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cutesmith.emulator.errors import LaunchRefused
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.settings import Settings
from tests.emulator.machine import launches

FLAT = """
mov.u32 %r20, %tid.x; mov.u32 %r21, %tid.y; mov.u32 %r22, %tid.z; mov.u32 %r23, %ntid.x; mov.u32 %r24, %ntid.y;
mad.lo.u32 %r25, %r22, %r24, %r21; mad.lo.u32 %r25, %r25, %r23, %r20; // thread in block
mov.u32 %r26, %ctaid.x; mov.u32 %r27, %ctaid.y; mov.u32 %r28, %ctaid.z;
mov.u32 %r29, %nctaid.x; mov.u32 %r30, %nctaid.y;
mad.lo.u32 %r31, %r28, %r30, %r27; mad.lo.u32 %r31, %r31, %r29, %r26; // block in grid
mov.u32 %r32, %ntid.z; mul.lo.u32 %r33, %r23, %r24; mul.lo.u32 %r33, %r33, %r32; mad.lo.u32 %r34, %r31, %r33, %r25;
ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r34, 4; add.s64 %d3, %d1, %d2;
"""


def values_of(register: str, **shape) -> np.ndarray:
    """What a special register holds, by block in the grid and thread in the block."""
    grid, block = shape["grid"], shape["block"]
    out = np.zeros((int(np.prod(grid)), int(np.prod(block))), np.uint32)
    launches.run(f"{FLAT} mov.u32 %r1, {register}; st.global.u32 [%d3], %r1; ret;", out, **shape)
    return out


SHAPE = {"grid": (4, 6, 2), "block": (5, 4, 3), "cluster": (2, 3, 1)}


def test_a_register_that_is_not_written_is_zero_in_every_wave():
    """Waves have one frame after another; that of block 0 holds a value where block 1 has written none."""
    code = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 mov.u32 %r5, 7; bar.sync 0;"
    out = launches.zeros(64, np.uint32)
    report = launches.run(
        code + launches.store_result("%r5") + "ret;", out, grid=(2, 1, 1), settings=Settings(lanes_per_wave=32)
    )
    assert report.waves == 2
    assert out.tolist() == [7] * 32 + [0] * 32


@pytest.mark.parametrize("lanes_per_wave", [1, 500, 32768])
def test_every_thread_runs_once_whatever_the_waves(lanes_per_wave):
    out = np.zeros(48 * 60, np.uint32)
    code = f"{FLAT} ld.global.u32 %r1, [%d3]; add.u32 %r1, %r1, 1; st.global.u32 [%d3], %r1; ret;"
    report = launches.run(code, out, settings=Settings(lanes_per_wave=lanes_per_wave), **SHAPE)
    assert (out == 1).all()
    assert report.waves == {1: 8, 500: 8, 32768: 1}[lanes_per_wave]  # whole clusters, at least one
    assert report.instructions == 48 * 60 * (len(report.program.instructions))


def test_threads_count_warps_and_lanes_over_the_block():
    assert (values_of("%laneid", **SHAPE) == np.arange(60) % 32).all()
    assert (values_of("%warpid", **SHAPE) == np.arange(60) // 32).all()
    assert (values_of("%lanemask_lt", **SHAPE)[0, :40] == [(1 << lane % 32) - 1 for lane in range(40)]).all()


def test_blocks_know_their_place_in_cluster_and_grid():
    blocks = np.arange(48)
    x, y, z = blocks % 4, blocks // 4 % 6, blocks // 24
    assert (x % 2 + 2 * (y % 3) == values_of("%cluster_ctarank", **SHAPE).T).all()
    assert (y // 3 == values_of("%clusterid.y", **SHAPE).T).all()
    assert (values_of("%nclusterid.x", **SHAPE) == 2).all()
    assert (values_of("%cluster_nctarank", **SHAPE) == 6).all()
    assert (z == values_of("%ctaid.z", **SHAPE).T).all()


def test_dynamic_shared_memory_starts_behind_the_static():
    code = """
.shared .align 4 .b8 fixed[20];
mov.u32 %r1, fixed; mov.u32 %r2, %dynamic_smem_size; mov.u32 %r3, %total_smem_size;
"""
    out = np.zeros(32, np.uint32)
    launches.run(code + launches.store_result("%r3") + "ret;", out, dynamic_smem=300)
    assert (out == 384).all()  # 320 bytes in units of 128


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"block": (2048, 1, 1)}, "2048 threads a block: at most 1024"),
        ({"block": (32, 1, 1), "dynamic_smem": 400_000}, "400000 bytes of shared memory a block"),
        ({"block": (32, 1, 1), "grid": (3, 1, 1), "cluster": (2, 1, 1)}, "multiple of the cluster's 2"),
    ],
)
def test_a_launch_over_the_limits_is_refused_before_anything_runs(shape, says):
    run = launches.prepare("ret;", **shape)
    with pytest.raises(LaunchRefused, match="sm_90 refuses to launch k: .*" + says):
        run.run()
    assert run.waves == 0


def test_resident_blocks_follow_registers_and_shared_memory():
    run = launches.prepare("ret;", block=(256, 1, 1), dynamic_smem=100_000)
    assert run.resident_blocks == 2 * 132
    run.kernel = replace(run.kernel, registers=255)
    assert run.resident_blocks == 132


def test_an_unknown_instruction_is_named():
    with pytest.raises(UnsupportedInstruction, match="multimem.red.relaxed.gpu.global.add.u32"):
        launches.prepare("multimem.red.relaxed.gpu.global.add.u32 [%d1], %r1; ret;")
