"""Every integer that an address is made of, computed a second time with 64 bits beside it.

The twin of a register is what it would hold if no integer were narrower than 64 bits. Sums, products and shifts to the
left have twins that agree with them modulo 2^32, whatever a compiler made of the expression; anything but arithmetic of
positions (loads, shuffles, unsigned division, packed halves) has itself as twin.

Indices of 16 bits are written as masks, shifts and conversions that an honest kernel may mean as such (packed
coordinates). They have themselves as twin too, unless `through_16_bits` asks what there would be without them.
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


def widened(function: Function, *, through_16_bits: bool = False) -> Widened:
    """A function of `elision.reduced`, its positions now with the address that wide integers give as second operand."""
    return _Twins(function, through_16_bits).widened()


@dataclass
class _Twins:
    function: Function
    through: bool
    added: dict[str, str] = field(default_factory=dict)
    narrow: list[Instruction] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)

    def widened(self) -> Widened:
        self.wanted = _in_addresses(self.function)
        body = [part for statement in self.function.body for part in self._statement(statement)]
        registers = {**self.function.registers, **self.added}
        return Widened(with_body(replace(self.function, registers=registers), body), tuple(self.narrow))

    def _statement(self, statement: Instruction | Label) -> Iterator[Instruction | Label]:
        if isinstance(statement, Label):
            yield statement
        elif statement.opcode == POSITION:
            address = statement.operands[0]
            assert isinstance(address, Address)
            yield replace(statement, operands=(address, replace(address, base=self._twin(address.base))))
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
        target = self._twin(Register(name))
        return self.make(instruction, "mov.b64" if bits == 64 else f"cvt.s64.s{bits}", target, Register(name))

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

    def _twin(self, operand: Operand) -> Register:
        assert isinstance(operand, Register)
        self.added[operand.name + _TWIN] = "b64"
        return Register(operand.name + _TWIN)

    def of(self, operand: Operand, bits: int) -> Operand | None:
        """The twin of a source of that width; of a literal its signed value, of what has none, None."""
        if isinstance(operand, Immediate) and not operand.float_bits:
            value = operand.value & ((1 << bits) - 1)
            return Immediate(value - (1 << bits) if value >> (bits - 1) else value)
        if isinstance(operand, Register) and operand.name in self.wanted:
            return self._twin(operand)
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
        self._emit(opcode, self._twins._twin(target), *[t for t in twins if t is not None], *kept)
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
        after.append(make(instruction, "selp.b64", self._twins._twin(target), result, own, fits))
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
        self._emit("mov.b64", self._twins._twin(target), value)
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
        self._emit(opcode, self._twins._twin(target), *factors, *[twin for twin in addend if twin is not None])
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


def _in_addresses(function: Function) -> set[str]:
    """Integer registers that addresses of positions are made of."""
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
            waiting += [source for maker in makers.get(name, ()) if _is_arithmetic(maker) for source in reads(maker)]
    return found


def _is_arithmetic(instruction: Instruction) -> bool:
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
