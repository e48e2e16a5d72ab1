"""Warp operations: what no recording holds (test_recorded.py has the rest): other forms, broken warps, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cutesmith.emulator.faults import KernelFault, UnsupportedInstruction
from cutesmith.emulator.operations.warps import lane_mask
from tests.emulator.machine.launches import run_warps

WARPS = 6


def drawn(seed):
    """A generator, and which lanes of WARPS warps take part: all, one, every second, and random ones."""
    generator = np.random.default_rng(seed)
    active = generator.random((WARPS, 32)) < 0.6
    active[0], active[1], active[2] = True, np.arange(32) == 19, np.arange(32) % 2 == 1
    return generator, active


def test_a_shuffle_may_overwrite_its_source_and_take_constants():
    a = np.arange(64).reshape(2, 32)
    (found,) = run_warps("shfl.sync.bfly.b32 %r0, %r0, 16, 31, 0xffffffff;", {"%r0": a}, "%r0")
    assert (found == a[:, np.arange(32) ^ 16]).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_by_constants_are_those_by_registers(mode, whole):
    generator, active = drawn(7)
    a, active = generator.integers(0, 1 << 32, (WARPS, 32), np.uint64), None if whole else active
    for shift, control in itertools.product((0, 3, 16, 31), (0, 31, 0x1C03, 0x181F)):
        values = {"%r0": a, "%r2": np.full_like(a, shift), "%r3": np.full_like(a, control)}
        outputs, shuffle = ("%r1", "%p1"), f"shfl.sync.{mode}.b32 %r1|%p1, %r0, {{}}, {{}}, -1;"
        by_constants = run_warps(shuffle.format(shift, control), values, *outputs, active=active)
        by_registers = run_warps(shuffle.format("%r2", "%r3"), values, *outputs, active=active)
        assert np.array_equal(by_constants, by_registers), (shift, control)


def test_matches_of_64_bits_look_at_all_of_them():
    generator, active = drawn(3)
    a = generator.integers(0, 3, (WARPS, 32), np.uint64)
    a[1:4] = np.where(active[1:4], 2, 1)  # all that take part agree
    narrow = "match.any.sync.b32 %r1, %r9, -1; match.all.sync.b32 %r2|%p1, %r9, -1; match.all.sync.b32 %r3, %r9, -1;"
    wide = narrow.replace("b32", "b64").replace("%r9", "%d9")
    values, outputs = {"%r9": a, "%d9": a << np.uint64(62)}, ("%r1", "%r2", "%p1", "%r3")
    found = run_warps(wide, values, *outputs, active=active)
    assert np.array_equal(found, run_warps(narrow, values, *outputs, active=active))
    assert found[2][3].any() and not found[2][0].any()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_reductions_of_floats(mode, absolute):
    generator, active = drawn(5)
    values = generator.standard_normal((WARPS, 32)).astype(np.float32)
    values[2] = np.where(generator.random(32) < 0.5, 0.0, -0.0)
    values[3, ::3], values[4] = math.nan, -math.nan
    values[5] = np.where(np.arange(32) % 2, math.inf, -math.inf)
    suffix = ".abs" if absolute else ""
    code = f"redux.sync.{mode}{suffix}.f32 %r0, %r2, -1; redux.sync.{mode}{suffix}.NaN.f32 %r1, %r2, -1;"
    plain, with_nan = run_warps(code, {"%r2": values.view(np.uint32)}, "%r0", "%r1", active=active)
    for warp, lane in np.argwhere(active):
        row = np.abs(values[warp][active[warp]]) if absolute else values[warp][active[warp]]
        numbers = [value for value in row if not math.isnan(value)]
        ordered = sorted(numbers, key=lambda value: (value, math.copysign(1, value)))
        best = np.float32((ordered[0] if mode == "min" else ordered[-1]) if ordered else math.nan)
        expected = 0x7FFFFFFF if not ordered else int(best.view(np.uint32))
        assert plain[warp, lane] == expected
        assert with_nan[warp, lane] == (expected if len(numbers) == len(row) else 0x7FFFFFFF)


def test_an_election_may_throw_the_lane_away():
    (leads,) = run_warps("elect.sync _|%p0, -1;", {"%r0": np.zeros((1, 32))}, "%p0")
    assert leads[0].tolist() == [1] + [0] * 31


def test_masks_have_lane_zero_lowest():
    lanes = np.zeros((2, 32), bool)
    lanes[0, 0] = lanes[0, 9] = lanes[1, 31] = True
    assert lane_mask(lanes).tolist() == [1 | 1 << 9, 1 << 31]


@pytest.mark.parametrize("space", [".shared::cta", ""])
def test_rows_of_matrices_are_found_in_every_space_and_at_an_offset(space):
    generator = np.random.default_rng(0)
    values = {f"%r{register}": generator.integers(0, 2**32, (3, 32)) for register in range(4)}
    values["%r9"] = generator.permutation(96).reshape(3, 32) * 16
    code = f"""mov.u32 %r8, tile; mad.lo.u32 %r10, %r49, 16, %r8; add.u32 %r8, %r8, %r9;
