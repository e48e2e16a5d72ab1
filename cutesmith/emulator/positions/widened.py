"""Every integer that an address is made of, computed a second time with 64 bits beside it.

The twin of a register is what it would hold if no integer were narrower than 64 bits. Sums, products and shifts to the
left have twins that agree with them modulo 2^32, whatever a compiler made of the expression; anything but arithmetic of
positions (loads, shuffles, unsigned division, packed halves) has itself as twin.

Indices of 16 bits are written as masks, shifts and conversions that an honest kernel may mean as such (packed
coordinates). They have themselves as twin too, unless `through_16_bits` asks what there would be without them.

With `through_floats` a position that becomes a float32 has its exact value as twin, in float64. What follows is
computed in float64 from the first value on that float32 does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.positions.elision import POSITION
from cutesmith.emulator.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Operand,
    Register,
    SpecialRegister,
    Symbol,
    bits_of,
    with_body,
)

_TWIN = ".wide"
_PLAUSIBLE = 1 << 36  # larger than any position: a hash of one is not divided with more bits than it was meant to have
_MOST_DIVISOR = 1 << 16  # compilers divide without remainder by multiplying with the divisor's inverse
_LINEAR = {("add", ""): "add", ("sub", ""): "sub", ("mul", "lo"): "mul.lo", ("mad", "lo"): "mad.lo", ("neg", ""): "neg"}
_BITWISE = ("and", "or", "xor", "not", "shl", "selp")
_SIGNED = ("shr.s32", "div.s32", "rem.s32", "mul.hi.s32", "min.s32", "max.s32")
_LIKE_64 = ("div", "rem", "shr", "min", "max", "abs")


@dataclass(frozen=True)
class Widened:
    """The function with twins, and the instructions through which fewer than 32 bits go."""

    function: Function
    narrow: tuple[Instruction, ...]


def widened(function: Function, *, through_16_bits: bool = False, through_floats: bool = False) -> Widened:
    """A function of `elision.reduced`, its positions now with the address that wide integers give as second operand."""
    floats = float_registers(function) if through_floats else frozenset()
    return _Twins(function, through_16_bits, floats).widened()


@dataclass
class _Twins:
    function: Function
    through: bool
    floats: frozenset[str] = frozenset()
    added: dict[str, str] = field(default_factory=dict)
    narrow: list[Instruction] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)

    def widened(self) -> Widened:
        self.wanted = _in_addresses(self.function, self.floats)
        body = [part for statement in self.function.body for part in self._statement(statement)]
        registers = {**self.function.registers, **self.added}
        return Widened(with_body(replace(self.function, registers=registers), body), tuple(self.narrow))

    def _statement(self, statement: Instruction | Label) -> Iterator[Instruction | Label]:
        if isinstance(statement, Label):
            yield statement
        elif statement.opcode == POSITION:
            address = statement.operands[0]
            assert isinstance(address, Address)
            yield replace(statement, operands=(address, replace(address, base=self.twin_of(address.base))))
        elif self.wanted.isdisjoint(writes(statement)):
            yield statement
        else:
            yield from self._with_twin(statement)

    def _with_twin(self, instruction: Instruction) -> Iterator[Instruction]:
        """The twin's instructions read what the original is about to overwrite, so they come first."""
        found = _Rule(self, instruction).twin()
        if found is None:
            yield instruction
            yield from (self.itself(instruction, name) for name in writes(instruction) if name in self.wanted)
        else:
            before, after = found
            yield from (replace(part, guard=instruction.guard) for part in before)
            yield instruction
            yield from (replace(part, guard=instruction.guard) for part in after)

    def itself(self, instruction: Instruction, name: str) -> Instruction:
        """The register's own value as its twin."""
        bits = bits_of(self.function.registers[name])
        target = self.twin_of(Register(name))
        wider = "cvt.f64.f32" if name in self.floats else "mov.b64" if bits == 64 else f"cvt.s64.s{bits}"
        return self.make(instruction, wider, target, Register(name))

    def make(self, instruction: Instruction, opcode: str, *operands: Operand) -> Instruction:
        """An instruction at the place of another."""
        first, *modifiers = opcode.split(".")
        return replace(instruction, opcode=first, modifiers=tuple(modifiers), operands=operands)

    def new(self, kind: str = "b64") -> Register:
        """A new register."""
        name = f"%wide.{len(self.added)}"
        self.added[name] = kind
        return Register(name)

    def bits(self, operand: Operand) -> int:
        """Width of a register; 0 for anything else."""
        return bits_of(self.function.registers[operand.name]) if isinstance(operand, Register) else 0

    def twin_of(self, operand: Operand) -> Register:
        assert isinstance(operand, Register)
        self.added[operand.name + _TWIN] = "b64"
        return Register(operand.name + _TWIN)

    def of(self, operand: Operand, bits: int) -> Operand | None:
        """The twin of a source of that width; of a literal its signed value, of what has none, None."""
        if isinstance(operand, Immediate) and not operand.float_bits:
            value = operand.value & ((1 << bits) - 1)
            return Immediate(value - (1 << bits) if value >> (bits - 1) else value)
        if isinstance(operand, Register) and operand.name in self.wanted:
            return self.twin_of(operand)
        return None


