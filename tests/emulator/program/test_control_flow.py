"""How bodies are cut: pieces, guards of stops, threading of empty pieces, errors."""

from __future__ import annotations

import pytest

from cutesmith.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from cutesmith.emulator.program.build import build_program
from cutesmith.emulator.program.pieces import Branch, Exit, Jump, Stop, Switch
from cutesmith.emulator.ptx.syntax import Guard
from tests.emulator.program.graphs import module_of, opcodes, program_of


def test_straight_code_is_one_piece():
    program = program_of("mov.b32 %r1, 1; @%p1 add.s32 %r1, %r1, 1; ret;")
    (piece,) = program.pieces
    assert opcodes(piece.instructions) == ["mov", "add"] and piece.end == Exit()
    assert program.entries == (0,) and program.stops == ()


def test_a_body_without_ret_ends_at_its_last_instruction():
    assert program_of("mov.b32 %r1, 1;").pieces[0].end == Exit()
    assert [piece.end for piece in program_of("bar.sync 0;").pieces] == [program_of("bar.sync 0;").stops[0], Exit()]


def test_a_stop_ends_its_piece():
    program = program_of("mov.b32 %r1, 1; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; st.global.b32 [%rd1], %r2; ret;")
    first, second = program.pieces
    assert isinstance(first.end, Stop) and (first.end.number, first.end.resume) == (0, 1)
    assert first.end.instruction.opcode == "shfl" and program.stops == (first.end,)
    assert opcodes(second.instructions) == ["st"] and program.entries == (0, 1)


def test_consecutive_stops_make_one_empty_piece_each():
    program = program_of("bar.sync 0; bar.sync 1; bar.sync 2; ret;")
    assert [opcodes(piece.instructions) for piece in program.pieces] == [[]] * 4
    assert [stop.resume for stop in program.stops] == [1, 2, 3]


def test_the_guard_of_a_stop_becomes_a_branch():
    program = program_of("@!%p1 bar.sync 0; mov.b32 %r1, 1; st.global.b32 [%rd1], %r1; ret;")
    branch, stop, rest = program.pieces
    assert branch.end == Branch(Guard("%p1", negated=True), 1, 2)
    assert isinstance(stop.end, Stop) and stop.end.instruction.guard is None and stop.end.resume == 2
    assert program.instructions[0].guard == Guard("%p1", negated=True)
    assert opcodes(rest.instructions) == ["mov", "st"]


def test_stops_under_one_guard_follow_each_other_without_asking_again():
    program = program_of("@%p1 bar.sync 0; @%p1 bar.sync 1; @!%p1 bar.sync 2; ret;")
    first, second, third = program.stops
    end = program.pieces[first.resume].end
    assert end == second
    assert isinstance(program.pieces[second.resume].end, Exit)
    branch = program.pieces[0].end
    assert isinstance(branch, Branch) and program.pieces[branch.otherwise].end == third


def test_a_stop_that_writes_its_guard_is_asked_again():
    program = program_of("@%p1 shfl.sync.idx.b32 %r1|%p1, %r1, 0, 31, -1; @%p1 bar.sync 1; ret;")
    assert isinstance(program.pieces[program.stops[0].resume].end, Branch)


def test_guarded_returns_and_branches():
    program = program_of("L: @%p1 ret; @%p2 bra L; st.global.b32 [%rd1], %r1; ret;")
    first, leave, second, last = program.pieces
    assert first.end == Branch(Guard("%p1"), leave.number, second.number)
    assert leave.end == Exit()
    assert second.end == Branch(Guard("%p2"), first.number, last.number)
    assert program.entries == (0,)


def test_jumps_to_jumps_and_unused_labels_disappear():
    program = program_of("""
        mov.b32 %r1, 1;
        UNUSED: mov.b32 %r2, 2;
        bra A;
        B: st.global.b32 [%rd1], %r1; ret;
        A: bra C;
        C: bra B;
        mov.b32 %r3, 3;""")
    (piece,) = program.pieces
    assert opcodes(piece.instructions) == ["mov", "mov", "st"]


def test_a_ring_of_empty_pieces_stays():
    program = program_of("A: bra B; B: bra A;")
    assert program.regions[0].back_edges and all(isinstance(piece.end, Jump) for piece in program.pieces)


def test_a_branch_to_the_same_place_either_way_is_a_jump():
    program = program_of("mov.b32 %r1, 1; @%p1 bra A; A: bra B; B: st.global.b32 [%rd1], %r1; ret;")
    assert not any(isinstance(piece.end, Branch) for piece in program.pieces)


def test_branch_table():
    program = program_of("T: .branchtargets A, B, A;\n@%p1 brx.idx %r1, T;\nA: ret; B: bar.sync 0; ret;")
    switch = next(piece.end for piece in program.pieces if isinstance(piece.end, Switch))
    assert switch.register.name == "%r1" and len(switch.targets) == 3 and switch.targets[0] == switch.targets[2]


def test_instructions_keep_their_numbers():
    program = program_of("mov.b32 %r1, 1; @%p1 bra L; bar.sync 0; L: st.global.b32 [%rd1], %r1; ret;")
    assert [instruction.number for instruction in program.instructions] == [0, 1, 2, 3, 4]
    assert program.stops[0].instruction.number == 2
    store = next(i for piece in program.pieces for i in piece.instructions if i.opcode == "st")
    assert store.number == 3


def test_unknown_entry_names_those_there_are():
    with pytest.raises(PtxSyntaxError, match="no entry function `other`; it has: k"):
        build_program(module_of("ret;"), "other")


def test_unsupported_instruction_is_named():
    with pytest.raises(UnsupportedInstruction, match="`frobnicate.b32`"):
        build_program(module_of("frobnicate.b32 %r1, %r2; ret;"), "k")
