"""Integer arithmetic: add, sub, mul, mad and their carry chains, div, rem, min, max, sad, dot products.

Semantics: PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic Instructions". Division
by zero is undefined there; here it gives what GPUs give: all ones.
"""

from __future__ import annotations

from cutesmith.emulator.instructions.forms import IntegerType, integer_type, take
from cutesmith.emulator.instructions.roles import CONDITION_CODE
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction, Register

_CARRY = Register(CONDITION_CODE)
_TYPES = "{u16,s16,u32,s32,u64,s64}"


@native("{add,sub}." + _TYPES)
def add_or_subtract(emitter: Emitter, instruction: Instruction) -> None:
    """`add.type d, a, b` and `sub`, modulo 2^bits."""
    bits = integer_type(instruction, instruction.modifiers[-1]).bits
    take(instruction)
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:])
    emitter.assign(instruction.operands[0], emitter.op(f"{instruction.opcode} i{bits} {{}}, {{}}", a, b), bits)


@native("add.sat.s32", "sub.sat.s32")
def add_saturated(emitter: Emitter, instruction: Instruction) -> None:
    """`add.sat.s32`: clamped to the range of s32."""
    a, b = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    name = f"llvm.s{instruction.opcode}.sat.i32"
    emitter.assign(instruction.operands[0], emitter.intrinsic(name, "i32", f"i32 {a}", f"i32 {b}"), 32)


@native("{add.cc,sub.cc,addc,addc.cc,subc,subc.cc}.{u32,s32,u64,s64}")
def add_with_carry(emitter: Emitter, instruction: Instruction) -> None:
    """`add.cc`, `addc`, `sub.cc`, `subc`: the carry (borrow) flag joins two of them."""
    bits = integer_type(instruction, instruction.modifiers[-1]).bits
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:])
    opcode, sets_carry = instruction.opcode, "cc" in instruction.modifiers
    total = _carrying(emitter, opcode[:3], a, b, bits, carry_in=opcode.endswith("c"), carry_out=sets_carry)
    emitter.assign(instruction.operands[0], total, bits)


def _carrying(emitter: Emitter, what: str, a: str, b: str, bits: int, *, carry_in: bool, carry_out: bool) -> str:
    """a + b or a - b with one bit more than the operands have: that bit is the carry or borrow."""
    wide = bits + 1
    left, right = emitter.resize(a, bits, wide), emitter.resize(b, bits, wide)
    total = emitter.op(f"{what} i{wide} {{}}, {{}}", left, right)
    if carry_in:
        flag = emitter.value(_CARRY, wide)
        total = emitter.op(f"{what} i{wide} {{}}, {{}}", total, flag)
    if carry_out:
        emitter.assign(_CARRY, emitter.op(f"lshr i{wide} {{}}, {bits}", total), wide)
    return emitter.resize(total, wide, bits)


@native("mul.lo", "mul.hi", "mul.wide", "mul24.lo", "mul24.hi")
def multiply(emitter: Emitter, instruction: Instruction) -> None:
    """`mul.lo`, `.hi` and `.wide` (twice the bits); `mul24` of the low 24 bits, `.hi` bits 47 to 16."""
    take(instruction, "lo", "hi", "wide")
    product, bits = _product(emitter, instruction)
    emitter.assign(instruction.operands[0], product, bits)


@native("mad.lo", "mad.hi", "mad.wide", "mad24.lo", "mad24.hi", "madc.lo", "madc.hi")
def multiply_add(emitter: Emitter, instruction: Instruction) -> None:
    """`mad`: the product as `mul` gives it, plus c; `.cc` and `madc` chain carries, `.hi.sat.s32` clamps."""
    modifiers = take(instruction, "lo", "hi", "wide", "sat", "cc")
    product, bits = _product(emitter, instruction)
    addend = emitter.value(instruction.operands[3], bits)
    if "sat" in modifiers:
        total = emitter.intrinsic(f"llvm.sadd.sat.i{bits}", f"i{bits}", f"i{bits} {product}", f"i{bits} {addend}")
    elif "cc" in modifiers or instruction.opcode == "madc":
        carry = {"carry_in": instruction.opcode == "madc", "carry_out": "cc" in modifiers}
        total = _carrying(emitter, "add", product, addend, bits, **carry)
    else:
        total = emitter.op(f"add i{bits} {{}}, {{}}", product, addend)
    emitter.assign(instruction.operands[0], total, bits)