_Parts = tuple[list[Instruction], list[Instruction]]


class _Rule:
    """What becomes of one instruction: instructions before and after it, or None where the twin is the value itself."""

    def __init__(self, twins: _Twins, instruction: Instruction) -> None:
        self._twins, self._instruction = twins, instruction
        self._parts: list[Instruction] = []

    def twin(self) -> _Parts | None:
        instruction = self._instruction
        target, *sources = instruction.operands
        if self._twins.floats and (is_float(instruction) or from_float(instruction)):
            assert isinstance(target, Register)
            return _OfFloats(self._twins, instruction).twin(target, sources)
        bits = self._twins.bits(target)
        if bits not in (32, 64) and not (bits == 16 and instruction.opcode == "cvt"):
            if bits != 16 or not self._twins.through or not self._is_sum() or not isinstance(target, Register):
                return None
            return self._same(f"{instruction.opcode}.s64", target, sources, 16)
        if not isinstance(target, Register) or any(isinstance(s, (SpecialRegister, Symbol)) for s in sources):
            return None
        if instruction.opcode == "cvt":
            return self._conversion(target, sources[0])
        if instruction.opcode in ("mul", "mad") and instruction.modifiers[0] == "wide":
            return self._wide_product(target, sources)
        if instruction.opcode in _BITWISE or instruction.opcode in ("mov", "cvta"):
            return self._bitwise(target, sources, bits)
        if (instruction.opcode, *instruction.modifiers[:-1]) in _LINEAR or self._is_sum():
            if instruction.opcode == "mul" and any(map(_is_inverse, sources)):
                return None
            opcode = ".".join((instruction.opcode, *instruction.modifiers[:-1], "s64"))
            return self._same(opcode, target, sources, bits)
        if bits == 32:
            return self._signed(target, sources)
        if instruction.opcode not in _LIKE_64 or bits_of(instruction.modifiers[-1]) != 64:
            return None
        kept = sources[1:] if instruction.opcode == "shr" else []
        return self._same(instruction.full_opcode, target, sources, 64, kept=kept)

    # -------------------------------------------------------------------------------------------------------- exact

    def _is_sum(self) -> bool:
        return len(self._instruction.modifiers) == 1 and (self._instruction.opcode, "") in _LINEAR

    def _bitwise(self, target: Register, sources: list[Operand], bits: int) -> _Parts | None:
        opcode = self._instruction.opcode
        if opcode == "and" and (low := _half_mask(sources)) is not None:
            self._twins.narrow.append(self._instruction)
            if self._twins.through:
                return self._same("and.b64", target, [sources[0], Immediate(-1 << low)], bits)
        if opcode == "shl":
            return self._same("shl.b64", target, sources, bits, kept=sources[1:])
        if opcode == "selp":
            return self._same("selp.b64", target, sources, bits, kept=sources[2:])
        return self._same("mov.b64" if opcode == "cvta" else f"{opcode}.b64", target, sources, bits)

    def _same(
        self, opcode: str, target: Register, sources: list[Operand], bits: int, kept: list[Operand] | None = None
    ) -> _Parts | None:
        """One instruction on twins; the last sources, `kept`, are not positions."""
        kept = kept or []
        twins = [self._twins.of(source, bits) for source in sources[: len(sources) - len(kept)]]
        if any(twin is None for twin in twins):
            return None
        self._emit(opcode, self._twins.twin_of(target), *[t for t in twins if t is not None], *kept)
        return self._parts, []

    # ------------------------------------------------------------------------------------------------------- signed

    def _signed(self, target: Register, sources: list[Operand]) -> _Parts | None:
        """Signed division, shift to the right, the upper half of a product: wide while it may be a position."""
        instruction = self._instruction
        name = instruction.full_opcode
        if name == "shr.s32" and sources[1] in (Immediate(16), Immediate(24)):
            self._twins.narrow.append(instruction)
            if not self._twins.through:
                return None
        wide = name.replace("s32", "s64") if name in _SIGNED else None
        twins = [self._twins.of(source, 32) for source in sources]
        if wide is None or twins[0] is None or (twins[1] is None and name != "shr.s32"):
            return None
        second = sources[1] if name == "shr.s32" else twins[1]
        assert second is not None
        result = self._new(wide, twins[0], self._new("shl.b64", second, Immediate(32)) if "hi" in name else second)
        # the result where the twin that it was made of is small enough for a position, else the register's own value
        shifted, fits = self._new("add.s64", twins[0], Immediate(_PLAUSIBLE)), self._twins.new("pred")
        self._emit("setp.lt.u64", fits, shifted, Immediate(2 * _PLAUSIBLE))
        own = self._twins.new()
        make, instruction = self._twins.make, self._instruction
        after = [make(instruction, "cvt.s64.s32", own, target)]
        after.append(make(instruction, "selp.b64", self._twins.twin_of(target), result, own, fits))
        return self._parts, after

    # ------------------------------------------------------------------------------------------------- other widths

    def _conversion(self, target: Register, source: Operand) -> _Parts | None:
        instruction = self._instruction
        to, of = instruction.modifiers[-2:] if len(instruction.modifiers) == 2 else ("", "")
        if not all(kind[:1] in ("s", "u") and kind[1:].isdigit() for kind in (to, of)):
            return None
        if min(bits_of(to), bits_of(of)) < 32:
            self._twins.narrow.append(instruction)
            if not self._twins.through:
                return None
        twin = self._twins.of(source, self._twins.bits(source) or 32)
        if twin is None:
            return None
        value = self._extended(source, twin, of) if bits_of(of) < bits_of(to) else twin
        self._emit("mov.b64", self._twins.twin_of(target), value)
        return self._parts, []

    def _wide_product(self, target: Register, sources: list[Operand]) -> _Parts | None:
        kind = self._instruction.modifiers[-1]
        if bits_of(kind) != 32:
            return None
        twins = [self._twins.of(source, 32) for source in sources[:2]]
        addend = [self._twins.of(source, 64) for source in sources[2:]]
        if any(twin is None for twin in (*twins, *addend)):
            return None
        factors = [self._extended(source, twin, kind) for source, twin in zip(sources, twins) if twin is not None]
        opcode = "mad.lo.s64" if addend else "mul.lo.s64"
        self._emit(opcode, self._twins.twin_of(target), *factors, *[twin for twin in addend if twin is not None])
        return self._parts, []

    def _extended(self, source: Operand, twin: Operand, kind: str) -> Operand:
        """The twin of a value that is extended; without a sign, small negative ones are large numbers by intent."""
        bits = bits_of(kind)
        if kind[0] == "s":
            return twin
        if isinstance(source, Immediate):
            return Immediate(source.value & ((1 << bits) - 1))
        shifted = self._new("add.s64", twin, Immediate(1 << (bits - 1)))
        negative, own = self._twins.new("pred"), self._new(f"cvt.u64.u{bits}", source)
        self._emit("setp.lt.u64", negative, shifted, Immediate(1 << (bits - 1)))
        return self._new("selp.b64", own, twin, negative)

    def _new(self, opcode: str, *sources: Operand) -> Register:
        result = self._twins.new()
        self._emit(opcode, result, *sources)
        return result

    def _emit(self, opcode: str, *operands: Operand) -> None:
        self._parts.append(self._twins.make(self._instruction, opcode, *operands))


