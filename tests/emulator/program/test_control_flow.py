"""How bodies are cut: basic blocks, guards of suspension points, threading of empty basic blocks, errors."""

from __future__ import annotations

import pytest

from cutesmith.emulator.errors import PtxSyntaxError
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.program.basic_blocks import Branch, Exit, Jump, SuspensionPoint, Switch
from cutesmith.emulator.ptx.syntax import Guard
from tests.emulator.program.graphs import module_of, opcodes, program_of


def test_straight_code_is_one_basic_block():
    program = program_of("mov.b32 %r1, 1; @%p1 add.s32 %r1, %r1, 1; ret;")
    (basic_block,) = program.basic_blocks
    assert opcodes(basic_block.instructions) == ["mov", "add"] and basic_block.end == Exit()
    assert program.entries == (0,) and program.suspension_points == ()


def test_a_body_without_ret_ends_at_its_last_instruction():
    assert program_of("mov.b32 %r1, 1;").basic_blocks[0].end == Exit()
    assert [basic_block.end for basic_block in program_of("bar.sync 0;").basic_blocks] == [
        program_of("bar.sync 0;").suspension_points[0],
        Exit(),
    ]


def test_a_suspension_point_ends_its_basic_block():
    program = program_of("mov.b32 %r1, 1; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; st.global.b32 [%rd1], %r2; ret;")
    first, second = program.basic_blocks
    assert isinstance(first.end, SuspensionPoint) and (first.end.number, first.end.resume) == (0, 1)
    assert first.end.instruction.opcode == "shfl" and program.suspension_points == (first.end,)
    assert opcodes(second.instructions) == ["st"] and program.entries == (0, 1)


def test_consecutive_suspension_points_make_one_empty_basic_block_each():
    program = program_of("bar.sync 0; bar.sync 1; bar.sync 2; ret;")
    assert [opcodes(basic_block.instructions) for basic_block in program.basic_blocks] == [[]] * 4
    assert [point.resume for point in program.suspension_points] == [1, 2, 3]


def test_the_guard_of_a_suspension_point_becomes_a_branch():
    program = program_of("@!%p1 bar.sync 0; mov.b32 %r1, 1; st.global.b32 [%rd1], %r1; ret;")
    branch, point, rest = program.basic_blocks
    assert branch.end == Branch(Guard("%p1", negated=True), 1, 2)
    assert isinstance(point.end, SuspensionPoint) and point.end.instruction.guard is None and point.end.resume == 2
    assert program.instructions[0].guard == Guard("%p1", negated=True)
    assert opcodes(rest.instructions) == ["mov", "st"]


def test_suspension_points_under_one_guard_follow_each_other_without_asking_again():
    program = program_of("@%p1 bar.sync 0; @%p1 bar.sync 1; @!%p1 bar.sync 2; ret;")
    first, second, third = program.suspension_points
    end = program.basic_blocks[first.resume].end
    assert end == second
    assert isinstance(program.basic_blocks[second.resume].end, Exit)
    branch = program.basic_blocks[0].end
    assert isinstance(branch, Branch) and program.basic_blocks[branch.otherwise].end == third


def test_a_suspension_point_that_writes_its_guard_is_asked_again():
    program = program_of("@%p1 shfl.sync.idx.b32 %r1|%p1, %r1, 0, 31, -1; @%p1 bar.sync 1; ret;")
    assert isinstance(program.basic_blocks[program.suspension_points[0].resume].end, Branch)


def test_guarded_returns_and_branches():
    program = program_of("L: @%p1 ret; @%p2 bra L; st.global.b32 [%rd1], %r1; ret;")
    first, leave, second, last = program.basic_blocks
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
    (basic_block,) = program.basic_blocks
    assert opcodes(basic_block.instructions) == ["mov", "mov", "st"]


def test_a_ring_of_empty_basic_blocks_stays():
    program = program_of("A: bra B; B: bra A;")
    assert program.regions[0].back_edges and all(
        isinstance(basic_block.end, Jump) for basic_block in program.basic_blocks
    )


def test_a_branch_to_the_same_place_either_way_is_a_jump():
    program = program_of("mov.b32 %r1, 1; @%p1 bra A; A: bra B; B: st.global.b32 [%rd1], %r1; ret;")
    assert not any(isinstance(basic_block.end, Branch) for basic_block in program.basic_blocks)


def test_branch_table():
    program = program_of("T: .branchtargets A, B, A;\n@%p1 brx.idx %r1, T;\nA: ret; B: bar.sync 0; ret;")
    switch = next(basic_block.end for basic_block in program.basic_blocks if isinstance(basic_block.end, Switch))
    assert switch.register.name == "%r1" and len(switch.targets) == 3 and switch.targets[0] == switch.targets[2]


def test_instructions_keep_their_numbers():
    program = program_of("mov.b32 %r1, 1; @%p1 bra L; bar.sync 0; L: st.global.b32 [%rd1], %r1; ret;")
    assert [instruction.number for instruction in program.instructions] == [0, 1, 2, 3, 4]
    assert program.suspension_points[0].instruction.number == 2
    store = next(i for basic_block in program.basic_blocks for i in basic_block.instructions if i.opcode == "st")
    assert store.number == 3


def test_unknown_entry_names_those_there_are():
    with pytest.raises(PtxSyntaxError, match="no entry function `other`; it has: k"):
        build_program(module_of("ret;"), "other")


def test_unsupported_instruction_is_named():
    with pytest.raises(UnsupportedInstruction, match="`frobnicate.b32`"):
        build_program(module_of("frobnicate.b32 %r1, %r2; ret;"), "k")
