"""Atomics against a plain loop over the lanes, in the order of the lanes."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.machine.launches import emulate, zeros

CODE = """ld.param.u64 %d1, [p0];
ld.param.u64 %d2, [p1];
ld.param.u64 %d3, [p2];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d4, %r1, {size};
add.u64 %d5, %d2, %d4;
add.u64 %d6, %d3, %d4;
ld.global.b{bits} {value}, [%d5];
{atomic}
st.global.b{bits} [%d6], {old};
ret;"""
REGISTERS = {16: ("%h1", "%h2"), 32: ("%r2", "%r3"), 64: ("%d10", "%d11")}


def run(name, memory, values):
    """`atom.global.<name> old, [memory], value` by one lane a value; (memory after, what the lanes got)."""
    bits = 8 * values.itemsize
    value, old = REGISTERS[bits]
    got = np.zeros_like(values)
    atomic = f"atom.global.{name} {old}, [%d1], {value};"
    code = CODE.format(size=values.itemsize, bits=bits, value=value, old=old, atomic=atomic)
    memory = np.array([memory], values.dtype)
    assert emulate(code, memory, values, got, block=len(values)).findings == ()
    return memory[0], got


def loop(combine, memory, values):
    got = []
    for value in values.tolist():
        got.append(memory)
        memory = combine(memory, value)
    return memory, got


WRAP = 1 << 32
INTEGERS = {
    "add.u32": lambda m, v: (m + v) % WRAP,
    "min.u32": min,
    "max.u32": max,
    "inc.u32": lambda m, v: 0 if m >= v else m + 1,
    "dec.u32": lambda m, v: v if m == 0 or m > v else m - 1,
    "and.b32": lambda m, v: m & v,
    "or.b32": lambda m, v: m | v,
    "xor.b32": lambda m, v: m ^ v,
    "exch.b32": lambda m, v: v,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_unsigned_operations(name):
    values = np.random.default_rng(1).integers(0, 40 if name[:3] in ("inc", "dec") else WRAP, 64).astype(np.uint32)
    memory, got = run(name, 7, values)
    expected, olds = loop(INTEGERS[name], 7, values)
    assert (memory, got.tolist()) == (expected, olds)


@pytest.mark.parametrize(("name", "combine"), [("min.s64", min), ("max.s64", max), ("add.s64", lambda m, v: m + v)])
def test_signed_operations_of_64_bits(name, combine):
    values = np.random.default_rng(2).integers(-(10**12), 10**12, 32)
    memory, got = run(name, 0, values)
    expected, olds = loop(combine, 0, values)
    assert (memory, got.tolist()) == (expected, olds)


def test_float_sums_round_in_the_order_of_the_lanes():
    values = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    memory, _ = run("add.f32", 1e4, values)
    expected = np.float32(1e4)
    for value in values:
        expected += value
    assert memory == expected != np.float32(1e4 + values.sum(dtype=np.float64))


def test_f32_sums_flush_subnormals_in_global_memory_only():
    tiny = np.full(2, 1e-39, np.float32)
    assert run("add.f32", 0, tiny)[0] == 0
    out = np.zeros(1, np.float32)
    code = """ld.param.u64 %d1, [p0];
ld.param.u64 %d2, [p1];
mov.u32 %r9, tile;
ld.global.b32 %r1, [%d1];
st.shared.b32 [%r9], 0;
red.shared.add.f32 [%r9], %r1;
ld.shared.b32 %r2, [%r9];
st.global.b32 [%d2], %r2;
ret;"""
    assert emulate(code, tiny, out, block=1).findings == ()
    assert out[0] == tiny[0]


def test_nan_sums_are_canonical():
    memory, _ = run("add.f32", 1, np.array([0xFF812345], np.uint32).view(np.float32))
    assert memory.view(np.uint32) == 0x7FFFFFFF


def test_double_and_half_sums():
    doubles = np.random.default_rng(4).standard_normal(32)
    expected = 0.5
    for value in doubles:
        expected += value
    assert run("add.f64", 0.5, doubles)[0] == expected
    halves = np.random.default_rng(5).standard_normal(32).astype(np.float16)
    total = np.float16(0)
    for value in halves:
        total += value
    assert run("add.noftz.f16", 0, halves)[0] == total


def test_packed_halves_are_updated_apart():
    pairs = np.array([[1.5, -2], [3, 0.25]], np.float16)
    memory, got = run("add.noftz.f16x2", 0, pairs.view(np.uint32).ravel())
    assert np.array([memory]).view(np.float16).tolist() == [4.5, -1.75]
    assert got[1:].view(np.float16).tolist() == [1.5, -2]


def test_bf16_minimum_prefers_numbers():
    values = np.array([0x7FC1, 0x4040, 0x3F80], np.uint16)  # NaN, 3, 1
    assert run("min.noftz.bf16", 0x4000, values)[0] == 0x3F80


def test_compare_and_swap_takes_one_winner():
    code = """ld.param.u64 %d1, [p0];
