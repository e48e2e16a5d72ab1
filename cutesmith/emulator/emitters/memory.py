"""Loads and stores of one lane: every space, type and vector width, through the checked `access`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cutesmith.emulator.emitters.moves import SPACES
from cutesmith.emulator.instructions.forms import type_bits
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.program.abi import Access, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Symbol

VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_ORDERS = {"weak", "relaxed", "acquire", "release", "volatile", "mmio"}
_KNOWN = {*SPACES, *VECTORS, *_ORDERS, *"ca cg cs lu cv wb wt nc cta cluster gpu sys".split()}
_EVICTIONS = ("L1::evict_", "L1::no_allocate", "L2::evict_", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B")


class Form(NamedTuple):
    """What a load or store moves: space, element type, elements; `ordered`: it may not be moved or merged."""

    space: Space
    type: str
    elements: int
    ordered: bool


@native("ld", "ldu")
def load(emitter: Emitter, instruction: Instruction) -> None:
    """`ld` and `ldu`: a register wider than the type is zero-extended, or sign-extended for signed types."""
    form = read_form(emitter, instruction)
    destination, address, *_policy = instruction.operands
    bits = type_bits(instruction, form.type)
    pointer = _pointer(emitter, form, address, bits // 8 * form.elements, Access.READ)
    registers = emitter.elements(destination, form.elements)
    qualifier = "load volatile" if form.ordered else "load"
    values = [
        emitter.op(f"{qualifier} i{bits}, ptr {{}}, align 1", emitter.at(pointer, index * bits // 8))
        for index in range(form.elements)
    ]
    for register, value in zip(registers, values):
        emitter.assign(register, value, bits, signed=form.type.startswith("s"))


@native("st")
def store(emitter: Emitter, instruction: Instruction) -> None:
    """`st`: a register wider than the type is truncated."""
    form = read_form(emitter, instruction)
    address, source, *_policy = instruction.operands
    bits = type_bits(instruction, form.type)
    values = [emitter.value(part, bits) for part in emitter.elements(source, form.elements)]
    pointer = _pointer(emitter, form, address, bits // 8 * form.elements, Access.WRITE)
    qualifier = "store volatile" if form.ordered else "store"
    for index, value in enumerate(values):
        emitter.emit(f"{qualifier} i{bits} {value}, ptr {emitter.at(pointer, index * bits // 8)}, align 1")


def read_form(emitter: Emitter, instruction: Instruction) -> Form:
    """Space, type and vector width of a load or store; a modifier that is not known is refused."""
    *modifiers, kind = instruction.modifiers
    for word in modifiers:
        if word not in _KNOWN and not word.startswith(_EVICTIONS):
            raise emitter.unsupported(f".{word}")
    space, elements = space_and_elements(emitter, modifiers)
    return Form(space, kind, elements, ordered=not _ORDERS.isdisjoint(set(modifiers) - {"weak"}))


def space_and_elements(emitter: Emitter, words: Iterable[str]) -> tuple[Space, int]:
    """The state space (generic where none is named) and vector width in modifiers; two of either are refused."""
    spaces = [SPACES[word] for word in words if word in SPACES] or [Space.GENERIC]
    elements = [VECTORS[word] for word in words if word in VECTORS] or [1]
    if len(spaces) > 1 or len(elements) > 1:
        raise emitter.unsupported("two spaces or two vector widths")
    return spaces[0], elements[0]


def _pointer(emitter: Emitter, form: Form, operand: Operand, size: int, kind: Access) -> str:
    """Host pointer of the access; parameters named by symbol are read straight from the launch's buffer."""
    if not isinstance(operand, Address):
        raise emitter.unsupported("the address is not in brackets")
    if operand.coordinates:
        raise emitter.unsupported("tensor coordinates")
    if form.space is Space.PARAM and kind is Access.READ and isinstance(operand.base, Symbol):
        program = emitter.program
        if operand.base.name not in program.parameters:
            raise emitter.unsupported(f"{operand.base.name} is not a parameter of the kernel")
        start = program.parameters[operand.base.name] + (operand.base.offset + operand.offset)
        if start < 0 or start + size > program.parameter_bytes:
            raise emitter.unsupported(f"it reads outside the kernel's {program.parameter_bytes} bytes of parameters")
        return emitter.at("%parameters", start)
    space = Space.GENERIC if form.space is Space.PARAM else form.space  # a parameter's address is a generic one
    return emitter.access(space, emitter.address(operand), size, kind)