_OF_FLOATS = ("add", "sub", "mul", "fma", "div", "neg")


class _OfFloats:
    """What becomes of an instruction that makes a float32, or an integer of one."""

    def __init__(self, twins: _Twins, instruction: Instruction) -> None:
        self._twins, self._instruction = twins, instruction

    def twin(self, target: Register, sources: list[Operand]) -> _Parts | None:
        """A position's exact value; else what float64 gives, where a source is already another one in it."""
        instruction, make, new = self._instruction, self._twins.make, self._twins.new
        if instruction.opcode == "cvt" and not from_float(instruction):
            twin = self._twins.of(sources[0], self._twins.bits(sources[0]) or 32)
            found = None if twin is None else make(instruction, "cvt.rn.f64.s64", self._twins.twin_of(target), twin)
            return None if found is None else ([found], [])
        if not from_float(instruction) and instruction.opcode not in _OF_FLOATS:
            return None
        parts: list[Instruction] = []
        wide: list[Operand] = []
        same: Operand = Immediate(0)
        for source in sources:
            exact, own, part = new(), new(), new("pred")
            parts.append(make(instruction, "cvt.f64.f32", own, source))
            known = isinstance(source, Register) and source.name in self._twins.wanted
            parts.append(make(instruction, "mov.b64", exact, self._twins.twin_of(source) if known else own))
            parts.append(make(instruction, "setp.neu.f64", part, exact, own))
            flag = new("b32")
            parts.append(make(instruction, "selp.b32", flag, Immediate(1), same, part))
            wide, same = [*wide, exact], flag
        result, own, other = new(), new(), new("pred")
        parts.append(make(instruction, "setp.ne.s32", other, same, Immediate(0)))
        if from_float(instruction):
            kind = f"cvt.{instruction.modifiers[0]}.s64.f64"
            narrow = f"cvt.s64.{instruction.modifiers[-2]}" if self._twins.bits(target) == 32 else "mov.b64"
        else:
            rounding = "" if instruction.opcode == "neg" else ".rn"
            kind, narrow = f"{instruction.opcode}{rounding}.f64", "cvt.f64.f32"
        parts.append(make(instruction, kind, result, *wide))
        after = [make(instruction, narrow, own, target)]
        after.append(make(instruction, "selp.b64", self._twins.twin_of(target), result, own, other))
        return parts, after


