"""Small programs: `work` is native here, `bar` and `shfl` are suspension points, all else is native."""

from __future__ import annotations

import textwrap

from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.build import build
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.ptx.syntax import Instruction, Module

SUSPENDING = ("bar", "shfl", "call", "trap")
REGISTERS = ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<9>; .reg .b128 %q<3>;\n"


def module_of(body: str, outer: str = "", parameters: str = "") -> Module:
    """A module whose entry `k` has this body."""
    head = f".version 8.8\n.target sm_90a\n{outer}\n.entry k({parameters})\n{{\n{REGISTERS}"
    return parse(f"{head}{textwrap.dedent(body)}\n}}\n")


def program_of(body: str, outer: str = "", parameters: str = "") -> Program:
    """The program of that entry, where SUSPENDING are suspension points and everything else is native."""
    module = module_of(body, outer, parameters)
    return build(module, module.functions["k"], lambda instruction: instruction.opcode not in SUSPENDING)


def opcodes(instructions: tuple[Instruction, ...]) -> list[str]:
    """Opcodes without modifiers."""
    return [instruction.opcode for instruction in instructions]
