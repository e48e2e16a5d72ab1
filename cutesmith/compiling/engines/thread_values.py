"""What each thread of a block holds in the registers of a kernel, as far as its PTX and its launch tell.

A register that one instruction writes has one value for good, so that its definition is followed: literals, shared
addresses, thread numbers and parameters are known for each thread; what is not known is an *atom*, named after the
register, and a value is what is known plus multiples of atoms: `1064 + 8 * %r12`. Nothing is guessed: a register with
several definitions is an atom.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cutesmith.emulator.instructions.roles import registers_in, writes
from cutesmith.emulator.program.abi import SHARED_RANK_SHIFT, WARP, Array
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand, Register, SpecialRegister, Symbol, Vector
from cutesmith.recording.host_calls import Triple
from cutesmith.recording.sessions import Launch

REMOTE = "another block of the cluster"
"""The atom of an address that `mapa` gives: the same place in some block of the cluster."""
_PEER = 0xFEFF_FFFF
"""The mask that turns a shared address into that of the first block of a pair."""
_OF_A_BLOCK = 1 << SHARED_RANK_SHIFT
"""Bits of a shared address below this one say where in a block it is, those above in which block."""


@dataclass(frozen=True, eq=False)
class Value:
    """`known`, int64 (threads,), plus `terms`: (atom, factor), sorted."""

    known: Array
    terms: tuple[tuple[str, int], ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing of it is unknown."""
        return not self.terms

    @property
    def one(self) -> int | None:
        """The known part where all threads share it."""
        return int(self.known[0]) if (self.known == self.known[0]).all() else None

    def among(self, threads: Array) -> Value:
        """The value with what these threads hold alone, bool (threads,)."""
        if not threads.any():
            return self
        return Value(np.where(threads, self.known, self.known[threads.argmax()]), self.terms)

    @property
    def local_terms(self) -> tuple[tuple[str, int], ...]:
        """The terms but for which block of the cluster it lies in."""
        return tuple(term for term in self.terms if term[0] != REMOTE)

    @property
    def multiple(self) -> int:
        """Whatever the atoms are, they add a multiple of that many; 0 without atoms."""
        return int(np.gcd.reduce([abs(factor) for _, factor in self.local_terms] or [0]))

    @property
    def settled(self) -> int:
        """A power of two: the bits below it are those of the known part, whatever the atoms are."""
        if not self.local_terms:
            return _OF_A_BLOCK if self.terms else 1 << 62
        return min(self.multiple & -self.multiple, _OF_A_BLOCK)


@dataclass(frozen=True, eq=False)
class Words:
    """A value of 64 bits by its halves."""

    low: Value
    high: Value


@dataclass(frozen=True, eq=False)
class Truth:
    """A predicate: for which threads it surely holds and surely does not, bool (threads,)."""

    yes: Array
    no: Array


Held: TypeAlias = Value | Words | Truth

