"""Calls: parameters become registers, functions with a body are inlined, the rest is refused by name."""

from __future__ import annotations

import random

import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.printer import format_instruction
from cutesmith.emulator.ptx.syntax import Location, Register, Symbol, Vector
from tests.emulator.program.graphs import program_of
from tests.emulator.program.interpreter import BasicBlocks

VPRINTF = ".extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 values);\n"
PRINT = """
    { .param .b64 param0; .param .b64 param1; .param .b32 retval0;
    st.param.b64 [param0], %rd1;
    st.param.b64 [param1+0], 7;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r1, [retval0+0];
    }
    st.global.b32 [%rd2], %r1;
    ret;"""


def lines(program):
    return [format_instruction(instruction) for instruction in program.instructions]


def test_parameters_of_a_system_call_are_registers():
    program = program_of(PRINT, VPRINTF)
    (point,) = program.suspension_points
    returns, callee, arguments = point.instruction.operands
    assert callee == Symbol("vprintf")
    assert arguments == Vector((Register("param0.1.at0"), Register("param1.1.at0")))
    assert returns == Vector((Register("retval0.1.at0"),))
    assert program.regions[0].stores == {0: {"param0.1.at0", "param1.1.at0"}}
    assert (program.widths["param0.1.at0"], program.widths["retval0.1.at0"]) == (64, 32)
    assert lines(program)[:2] == ["mov.b64 param0.1.at0, %rd1;", "mov.b64 param1.1.at0, 7;"]
    assert lines(program)[3] == "mov.b32 %r1, retval0.1.at0;"
    assert program.function.variables == ()


def test_two_calls_do_not_share_parameters():
    program = program_of(PRINT.replace("ret;", "") + PRINT, VPRINTF)
    assert {point.instruction.operands[0].elements[0].name for point in program.suspension_points} == {
        "retval0.1.at0", "retval0.2.at0",
    }  # fmt: skip
    assert [instruction.number for instruction in program.instructions] == list(range(len(program.instructions)))


def test_an_array_parameter_is_a_vector_by_offset():
    outer = ".extern .func __assertfail (.param .align 8 .b8 all[24]);\n"
    program = program_of("""
        { .param .align 8 .b8 param0[24];
        st.param.v2.b32 [param0+16], {%r1, %r2}; st.param.b64 [param0], %rd1; st.param.b8 [param0+8], %r3;
        call __assertfail, (param0); }""", outer)  # fmt: skip
    (argument,) = program.suspension_points[0].instruction.operands[2].elements
    assert [part.name for part in argument.elements] == [f"param0.1.at{n}" for n in (0, 8, 16, 20)]
    assert "cvt.u16.u32 param0.1.at8, %r3;" in lines(program)


TWICE = """
.func (.param .b32 out) twice (.param .b32 in, .reg .b32 %add)
{
    .reg .pred %p<2>; .reg .b32 %r<3>; .shared .b32 seen[4];
    .loc 1 3 5
    ld.param.b32 %r0, [in];
    setp.lt.u32 %p1, %r0, 1;
    @%p1 bra ZERO;
    add.s32 %r1, %r0, %r0;
    st.shared.b32 [seen], %r1;
    add.s32 %r1, %r1, %add;
    st.param.b32 [out], %r1;
    ret;
ZERO:
    st.param.b32 [out], 1;
    ret;
}
"""
CALLS = """
    .loc 1 40 2
    { .param .b32 param0; .param .b32 retval0;
    st.param.b32 [param0], %r5;
    call (retval0), twice, (param0, 9);
    ld.param.b32 %r6, [retval0]; }
    @%p2 call (%r7), twice, (%r6, %r5);
    st.global.b32 [%rd1], %r7;
    ret;"""


def test_functions_are_inlined_with_names_of_their_own():
    program = program_of(CALLS, TWICE)
    text = lines(program)
    assert text[:4] == [
        "mov.b32 param0.1.at0, %r5;",
        "mov.b32 in.twice.1.at0, param0.1.at0;",
        "mov.b32 %add.twice.1, 9;",
        "mov.b32 %r0.twice.1, in.twice.1.at0;",
    ]
    assert "@%p1.twice.2 bra ZERO.twice.2;" in text and "@!%p2 bra end.twice.2;" in text
    assert "bra end.twice.1;" in text and text[-3:] == [
        "mov.b32 %r7, out.twice.2.at0;", "st.global.b32 [%rd1], %r7;", "ret;",
    ]  # fmt: skip
    assert not any("call" in line for line in text) and program.suspension_points == ()
    assert list(program.shared_symbols) == ["seen.twice"]


def test_inlined_instructions_know_their_caller():
    program = program_of(CALLS, TWICE)
    add = next(i for i in program.instructions if i.opcode == "add")
    assert add.location == Location("file 1", 3, 5, Location("file 1", 40, 2))


@pytest.mark.parametrize("value", [0, 5])
def test_inlined_functions_compute(value):
    program = program_of(f"mov.b32 %r5, {value};" + CALLS.replace("@%p2 ", ""), TWICE)
    machine = BasicBlocks(program, random.Random(0))
    assert machine.run(events=9)
    once = 2 * value + 9 if value else 1
    assert machine.events[-1] == ("st", 2 * once + value)


@pytest.mark.parametrize(("body", "outer", "words"), [
    ("call malloc; ret;", ".extern .func malloc;", "function `malloc` has no body"),
    ("call %rd1, (), proto; proto: .callprototype _ ();", "", "known only at run time"),
    ("call a; ret;", ".func a; .func b { call a; ret; } .func a { call b; ret; }", "function `a` calls itself"),
    ("{ .param .b64 q; mov.b64 %rd1, q; call a; }", ".func a { ret; }", "address of a call's parameter is taken"),
    (
        "{ .param .b64 q; st.param.b64 [q], %rd1; st.param.b32 [q+4], %r1; call a; }",
        ".func a { ret; }",
        "other parts than it is written",
    ),
])  # fmt: skip
def test_what_is_not_supported_says_why(body, outer, words):
    with pytest.raises(UnsupportedInstruction, match=words):
        program_of(body, outer)