def _product(emitter: Emitter, instruction: Instruction) -> tuple[str, int]:
    """The product of operands 1 and 2 by the mode (lo, hi, wide), and its bits."""
    kind = integer_type(instruction, instruction.modifiers[-1])
    if "24" in instruction.opcode:
        factors = (emitter.resize(emitter.value(operand, 32), 32, 24) for operand in instruction.operands[1:3])
        a, b = (emitter.resize(factor, 24, 64, signed=kind.signed) for factor in factors)
        product = emitter.op("mul i64 {}, {}", a, b)
        shift = 16 if "hi" in instruction.modifiers else 0
        return emitter.resize(emitter.op(f"lshr i64 {{}}, {shift}", product), 64, 32), 32
    bits, mode = kind.bits, instruction.modifiers[0]
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:3])
    if mode == "lo":
        return emitter.op(f"mul i{bits} {{}}, {{}}", a, b), bits
    a, b = (emitter.resize(value, bits, 2 * bits, signed=kind.signed) for value in (a, b))
    product = emitter.op(f"mul i{2 * bits} {{}}, {{}}", a, b)
    if mode == "wide":
        return product, 2 * bits
    return emitter.resize(emitter.op(f"lshr i{2 * bits} {{}}, {bits}", product), 2 * bits, bits), bits


@native("{div,rem}." + _TYPES)
def divide(emitter: Emitter, instruction: Instruction) -> None:
    """`div` and `rem`, towards zero; by zero: all ones (an H200's answer to both). INT_MIN / -1 wraps."""
    kind = integer_type(instruction, instruction.modifiers[-1])
    bits, remainder = kind.bits, instruction.opcode == "rem"
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:])
    zero = emitter.op(f"icmp eq i{bits} {{}}, 0", b)
    refused = zero
    if kind.signed:
        smallest = emitter.op(f"icmp eq i{bits} {{}}, {-(1 << (bits - 1))}", a)
        overflows = emitter.op("and i1 {}, {}", smallest, emitter.op(f"icmp eq i{bits} {{}}, -1", b))
        refused = emitter.op("or i1 {}, {}", zero, overflows)
    safe = emitter.select(refused, f"i{bits}", "1", b)  # a / 1 is also what INT_MIN / -1 wraps to
    result = emitter.op(f"{kind.letter}{'rem' if remainder else 'div'} i{bits} {{}}, {{}}", a, safe)
    emitter.assign(instruction.operands[0], emitter.select(zero, f"i{bits}", "-1", result), bits)


@native("abs.{s16,s32,s64}")
def absolute(emitter: Emitter, instruction: Instruction) -> None:
    """`abs`; of INT_MIN it is INT_MIN."""
    bits = integer_type(instruction, instruction.modifiers[-1]).bits
    value = emitter.value(instruction.operands[1], bits)
    result = emitter.intrinsic(f"llvm.abs.i{bits}", f"i{bits}", f"i{bits} {value}", "i1 false")
    emitter.assign(instruction.operands[0], result, bits)


@native("neg.{s16,s32,s64}")
def negate(emitter: Emitter, instruction: Instruction) -> None:
    """`neg`: zero minus a."""
    bits = integer_type(instruction, instruction.modifiers[-1]).bits
    value = emitter.value(instruction.operands[1], bits)
    emitter.assign(instruction.operands[0], emitter.op(f"sub i{bits} 0, {{}}", value), bits)


