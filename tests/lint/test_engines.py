"""The rules on TMA, pipelines and tcgen05: what they tell apart."""

from __future__ import annotations

import textwrap

import pytest

from cutesmith.lint import lint_file

HEAD = """\
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05


@cute.jit
def load(tma, mX, sX, bar):
    cute.copy(tma, mX, sX, tma_bar_ptr=bar)


@cute.jit
def arm(bar):
    cute.arch.mbarrier_arrive_and_expect_tx(bar, 64)


@cute.kernel
def kernel(tma, mX, sX, bar, where: cutlass.Constexpr):
    t, _, _ = cute.arch.thread_idx()
    b, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
"""


LINE = "line = pipeline.PipelineTmaAsync.create(num_stages=2, barrier_storage=bar)"
NESTED = "with cute.arch.elect_one():\n    with cute.arch.elect_one():\n        cute.arch.mbarrier_init(bar, 1)"
PARTITION = "cpasync.tma_partition(tma, 0, cute.make_layout(1), sX, g)"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (
            "with cute.arch.elect_one():\n    with cute.arch.elect_one():\n        cute.arch.mbarrier_init(bar, 1)",
            "CS430",
        ),
        ("if t == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("if t == 0:\n    with cute.arch.elect_one():\n        cute.arch.mbarrier_init(bar, 1)", "CS430"),
        ("if 0 == t:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("if t < 1:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("if t % 32 == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("if b == 0 and t == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("if cute.arch.lane_idx() == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("x = cute.arch.thread_idx()[0]\nif x == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", "CS430"),
        ("y = cute.arch.thread_idx()[1]\nif y == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", ""),
        ("with cute.arch.elect_one():\n    load(tma, mX, sX, bar)", "CS430"),
        ("if warp == 0:\n    load(tma, mX, sX, bar)", ""),
        ("with cute.arch.elect_one():\n    arm(bar)", ""),
        ("if t < 32:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", ""),
        ("if t == 0:\n    cute.arch.mbarrier_init(bar, 1)", ""),
        ("if t == 0:\n    pass\nelse:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", ""),
        ("if warp == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", ""),
        ("t = t // 32\nif t == 0:\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)", ""),  # a warp's number by now
        ("with cute.arch.elect_one():\n    cute.copy(tma, mX, sX, mbar_ptr=bar)", ""),  # a bulk copy has no election
        ("if warp == 0:\n    tcgen05.commit(bar)", "CS431"),
        ("is_leader = t == 0\nif is_leader and cute.arch.lane_idx() == 0:\n    tcgen05.commit(bar)", ""),
        (
            "g = cute.local_tile(mX, (8, 8), (b, None))\ncpasync.tma_partition(tma, 0, cute.make_layout(1), sX, g)",
            "CS432",
        ),
        (f"tile = (8, 8)\ng = cute.local_tile(mX, tiler=tile, coord=(b, None))\n{PARTITION}", "CS432"),
        (f"g = cute.local_tile(mX, (8, 8), (b, 0))\n{PARTITION.replace(' g)', ' gmem_tensor=g)')}", "CS432"),
        (f"g = cute.local_tile(mX, (64,), (b,))\n{PARTITION}", ""),
        (f"g, h = (cute.local_tile(m, (8, 8), (b, 0)) for m in (mX, mX))\n{PARTITION}", "CS432"),
        (f"g, h = (cute.local_tile(m, (64,), (b,)) for m in (mX, mX))\n{PARTITION}", ""),
        (f"{LINE}\nif cute.arch.lane_idx() == 0:\n    line.producer_acquire(mX)", "CS433"),
        (f"{LINE}\nwith cute.arch.elect_one():\n    line.consumer_release(mX)", "CS433"),
        (f"{LINE}\ngive, take = line.make_participants()\nif t == 0:\n    slot = give.acquire_and_advance()", "CS433"),
        (f"{LINE}\ngive, take = line.make_participants()\nif warp == 0:\n    slot = give.acquire_and_advance()", ""),
        (
            "line = pipeline.PipelineAsync.create(num_stages=2, barrier_storage=bar)\nif t == 0:\n"
            "    line.producer_acquire(mX)",
            "",  # it counts the threads that its author names
        ),
        ("x = cute.make_tensor(mX.iterator + (b * 64 + 3), cute.make_layout(4))", "CS435"),
        ("x = cute.make_tensor(mX.iterator + cute.arch.block_idx()[1] * 64, cute.make_layout(4))", "CS435"),
        ("start = b * 64\nx = cute.make_tensor(start + mX.iterator, cute.make_layout(4))", "CS435"),
        ("x = cute.make_tensor(mX.iterator + b * cute.arch.grid_dim()[0], cute.make_layout(4))", ""),
        ("x = cute.make_tensor(mX.iterator + where * 64, cute.make_layout(4))", ""),
    ],
)
def test_an_engine_rule_fires_where_the_fault_is(write_file, body, rule):
    findings = lint_file(write_file(HEAD + textwrap.indent(body, "    ") + "\n")).findings
    found = {finding.rule for finding in findings if finding.rule.startswith("CS43")}
    assert found == ({rule} if rule else set())


def test_a_fence_anywhere_in_the_file_is_trusted(write_file):
    body = """\
    buffer = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 128)
    buffer[t] = mX[t]
    cute.copy(tma, buffer, mX)
    cute.arch.cp_async_bulk_commit_group()
"""
    assert "CS434" in {finding.rule for finding in lint_file(write_file(HEAD + body)).findings}
    fenced = HEAD + "    helper = cute.arch.fence_view_async_shared\n" + body
    assert "CS434" not in {finding.rule for finding in lint_file(write_file(fenced)).findings}
    remarked = HEAD + "    # no fence_proxy here\n" + body
    assert "CS434" in {finding.rule for finding in lint_file(write_file(remarked)).findings}
    copied = HEAD + body.replace("buffer[t] = mX[t]", "cute.autovec_copy(mX, buffer)")
    assert "CS434" in {finding.rule for finding in lint_file(write_file(copied)).findings}
    parts = "mine = copy.get_slice(t).partition_D(buffer)\n    cute.copy(copy, mX, mine)"
    partitioned = HEAD + body.replace("buffer[t] = mX[t]", parts)
    assert "CS434" in {finding.rule for finding in lint_file(write_file(partitioned)).findings}
    views = "mine, other = (cute.zipped_divide(s[None, 0], (4,)) for s in (buffer, mX))\n    "
    viewed = HEAD + body.replace("buffer[t] = mX[t]", f"{views}cute.autovec_copy(mX, mine[None, t])")
    assert "CS434" in {finding.rule for finding in lint_file(write_file(viewed)).findings}
    read = HEAD + body.replace("buffer[t] = mX[t]", f"{views}cute.autovec_copy(mine[None, t], other)")
    assert "CS434" not in {finding.rule for finding in lint_file(write_file(read)).findings}
    loaded = HEAD + body.replace("    buffer[t] = mX[t]\n", "")  # TMA itself wrote it
    assert "CS434" not in {finding.rule for finding in lint_file(write_file(loaded)).findings}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('OPTIONS = "--gpu-arch=sm_120a --opt-level 3"\nGROUP = tcgen05.CtaGroup.ONE\n', "CS436"),
        ('OPTIONS = "--gpu-arch=sm_100a --opt-level 3"\nGROUP = tcgen05.CtaGroup.ONE\n', ""),
        ('kernel.set_name_prefix("my_cutlass_")\n', "CS437"),
        ('kernel.set_name_prefix("my_")\n', ""),
        ("class CutlassGemm:\n    @cute.kernel\n    def gemm(self, mX):\n        mX[0] = mX[1]\n", "CS437"),
        ("class Gemm:\n    @cute.kernel\n    def gemm(self, mX):\n        mX[0] = mX[1]\n", ""),
    ],
)
def test_a_rule_about_names_and_targets_fires_where_the_fault_is(write_file, text, rule):
    findings = lint_file(write_file(HEAD + "    mX[0] = mX[1]\n\n\n" + text)).findings
    assert {finding.rule for finding in findings if finding.rule.startswith("CS43")} == ({rule} if rule else set())


