"""Products fused with sums (program/contraction.py): a multiply-add whose addend or product may be negated."""

from __future__ import annotations

from dataclasses import replace

from cutesmith.emulator.emitters.floats import apply
from cutesmith.emulator.emitters.formats import FORMATS
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.program.contraction import FUSED
from cutesmith.emulator.ptx.syntax import Instruction

_NEGATED = {"add": None, "subtract_product": 0, "subtract_addend": 2}


@native(f"{FUSED}.{{add,subtract_product,subtract_addend}}{{.f32,.ftz.f32,.f64}}")
def fused(emitter: Emitter, instruction: Instruction) -> None:
    """`fma.rn`, with one operand's sign changed for a difference."""
    how, *kind = instruction.modifiers
    form = FORMATS[kind[-1]]
    destination, *sources = instruction.operands
    values = [emitter.value(operand, form.bits) for operand in sources]
    place = _NEGATED[how]
    if place is not None:
        values[place] = emitter.op(f"xor i{form.bits} {{}}, {1 << (form.bits - 1)}", values[place])
    multiply_add = replace(instruction, opcode="fma", modifiers=("rn", *kind))
    emitter.assign(destination, apply(emitter, multiply_add, form, values), form.bits)