@native("{min,max}." + _TYPES, "{min,max}.relu.s32")
def extremum(emitter: Emitter, instruction: Instruction) -> None:
    """`min` and `max`; `.relu` clamps the result to zero from below."""
    kind = integer_type(instruction, instruction.modifiers[-1])
    a, b = (emitter.value(operand, kind.bits) for operand in instruction.operands[1:])
    relu = "relu" in take(instruction, "relu")
    result = _extremum(emitter, instruction.opcode, kind, a, b, relu=relu)
    emitter.assign(instruction.operands[0], result, kind.bits)


def _extremum(emitter: Emitter, which: str, kind: IntegerType, a: str, b: str, *, relu: bool) -> str:
    result = _minmax(emitter, f"{kind.letter}{which}", kind.bits, a, b)
    return _minmax(emitter, "smax", kind.bits, result, "0") if relu else result


def _minmax(emitter: Emitter, which: str, bits: int, a: str, b: str) -> str:
    return emitter.intrinsic(f"llvm.{which}.i{bits}", f"i{bits}", f"i{bits} {a}", f"i{bits} {b}")


@native("{add,sub,min,max,min.relu,max.relu}.{u16x2,s16x2}", "neg.s16x2")
def pairwise(emitter: Emitter, instruction: Instruction) -> None:
    """`add`, `sub`, `neg`, `min` and `max` of two 16-bit integers in one register."""
    relu = "relu" in take(instruction, "relu")
    kind = IntegerType(16, instruction.modifiers[-1] == "s16x2")
    operands = [emitter.unpack(emitter.value(operand, 32), 32, 16) for operand in instruction.operands[1:]]
    halves = [_half(emitter, instruction.opcode, kind, list(values), relu) for values in zip(*operands)]
    emitter.assign(instruction.operands[0], emitter.pack(halves, 32), 32)


def _half(emitter: Emitter, opcode: str, kind: IntegerType, values: list[str], relu: bool) -> str:
    if opcode in ("min", "max"):
        return _extremum(emitter, opcode, kind, *values, relu=relu)
    if opcode == "neg":
        return emitter.op("sub i16 0, {}", *values)
    return emitter.op(f"{opcode} i16 {{}}, {{}}", *values)


@native("sad")
def sum_of_absolute_differences(emitter: Emitter, instruction: Instruction) -> None:
    """`sad.type d, a, b, c`: c + |a - b|, modulo 2^bits."""
    kind = integer_type(instruction, instruction.modifiers[-1])
    take(instruction)
    a, b, c = (emitter.value(operand, kind.bits) for operand in instruction.operands[1:])
    whole = f"i{kind.bits}"
    low, high = (_minmax(emitter, f"{kind.letter}{which}", kind.bits, a, b) for which in ("min", "max"))
    distance = emitter.op(f"sub {whole} {{}}, {{}}", high, low)
    emitter.assign(instruction.operands[0], emitter.op(f"add {whole} {{}}, {{}}", c, distance), kind.bits)


@native("dp4a", "dp2a.lo", "dp2a.hi")
def dot_product(emitter: Emitter, instruction: Instruction) -> None:
    """`dp4a`: c plus the products of four bytes; `dp2a`: of two halves of a with the low or high two bytes of b."""
    *mode, left, right = instruction.modifiers
    signed_a, signed_b = (_signed_word(emitter, name) for name in (left, right))
    a, b, total = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    bits = 16 if mode else 8
    bytes_of_b = emitter.unpack(b, 32, 8)[2 if mode == ["hi"] else 0 :]
    for x, y in zip(emitter.unpack(a, 32, bits), bytes_of_b):
        x, y = emitter.resize(x, bits, 32, signed=signed_a), emitter.resize(y, 8, 32, signed=signed_b)
        total = emitter.op("add i32 {}, {}", total, emitter.op("mul i32 {}, {}", x, y))
    emitter.assign(instruction.operands[0], total, 32)


def _signed_word(emitter: Emitter, name: str) -> bool:
    if name not in ("u32", "s32"):
        raise emitter.unsupported(f"type .{name}")
    return name == "s32"
