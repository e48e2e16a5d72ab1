"""Warp operations: forms of which there is no recording (test_recorded.py has the others)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.operations.warps import lane_mask
from tests.emulator.operations.by_hand import Hand

WARPS = 6


def drawn(seed):
    """A generator, and which lanes of WARPS warps take part: all, one, every second, and random ones."""
    generator = np.random.default_rng(seed)
    active = generator.random((WARPS, 32)) < 0.6
    active[0], active[1], active[2] = True, np.arange(32) == 19, np.arange(32) % 2 == 1
    return generator, active


def lanes_of(active):
    return [(warp, lane) for warp in range(WARPS) for lane in range(32) if active[warp, lane]]


def test_a_shuffle_may_overwrite_its_source_and_take_constants():
    a = np.arange(64, dtype=np.uint64).reshape(2, 32)
    active = np.arange(64).reshape(2, 32) % 16 > 3
    hand = Hand("shfl.sync.bfly.b32 %r0, %r0, 16, 31, 0xffffffff;", {"%r0": a}).run(active)
    assert (hand["%r0"] == np.where(active, a[:, np.arange(32) ^ 16], a)).all()  # inactive lanes keep what they have


def test_matches_of_64_bits_look_at_all_of_them():
    generator, active = drawn(3)
    a = generator.integers(0, 3, (WARPS, 32), np.uint64)
    a[1:4] = np.where(active[1:4], 2, 1)  # all that take part agree
    code = "match.any.sync.b32 %r32, %r9, -1; match.all.sync.b32 %r33|%p32, %r9, -1;"
    code += "match.any.sync.b64 %r64, %rd9, -1; match.all.sync.b64 %r65|%p64, %rd9, -1;"
    code += "match.all.sync.b64 %r70, %rd9, -1;"
    values = {name: np.zeros((WARPS, 32)) for name in ("%r32", "%r33", "%r64", "%r65", "%r70", "%p32", "%p64")}
    hand = Hand(code, values | {"%r9": a, "%rd9": a << np.uint64(62)}).run(active)
    for wide, narrow in (("%r64", "%r32"), ("%r65", "%r33"), ("%p64", "%p32"), ("%r70", "%r33")):
        assert (hand[wide] == hand[narrow]).all()
    assert hand["%p64"][3].any() and not hand["%p64"][0].any()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_reductions_of_floats(mode, absolute):
    generator, active = drawn(5)
    values = generator.standard_normal((WARPS, 32)).astype(np.float32)
    values[2] = np.where(generator.random(32) < 0.5, 0.0, -0.0)
    values[3, ::3], values[4] = math.nan, -math.nan
    values[5] = np.where(np.arange(32) % 2, math.inf, -math.inf)
    bits = values.view(np.uint32)
    suffix = ".abs" if absolute else ""
    code = f"redux.sync.{mode}{suffix}.f32 %r0, %r2, -1; redux.sync.{mode}{suffix}.NaN.f32 %r1, %r2, -1;"
    hand = Hand(code, {"%r0": bits * 0, "%r1": bits * 0, "%r2": bits}).run(active)
    for warp, lane in lanes_of(active):
        row = np.abs(values[warp][active[warp]]) if absolute else values[warp][active[warp]]
        numbers = [value for value in row if not math.isnan(value)]
        ordered = sorted(numbers, key=lambda value: (value, math.copysign(1, value)))
        best = np.float32((ordered[0] if mode == "min" else ordered[-1]) if ordered else math.nan)
        expected = 0x7FFFFFFF if not ordered else int(best.view(np.uint32))
        assert hand["%r0"][warp, lane] == expected
        assert hand["%r1"][warp, lane] == (expected if len(numbers) == len(row) else 0x7FFFFFFF)


def test_an_election_may_throw_the_lane_away():
    hand = Hand("elect.sync _|%p0, -1;", {"%p0": np.zeros((1, 32))}).run()
    assert hand["%p0"][0].tolist() == [1] + [0] * 31


def test_a_warp_barrier_tells_the_memory_who_met():
    _, active = drawn(7)
    hand = Hand("bar.warp.sync -1; mov.b32 %r0, 0;", {"%r0": np.zeros((WARPS, 32))})
    hand.step(hand.program.instructions[0], active)
    assert hand.memory.synchronised == [
        [32 * warp + int(lane) for lane in np.flatnonzero(row)] for warp, row in enumerate(active)
    ]


def test_masks_have_lane_zero_lowest():
    lanes = np.zeros((2, 32), bool)
    lanes[0, 0] = lanes[0, 9] = lanes[1, 31] = True
    assert lane_mask(lanes).tolist() == [1 | 1 << 9, 1 << 31]


@pytest.mark.parametrize(
    "code",
    [
        "shfl.sync.idx.b64 %rd0, %rd1, %r2, %r3, -1;",
        "vote.sync.ballot.pred %p0, %p1, -1;",
        "match.any.sync.u32 %r0, %r1, -1;",
        "redux.sync.add.b32 %r0, %r1, -1;",
        "redux.sync.add.f32 %r0, %r1, -1;",
        "redux.sync.min.NaN.s32 %r0, %r1, -1;",
    ],
)
def test_forms_that_do_not_exist_are_refused(code):
    names = ("%rd0", "%rd1", "%r0", "%r1", "%r2", "%r3", "%p0", "%p1")
    used = {name: np.zeros((1, 32)) for name in names if name in code}
    with pytest.raises(UnsupportedInstruction, match=code.split()[0]):
        Hand(code, used).run()