_EXACT: dict[str, Callable[[Array, Array], Array]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shr": operator.rshift, "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip
_COMPARED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


class ThreadValues:
    """The values of one kernel as it was launched, computed when they are asked for.

    Those of any block, or of the one whose place in the grid is given.
    """

    def __init__(self, program: Program, launch: Launch, block: Triple | None = None) -> None:
        self._program, self._launch = program, launch
        x, y, z = launch.block
        self.threads = x * y * z
        number = np.arange(self.threads)
        zero = np.zeros(self.threads, np.int64)
        self._special = {
            "%tid.x": number % x, "%tid.y": number // x % y, "%tid.z": number // (x * y), "%laneid": number % WARP,
            "%ntid.x": zero + x, "%ntid.y": zero + y, "%ntid.z": zero + z,
        }  # fmt: skip
        for axis, blocks, cluster in zip("xyz", launch.grid, launch.cluster, strict=True):
            self._special |= {f"%nctaid.{axis}": zero + blocks, f"%cluster_nctaid.{axis}": zero + cluster}
        for axis, place, cluster in zip("xyz", block or (), launch.cluster):
            self._special |= {f"%ctaid.{axis}": zero + place, f"%cluster_ctaid.{axis}": zero + place % cluster}
        if launch.cluster == (1, 1, 1):
            self._special["%cluster_ctarank"] = zero
        self._definitions: dict[str, list[Instruction]] = {}
        for instruction in program.instructions:
            for name in writes(instruction):
                self._definitions.setdefault(name, []).append(instruction)
        self._held: dict[str, Held] = {}

    def constant(self, value: int) -> Value:
        """The same for all threads."""
        return Value(np.full(self.threads, _wrapped(value, 64), np.int64))

    def number(self, operand: Operand) -> Value:
        """A number in an operand; one that is not known is an atom."""
        held = self.held(operand)
        if isinstance(held, Words):
            return held.low if held.high.whole and held.high.one == 0 else self._atom(str(operand))
        return held if isinstance(held, Value) else self._atom(str(operand))

    def truth(self, name: str) -> Truth:
        """A predicate by the name of its register."""
        held = self.held(Register(name))
        nowhere = np.zeros(self.threads, bool)
        return held if isinstance(held, Truth) else Truth(nowhere, nowhere)

    def held(self, operand: Operand) -> Held:
        """What an operand is for each thread."""
        if isinstance(operand, Immediate):
            return self.constant(operand.value)
        if isinstance(operand, Symbol):
            address = self._program.shared_symbols.get(operand.name)
            if address is not None:
                return self.constant(address + operand.offset)
            return Value(self.constant(operand.offset).known, ((operand.name, 1),))
        if isinstance(operand, SpecialRegister):
            known = self._special.get(operand.name)
            return self._atom(operand.name) if known is None else Value(known.astype(np.int64))
        if not isinstance(operand, Register):
            return self._atom(str(operand))
        if operand.name not in self._held:
            self._held[operand.name] = self._atom(operand.name)  # of itself, while its definition is followed
            self._held[operand.name] = self._defined(operand.name)
        held = self._held[operand.name]
        return Truth(held.no, held.yes) if operand.negated and isinstance(held, Truth) else held

    def _atom(self, name: str) -> Value:
        return Value(np.zeros(self.threads, np.int64), ((name, 1),))

    def _defined(self, name: str) -> Held:
        definitions = self._definitions.get(name, [])
        if len(definitions) != 1 or definitions[0].guard is not None:
            return self._atom(name)
        return self._result(name, definitions[0]) or self._atom(name)

    def _result(self, name: str, instruction: Instruction) -> Held | None:
        """What an instruction leaves in that register; None where that is not known."""
        opcode, words, sources = instruction.opcode, instruction.modifiers, instruction.operands[1:]
        bits = next((int(word[1:]) for word in reversed(words) if word[1:].isdigit() and word[0] in "bus"), 64)
        signed = any(word[:1] == "s" and word[1:].isdigit() for word in words)
        if opcode == "elect":
            return self._elected(name, instruction)
        if opcode == "mov":
            return self._moved(name, instruction)
        if opcode == "ld":
            return self._parameter(name, instruction, bits // 8, signed) if words[:1] == ("param",) else None
        if opcode in ("cvta", "cvt"):
            number = self.number(sources[0])
            to_small = opcode == "cvt" and number.whole
            return Value(_narrow(number.known, _target_bits(words), words[0][0] == "s")) if to_small else number
        if opcode in ("setp", "not", "and", "or", "xor") and (opcode == "setp" or "pred" in words):
            return self._predicate(opcode, words, sources)
        if opcode == "selp":
            return self._selected(sources)
        if opcode == "shfl":
            return self._shuffled(words, sources)
        if opcode == "mapa":
            number = self.number(sources[0])
            return Value(number.known, _sum(number.terms, ((REMOTE, 1),)))
        return self._computed(instruction, [self.number(source) for source in sources], bits, signed)

    def _elected(self, name: str, instruction: Instruction) -> Held | None:
        """One lane of each warp is elected: the first, where the mask has it."""
        first = np.arange(self.threads) % WARP == 0
        *_, predicate = registers_in(instruction.operands[0])
        return Truth(first, ~first) if name == predicate else None

    def _moved(self, name: str, instruction: Instruction) -> Held | None:
        target, source = instruction.operands
        if isinstance(source, Vector):
            halves = [self.number(element) for element in source.elements]
            return Words(*halves) if len(halves) == 2 and "b64" in instruction.modifiers else None
        held = self.held(source)
        if not isinstance(target, Vector):
            return held
        if "b64" not in instruction.modifiers or len(target.elements) != 2:
            return None
        if isinstance(held, Value):
            if held.terms and not (held.known >> 32).all():
                return None  # an atom of 64 bits, as far as is known
            held = Words(Value(_narrow(held.known, 32, False), held.terms), Value(_narrow(held.known >> 32, 32, False)))
        which = [name in registers_in(element) for element in target.elements].index(True)
        return (held.low, held.high)[which] if isinstance(held, Words) else None

    def _parameter(self, name: str, instruction: Instruction, size: int, signed: bool) -> Held | None:
        """`ld.param` of numbers, from the bytes of the launch."""
        target, operand = instruction.operands
        base, offset = getattr(operand, "base", None), getattr(operand, "offset", 0)
        if not isinstance(base, Symbol):
            return None
        if isinstance(target, Vector):
            offset += size * [name in registers_in(element) for element in target.elements].index(True)
        data = parameter_bytes(self._program, self._launch, base.name, base.offset + offset, size)
        return None if data is None else self.constant(int.from_bytes(data, "little", signed=signed))

    def _predicate(self, opcode: str, words: tuple[str, ...], sources: tuple[Operand, ...]) -> Held | None:
        if opcode == "setp":
            return self._compared(words, sources)
        truths = [self._truth_of(source) for source in sources]
        if opcode == "not":
            return Truth(truths[0].no, truths[0].yes)
        a, b = truths
        if opcode == "and":
            return Truth(a.yes & b.yes, a.no | b.no)
        if opcode == "or":
            return Truth(a.yes | b.yes, a.no & b.no)
        return Truth(a.yes & b.no | a.no & b.yes, a.yes & b.yes | a.no & b.no)

    def _compared(self, words: tuple[str, ...], sources: tuple[Operand, ...]) -> Truth | None:
        """`setp` of integers whose unknown parts are the same."""
        a, b = self.number(sources[0]), self.number(sources[1])
        if words[0] not in _COMPARED or a.terms != b.terms or len(sources) > 2 or words[-1][:1] not in "bus":
            return None
        bits, signed = int(words[-1][1:]), words[-1][0] == "s"
        left, right = (number.known if number.terms else _narrow(number.known, bits, signed) for number in (a, b))
        holds = _COMPARED[words[0]](left, right)
        return Truth(holds, ~holds)

    def _truth_of(self, operand: Operand) -> Truth:
        held = self.held(operand)
        if isinstance(held, Value) and held.whole:
            return Truth(held.known != 0, held.known == 0)
        nowhere = np.zeros(self.threads, bool)
        return held if isinstance(held, Truth) else Truth(nowhere, nowhere)

    def _selected(self, sources: tuple[Operand, ...]) -> Held | None:
        a, b, condition = self.number(sources[0]), self.number(sources[1]), self._truth_of(sources[2])
        if a.terms != b.terms or not ((condition.yes | condition.no) | (a.known == b.known)).all():
            return None
        return Value(np.where(condition.yes, a.known, b.known), a.terms)

    def _shuffled(self, words: tuple[str, ...], sources: tuple[Operand, ...]) -> Held | None:
        """A value that the whole warp shares, or the one of a known lane."""
        number, lane = self.number(sources[0]), self.number(sources[1])
        starts = np.arange(self.threads) // WARP * WARP
        if "idx" not in words or not lane.whole or lane.one is None:
            return None
        return Value(number.known[np.minimum(starts + lane.one % WARP, self.threads - 1)], number.terms)

    def _computed(self, instruction: Instruction, numbers: list[Value], bits: int, signed: bool) -> Value | None:
        opcode, words = instruction.opcode, instruction.modifiers
        wide = "wide" in words
        if opcode in ("add", "sub") and "cc" not in words:
            a, b = numbers[:2]
            return self._fitted(_plus(a, b, -1 if opcode == "sub" else 1), bits, signed)
        if opcode in ("mul", "mad") and "hi" not in words:
            product = _times(numbers[0], numbers[1])
            if product is None or len(numbers) < (3 if opcode == "mad" else 2):
                return None
            total = _plus(product, numbers[2], 1) if opcode == "mad" else product
            return self._fitted(total, 2 * bits if wide else bits, signed)
        if opcode == "mul" and "hi" in words and bits == 32 and all(number.whole for number in numbers):
            return Value(_high_half(numbers[0].known, numbers[1].known, signed))
        if opcode == "shl" and numbers[1].whole and (by := numbers[1].one) is not None and by < 64:
            shifted = _times(numbers[0], self.constant(1 << by))
            return None if shifted is None else self._fitted(shifted, bits, signed)
        if opcode == "and" and numbers[1].whole and numbers[1].one in (_PEER, _PEER - (1 << 32)):
            return Value(numbers[0].known, _sum(numbers[0].local_terms, ((REMOTE, 1),)))
        if opcode in ("and", "or", "xor") and any(number.terms for number in numbers):
            return self._of_low_bits(instruction, numbers)
        if opcode in ("div", "rem", *_EXACT) and all(number.whole for number in numbers):
            return self._of_known(opcode, numbers[0].known, numbers[1].known, bits, signed)
        return None

    def _of_low_bits(self, instruction: Instruction, numbers: list[Value]) -> Value | None:
        """`and`, `or` and `xor` with bits that no atom of the value reaches; also of what `shr` made of it."""
        (value, operand), (bits, _) = sorted(zip(numbers, instruction.operands[1:]), key=lambda each: each[0].whole)
        opcode, reached = instruction.opcode, bits.whole and bool((bits.known >= 0).all())
        if opcode != "and":
            settled = reached and bool((bits.known < value.settled).all())
            return Value(_EXACT[opcode](value.known, bits.known), value.terms) if settled else None
        shifted, by = self._before_shift(operand, value)
        if reached and ((bits.known << by) < shifted.settled).all():
            return Value(shifted.known >> by & bits.known)
        kept = _narrow(bits.known, 32, True) if "b32" in instruction.modifiers else bits.known
        clears = bits.whole and bool((kept < 0).all() and (~kept < value.settled).all())
        return Value(value.known & kept, value.terms) if clears else None

    def _before_shift(self, operand: Operand, value: Value) -> tuple[Value, int]:
        """What a register was before `shr` made it by a known number of bits, and that number; else `value` and 0."""
        definitions = self._definitions.get(operand.name, []) if isinstance(operand, Register) else []
        if len(definitions) != 1 or definitions[0].opcode != "shr" or definitions[0].guard is not None:
            return value, 0
        source, by = (self.number(each) for each in definitions[0].operands[1:])
        return (source, by.one) if by.whole and by.one is not None and 0 <= by.one < 32 else (value, 0)

    def _of_known(self, opcode: str, a: Array, b: Array, bits: int, signed: bool) -> Value | None:
        """What needs both numbers whole."""
        if opcode in ("div", "rem"):
            if (a < 0).any() or (b <= 0).any():
                return None  # PTX rounds towards zero
            return Value(a // b if opcode == "div" else a % b)
        if opcode == "shr":
            a, b = _narrow(a, bits, signed), np.minimum(b, 63)
        return Value(_narrow(_EXACT[opcode](a, b), bits, signed))

    def _fitted(self, value: Value, bits: int, signed: bool) -> Value:
        return Value(_narrow(value.known, bits, signed or bool(value.terms)), value.terms)


def parameter_bytes(program: Program, launch: Launch, name: str, offset: int, count: int) -> bytes | None:
    """Bytes of a parameter by its name in PTX, as they were launched; None where it has none there."""
    names = [parameter.name for parameter in program.function.parameters]
    if name not in names or len(launch.parameters) != len(names):
        return None
    data = launch.parameters[names.index(name)][offset : offset + count]
    return data if len(data) == count else None


def _plus(a: Value, b: Value, sign: int) -> Value:
    return Value(a.known + sign * b.known, _sum(a.terms, tuple((atom, sign * factor) for atom, factor in b.terms)))


def _times(a: Value, b: Value) -> Value | None:
    if not a.whole:
        a, b = b, a
    if not a.whole or (b.terms and a.one is None):
        return None
    return Value(a.known * b.known, tuple((atom, factor * int(a.known[0])) for atom, factor in b.terms if a.known[0]))


def _sum(a: tuple[tuple[str, int], ...], b: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    factors = dict(a)
    for atom, factor in b:
        factors[atom] = factors.get(atom, 0) + factor
    return tuple(sorted((atom, factor) for atom, factor in factors.items() if factor))


def _target_bits(words: tuple[str, ...]) -> int:
    kinds = [word for word in words if word[:1] in ("u", "s", "b") and word[1:].isdigit()]
    return int(kinds[0][1:]) if kinds else 64


def _narrow(values: Array, bits: int, signed: bool) -> Array:
    if bits >= 64:
        return values
    kept: Array = values & ((1 << bits) - 1)
    return np.where(kept >> (bits - 1) & 1, kept - (1 << bits), kept) if signed else kept


def _high_half(a: Array, b: Array, signed: bool) -> Array:
    """The upper 32 bits of products of 32 bits."""
    kind = np.int64 if signed else np.uint64
    product = _narrow(a, 32, signed).astype(kind) * _narrow(b, 32, signed).astype(kind)
    return (product >> kind(32)).astype(np.int64)


def _wrapped(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
