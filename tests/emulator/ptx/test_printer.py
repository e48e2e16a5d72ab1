"""What is printed reads back as what it was."""

from __future__ import annotations

import pytest

from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.ptx.printer import format_instruction, format_location, location_in
from cutesmith.emulator.ptx.syntax import Function, Instruction, Label, Location, Module


def instructions(function: Function) -> list[Instruction]:
    return [item for item in function.body if isinstance(item, Instruction)]


def reprinted(module: Module, function: Function) -> str:
    """The function as PTX text with all names as the parser made them unique."""
    registers = "".join(f".reg .{kind} {name};\n" for name, kind in function.registers.items())
    variables = "".join(
        f".{v.space} .align {v.align} .b8 {v.name}[{v.size}];\n" for v in (*function.variables, *function.parameters)
    )
    body = "".join(
        f"{item.name}:\n" if isinstance(item, Label) else f"{format_instruction(item)}\n" for item in function.body
    )
    outer = "".join(f".global .b8 {v.name}[1];\n" for v in module.variables)
    outer += "".join(f".func {f.name};\n" for f in module.functions.values() if f.kind == "func")
    return f".version 8.8\n.target sm_90a\n{outer}.entry k()\n{{\n{registers}{variables}{body}}}\n"


@pytest.mark.parametrize("name", ["copy_cluster", "smem_reverse", "relu_tvm_ffi", "prints_and_asserts"])
def test_real_kernels_survive_a_round_trip(real_ptx, name):
    module = parse(real_ptx[name])
    function = next(f for f in module.functions.values() if f.kind == "entry")
    again = parse(reprinted(module, function)).functions["k"]
    essence = [(i.opcode, i.modifiers, i.operands, i.guard, i.number) for i in instructions(function)]
    assert [(i.opcode, i.modifiers, i.operands, i.guard, i.number) for i in instructions(again)] == essence
    assert len(essence) > 10


@pytest.mark.parametrize("text", [
    "@!%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1+16];",
    "shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;",
    "fma.rn.f32 %r1, %r2, 0f3BBB989D, 0f3F000000;",
    "mov.b64 %rd1, 0d3FF0000000000000;",
    "setp.lt.and.s32 %p1|_, %r1, -5, !%p2;",
    "cp.async.bulk.tensor.2d.shared::cta.global [%r1], [%rd1, {%r2, 0}], [%r3-8];",
    "mov.b64 %rd1, table+8;",
    "call.uni (%r1), helper, (%r2, %rd1);",
    "call helper, ();",
    "mov.u32 %r1, %ctaid.y;",
    "ret;",
])  # fmt: skip
def test_instructions_print_as_they_are_written(text):
    head = ".version 8.8\n.target sm_80\n.global .b32 table[4];\n.func helper;\n.entry k() {\n"
    registers = ".reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<2>;"
    (instruction,) = instructions(parse(f"{head}{registers}{text}\n}}").functions["k"])
    assert format_instruction(instruction) == text


INNER = Location("/site/math.py", 3, 1, Location("/home/kernel.py", 12, 5, Location("/home/kernel.py", 40)))


def test_location_in_a_file_is_the_innermost_line_there():
    assert location_in(INNER, "/home/kernel.py").line == 12
    assert location_in(INNER, "/site/math.py") is INNER
    assert location_in(INNER, "/other.py") is INNER
    assert location_in(None, "/other.py") is None


def test_locations_print_with_their_callers():
    assert format_location(INNER) == "math.py:3 in kernel.py:12 in kernel.py:40"
    assert format_location(None) == "unknown line"
