"""Bits: logic, shifts, bit fields, counting, byte permutation. Semantics: PTX ISA, "Logic and Shift Instructions" and
"Integer Arithmetic Instructions" (bfe, bfi, popc, …); the pseudo-code there is what each function computes."""

from __future__ import annotations

from cutesmith.emulator.emitters.comparisons import assign_predicates
from cutesmith.emulator.instructions.forms import integer_type, take, type_bits
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand, Pair


@native("and", "or", "xor")
def logic(emitter: Emitter, instruction: Instruction) -> None:
    """`and`, `or`, `xor` of predicates or of 16, 32 or 64 bits."""
    bits = _only_type(emitter, instruction)
    a, b = (emitter.value(operand, bits) for operand in instruction.operands[1:])
    emitter.assign(instruction.operands[0], emitter.op(f"{instruction.opcode} i{bits} {{}}, {{}}", a, b), bits)


@native("not")
def invert(emitter: Emitter, instruction: Instruction) -> None:
    """`not`: every bit inverted."""
    bits = _only_type(emitter, instruction)
    value = emitter.value(instruction.operands[1], bits)
    emitter.assign(instruction.operands[0], emitter.op(f"xor i{bits} {{}}, -1", value), bits)


@native("cnot")
def logical_not(emitter: Emitter, instruction: Instruction) -> None:
    """`cnot`: 1 where a is zero, else 0."""
    bits = _only_type(emitter, instruction)
    zero = emitter.op(f"icmp eq i{bits} {{}}, 0", emitter.value(instruction.operands[1], bits))
    emitter.assign(instruction.operands[0], emitter.resize(zero, 1, bits), bits)


def _only_type(emitter: Emitter, instruction: Instruction) -> int:
    take(instruction)
    return type_bits(instruction, instruction.modifiers[-1])


# ------------------------------------------------------------------------------------------------------------- shifts


@native("shl", "shr")
def shift(emitter: Emitter, instruction: Instruction) -> None:
    """`shl` and `shr`: an amount of the width or more leaves zeros, or sign bits for a signed `shr`."""
    take(instruction)
    kind = integer_type(instruction, instruction.modifiers[-1])
    value, amount = emitter.value(instruction.operands[1], kind.bits), emitter.value(instruction.operands[2], 32)
    if instruction.opcode == "shr" and kind.signed:
        amount = _smaller(emitter, amount, kind.bits - 1)
        result = emitter.op(f"ashr i{kind.bits} {{}}, {{}}", value, emitter.resize(amount, 32, kind.bits))
    else:
        result = _shift(emitter, "shl" if instruction.opcode == "shl" else "lshr", value, amount, kind.bits)
    emitter.assign(instruction.operands[0], result, kind.bits)


def _shift(emitter: Emitter, how: str, value: str, amount: str, bits: int) -> str:
    """`shl` or `lshr` by any i32 amount: zero from the width on."""
    inside = emitter.op(f"icmp ult i32 {{}}, {bits}", amount)
    safe = emitter.resize(emitter.op(f"and i32 {{}}, {bits - 1}", amount), 32, bits)
    return emitter.select(inside, f"i{bits}", emitter.op(f"{how} i{bits} {{}}, {{}}", value, safe), "0")


def _smaller(emitter: Emitter, value: str, limit: int) -> str:
    return emitter.intrinsic("llvm.umin.i32", "i32", f"i32 {value}", f"i32 {limit}")


@native("shf.l", "shf.r")
def funnel_shift(emitter: Emitter, instruction: Instruction) -> None:
    """`shf.{l,r}.{clamp,wrap}.b32 d, a, b, c`: b:a shifted by c, its upper half (l) or lower half (r)."""
    side, mode, kind = instruction.modifiers
    if mode not in ("wrap", "clamp") or kind != "b32":
        raise emitter.unsupported()
    left, wrap = side == "l", mode == "wrap"
    low, high, amount = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    amount = emitter.op("and i32 {}, 31", amount) if wrap else _smaller(emitter, amount, 32)
    both, wide = emitter.pack((low, high), 64), emitter.resize(amount, 32, 64)
    moved = emitter.op(f"{'shl' if left else 'lshr'} i64 {{}}, {{}}", both, wide)
    result = emitter.op("lshr i64 {}, 32", moved) if left else moved
    emitter.assign(instruction.operands[0], emitter.resize(result, 64, 32), 32)


