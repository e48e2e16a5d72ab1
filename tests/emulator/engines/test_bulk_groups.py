"""Bulk groups of a ring: a wait covers what the order of commits says, whatever has landed before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.machine.launches import emulate

STEPS, STAGES, SIZE = 7, 3, 128  # bytes of a stage: a word for each lane
SETUP = """mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mad.lo.u32 %r3, %r1, 4, %r2;
setp.eq.u32 %p1, %r1, 0;
ld.param.u64 %d1, [p0];
"""
STEP = """@%p1 cp.async.bulk.wait_group.read {allowed};
bar.sync 0;
add.u32 %r4, %r1, {number};
st.shared.u32 [%r3+{stage}], %r4;
fence.proxy.async.shared::cta;
bar.sync 0;
@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1+{target}], [%r2+{stage}], 128;
@%p1 cp.async.bulk.commit_group;
"""


def stored(allowed, order):
    """The findings of a ring whose stages are written again while so many stores may still read, and what it stored."""
    target = np.zeros(STEPS * SIZE // 4, np.int32)
    steps = (
        STEP.format(allowed=allowed, number=100 * step, stage=step % STAGES * SIZE, target=step * SIZE)
        for step in range(STEPS)
    )
    code = f"{SETUP}{''.join(steps)}@%p1 cp.async.bulk.wait_group 0;\nret;"
    return emulate(code, target, order=order).kinds, target.reshape(STEPS, -1)


@pytest.mark.parametrize("order", range(4))
def test_a_stage_is_free_once_its_own_store_has_read_in_every_order(order):
    """The next wait covers a store that landed before it too, as QuACK's GEMMs with several tiles of D need it."""
    kinds, found = stored(STAGES - 1, order)
    assert kinds == []
    assert (found == 100 * np.arange(STEPS)[:, None] + np.arange(32)).all()


@pytest.mark.parametrize("order", range(4))
def test_a_wait_that_leaves_out_the_stage_is_a_race(order):
    assert "race" in stored(STAGES, order)[0]
