"""Instructions on floats: scalars, pairs f16x2 and bf16x2, and the pairs of f32 in 64 bits of sm_100."""

from __future__ import annotations

from dataclasses import replace

from cutesmith.emulator.emitters.comparisons import assign_predicates, combine
from cutesmith.emulator.emitters.floats import COMPARISONS, apply, compare
from cutesmith.emulator.emitters.formats import F32, FORMATS, Format, magnitude_of, widen
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.program.contraction import FUSED
from cutesmith.emulator.ptx.syntax import Instruction, Operand, Pair

_COMPARED = "{" + ",".join(COMPARISONS) + "}{,.and,.or,.xor}"


def format_of(instruction: Instruction) -> tuple[Format, int]:
    """The format that the last modifier names, and how many such numbers a register holds: f16 and 2 for "f16x2"."""
    kind = instruction.modifiers[-1]
    return FORMATS[kind.removesuffix("x2")], 2 if kind.endswith("x2") else 1


def numbers(emitter: Emitter, instruction: Instruction, operand: Operand) -> list[str]:
    """The patterns of the numbers in an operand, the lowest first."""
    form, count = format_of(instruction)
    return emitter.unpack(emitter.value(operand, count * form.bits), count * form.bits, form.bits)


def assign_numbers(emitter: Emitter, destination: Operand, patterns: list[str], bits: int) -> None:
    """Set a register from patterns of `bits` bits, the lowest first."""
    emitter.assign(destination, emitter.pack(patterns, bits * len(patterns)), bits * len(patterns))


@native("{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32", "{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64")
@native("{fma,mad}{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32", "{fma,mad}{.rn,.rz,.rm,.rp}.f64")
@native("{div,rcp,sqrt}{.rn,.rz,.rm,.rp}{,.ftz}.f32", "{div,rcp,sqrt}{.rn,.rz,.rm,.rp}.f64")
@native("{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16{,x2}", "{add,sub,mul}{,.rn}.bf16{,x2}")
@native("fma.rn{,.ftz}{,.sat,.relu}.f16{,x2}", "fma.rn{,.relu}.bf16{,x2}", "fma.rn.oob{,.relu}.{f16,bf16}{,x2}")
@native("{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f32,f16,f16x2}")
@native("{min,max}{,.NaN}{,.xorsign.abs}.bf16{,x2}", "{min,max}.f64")
@native("{abs,neg}{,.ftz}.{f32,f16,f16x2}", "{abs,neg}.{bf16,bf16x2,f64}")
@native("{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}.f32x2", "fma{.rn,.rz,.rm,.rp}{,.ftz}.f32x2")
def arithmetic(emitter: Emitter, instruction: Instruction) -> None:
    """One to three numbers of a format give one; of packed registers each half by itself."""
    form, _ = format_of(instruction)
    destination, *sources = instruction.operands
    columns = zip(*(numbers(emitter, instruction, operand) for operand in sources))
    results = [apply(emitter, instruction, form, list(values)) for values in columns]
    assign_numbers(emitter, destination, results, form.bits)


@native("{add,sub}{,.rn,.rz,.rm,.rp}{,.sat}.f32.{f16,bf16}", "fma{.rn,.rz,.rm,.rp}{,.sat}.f32.{f16,bf16}")
def mixed(emitter: Emitter, instruction: Instruction) -> None:
    """`add{.rnd}{.sat}.f32.type d, a, c`, `fma… d, a, b, c` (sm_100): all but c are 16-bit numbers, widened."""
    narrow = FORMATS[instruction.modifiers[-1]]
    destination, *factors, last = instruction.operands
    values = [
        emitter.op("bitcast float {} to i32", widen(emitter, emitter.value(operand, narrow.bits), narrow))
        for operand in factors
    ]
    wide = replace(instruction, modifiers=instruction.modifiers[:-1])
    emitter.assign(destination, apply(emitter, wide, F32, [*values, emitter.value(last, F32.bits)]), F32.bits)


_NEGATED = {"add": (), "subtract_product": (0,), "subtract_addend": (2,), "subtract_both": (0, 2)}


@native(
    FUSED + ".{add,subtract_product,subtract_addend,subtract_both}{,.ftz}{,.sat}.{f32,f16,f16x2}",
    FUSED + ".{add,subtract_product,subtract_addend,subtract_both}.{f64,bf16,bf16x2}",
)
def fused(emitter: Emitter, instruction: Instruction) -> None:
    """A product fused with a sum (program/contraction.py): `fma.rn`, an operand's sign changed for a difference."""
    form, _ = format_of(instruction)
    how, *kind = instruction.modifiers
    destination, *sources = instruction.operands
    columns = [numbers(emitter, instruction, operand) for operand in sources]
    flip = f"xor i{form.bits} {{}}, {form.sign}"
    for place in _NEGATED[how]:
        columns[place] = [emitter.op(flip, value) for value in columns[place]]
    multiply_add = replace(instruction, opcode="fma", modifiers=("rn", *kind))
    results = [apply(emitter, multiply_add, form, list(values)) for values in zip(*columns)]
    assign_numbers(emitter, destination, results, form.bits)