# ----------------------------------------------------------------------------------------------------------- counting


@native("popc", "clz")
def count(emitter: Emitter, instruction: Instruction) -> None:
    """`popc` and `clz` of 32 or 64 bits; the count has 32."""
    bits = _only_type(emitter, instruction)
    value = emitter.value(instruction.operands[1], bits)
    if instruction.opcode == "clz":
        number = _leading_zeros(emitter, value, bits)
    else:
        number = emitter.intrinsic(f"llvm.ctpop.i{bits}", f"i{bits}", f"i{bits} {value}")
    emitter.assign(instruction.operands[0], emitter.resize(number, bits, 32), 32)


def _leading_zeros(emitter: Emitter, value: str, bits: int) -> str:
    return emitter.intrinsic(f"llvm.ctlz.i{bits}", f"i{bits}", f"i{bits} {value}", "i1 false")


@native("bfind")
def find_leading_bit(emitter: Emitter, instruction: Instruction) -> None:
    """`bfind`: position of the highest non-sign bit, or all ones; `.shiftamt`: its distance from the top."""
    from_top = "shiftamt" in take(instruction, "shiftamt")
    bits, signed = integer_type(instruction, instruction.modifiers[-1])
    value = emitter.value(instruction.operands[1], bits)
    if signed:
        value = emitter.op(f"xor i{bits} {{}}, {{}}", value, emitter.op(f"ashr i{bits} {{}}, {bits - 1}", value))
    zeros = emitter.resize(_leading_zeros(emitter, value, bits), bits, 32)
    position = zeros if from_top else emitter.op(f"sub i32 {bits - 1}, {{}}", zeros)
    none = emitter.op(f"icmp eq i{bits} {{}}, 0", value)
    emitter.assign(instruction.operands[0], emitter.select(none, "i32", "-1", position), 32)


@native("brev")
def reverse(emitter: Emitter, instruction: Instruction) -> None:
    """`brev`: bits in reverse order."""
    bits = _only_type(emitter, instruction)
    value = emitter.value(instruction.operands[1], bits)
    result = emitter.intrinsic(f"llvm.bitreverse.i{bits}", f"i{bits}", f"i{bits} {value}")
    emitter.assign(instruction.operands[0], result, bits)


@native("fns.b32")
def find_nth_set(emitter: Emitter, instruction: Instruction) -> None:
    """`fns.b32 d, mask, base, offset`: the offset-th set bit at or after base (before it if negative), or all ones."""
    arguments = (f"i32 {emitter.value(operand, 32)}" for operand in instruction.operands[1:])
    emitter.declare("llvm.abs.i32", "i32", "i32", "i1")
    emitter.assign(instruction.operands[0], emitter.helper("find_nth_set", _FIND_NTH_SET, "i32", *arguments), 32)


_FIND_NTH_SET = """define internal i32 @find_nth_set(i32 %mask, i32 %base, i32 %offset) nounwind {
begin:
%zero = icmp eq i32 %offset, 0
%forward = icmp sgt i32 %offset, 0
%step = select i1 %forward, i32 1, i32 -1
%distance = call i32 @llvm.abs.i32(i32 %offset, i1 false)
%more = sub i32 %distance, 1
%wanted = select i1 %zero, i32 0, i32 %more
br label %search
search:
%position = phi i32 [%base, %begin], [%position.next, %go]
%left = phi i32 [%wanted, %begin], [%left.next, %go]
%inside = icmp ult i32 %position, 32
br i1 %inside, label %look, label %none
look:
%moved = lshr i32 %mask, %position
%set = trunc i32 %moved to i1
%last = icmp eq i32 %left, 0
%found = and i1 %set, %last
br i1 %found, label %done, label %again
again:
br i1 %zero, label %none, label %go
go:
%one = zext i1 %set to i32
%left.next = sub i32 %left, %one
%position.next = add i32 %position, %step
br label %search
done:
ret i32 %position
none:
ret i32 -1
}"""


# --------------------------------------------------------------------------------------------------------- bit fields