ld.param.u64 %d2, [p1];
mov.u32 %r1, %tid.x;
add.u32 %r2, %r1, 100;
atom.acq_rel.gpu.global.cas.b32 %r3, [%d1], 0, %r2;
mul.wide.u32 %d3, %r1, 4;
add.u64 %d3, %d2, %d3;
st.global.u32 [%d3], %r3;
ret;"""
    lock, got = zeros(1), zeros(32)
    assert emulate(code, lock, got).findings == ()
    assert lock[0] == 100
    assert got.tolist() == [0] + [100] * 31


def test_a_spin_lock_lets_every_lane_through():
    code = """ld.param.u64 %d1, [p0];
try: atom.acquire.gpu.global.cas.b32 %r3, [%d1], 0, 1;
setp.ne.u32 %p1, %r3, 0;
@%p1 bra try;
ld.global.u32 %r4, [%d1+4];
add.u32 %r4, %r4, 1;
st.global.u32 [%d1+4], %r4;
atom.release.gpu.global.exch.b32 %r5, [%d1], 0;
ret;"""
    memory = zeros(2)
    assert emulate(code, memory, block=64, grid=3).findings == ()
    assert memory.tolist() == [0, 192]


def test_vectors_and_128_bits():
    code = """ld.param.u64 %d1, [p0];
red.global.add.v4.f32 [%d1], {%r1, %r2, %r3, %r4};
atom.global.v2.f32.add {%r10, %r11}, [%d1], {%r1, %r2};
st.global.v2.b32 [%d1+16], {%r10, %r11};
mov.b128 %q1, {%d2, %d3};
atom.global.b128.exch %q2, [%d1+32], %q1;
mov.b128 {%d4, %d5}, %q2;
st.global.v2.b64 [%d1+48], {%d4, %d5};
ret;"""
    setup = "\n".join(f"mov.b32 %r{n}, 0f{bits};" for n, bits in ((1, "3F800000"), (2, "40000000"), (3, "40400000"), (4, "40800000")))  # noqa: E501  # fmt: skip
    setup += "\nmov.u64 %d2, 11;\nmov.u64 %d3, 22;\n"
    memory = np.zeros(16, np.float32)
    memory.view(np.uint64)[4:6] = 5, 6
    names = code.replace("v2.f32.add", "add.v2.f32").replace("b128.exch", "exch.b128")
    assert emulate(setup + names, memory, block=1).findings == ()
    assert memory[:6].tolist() == [2, 4, 3, 4, 1, 2]
    assert memory.view(np.uint64)[4:].tolist() == [11, 22, 5, 6]


def test_atomics_are_checked_like_any_access():
    code = "ld.param.u64 %d1, [p0];\nred.global.add.u32 [%d1+4], 1;\nret;"
    outcome = emulate(code, zeros(1), block=1)
    assert (outcome.kinds, outcome.lines) == (["out_of_bounds"], [(2, 0)])
    assert "`red.global.add.u32` updates 4 bytes" in outcome.findings[0].message
    assert emulate(code.replace("[%d1+4]", "[%d1]"), zeros(1), fresh=(0,)).kinds == ["uninitialised_read"]


@pytest.mark.parametrize("name", ["red.global.sub.u32", "red.global.add.b32", "red.relaxed.mystery.global.add.u32"])
def test_forms_that_are_not_known_are_refused_by_name(name):
    with pytest.raises(UnsupportedInstruction, match=name.replace(".", r"\.")):
        emulate(f"ld.param.u64 %d1, [p0];\n{name} [%d1], 1;\nret;", zeros(1))
