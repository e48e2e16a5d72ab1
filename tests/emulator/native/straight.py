"""Straight-line PTX over arrays: registers come from and go to the frame, one lane an element."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from cutesmith.emulator import instruction_set  # noqa: F401  (it fills the instruction table)
from cutesmith.emulator.instructions.roles import CONDITION_CODE
from cutesmith.emulator.native import jit
from cutesmith.emulator.native.logs import Instrumentation
from cutesmith.emulator.program.abi import CONTEXT_WORDS, EXITED, SPECIAL_REGISTERS, Context
from cutesmith.emulator.program.basic_blocks import BasicBlock, Exit, Program, Region
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.ptx.syntax import Function, Instruction, Module, Variable, bits_of

HOST_ACCESS = """define ptr @access(ptr %context, i32 %lane, i32 %space, i64 %address, i32, i32, i32) {
%pointer = inttoptr i64 %address to ptr
ret ptr %pointer
}"""
"""An `access` whose addresses are the host's own; null is refused."""

UNPLACED = "unplaced"
"""A variable that PTX may name, but that has no address."""

_KINDS = {"p": "pred", "b": "b8", "rs": "b16", "r": "b32", "rd": "b64", "rq": "b128"}


def straight(code: str, inputs: tuple[str, ...], outputs: tuple[str, ...], **symbols: object) -> Program:
    """A program of one basic block whose frame has a row (two for 128 bits) for each input and output register."""
    layout: dict[str, Any] = {
        "shared_symbols": {},
        "local_symbols": {},
        "parameters": {},
        "parameter_bytes": 0,
        "module_variables": (),
    }
    layout |= symbols
    named = [name for key in ("shared_symbols", "local_symbols", "parameters") for name in layout[key]]
    body = f"{_registers(' '.join((code, *inputs, *outputs)))}\n{code}"
    function, module = _parse(body, [*named, *(variable.name for variable in layout["module_variables"])])
    widths = {name: bits_of(kind) for name, kind in function.registers.items()} | {CONDITION_CODE: 1}
    instructions = tuple(item for item in function.body if isinstance(item, Instruction) and item.opcode != "ret")
    rows, slots = 0, {}
    for name in dict.fromkeys((*inputs, *outputs)):
        slots[name] = rows
        rows += 2 if widths[name] > 64 else 1
    return Program(
        module=module,
        function=function,
        basic_blocks=(BasicBlock(0, instructions, Exit()),),
        suspension_points=(),
        entries=(0,),
        regions={0: Region(0, (0,), frozenset(inputs), {0: frozenset(outputs)}, frozenset())},
        live={0: frozenset(inputs)},
        widths=widths,
        slots=slots,
        slot_count=rows,
        instructions=instructions,
        static_shared=0,
        dynamic_symbols=frozenset(),
        local_bytes=0,
        **layout,
    )


def _registers(text: str) -> str:
    """Declarations of the registers that a text names: of each kind as many as the highest number asks for."""
    most: dict[str, int] = {}
    for kind, number in re.findall(r"%(p|b|rs|r|rd|rq)(\d+)\b", text):
        most[kind] = max(most.get(kind, 0), int(number) + 1)
    return " ".join(f".reg .{_KINDS[kind]} %{kind}<{count}>;" for kind, count in most.items())


def _parse(body: str, symbols: list[str]) -> tuple[Function, Module]:
    declared = "".join(f".global .b8 {name}[4];\n" for name in [*symbols, UNPLACED])
    head = f".version 8.8\n.target sm_90a\n.address_size 64\n{declared}.visible .entry k() {{\n"
    module = parse(f"{head}{body}\nret;\n}}\n")
    return module.functions["k"], module


class Machine:
    """What one call of native code needs, for `lanes` lanes; `context` may be changed before `run`."""

    def __init__(self, program: Program, lanes: int) -> None:
        self.program, self.lanes = program, lanes
        self.frame = np.zeros((max(1, program.slot_count), lanes), np.uint64)
        self.status = np.full(lanes, 999, np.int32)
        self.special = np.zeros((len(SPECIAL_REGISTERS), lanes), np.uint32)
        self.parameters = np.zeros(max(1, program.parameter_bytes), np.uint8)
        self.context = np.zeros(CONTEXT_WORDS, np.int64)
        for word, array in (
            (Context.FRAME, self.frame),
            (Context.STATUS, self.status),
            (Context.SPECIAL, self.special),
            (Context.PARAMETERS, self.parameters),
        ):
            self.context[word] = array.ctypes.data
        self.context[Context.LANES] = lanes
        self.context[Context.FUEL] = 1 << 40

    def register(self, name: str) -> np.ndarray:
        """A register's row of the frame (the lower one of two), uint64."""
        return self.frame[self.program.slots[name]].copy()

    def run(
        self, basic_block: int = 0, lanes: np.ndarray | None = None, access: str = HOST_ACCESS, **options: bool
    ) -> None:
        """Compile and run the lanes (all of them by default)."""
        native = jit.compile_program(self.program, access, Instrumentation(**options))
        native.run(basic_block, self.context, np.arange(self.lanes, dtype=np.int32) if lanes is None else lanes)


def run(code: str, inputs: Mapping[str, np.ndarray], *outputs: str, **symbols: object) -> dict[str, np.ndarray]:
    """Run straight-line PTX on unsigned arrays of equal length; the outputs as uint64, by register."""
    program = straight(code, tuple(inputs), outputs, **symbols)
    machine = Machine(program, len(next(iter(inputs.values()))))
    for name, values in inputs.items():
        machine.frame[program.slots[name]] = values
    machine.run()
    assert (machine.status == EXITED).all()
    return {name: machine.register(name) for name in outputs}


def variable(name: str, space: str, size: int) -> Variable:
    """A variable of bytes."""
    return Variable(name, space, "b8", size, 16)
