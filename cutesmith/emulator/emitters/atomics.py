"""`atom` and `red`: one lane after another updates memory, so each of them is atomic by itself.

f32 sums in global memory flush subnormal inputs and results, in shared memory they do not; halves never do (PTX ISA,
"atom"). A generic address is taken for a global one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cutesmith.emulator.emitters.floats import compute, extremum
from cutesmith.emulator.emitters.formats import F64, FORMATS, Format, flush, is_nan, round_float, widen
from cutesmith.emulator.emitters.memory import VECTORS, space_and_elements
from cutesmith.emulator.emitters.moves import SPACES
from cutesmith.emulator.instructions.forms import type_bits
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.program.abi import Access, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Sink

_INTEGERS = frozenset(("u32", "s32", "u64", "s64"))
_HALVES = frozenset(("f16", "f16x2", "bf16", "bf16x2"))
_TYPES: dict[str, frozenset[str]] = {
    "add": _INTEGERS | _HALVES | {"f32", "f64"},
    "min": _INTEGERS | _HALVES,
    "max": _INTEGERS | _HALVES,
    "inc": frozenset(("u32",)),
    "dec": frozenset(("u32",)),
    **{bitwise: frozenset(("b32", "b64")) for bitwise in ("and", "or", "xor")},
    "exch": _INTEGERS | {"b32", "b64", "b128", "f32", "f64"},
    "cas": _INTEGERS | {"b16", "b32", "b64", "b128", "f32", "f64"},
}
_ORDERS = frozenset("relaxed acquire release acq_rel cta cluster gpu sys L2::cache_hint noftz".split())


class Form(NamedTuple):
    """What an atomic does: `operation` of `_TYPES` on `elements` values of `type` in `space`."""

    space: Space
    operation: str
    type: str
    elements: int


@native("atom", "red")
def atomic(emitter: Emitter, instruction: Instruction) -> None:
    """Read, combine, write; `atom` gives what was there."""
    form = read_form(emitter, instruction)
    destination, address, *sources = (
        instruction.operands if instruction.opcode == "atom" else (Sink(), *instruction.operands)
    )
    if not isinstance(address, Address) or address.coordinates:
        raise emitter.unsupported("the address is not a plain one in brackets")
    bits = type_bits(instruction, form.type)
    columns = [emitter.elements(source, form.elements) for source in sources[: 2 if form.operation == "cas" else 1]]
    values = [[emitter.value(part, bits) for part in parts] for parts in zip(*columns, strict=True)]
    pointer = emitter.access(form.space, emitter.address(address), bits // 8 * form.elements, Access.ATOMIC)
    places = [emitter.at(pointer, bits // 8 * element) for element in range(form.elements)]
    old = [emitter.op(f"load i{bits}, ptr {{}}, align 1", place) for place in places]
    for place, before, given in zip(places, old, values, strict=True):
        emitter.emit(f"store i{bits} {_combined(emitter, form, bits, before, given)}, ptr {place}, align 1")
    if not isinstance(destination, Sink):
        for register, before in zip(emitter.elements(destination, form.elements), old, strict=True):
            emitter.assign(register, before, bits, signed=form.type.startswith("s"))


def read_form(emitter: Emitter, instruction: Instruction) -> Form:
    """The parts of an atomic's name; raises UnsupportedInstruction for what is not executed."""
    *words, kind = instruction.modifiers
    operations = [word for word in words if word in _TYPES]
    if strange := set(words) - {*operations, *SPACES, *VECTORS} - _ORDERS:
        raise emitter.unsupported(f".{sorted(strange)[0]}")
    if len(operations) != 1 or kind not in _TYPES[operations[0]]:
        raise emitter.unsupported(f"{'.'.join(operations)} of .{kind}")
    space, elements = space_and_elements(emitter, words)
    return Form(space, operations[0], kind, elements)


def _combined(emitter: Emitter, form: Form, bits: int, old: str, given: list[str]) -> str:
    """The new value of `bits` bits."""
    if form.operation == "exch":
        return given[0]
    if form.operation == "cas":
        same = emitter.op(f"icmp eq i{bits} {{}}, {{}}", old, given[0])
        return emitter.select(same, f"i{bits}", given[1], old)
    name = form.type.removesuffix("x2")
    if name in FORMATS:
        part = FORMATS[name]
        pairs = zip(*(emitter.unpack(value, bits, part.bits) for value in (old, given[0])), strict=True)
        return emitter.pack([_combined_floats(emitter, form, part, list(pair)) for pair in pairs], bits)
    return _INTEGER_OPERATIONS[form.operation](emitter, form.type, bits, old, given[0])


def _combined_floats(emitter: Emitter, form: Form, part: Format, values: list[str]) -> str:
    if form.operation != "add":
        return extremum(emitter, form.operation, part, values)
    if part.bits == 16:
        total = emitter.op("fadd float {}, {}", *(widen(emitter, value, part) for value in values))
        return round_float(emitter, total, part)
    if part is F64:
        return _summed_doubles(emitter, form, *values)
    if form.space is Space.SHARED:
        return compute(emitter, "add", part, "rn", values)
    return flush(emitter, compute(emitter, "add", part, "rn", [flush(emitter, value, part) for value in values]), part)


def _summed_doubles(emitter: Emitter, form: Form, old: str, given: str) -> str:
    """A NaN is that of memory, else the operand's; in global memory it keeps its bits, in shared memory it is quiet."""
    total = compute(emitter, "add", F64, "rn", [given, old])
    if form.space is Space.SHARED:
        return total
    for value in (given, old):
        total = emitter.select(is_nan(emitter, value, F64), "i64", value, total)
    return total


def _plain(instruction: str) -> Callable[[Emitter, str, int, str, str], str]:
    return lambda emitter, kind, bits, old, given: emitter.op(f"{instruction} i{bits} {{}}, {{}}", old, given)


def _extreme(name: str) -> Callable[[Emitter, str, int, str, str], str]:
    def choose(emitter: Emitter, kind: str, bits: int, old: str, given: str) -> str:
        intrinsic = f"llvm.{kind[0]}{name}.i{bits}"
        return emitter.intrinsic(intrinsic, f"i{bits}", f"i{bits} {old}", f"i{bits} {given}")

    return choose


def _increment(emitter: Emitter, kind: str, bits: int, old: str, limit: str) -> str:
    """Up by one, from the limit to 0."""
    following = emitter.op("add i32 {}, 1", old)
    return emitter.select(emitter.op("icmp uge i32 {}, {}", old, limit), "i32", "0", following)


def _decrement(emitter: Emitter, kind: str, bits: int, old: str, limit: str) -> str:
    """Down by one; from 0, or from above the limit, to the limit."""
    zero, above = emitter.op("icmp eq i32 {}, 0", old), emitter.op("icmp ugt i32 {}, {}", old, limit)
    wraps = emitter.op("or i1 {}, {}", zero, above)
    return emitter.select(wraps, "i32", limit, emitter.op("sub i32 {}, 1", old))


_INTEGER_OPERATIONS = {
    **{name: _plain(name) for name in ("add", "and", "or", "xor")},
    "min": _extreme("min"),
    "max": _extreme("max"),
    "inc": _increment,
    "dec": _decrement,
}