@native("bfe")
def extract_field(emitter: Emitter, instruction: Instruction) -> None:
    """`bfe.type d, a, position, length`: the field, sign-extended for signed types; both taken modulo 256."""
    take(instruction)
    bits, signed = integer_type(instruction, instruction.modifiers[-1])
    value = emitter.value(instruction.operands[1], bits)
    position, length = (_byte(emitter, operand) for operand in instruction.operands[2:])
    room = emitter.intrinsic("llvm.usub.sat.i32", "i32", f"i32 {bits}", f"i32 {position}")
    inside = emitter.intrinsic("llvm.umin.i32", "i32", f"i32 {length}", f"i32 {room}")
    mask = _ones(emitter, inside, bits)
    field = emitter.op(f"and i{bits} {{}}, {{}}", _shift(emitter, "lshr", value, position, bits), mask)
    if signed:
        outside = emitter.op(f"xor i{bits} {{}}, -1", mask)
        sign = emitter.op(f"and i{bits} {{}}, {{}}", outside, _field_sign(emitter, value, position, length, bits))
        field = emitter.op(f"or i{bits} {{}}, {{}}", field, sign)
    emitter.assign(instruction.operands[0], field, bits)


def _field_sign(emitter: Emitter, value: str, position: str, length: str, bits: int) -> str:
    """All ones where bit min(position + length - 1, top) is set and the length is not zero."""
    last = emitter.op("sub i32 {}, 1", emitter.op("add i32 {}, {}", position, length))
    last = emitter.resize(_smaller(emitter, last, bits - 1), 32, bits)
    sign = emitter.resize(emitter.op(f"lshr i{bits} {{}}, {{}}", value, last), bits, 1)
    sign = emitter.op("and i1 {}, {}", sign, emitter.op("icmp ne i32 {}, 0", length))
    return emitter.resize(sign, 1, bits, signed=True)


@native("bfi")
def insert_field(emitter: Emitter, instruction: Instruction) -> None:
    """`bfi.type d, a, b, position, length`: b with the low bits of a at `position`; both taken modulo 256."""
    bits = _only_type(emitter, instruction)
    value, base = (emitter.value(operand, bits) for operand in instruction.operands[1:3])
    position, length = (_byte(emitter, operand) for operand in instruction.operands[3:])
    mask = _shift(emitter, "shl", _ones(emitter, length, bits), position, bits)
    moved = _shift(emitter, "shl", value, position, bits)
    difference = emitter.op(f"and i{bits} {{}}, {{}}", emitter.op(f"xor i{bits} {{}}, {{}}", moved, base), mask)
    emitter.assign(instruction.operands[0], emitter.op(f"xor i{bits} {{}}, {{}}", base, difference), bits)


def _byte(emitter: Emitter, operand: Operand) -> str:
    return emitter.op("and i32 {}, 255", emitter.value(operand, 32))


def _ones(emitter: Emitter, length: str, bits: int) -> str:
    """The lowest `length` bits set, all of them from the width on."""
    return emitter.op(f"xor i{bits} {{}}, -1", _shift(emitter, "shl", "-1", length, bits))


@native("bmsk.clamp.b32", "bmsk.wrap.b32")
def field_mask(emitter: Emitter, instruction: Instruction) -> None:
    """`bmsk.mode.b32 d, position, length`: ones in the field, cut at the top; `.wrap` takes both modulo 32."""
    wrap = instruction.modifiers[0] == "wrap"
    position, length = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    if wrap:
        position, length = (emitter.op("and i32 {}, 31", value) for value in (position, length))
    mask = _shift(emitter, "shl", _ones(emitter, length, 32), position, 32)
    emitter.assign(instruction.operands[0], mask, 32)


@native("szext.{clamp,wrap}.{u32,s32}")
def extend_field(emitter: Emitter, instruction: Instruction) -> None:
    """`szext.mode.type d, a, n`: the low n bits of a, sign- or zero-extended; n of 32 or more keeps a (`.clamp`)."""
    wrap, signed = instruction.modifiers[0] == "wrap", instruction.modifiers[-1] == "s32"
    value, length = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    if wrap:
        length = emitter.op("and i32 {}, 31", length)
    mask = _ones(emitter, length, 32)
    result = emitter.op("and i32 {}, {}", value, mask)
    if signed:
        outside = emitter.op("xor i32 {}, -1", mask)
        sign = emitter.op("and i32 {}, {}", outside, _field_sign(emitter, value, "0", length, 32))
        result = emitter.op("or i32 {}, {}", result, sign)
    emitter.assign(instruction.operands[0], result, 32)


