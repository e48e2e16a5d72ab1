"""Integer comparisons `setp` and `set`, and the selections `selp` and `slct` of any type."""

from __future__ import annotations

from cutesmith.emulator.instructions.forms import IntegerType, integer_type, take, type_bits
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction, Operand, Pair

_COMPARISON = "{eq,ne,lt,le,gt,ge,lo,ls,hi,hs}{,.and,.or,.xor}"
_TYPES = "{u16,s16,u32,s32,u64,s64,b16,b32,b64}"
_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_ONE = {"u32": "-1", "s32": "-1", "f32": str(0x3F800000)}


@native(f"setp.{_COMPARISON}.{_TYPES}")
def set_predicate(emitter: Emitter, instruction: Instruction) -> None:
    """`setp.cmp.bool.type p|q, a, b, c`: p = (a cmp b) bool c, q = !(a cmp b) bool c."""
    kind = integer_type(instruction, instruction.modifiers[-1])
    destination, a, b, *combined = instruction.operands
    holds = _compare(emitter, instruction, kind, a, b)
    assign_predicates(emitter, instruction, destination, holds, combined)


def assign_predicates(
    emitter: Emitter, instruction: Instruction, destination: Operand, holds: str, combined: list[Operand]
) -> None:
    """Set p, or p|q, from the comparison's i1 and, if the form has a boolean operation, its third predicate."""
    other = emitter.value(combined[0], 1) if combined else ""
    if not isinstance(destination, Pair):
        emitter.assign(destination, combine(emitter, instruction, holds, other), 1)
        return
    both = [combine(emitter, instruction, value, other) for value in (holds, emitter.op("xor i1 {}, true", holds))]
    emitter.assign(destination.first, both[0], 1)
    emitter.assign(destination.second, both[1], 1)


def combine(emitter: Emitter, instruction: Instruction, holds: str, other: str) -> str:
    """`holds bool other` by the instruction's boolean operation; `holds` where it has none."""
    boolean = next((word for word in instruction.modifiers if word in ("and", "or", "xor")), "")
    if bool(boolean) != bool(other):
        raise emitter.unsupported("a boolean operation and a third predicate go together")
    return emitter.op(f"{boolean} i1 {{}}, {{}}", holds, other) if boolean else holds


def _compare(emitter: Emitter, instruction: Instruction, kind: IntegerType, a: Operand, b: Operand) -> str:
    word = instruction.modifiers[0]
    if word in ("eq", "ne"):
        condition = word
    else:
        condition = _UNSIGNED.get(word) or f"{kind.letter}{word}"
    x, y = (emitter.value(operand, kind.bits) for operand in (a, b))
    return emitter.op(f"icmp {condition} i{kind.bits} {{}}, {{}}", x, y)


@native(f"set.{_COMPARISON}.{{u32,s32,f32}}." + _TYPES)
def set_value(emitter: Emitter, instruction: Instruction) -> None:
    """`set.cmp.bool.dtype.stype`: all ones (1.0 for f32) where it holds, else zero; the source is an integer."""
    kind = integer_type(instruction, instruction.modifiers[-1])
    destination, a, b, *combined = instruction.operands
    holds = _compare(emitter, instruction, kind, a, b)
    holds = combine(emitter, instruction, holds, emitter.value(combined[0], 1) if combined else "")
    emitter.assign(destination, emitter.select(holds, "i32", _ONE[instruction.modifiers[-2]], "0"), 32)


@native("selp")
def select_by_predicate(emitter: Emitter, instruction: Instruction) -> None:
    """`selp.type d, a, b, p`: a where p, else b."""
    take(instruction)
    bits = type_bits(instruction, instruction.modifiers[-1])
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:3])
    condition = emitter.value(instruction.operands[3], 1)
    emitter.assign(instruction.operands[0], emitter.select(condition, f"i{bits}", a, b), bits)


@native("slct")
def select_by_sign(emitter: Emitter, instruction: Instruction) -> None:
    """`slct.dtype.{s32,f32} d, a, b, c`: a where c >= 0 (-0.0 too, NaN not), else b; `.ftz` flushes c first."""
    *flush, chosen, sign = instruction.modifiers
    if flush not in ([], ["ftz"]) or sign not in ("s32", "f32"):
        raise emitter.unsupported()
    bits, c = type_bits(instruction, chosen), emitter.value(instruction.operands[3], 32)
    if sign == "s32":
        condition = emitter.op("icmp sge i32 {}, 0", c)
    else:
        # By patterns: positive up to infinity, or negative zero (with .ftz a negative subnormal becomes one).
        largest_zero = 0x807FFFFF if flush else 0x80000000
        positive = emitter.op(f"icmp ule i32 {{}}, {0x7F800000}", c)
        above = emitter.op(f"icmp uge i32 {{}}, {0x80000000}", c)
        zero = emitter.op("and i1 {}, {}", above, emitter.op(f"icmp ule i32 {{}}, {largest_zero}", c))
        condition = emitter.op("or i1 {}, {}", positive, zero)
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:3])
    emitter.assign(instruction.operands[0], emitter.select(condition, f"i{bits}", a, b), bits)