st.shared.v4.b32 [%r10], {{%r0, %r1, %r2, %r3}}; bar.sync 0;
cvt.u64.u32 %d9, %r8; {"" if space else "cvta.shared.u64 %d9, %d9;"} sub.u64 %d9, %d9, 32;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r0, %r1, %r2, %r3}}, [%r8];
ldmatrix.sync.aligned.m8n8.x4{space}.b16 {{%r4, %r5, %r6, %r7}}, [%d9+32];"""
    found = run_warps(code, values, *(f"%r{register}" for register in range(8)))
    assert np.array_equal(found[:4], found[4:]) and np.any(found)


STORE_ROWS = """mov.u32 %r8, tile; mad.lo.u32 %r10, %r49, 16, %r8;
st.shared.v4.b32 [%r10], {%r0, %r1, %r2, %r3}; bar.sync 0;
"""


def rows_of_bytes(seed):
    """Registers that `STORE_ROWS` puts into 32 rows of 16 bytes, and these rows."""
    rows = np.random.default_rng(seed).integers(0, 256, (32, 16), np.uint8)
    words = rows.view(np.uint32)
    return {f"%r{part}": words[:, part].reshape(1, 32) for part in range(4)}, rows


@pytest.mark.parametrize("count", [1, 2])
def test_matrices_of_bytes_are_transposed_column_by_column(count):
    values, rows = rows_of_bytes(5)
    names = [f"%r{register}" for register in range(4, 4 + 2 * count)]
    code = f"{STORE_ROWS}ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {{{', '.join(names)}}}, [%r10];"
    found = run_warps(code, values, *names)
    for register, lane in itertools.product(range(2 * count), range(32)):
        first, column = 16 * (register // 2) + 4 * (lane % 4) + 2 * (register % 2), lane // 4
        wanted = [rows[first, column], rows[first + 1, column], rows[first, column + 8], rows[first + 1, column + 8]]
        assert found[register][0, lane] == sum(int(byte) << 8 * place for place, byte in enumerate(wanted))


@pytest.mark.parametrize(("form", "bits"), [("b6x16_p32", 6), ("b4x16_p64", 4)])
def test_packed_elements_get_a_byte_each(form, bits):
    values, rows = rows_of_bytes(6)
    code = f"{STORE_ROWS}ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.{form} {{%r4, %r5}}, [%r10];"
    found = run_warps(code, values, "%r4", "%r5")
    for register, lane in itertools.product(range(2), range(32)):
        packed = int.from_bytes(rows[8 * register + lane // 4].tobytes(), "little")
        elements = [packed >> bits * (4 * (lane % 4) + place) & (1 << bits) - 1 for place in range(4)]
        assert found[register][0, lane] == sum(element << 8 * place for place, element in enumerate(elements))


def test_matrices_of_bytes_are_stored_column_by_column():
    given = np.random.default_rng(7).integers(0, 2**32, (2, 32), np.uint64)
    code = """mov.u32 %r8, tile; mad.lo.u32 %r10, %r49, 16, %r8;
stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r10], {%r0, %r1}; bar.sync 0;
ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r10];"""
    found = run_warps(code, {"%r0": given[:1], "%r1": given[1:]}, "%r2", "%r3", "%r4", "%r5")
    rows = np.concatenate(found).T.astype(np.uint32).copy().view(np.uint8)  # (lane, byte)
    for register, lane, place in itertools.product(range(2), range(32), range(4)):
        row, column = 8 * register + 2 * (lane % 4) + place % 2, lane // 4 + 8 * (place // 2)
        assert rows[row, column] == int(given[register, lane]) >> 8 * place & 0xFF


def test_transposing_twice_is_nothing():
    a = np.random.default_rng(3).integers(0, 2**32, (4, 32), np.uint64)
    move = "movmatrix.sync.aligned.m8n8.trans.b16"
    once, twice = run_warps(f"{move} %r1, %r0; {move} %r2, %r1;", {"%r0": a}, "%r1", "%r2")
    assert (twice == a).all() and not (once == a).all()
    assert once[0, 1] & np.uint64(0xFFFF) == a[0, 8] & np.uint64(0xFFFF)  # (0, 2) is (2, 0)


BROKEN = ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r0};", "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%d9];",
          "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2};")  # fmt: skip


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_warp_is_reported(code):
    active = np.arange(64).reshape(2, 32) != 41
    with pytest.raises(KernelFault) as caught:
        run_warps(f"mov.u32 %r9, tile; {code}", {"%r0": np.zeros((2, 32))}, active=active)
    (finding,) = (finding for finding in caught.value.findings if finding.kind == "invalid_operand")
    assert "all 32 threads" in finding.message and finding.count == 31


REFUSED = (
    "shfl.sync.idx.b64 %d0, %d1, %r2, %r3, -1;",
    "vote.sync.ballot.pred %p0, %p1, -1;",
    "match.any.sync.u32 %r0, %r1, -1;",
    "redux.sync.add.b32 %r0, %r1, -1;",
    "redux.sync.add.f32 %r0, %r1, -1;",
    "redux.sync.min.NaN.s32 %r0, %r1, -1;",
    "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0, %r1}, [%r9];",
    "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r0, %r1}, [%r9];",
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b5x16_p32 {%r0}, [%r9];",
    "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0, %r1, %r2}, [%r9];",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r9];",
    "ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r0}, [%r9];",
    "stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r9], {%r0};",
    "movmatrix.sync.aligned.m8n8.b16 %r0, %r1;",
)


@pytest.mark.parametrize("code", REFUSED)
def test_forms_that_do_not_exist_are_refused_by_name(code):
    with pytest.raises(UnsupportedInstruction) as caught:
        run_warps(code, {"%r0": np.zeros((1, 32))})
    assert f"`{code.split()[0]}`" in str(caught.value)