def is_float(instruction: Instruction) -> bool:
    """Whether the result is a float32."""
    kinds = [m for m in instruction.modifiers if m in ("f32", "s32", "u32", "s64", "u64", "b32")]
    return bool(kinds) and kinds[0] == "f32" and instruction.opcode in (*_OF_FLOATS, "cvt", "rcp")


def from_float(instruction: Instruction) -> bool:
    """Whether the result is an integer that is made of a float32."""
    to, of = instruction.modifiers[-2:] if len(instruction.modifiers) >= 3 else ("", "")
    return instruction.opcode == "cvt" and of == "f32" and to in ("s32", "u32", "s64", "u64")


def float_registers(function: Function) -> frozenset[str]:
    """Registers that hold float32 on the way of a position: those that conversions and arithmetic of it touch."""
    found: set[str] = set()
    for statement in function.body:
        if not isinstance(statement, Instruction):
            continue
        if is_float(statement):
            found.update(writes(statement))
        if from_float(statement) or (is_float(statement) and statement.opcode != "cvt"):
            found.update(reads(statement))
    return frozenset(found)


def _in_addresses(function: Function, floats: frozenset[str]) -> set[str]:
    """Registers that addresses of positions are made of: integers, and these floats."""
    makers: dict[str, list[Instruction]] = {}
    waiting: list[str] = []
    for statement in function.body:
        if isinstance(statement, Instruction):
            waiting += reads(statement) if statement.opcode == POSITION else ()
            for name in writes(statement):
                makers.setdefault(name, []).append(statement)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found and bits_of(function.registers.get(name, "pred")) in (16, 32, 64):
            found.add(name)
            waiting += [
                source for maker in makers.get(name, ()) if _is_arithmetic(maker, floats) for source in reads(maker)
            ]
    return found


def _is_arithmetic(instruction: Instruction, floats: frozenset[str]) -> bool:
    if floats and (is_float(instruction) or from_float(instruction)):
        return True
    opcodes = {opcode for opcode, _ in _LINEAR} | {*_BITWISE, *_LIKE_64, "mov", "cvt", "cvta"}
    return instruction.opcode in opcodes and instruction.modifiers[-1:] != ("f32",)


def _half_mask(sources: list[Operand]) -> int | None:
    """Where a mask of 15 or 16 bits in a row begins; None for any other operand."""
    mask = next((source.value & 0xFFFF_FFFF for source in sources if isinstance(source, Immediate)), 0)
    low = (mask & -mask).bit_length() - 1
    return low if mask >> max(low, 0) in (0x7FFF, 0xFFFF) and mask.bit_length() < 32 else None


def _is_inverse(operand: Operand) -> bool:
    """Whether a factor is the inverse of a small odd divisor modulo 2^32."""
    if not isinstance(operand, Immediate) or operand.value % 2 == 0:
        return False
    value = operand.value & 0xFFFF_FFFF
    inverse = pow(value, -1, 1 << 32)
    size = min(value, (1 << 32) - value)
    return size > _MOST_DIVISOR and min(inverse, (1 << 32) - inverse) < _MOST_DIVISOR
