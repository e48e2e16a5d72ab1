"""Moves, addresses and their conversions between spaces."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.program.abi import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    SPECIAL_REGISTERS,
    Context,
)
from tests.emulator.native.straight import Machine, run, straight, variable

WORDS = np.array([0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x1234_5678], np.uint64)
RANK = SPECIAL_REGISTERS.index("%cluster_ctarank")


def test_vectors_are_packed_and_unpacked_lowest_first():
    code = """
    mov.b64 %rd1, {%r1, %r2};
    mov.b64 {%r3, _}, %rd1;
    mov.b32 {%rs1, %rs2}, %r1;
    mov.b32 %r4, {%rs2, %rs1};
    mov.b128 %rq1, {%rd1, %rd1};
    mov.b128 {%rd2, %rd3}, %rq1;
    mov.b64 {%rs3, %rs4, %rs5, %rs6}, %rd1;
    """
    other = WORDS[::-1].copy()
    got = run(code, {"%r1": WORDS, "%r2": other}, "%rd1", "%r3", "%rs1", "%rs2", "%r4", "%rd2", "%rd3", "%rs6")
    both = WORDS | other << np.uint64(32)
    assert (got["%rd1"] == both).all() and (got["%rd2"] == both).all() and (got["%rd3"] == both).all()
    assert (got["%r3"] == WORDS).all()
    assert (got["%rs1"] == WORDS & np.uint64(0xFFFF)).all() and (got["%rs2"] == WORDS >> np.uint64(16)).all()
    assert (got["%r4"] == ((WORDS >> np.uint64(16)) | (WORDS << np.uint64(16)) & np.uint64(0xFFFF_FFFF))).all()
    assert (got["%rs6"] == other >> np.uint64(16)).all()


def test_a_128_bit_register_takes_two_rows_of_the_frame():
    program = straight("mov.b128 {%rd1, %rd2}, %rq1;\nmov.b128 %rq2, {%rd2, %rd1};", ("%rq1",), ("%rq2",))
    machine = Machine(program, 3)
    row, result = program.slots["%rq1"], program.slots["%rq2"]
    machine.frame[row : row + 2] = [[1, 2, 3], [4, 5, 2**64 - 1]]
    machine.run()
    assert machine.frame[result : result + 2].tolist() == [[4, 5, 2**64 - 1], [1, 2, 3]]


def test_literals_and_predicates():
    code = """
    mov.f32 %r2, 0f3F800000;
    mov.f64 %rd1, 0f3F800000;
    mov.b16 %rs1, -1;
    mov.pred %p2, !%p1;
    mov.pred %p3, 1;
    """
    got = run(code, {"%p1": np.array([0, 1], np.uint64)}, "%r2", "%rd1", "%rs1", "%p2", "%p3")
    assert got["%r2"].tolist() == [0x3F800000] * 2 and got["%rd1"].tolist() == [0x3FF0_0000_0000_0000] * 2
    assert got["%rs1"].tolist() == [0xFFFF] * 2
    assert got["%p2"].tolist() == [1, 0] and got["%p3"].tolist() == [1, 1]


def test_special_registers_come_from_their_table_and_clocks_from_the_context():
    code = """
    mov.u32 %r1, %tid.x;  mov.u32 %r2, %laneid;  mov.u64 %rd1, %gridid;
    mov.u64 %rd2, %clock64;  mov.u32 %r3, %clock;  mov.u32 %r4, %clock_hi;  mov.u64 %rd3, %globaltimer;
    """
    program = straight(code, (), ("%r1", "%r2", "%rd1", "%rd2", "%r3", "%r4", "%rd3"))
    machine = Machine(program, 7)
    machine.special[:] = np.arange(machine.special.size).reshape(machine.special.shape)
    machine.context[Context.CLOCK] = 0x0000_0012_8765_4321
    machine.run()
    for name, special in (("%r1", "%tid.x"), ("%r2", "%laneid")):
        assert (machine.register(name) == machine.special[SPECIAL_REGISTERS.index(special)]).all()
    low, high = (machine.special[SPECIAL_REGISTERS.index(f"%gridid_{part}")] for part in ("lo", "hi"))
    assert (machine.register("%rd1") == low.astype(np.uint64) + (high.astype(np.uint64) << np.uint64(32))).all()
    assert (machine.register("%rd2") == 0x12_8765_4321).all() and (machine.register("%rd3") == 0x12_8765_4321).all()
    assert (machine.register("%r3") == 0x8765_4321).all() and (machine.register("%r4") == 0x12).all()


def test_symbols_have_the_address_of_their_own_space():
    code = """
    mov.u32 %r1, tile;  mov.u64 %rd1, tile+8;  mov.u64 %rd2, stack;  mov.b64 %rd3, table;  mov.u64 %rd4, argument;
    """
    symbols = {
        "shared_symbols": {"tile": SHARED_BASE + 64},
        "local_symbols": {"stack": 32},
        "parameters": {"argument": 8},
        "parameter_bytes": 16,
        "module_variables": (variable("other", "global", 4), variable("table", "const", 64)),
    }
    machine = Machine(straight(code, (), ("%r1", "%rd1", "%rd2", "%rd3", "%rd4"), **symbols), 2)
    addresses = np.array([0x1000, 0x7F00_0000_1234], np.int64)
    machine.context[Context.MODULE_SYMBOLS] = addresses.ctypes.data
    machine.special[RANK] = [0, 3]
    machine.run()
    assert machine.register("%r1").tolist() == [SHARED_BASE + 64, 3 << 24 | SHARED_BASE + 64]
    assert machine.register("%rd1").tolist() == [SHARED_BASE + 72, 3 << 24 | SHARED_BASE + 72]
    assert machine.register("%rd2").tolist() == [32, 32]
    assert machine.register("%rd3").tolist() == [0x7F00_0000_1234] * 2
    assert machine.register("%rd4").tolist() == [PARAMETER_WINDOW + 8] * 2


def test_an_unknown_symbol_or_special_register_is_refused():
    with pytest.raises(UnsupportedInstruction, match="the address of unplaced"):
        run("mov.u64 %rd1, unplaced;", {"%r1": WORDS}, "%rd1")
    with pytest.raises(UnsupportedInstruction, match="%pm0"):
        run("mov.u32 %r2, %pm0;", {"%r1": WORDS}, "%r2")


@pytest.mark.parametrize(
    ("space", "window"),
    [("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("global", 0), ("const", 0), ("param", 0)],
)
def test_generic_addresses_and_back(space: str, window: int):
    code = f"cvta.{space}.u64 %rd2, %rd1;\ncvta.to.{space}.u64 %rd3, %rd2;"
    got = run(code, {"%rd1": WORDS}, "%rd2", "%rd3")
    assert (got["%rd2"] == WORDS + np.uint64(window)).all() and (got["%rd3"] == WORDS).all()


def test_a_generic_address_knows_its_space():
    addresses = np.array(
        [SHARED_WINDOW + 1024, SHARED_WINDOW + (2 << 24), LOCAL_WINDOW, PARAMETER_WINDOW + 8, 0x7F00_0000_0000],
        np.uint64,
    )
    spaces = ("shared", "shared::cta", "shared::cluster", "local", "param", "global")
    code = "\n".join(f"isspacep.{space} %p{i}, %rd1;" for i, space in enumerate(spaces))
    got = run(code, {"%rd1": addresses}, *(f"%p{i}" for i in range(len(spaces))))
    assert [got[f"%p{i}"].tolist() for i in range(len(spaces))] == [
        [1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_addresses_in_other_blocks_of_a_cluster():
    code = """
    mapa.shared::cluster.u32 %r3, %r1, %r2;
    getctarank.shared::cluster.u32 %r4, %r3;
    mapa.u64 %rd2, %rd1, %r2;
    getctarank.u64 %r5, %rd2;
    """
    offsets, ranks = np.array([0x400, 5 << 24 | 0x410], np.uint64), np.array([7, 0], np.uint64)
    inputs = {"%r1": offsets, "%r2": ranks, "%rd1": offsets + np.uint64(SHARED_WINDOW)}
    got = run(code, inputs, "%r3", "%r4", "%rd2", "%r5")
    assert got["%r3"].tolist() == [7 << 24 | 0x400, 0x410]
    assert (got["%rd2"] == got["%r3"] + np.uint64(SHARED_WINDOW)).all()
    assert (got["%r4"] == ranks).all() and (got["%r5"] == ranks).all()


def test_hints_change_nothing():
    code = """
    prefetch.global.L2 [%rd1];
    applypriority.global.L2::evict_normal [%rd1], 128;
    createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0;
    """
    assert run(code, {"%rd1": WORDS}, "%rd1")["%rd1"].tolist() == WORDS.tolist()