def _compared(emitter: Emitter, instruction: Instruction, a: Operand, b: Operand) -> list[str]:
    """Whether the comparison holds, of each pair of numbers."""
    form, _ = format_of(instruction)
    pairs = zip(numbers(emitter, instruction, a), numbers(emitter, instruction, b))
    return [compare(emitter, instruction, form, list(pair)) for pair in pairs]


@native("setp." + _COMPARED + "{,.ftz}.{f32,f16,f16x2}", "setp." + _COMPARED + ".{f64,bf16,bf16x2}")
def set_predicate(emitter: Emitter, instruction: Instruction) -> None:
    """`setp.cmp.bool.type p|q, a, b, c`; of packed registers p is of the low halves, q of the high ones."""
    destination, a, b, *combined = instruction.operands
    holds = _compared(emitter, instruction, a, b)
    if len(holds) == 1:
        assign_predicates(emitter, instruction, destination, holds[0], combined)
        return
    if not isinstance(destination, Pair):
        raise emitter.unsupported("one predicate for two halves")
    other = emitter.value(combined[0], 1) if combined else ""
    for register, value in zip((destination.first, destination.second), holds):
        emitter.assign(register, combine(emitter, instruction, value, other), 1)


_TRUE = {"u32": -1, "s32": -1, "u16": -1, "s16": -1, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


@native("set." + _COMPARED + "{,.ftz}.{u32,s32,f32}.f32", "set." + _COMPARED + ".{u32,s32,f32}.f64")
@native("set." + _COMPARED + "{,.ftz}.{u16,s16,u32,s32,f16}.f16", "set." + _COMPARED + "{,.ftz}.f16x2.f16x2")
@native("set." + _COMPARED + ".{u16,s16,u32,s32,bf16}.bf16", "set." + _COMPARED + ".bf16x2.bf16x2")
def set_value(emitter: Emitter, instruction: Instruction) -> None:
    """`set.cmp.bool.dtype.stype d, a, b, c`: all ones (1.0 in a float type) where it holds, else zero."""
    destination, a, b, *combined = instruction.operands
    target = instruction.modifiers[-2].removesuffix("x2")
    bits = 16 if target.endswith("16") else 32
    other = emitter.value(combined[0], 1) if combined else ""
    holds = [combine(emitter, instruction, value, other) for value in _compared(emitter, instruction, a, b)]
    assign_numbers(emitter, destination, [emitter.select(h, f"i{bits}", str(_TRUE[target]), "0") for h in holds], bits)


@native("testp.{finite,infinite,number,notanumber,normal,subnormal}")
def test_property(emitter: Emitter, instruction: Instruction) -> None:
    """`testp.property.type p, a`; zero counts as normal."""
    test, name = instruction.modifiers
    form = FORMATS[name]
    kind, op = f"i{form.bits}", emitter.op
    value = magnitude_of(emitter, emitter.value(instruction.operands[1], form.bits), form)
    zero, subnormal, finite, number = (
        op(f"icmp ult {kind} {{}}, {limit}", value)
        for limit in (1, form.least_normal, form.infinity, form.infinity + 1)
    )
    holds = {
        "finite": finite,
        "infinite": op("xor i1 {}, {}", number, finite),
        "number": number,
        "notanumber": op("xor i1 {}, true", number),
        "normal": op("or i1 {}, {}", zero, op("xor i1 {}, {}", finite, subnormal)),
        "subnormal": op("xor i1 {}, {}", subnormal, zero),
    }[test]
    emitter.assign(instruction.operands[0], holds, 1)


@native("copysign.f32", "copysign.f64")
def copy_sign(emitter: Emitter, instruction: Instruction) -> None:
    """`copysign d, a, b`: b with the sign of a."""
    form = FORMATS[instruction.modifiers[-1]]
    a, b = (emitter.value(operand, form.bits) for operand in instruction.operands[1:])
    sign = emitter.op(f"and i{form.bits} {{}}, {form.sign}", a)
    emitter.assign(
        instruction.operands[0],
        emitter.op(f"or i{form.bits} {{}}, {{}}", sign, magnitude_of(emitter, b, form)),
        form.bits,
    )
