"""Arithmetic on the two halves of a register: f16x2, bf16x2, and the pairs of f32 in 64 bits of sm_100."""

from __future__ import annotations

from cutesmith.emulator.emitters.comparisons import combine
from cutesmith.emulator.emitters.floats import COMPARED, apply, compare
from cutesmith.emulator.emitters.formats import FORMATS, Format
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction, Operand, Pair


@native("{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16x2", "{add,sub,mul}{,.rn}.bf16x2")
@native("fma.rn{,.ftz}{,.sat,.relu}.f16x2", "fma.rn{,.relu}.bf16x2", "fma.rn.oob{,.relu}.{f16,bf16}x2")
@native("{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f16x2", "{min,max}{,.NaN}{,.xorsign.abs}.bf16x2")
@native("{abs,neg}{,.ftz}.f16x2", "{abs,neg}.bf16x2")
@native("{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}.f32x2", "fma{.rn,.rz,.rm,.rp}{,.ftz}.f32x2")
def packed_arithmetic(emitter: Emitter, instruction: Instruction) -> None:
    """The scalar instruction on each half."""
    form = part_format(instruction)
    destination, *sources = instruction.operands
    halves = zip(*(parts(emitter, operand, form) for operand in sources))
    results = [apply(emitter, instruction, form, list(values)) for values in halves]
    emitter.assign(destination, emitter.pack(results, 2 * form.bits), 2 * form.bits)


def part_format(instruction: Instruction) -> Format:
    """The format of the halves: f16 for "f16x2"."""
    return FORMATS[instruction.modifiers[-1].removesuffix("x2")]


def parts(emitter: Emitter, operand: Operand, form: Format) -> list[str]:
    """The patterns of both halves, the low one first."""
    return emitter.unpack(emitter.value(operand, 2 * form.bits), 2 * form.bits, form.bits)


@native(f"setp.{COMPARED}{{,.ftz}}.f16x2", f"setp.{COMPARED}.bf16x2")
def set_predicates(emitter: Emitter, instruction: Instruction) -> None:
    """`setp.cmp.bool.f16x2 p|q, a, b, c`: p of the low halves, q of the high ones."""
    destination, a, b, *combined = instruction.operands
    if not isinstance(destination, Pair):
        raise emitter.unsupported("one predicate for two halves")
    holds = _compared(emitter, instruction, a, b, combined)
    for register, value in zip((destination.first, destination.second), holds):
        emitter.assign(register, value, 1)


def _compared(emitter: Emitter, instruction: Instruction, a: Operand, b: Operand, combined: list[Operand]) -> list[str]:
    form = part_format(instruction)
    other = emitter.value(combined[0], 1) if combined else ""
    pairs = zip(parts(emitter, a, form), parts(emitter, b, form))
    return [combine(emitter, instruction, compare(emitter, instruction, form, list(pair)), other) for pair in pairs]


@native(f"set.{COMPARED}{{,.ftz}}.f16x2.f16x2", f"set.{COMPARED}.bf16x2.bf16x2")
def set_values(emitter: Emitter, instruction: Instruction) -> None:
    """`set.cmp.bool.f16x2.f16x2 d, a, b, c`: 1.0 or 0.0 in each half."""
    destination, a, b, *combined = instruction.operands
    form = part_format(instruction)
    one = str(form.bias << form.mantissa)
    chosen = [emitter.select(h, "i16", one, "0") for h in _compared(emitter, instruction, a, b, combined)]
    emitter.assign(destination, emitter.pack(chosen, 32), 32)