# -------------------------------------------------------------------------------------------- permutation, any function

# prmt modes: which of the eight bytes of b:a each byte of the result takes, a hex digit a byte, for c & 3 = 3, 2, 1, 0.
_PERMUTATIONS = {
    "f4e": 0x6543_5432_4321_3210,
    "b4e": 0x0123_7012_6701_5670,
    "rc8": 0x3333_2222_1111_0000,
    "ecl": 0x3333_3222_3211_3210,
    "ecr": 0x3210_2210_1110_0000,
    "rc16": 0x3232_1010_3232_1010,
}


@native("prmt")
def permute_bytes(emitter: Emitter, instruction: Instruction) -> None:
    """`prmt.b32{.mode} d, a, b, c`: bytes of b:a by the selectors in c; bit 3 of a selector replicates the sign."""
    kind, *mode = instruction.modifiers
    a, b, selectors = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    bytes_ab, wide = emitter.pack((a, b), 64), emitter.resize(selectors, 32, 64)
    if kind != "b32" or mode not in ([], *([name] for name in _PERMUTATIONS)):
        raise emitter.unsupported()
    if mode:
        row = emitter.op("shl i64 {}, 4", emitter.op("and i64 {}, 3", wide))
        wide = emitter.op(f"lshr i64 {_PERMUTATIONS[mode[0]]}, {{}}", row)
    parts = []
    for position in range(4):
        selector = emitter.op(f"lshr i64 {{}}, {4 * position}", wide)
        bit = emitter.op("shl i64 {}, 3", emitter.op("and i64 {}, 7", selector))
        byte = emitter.resize(emitter.op("lshr i64 {}, {}", bytes_ab, bit), 64, 8)
        if not mode:
            replicate = emitter.op("icmp ne i64 {}, 0", emitter.op("and i64 {}, 8", selector))
            byte = emitter.select(replicate, "i8", emitter.op("ashr i8 {}, 7", byte), byte)
        parts.append(byte)
    emitter.assign(instruction.operands[0], emitter.pack(parts, 32), 32)


@native("lop3.b32", "lop3.and.b32", "lop3.or.b32")
def logic_of_three(emitter: Emitter, instruction: Instruction) -> None:
    """`lop3.b32 d, a, b, c, table`: any function of three bits; `.and`/`.or` also set p = (d != 0) bool q."""
    destination, *operands = instruction.operands
    table = operands[3]
    if not isinstance(table, Immediate):
        raise emitter.unsupported("the look-up table is not a literal")
    a, b, c = (emitter.value(operand, 32) for operand in operands[:3])
    # a ? f(b, c) : g(b, c), where f is the table's upper half and g its lower half
    result, upper = (_of_two(emitter, b, c, half & 15) for half in (table.value, table.value >> 4))
    if result != upper:
        changed = emitter.op("and i32 {}, {}", a, emitter.op("xor i32 {}, {}", result, upper))
        result = emitter.op("xor i32 {}, {}", result, changed)
    if isinstance(destination, Pair):
        holds = emitter.op("icmp ne i32 {}, 0", result)
        assign_predicates(emitter, instruction, destination.second, holds, operands[4:])
        destination = destination.first
    emitter.assign(destination, result, 32)


def _of_two(emitter: Emitter, b: str, c: str, table: int) -> str:
    """The function of two bits whose value for b, c is bit 2b + c of `table`: ((b & x) ^ (c & y) ^ (b & c & z)) ^ w."""
    w, c_part, b_part = table & 1, (table ^ table >> 1) & 1, (table ^ table >> 2) & 1
    both = (table ^ table >> 1 ^ table >> 2 ^ table >> 3) & 1
    terms = [name for name, used in ((b, b_part), (c, c_part)) if used]
    if both:
        terms.append(emitter.op("and i32 {}, {}", b, c))
    if w:
        terms.append("-1")
    result = terms[0] if terms else "0"
    for term in terms[1:]:
        result = emitter.op("xor i32 {}, {}", result, term)
    return result
