"""Mbarriers of other blocks: whose initialisation is known where they are used, and what is missing if not."""

from __future__ import annotations

import pytest

from tests.emulator.machine.launches import emulate

SETUP = """.shared .align 8 .b8 s[64];
mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r3, %cluster_ctarank; xor.b32 %r4, %r3, 1;
mapa.shared::cluster.u32 %r5, %r2, %r4; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p3, %r1, 1;
{before}
@%p1 mbarrier.init.shared.b64 [%r2], {count};
{between}
"""
END = """wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
@!%p2 bra wait;
barrier.cluster.arrive; barrier.cluster.wait;
ret;"""
ARRIVE = "mbarrier.arrive.shared::cluster.b64 _, [%r5];\n"
SEND = """@!%p1 bra wait; mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 4; add.u32 %r6, %r5, 16;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r1, [%r5];
"""
FENCE = "fence.mbarrier_init.release.cluster;"
RELAXED = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
RELEASING = "barrier.cluster.arrive; barrier.cluster.wait;"


def kinds(use, between, before=""):
    count = 32 if use == ARRIVE else 1
    return emulate(SETUP.format(before=before, between=between, count=count) + use + END, grid=2, cluster=2).kinds


@pytest.mark.parametrize("use", [ARRIVE, SEND], ids=["arrival", "st.async"])
@pytest.mark.parametrize(
    "between",
    [f"@%p1 {FENCE} {RELAXED}", RELEASING, f"fence.acq_rel.cluster; {RELAXED}", f"@%p1 {FENCE} {RELAXED} {RELAXED}"],
)
def test_a_block_that_has_learnt_of_it_may_use_it(use, between):
    assert kinds(use, between) == []


@pytest.mark.parametrize("use", [ARRIVE, SEND], ids=["arrival", "st.async"])
@pytest.mark.parametrize(
    ("between", "before"),
    [(RELAXED, ""), (RELAXED, FENCE), (f"bar.sync 0; @%p3 {FENCE} {RELAXED}", ""), (f"bar.sync 0; {RELAXED}", "")],
    ids=["no fence", "before", "in another thread", "block alone"],
)
def test_a_relaxed_barrier_of_the_cluster_needs_a_fence_of_the_thread_that_initialised(use, between, before):
    assert kinds(use, between, before) == ["missing_fence"]


def test_a_fence_alone_and_a_barrier_of_the_block_hand_nothing_to_another_block():
    outcome = emulate(
        SETUP.format(before="", between=f"{FENCE} bar.sync 0;", count=32) + ARRIVE + END, grid=2, cluster=2
    )
    assert outcome.kinds == ["race"]
    assert "a barrier of the cluster is needed between" in outcome.findings[0].message
    assert outcome.lines == [(7, 5)]


@pytest.mark.parametrize(
    ("between", "kinds"),
    [("", ["race"]), ("bar.warp.sync 0xffffffff;", ["race"]), ("bar.sync 0;", []), ("bar.sync 1, 64;", [])],
)
def test_another_warp_of_the_block_needs_a_barrier_of_both(between, kinds):
    arrive = "mbarrier.arrive.shared.b64 _, [%r2];\n"
    assert emulate(SETUP.format(before="", between=between, count=64) + arrive + END, block=64).kinds == kinds


def test_an_mbarrier_of_the_own_block_needs_neither():
    code = SETUP.format(before="", between="bar.sync 0;", count=32) + "mbarrier.arrive.shared.b64 _, [%r2];\n" + END
    assert emulate(code, grid=2, cluster=2).kinds == []
