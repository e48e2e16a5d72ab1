"""Loads and stores: types, vectors, spaces, refused accesses."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.program.abi import EXITED, FAULTED, Access, Space
from tests.emulator.native.straight import Machine, run, straight

LANES = 5

# Writes what it is asked for to the words that context[40] points to, and gives the eighth of them as memory.
SPY = """define ptr @access(ptr %context, i32 %lane, i32 %space, i64 %address, i32 %bytes, i32 %kind, i32 %site) {
%at = getelementptr i64, ptr %context, i64 40
%words = load ptr, ptr %at
store i64 %address, ptr %words
%fields = insertelement <5 x i32> undef, i32 %lane, i32 0
%fields1 = insertelement <5 x i32> %fields, i32 %space, i32 1
%fields2 = insertelement <5 x i32> %fields1, i32 %bytes, i32 2
%fields3 = insertelement <5 x i32> %fields2, i32 %kind, i32 3
%fields4 = insertelement <5 x i32> %fields3, i32 %site, i32 4
%rest = getelementptr i64, ptr %words, i64 1
store <5 x i32> %fields4, ptr %rest, align 4
%memory = getelementptr i64, ptr %words, i64 8
ret ptr %memory
}"""


def rows(data: np.ndarray) -> np.ndarray:
    """The host address of each row of an array."""
    return data.ctypes.data + np.arange(len(data), dtype=np.uint64) * np.uint64(data.strides[0])


def memory(size: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (LANES, size), np.uint8)


@pytest.mark.parametrize(
    ("kind", "register"),
    [(kind, "%rs") for kind in ("u8", "s8", "b16", "s16")]
    + [(kind, "%r") for kind in ("u8", "s8", "b16", "s16", "u32", "f32")]
    + [(kind, "%rd") for kind in ("u8", "s8", "u16", "s16", "u32", "s32", "b64")],
)
def test_a_load_extends_to_the_register(kind: str, register: str):
    width, bits = {"%rs": 16, "%r": 32, "%rd": 64}[register], int(kind[1:])
    data = memory(8)
    got = run(f"ld.global.{kind} {register}1, [%rd9];", {"%rd9": rows(data)}, f"{register}1")[f"{register}1"]
    values = data[:, : bits // 8].copy().view(("i" if kind[0] == "s" else "u") + str(bits // 8))[:, 0]
    assert got.tolist() == [int(value) & ((1 << width) - 1) for value in values]


@pytest.mark.parametrize(("vector", "count"), [("v2", 2), ("v4", 4), ("v8", 8)])
@pytest.mark.parametrize(("kind", "prefix"), [("b16", "%rs"), ("b32", "%r"), ("f32", "%r"), ("b64", "%rd")])
def test_vectors_go_to_memory_and_back(vector: str, count: int, kind: str, prefix: str):
    size = count * int(kind[1:]) // 8
    data, target = memory(size), np.zeros((LANES, size + 8), np.uint8)
    parts = ", ".join(f"{prefix}{10 + i}" for i in range(count))
    code = f"ld.global.nc.L1::no_allocate.{vector}.{kind} {{{parts}}}, [%rd1+8];"
    code += f"st.global.cs.{vector}.{kind} [%rd2+8], {{{parts}}};"
    run(code, {"%rd1": rows(data) - np.uint64(8), "%rd2": rows(target)}, "%rd1")
    assert (target[:, 8:] == data).all() and not target[:, :8].any()


def test_a_store_truncates_and_takes_literals():
    target = np.zeros((LANES, 16), np.uint8)
    words = np.arange(LANES, dtype=np.uint64) + np.uint64(0xABCD_EF00)
    code = "st.u8 [%rd1], %r1;\nst.b16 [%rd1+2], %r1;\nst.v2.b32 [%rd1+8], {-1, 0f3F800000};"
    run(code, {"%rd1": rows(target), "%r1": words}, "%r1")
    assert target[:, :4].tolist() == [[lane, 0, lane, 0xEF] for lane in range(LANES)]
    assert target[:, 8:].copy().view(np.uint32).tolist() == [[0xFFFF_FFFF, 0x3F80_0000]] * LANES


def test_128_bits_move_whole():
    data, target = memory(16), np.zeros((LANES, 16), np.uint8)
    code = "ld.global.b128 %rq1, [%rd1];\nst.global.b128 [%rd2], %rq1;"
    run(code, {"%rd1": rows(data), "%rd2": rows(target)}, "%rd1")
    assert (target == data).all()


def test_thrown_away_elements_are_loaded_but_not_kept():
    data = memory(16)
    got = run("ld.v4.u32 {_, %r1, _, _}, [%rd1];", {"%rd1": rows(data)}, "%r1")
    assert (got["%r1"] == data.view(np.uint32)[:, 1]).all()


def test_parameters_are_read_from_the_launch():
    layout = {"parameters": {"a": 0, "b": 8}, "parameter_bytes": 24}
    code = "ld.param.u64 %rd1, [a];\nld.param.v2.b32 {%r1, %r2}, [b+8];\nld.param.u8 %rs1, [b];"
    machine = Machine(straight(code, (), ("%rd1", "%r1", "%r2", "%rs1"), **layout), 2)
    machine.parameters[:] = np.arange(100, 124)
    machine.run()
    assert (machine.register("%rd1") == machine.parameters[:8].view(np.uint64)[0]).all()
    assert machine.register("%r1").tolist() == [int(machine.parameters[16:20].view(np.uint32)[0])] * 2
    assert machine.register("%r2").tolist() == [int(machine.parameters[20:24].view(np.uint32)[0])] * 2
    assert machine.register("%rs1").tolist() == [108, 108]
    with pytest.raises(UnsupportedInstruction, match="outside the kernel's 24 bytes"):
        Machine(straight("ld.param.u64 %rd1, [b+9];", (), ("%rd1",), **layout), 1).run()


@pytest.mark.parametrize(
    ("code", "space", "size", "kind", "address"),
    [
        ("ld.global.u32 %r2, [%rd1+4];", Space.GLOBAL, 4, Access.READ, 0x1_0000_0014),
        ("ld.v2.u64 {%rd2, %rd3}, [%rd1];", Space.GENERIC, 16, Access.READ, 0x1_0000_0010),
        ("ld.shared::cluster.b8 %rs1, [%r1+-8];", Space.SHARED, 1, Access.READ, 0xFFFF_FFF8 - 8),
        ("st.shared.v4.b32 [%r1+16], {%r1, %r1, %r1, %r1};", Space.SHARED, 16, Access.WRITE, 8),
        ("st.local.b16 [%rd1], 7;", Space.LOCAL, 2, Access.WRITE, 0x1_0000_0010),
        ("ld.const.b32 %r2, [%rd1];", Space.CONST, 4, Access.READ, 0x1_0000_0010),
        ("ld.param.b32 %r2, [%rd1];", Space.GENERIC, 4, Access.READ, 0x1_0000_0010),
        ("ld.relaxed.gpu.global.L1::no_allocate.b32 %r2, [%rd1];", Space.GLOBAL, 4, Access.READ, 0x1_0000_0010),
        ("st.release.sys.b32 [%rd1], %r1;", Space.GENERIC, 4, Access.WRITE, 0x1_0000_0010),
        ("ld.volatile.shared.b64 %rd2, [%r1];", Space.SHARED, 8, Access.READ, 0xFFFF_FFF8),
    ],
)
def test_what_an_access_is_asked_for(code: str, space: Space, size: int, kind: Access, address: int):
    program = straight("mov.u32 %r9, 0;\n" + code, ("%rd1", "%r1"), ("%r9",))
    machine = Machine(program, 3)
    machine.frame[program.slots["%rd1"]] = 0x1_0000_0010
    machine.frame[program.slots["%r1"]] = 0xFFFF_FFF8  # 32-bit addresses wrap at 32 bits
    words = np.zeros(16, np.int64)
    machine.context[40] = words.ctypes.data
    machine.run(lanes=np.array([2], np.int32), access=SPY)
    assert words[0] == address
    assert words[1:4].view(np.int32)[:5].tolist() == [2, space, size, kind, program.instructions[1].number]


def test_a_refused_access_ends_its_lane_alone():
    data = memory(4)
    addresses = rows(data)
    addresses[[1, 3]] = 0
    program = straight("mov.u32 %r1, 1;\nst.global.b32 [%rd1], %r1;\nmov.u32 %r1, 2;", ("%rd1", "%r1"), ("%r1",))
    machine = Machine(program, LANES)
    machine.frame[program.slots["%rd1"]] = addresses
    before = data.copy()
    machine.run()
    assert machine.status.tolist() == [EXITED, FAULTED, EXITED, FAULTED, EXITED]
    assert machine.register("%r1").tolist() == [2, 0, 2, 0, 2]
    assert (data[[0, 2, 4]].view(np.uint32) == 1).all() and (data[[1, 3]] == before[[1, 3]]).all()


def test_where_the_guard_fails_nothing_is_accessed():
    data = np.zeros((LANES, 4), np.uint8)
    addresses, go = rows(data), np.array([0, 1, 0, 1, 1], np.uint64)
    addresses[0] = 0  # would be refused
    got = run(
        "mov.u32 %r1, 9;\n@%p1 st.global.b32 [%rd1], 5;\n@%p1 mov.u32 %r1, 4;", {"%rd1": addresses, "%p1": go}, "%r1"
    )
    assert data.view(np.uint32)[:, 0].tolist() == [0, 5, 0, 5, 5]
    assert got["%r1"].tolist() == [9, 4, 9, 4, 4]
    run("@!%p1 st.b32 [%rd1], 6;", {"%rd1": rows(data), "%p1": go}, "%p1")
    assert data.view(np.uint32)[:, 0].tolist() == [6, 5, 6, 5, 5]


@pytest.mark.parametrize(
    "code", ["ld.global.fancy.b32 %r1, [%rd1];", "ld.global.v2.b32 %r1, [%rd1];", "st.async.b32 [%rd1], 1;"]
)
def test_an_unknown_form_is_refused(code: str):
    with pytest.raises(UnsupportedInstruction):
        run(code, {"%rd1": np.zeros(1, np.uint64)}, "%rd1")
