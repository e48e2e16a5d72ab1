"""What a PTX module consists of, as the parser hands it on: frozen, and nothing resolved yet but names and numbers.

Walks over operands and sizes of types are here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import TypeAlias


@dataclass(frozen=True)
class Location:
    """Where an instruction comes from: Python file and 1-based line, outermost caller last (`.loc … inlined_at`)."""

    file: str
    line: int
    column: int = 0
    inlined_at: Location | None = None


@dataclass(frozen=True)
class Register:
    """A virtual register such as `%r12`, or `%p3` used as `!%p3`."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class SpecialRegister:
    """A read-only register such as `%tid.x`, `%laneid` or `%clock64`; the name keeps its percent sign."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal; a float literal (`0f3F800000`, `0d…`) holds its bit pattern and the width it was written with."""

    value: int
    float_bits: int = 0  # 0 for an integer, else 32 or 64


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, a parameter or a function."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; offset in bytes. TMA coordinates (`[base, {c0, c1}]`) are in `coordinates`."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """`{a, b, …}`: the parts of a vector or packed operand, lowest first."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`a|b`: two destinations, such as the value and the predicate of `shfl.sync`."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Sink:
    """`_`: a destination that is thrown away."""


@dataclass(frozen=True)
class LabelReference:
    """A branch target, or the name of a `.branchtargets` list."""

    name: str


Operand: TypeAlias = Register | SpecialRegister | Immediate | Symbol | Address | Vector | Pair | Sink | LabelReference


@dataclass(frozen=True)
class Guard:
    """`@%p` or `@!%p`."""

    register: str
    negated: bool = False


@dataclass(frozen=True)
class Instruction:
    """One instruction: `ld.global.v4.b32 {…}, [%rd1+16];` has opcode "ld" and modifiers ("global", "v4", "b32").

    `full_opcode` is the dotted whole as written; `number` its index in the function's body (instructions only).
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    location: Location | None = None
    ptx_line: int = 0
    number: int = -1

    @property
    def full_opcode(self) -> str:
        """Such as "ld.global.v4.b32"."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Label:
    """A branch target in a body."""

    name: str


@dataclass(frozen=True)
class Variable:
    """A variable in a state space ("global", "const", "shared", "local", "param"); sizes in bytes.

    `initial` holds the bytes of an initialiser, None without one; `size` 0 is `.extern .shared x[]` (dynamic).
    """

    name: str
    space: str
    type: str
    size: int
    align: int
    initial: bytes | None = None
    external: bool = False


@dataclass(frozen=True)
class Function:
    """An `.entry` or `.func`: parameters in order, declared registers by name with their type, the body.

    `directives` holds reqntid, maxntid, minnctapersm, maxnreg, reqnctapercluster, explicitcluster, … as integer tuples;
    `branch_targets` the lists of `brx.idx` by name. An external function has no body.
    """

    name: str
    kind: str
    parameters: tuple[Variable, ...]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    body: tuple[Instruction | Label, ...]
    returns: tuple[Variable, ...] = ()
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """A PTX module: version, target such as "sm_90a", module variables, functions by name."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    functions: dict[str, Function]

    @property
    def sm(self) -> int:
        """The SM number of the target: 90 for "sm_90a"."""
        return int("".join(c for c in self.target.removeprefix("sm_") if c.isdigit()))


def parts(operand: Operand) -> Iterator[Operand]:
    """Registers, symbols, literals, … in an operand, from left to right; the base of an address is one of them."""
    if isinstance(operand, Address):
        yield operand.base
        for coordinate in operand.coordinates:
            yield from parts(coordinate)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from parts(element)
    elif isinstance(operand, Pair):
        yield from parts(operand.first)
        yield from parts(operand.second)
    else:
        yield operand


def mapped(operand: Operand, change: Callable[[Operand], Operand]) -> Operand:
    """The operand with `change` applied to each of its parts."""
    if isinstance(operand, Address):
        coordinates = tuple(mapped(coordinate, change) for coordinate in operand.coordinates)
        base = change(operand.base)
        assert isinstance(base, (Register, Symbol, Immediate))
        return replace(operand, base=base, coordinates=coordinates)
    if isinstance(operand, Vector):
        return Vector(tuple(mapped(element, change) for element in operand.elements))
    if isinstance(operand, Pair):
        return Pair(mapped(operand.first, change), mapped(operand.second, change))
    return change(operand)


def with_body(function: Function, body: Iterable[Instruction | Label]) -> Function:
    """The function with another body, its instructions numbered again."""
    numbers = count()
    statements = (replace(s, number=next(numbers)) if isinstance(s, Instruction) else s for s in body)
    return replace(function, body=tuple(statements))


_NUMBERED = re.compile(r"(?:b|u|s|f|bf)(\d+)(?:x(\d))?")
_BITS = {"pred": 1, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "tf32": 32}


@cache
def bits_of(type_name: str) -> int:
    """Bits of a value of that type: 32 for "b32" and "f16x2", 1 for "pred"; 0 for any other word."""
    if type_name in _BITS:
        return _BITS[type_name]
    match = _NUMBERED.fullmatch(type_name)
    return int(match[1]) * int(match[2] or 1) if match else 0


@cache
def bytes_of(type_name: str) -> int:
    """Bytes of a variable of that type in memory; 0 for what has no place there, such as "pred"."""
    return bits_of(type_name) // 8
