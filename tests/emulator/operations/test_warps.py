"""Warp operations against loops over lanes, over several warps at once with some lanes away, and against an H200."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.operations.warps import lane_mask
from evals.studies.emulator.record_mma import RECORDING, compare
from evals.studies.emulator.warp_forms import FORMS
from tests.emulator.operations.by_hand import Hand, run_form

WARPS = 6
RECORDED = [form for form in FORMS if not form.name.startswith("mma") and "matrix" not in form.name]


def drawn(seed):
    """A generator, and which lanes of WARPS warps take part: all, one, every second, and random ones."""
    generator = np.random.default_rng(seed)
    active = generator.random((WARPS, 32)) < 0.6
    active[0], active[1], active[2] = True, np.arange(32) == 19, np.arange(32) % 2 == 1
    return generator, active


def random_bits(generator, high=2**32):
    return generator.integers(0, high, (WARPS, 32), np.uint64)


def lanes_of(active):
    return [(warp, lane) for warp in range(WARPS) for lane in range(32) if active[warp, lane]]


@pytest.mark.parametrize("form", RECORDED, ids=lambda form: form.name)
def test_every_result_is_that_of_the_h200(form):
    with np.load(RECORDING) as recording:
        found = [compare(form, kind, run_form(form, kind), recording) for kind in form.kinds]
    assert not [one.line() for one in found if one.differing]


def shuffled(mode, lane, b, c):
    """Source lane and predicate by the pseudo-code of the PTX ISA."""
    segment, bound, shift = (c >> 8) & 31, c & 31, b & 31
    most = (lane & segment) | (bound & ~segment)
    least = lane & segment
    if mode == "up":
        source, inside = lane - shift, lane - shift >= most
    elif mode == "down":
        source, inside = lane + shift, lane + shift <= most
    elif mode == "bfly":
        source, inside = lane ^ shift, lane ^ shift <= most
    else:
        source = least | (shift & ~segment)
        inside = source <= most
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode):
    generator, active = drawn(1)
    a, b = random_bits(generator), random_bits(generator, 40)
    c = generator.choice(np.array([0x1F, 0, 0x1C1F, 0x1C03, 0x1000, 0x0F10], np.uint64), (WARPS, 32))
    code = f"shfl.sync.{mode}.b32 %r0|%p0, %r1, %r2, %r3, -1; shfl.sync.{mode}.b32 %r4, %r1, %r2, %r3, -1;"
    hand = Hand(code, {"%r0": a * 0 + 7, "%r1": a, "%r2": b, "%r3": c, "%r4": a * 0, "%p0": a * 0}).run(active)
    for warp, lane in lanes_of(active):
        source, inside = shuffled(mode, lane, int(b[warp, lane]), int(c[warp, lane]))
        expected = a[warp, source] if active[warp, source] else 0
        assert hand["%r0"][warp, lane] == hand["%r4"][warp, lane] == expected
        assert hand["%p0"][warp, lane] == inside
    assert (hand["%r0"][~active] == 7).all()  # inactive lanes keep what they have


def test_a_shuffle_may_overwrite_its_source_and_take_constants():
    a = np.arange(64, dtype=np.uint64).reshape(2, 32)
    hand = Hand("shfl.sync.bfly.b32 %r0, %r0, 16, 31, 0xffffffff;", {"%r0": a}).run()
    assert (hand["%r0"] == a[:, np.arange(32) ^ 16]).all()


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_votes(chance):
    generator, active = drawn(2)
    p = generator.random((WARPS, 32)) < chance
    code = "".join(f"vote.sync.{mode}.pred %p{n}, %p9, -1;" for n, mode in enumerate(("all", "any", "uni"), 1))
    code += "".join(f"vote.sync.{mode}.pred %p{n}, !%p9, -1;" for n, mode in enumerate(("all", "any", "uni"), 4))
    code += "vote.sync.ballot.b32 %r1, %p9, -1; vote.sync.ballot.b32 %r2, !%p9, -1;"
    values = {name: np.zeros((WARPS, 32)) for name in (*(f"%p{n}" for n in range(1, 7)), "%r1", "%r2")}
    hand = Hand(code, values | {"%p9": p}).run(active)
    for warp, lane in lanes_of(active):
        present = [bool(value) for value, here in zip(p[warp], active[warp]) if here]
        absent = [not value for value in present]
        expected = [check(values) for values in (present, absent) for check in (all, any, lambda v: len(set(v)) == 1)]
        assert [bool(hand[f"%p{n}"][warp, lane]) for n in range(1, 7)] == expected
        yes = sum(1 << i for i in range(32) if active[warp, i] and p[warp, i])
        no = sum(1 << i for i in range(32) if active[warp, i] and not p[warp, i])
        assert (hand["%r1"][warp, lane], hand["%r2"][warp, lane]) == (yes, no)


@pytest.mark.parametrize(("width", "register"), [(32, "%r"), (64, "%rd")])
def test_matches(width, register):
    generator, active = drawn(3)
    a = random_bits(generator, 3) << np.uint64(width - 2)
    a[1:4] = np.where(active[1:4], a[1:4].max(), 1)  # all that take part agree
    code = f"match.any.sync.b{width} %r0, {register}9, -1; match.all.sync.b{width} %r1|%p1, {register}9, -1;"
    code += f"match.all.sync.b{width} %r2, {register}9, -1;"
    values = {name: np.zeros((WARPS, 32)) for name in ("%r0", "%r1", "%r2", "%p1")}
    hand = Hand(code, values | {f"{register}9": a}).run(active)
    for warp, lane in lanes_of(active):
        here = [i for i in range(32) if active[warp, i]]
        same = [i for i in here if a[warp, i] == a[warp, lane]]
        assert hand["%r0"][warp, lane] == sum(1 << i for i in same)
        agreed = len(same) == len(here)
        assert hand["%r1"][warp, lane] == hand["%r2"][warp, lane] == (sum(1 << i for i in here) if agreed else 0)
        assert hand["%p1"][warp, lane] == agreed
    assert hand["%p1"][3].any() and not hand["%p1"][0].any()


def signed(value):
    return int(value) - 2**32 if value >> np.uint64(31) else int(value)


REDUCTIONS = {
    "add.u32": lambda v: sum(map(int, v)),
    "add.s32": lambda v: sum(map(signed, v)),
    "min.u32": lambda v: int(min(v)),
    "max.u32": lambda v: int(max(v)),
    "min.s32": lambda v: min(map(signed, v)),
    "max.s32": lambda v: max(map(signed, v)),
    "and.b32": lambda v: int(np.bitwise_and.reduce(v)),
    "or.b32": lambda v: int(np.bitwise_or.reduce(v)),
    "xor.b32": lambda v: int(np.bitwise_xor.reduce(v)),
}


@pytest.mark.parametrize("form", REDUCTIONS)
def test_reductions(form):
    generator, active = drawn(4)
    a = random_bits(generator)
    hand = Hand(f"redux.sync.{form} %r0, %r1, -1;", {"%r0": a * 0, "%r1": a}).run(active)
    for warp, lane in lanes_of(active):
        assert hand["%r0"][warp, lane] == REDUCTIONS[form](a[warp][active[warp]]) % 2**32


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


def test_elections_and_active_masks():
    _, active = drawn(6)
    values = {name: np.zeros((WARPS, 32)) for name in ("%r0", "%r1", "%p0")}
    hand = Hand("elect.sync %r0|%p0, -1; activemask.b32 %r1;", values).run(active)
    for warp, lane in lanes_of(active):
        first = int(np.flatnonzero(active[warp])[0])
        assert hand["%r0"][warp, lane] == first and hand["%p0"][warp, lane] == (lane == first)
        assert hand["%r1"][warp, lane] == sum(1 << i for i in range(32) if active[warp, i])
    assert not hand["%p0"][~active].any()


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
