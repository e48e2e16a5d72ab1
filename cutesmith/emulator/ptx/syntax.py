"""What a PTX module consists of, as the parser hands it on: frozen, and nothing resolved yet but names and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
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