COORDINATES = """
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

class Copy:
    @cute.jit
    def __call__(self, mX, layout, tile):
        tma, tX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), mX, layout, tile)
        {}

    @cute.kernel
    def kernel(self, tma, tile, mX):
        gX = cute.local_tile(tile, (32, 32), (None, None))
        part = gX[None, 0]
        {}
"""


@pytest.mark.parametrize(
    ("host", "device", "lines"),
    [
        ("self.kernel(tma, tX, mX).launch()", "part.element_type", [15]),
        ("self.kernel(tma, mX=mX, tile=tX).launch()", "tile.element_type", [15]),
        ("self.kernel(tma, tX, mX).launch()", "mX.element_type", []),
        ("self.kernel(tma, mX, mX).launch()", "part.element_type", []),
        ("width = tX.element_type.width", "pass", [9]),
        ("tX = cute.group_modes(mX, 0, 2); tX.element_type", "pass", []),  # two meanings: not known which
        ("cute.make_identity_tensor((4, 4)).element_type", "pass", []),  # not under a name
        ("c = cute.make_identity_tensor((4, 4)); c.element_type", "pass", [9]),
    ],
)
def test_coordinates_are_followed_into_the_kernel_and_its_tiles(write_file, host, device, lines):
    findings = lint_file(write_file(COORDINATES.format(host, device))).findings
    assert [finding.line for finding in findings if finding.rule == "CS438"] == lines
