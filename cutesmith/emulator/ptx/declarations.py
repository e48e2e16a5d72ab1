"""Declarations of variables, parameters and registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.emulator.ptx.constants import constant
from cutesmith.emulator.ptx.syntax import Variable, bits_of, bytes_of
from cutesmith.emulator.ptx.tokens import Tokens

SPACES = ("global", "const", "shared", "local", "param")
LINKAGE = (".extern", ".visible", ".weak", ".common")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_MAX_ALIGN = 4096
_WIDEST_VECTOR = 128  # bits


@dataclass(frozen=True)
class _Shape:
    """What stands before the names of a declaration: element type, elements of a vector, alignment in bytes."""

    type: str
    elements: int
    align: int


def registers(tokens: Tokens) -> Iterator[tuple[str, str, int]]:
    """(name, type, elements) of every register of a `.reg` declaration, from what follows `.reg` to its semicolon.

    `%r<4>` is %r0 to %r3; one with `.v2` or `.v4` has two or four elements, any other one.
    """
    kind, elements = tokens.dotted("a register type such as `.b32`"), 1
    if kind in ("v2", "v4"):
        kind, elements = tokens.dotted("the type of a vector's elements, such as `.b32`"), _VECTORS[kind]
    if not bits_of(kind) or bits_of(kind) * elements > _WIDEST_VECTOR:
        tokens.position -= 1
        tokens.fail("a register type such as `.b32`, or `.v2` or `.v4` before one, of 128 bits in all at most")
    while True:
        name = tokens.name("a register name")
        if tokens.accept("<"):
            count = tokens.integer("the number of registers")
            tokens.expect(">", "after the number of registers")
            yield from ((f"{name}{number}", kind, elements) for number in range(count))
        else:
            yield name, kind, elements
        if not tokens.accept(","):
            break
    tokens.expect(";", "after the registers")


def variables(tokens: Tokens, space: str, external: bool = False) -> Iterator[Variable]:
    """Every variable of a declaration, from what follows its state space to its semicolon."""
    shape = _shape(tokens)
    while True:
        yield _variable(tokens, space, shape, external)
        if not tokens.accept(","):
            break
    tokens.expect(";", "after the declaration")


def parameters(tokens: Tokens) -> tuple[Variable, ...]:
    """The list in parentheses after a function's name; a `.reg` parameter has the space "reg"."""
    found: list[Variable] = []
    tokens.expect("(", "before the parameters")
    while not tokens.accept(")"):
        space = tokens.dotted("`.param`")
        if space not in ("param", "reg"):
            tokens.position -= 1
            tokens.fail("`.param`")
        found.append(_variable(tokens, space, _shape(tokens), external=False))
        if not tokens.accept(",") and tokens.peek() != ")":
            tokens.fail("`,` or `)` after a parameter")
    return tuple(found)


def _shape(tokens: Tokens) -> _Shape:
    kind, elements, align = "", 1, 0
    while tokens.peek().startswith("."):
        word = tokens.dotted("a type")
        if word == "align":
            value = tokens.integer("an alignment in bytes")
            if value & (value - 1) or not 1 <= value <= _MAX_ALIGN:
                tokens.position -= 1
                tokens.fail(f"an alignment that is a power of two up to {_MAX_ALIGN}")
            align = align if kind else value  # `.param .u64 .ptr .global .align 16 p` aligns what p points to
        elif word == "attribute":
            tokens.expect("(", "after the attribute")
            while tokens.peek() not in (")", ""):
                tokens.take()
            tokens.expect(")", "after the attribute")
        elif word in _VECTORS:
            elements = _VECTORS[word]
        elif not kind and bits_of(word):
            kind = word
        elif word not in ("ptr", *SPACES):  # what a pointer parameter points to
            tokens.position -= 1
            tokens.fail("a type, `.align` or a name")
    if not kind:
        tokens.fail("a type such as `.b32`")
    return _Shape(kind, elements, align or max(1, bytes_of(kind) * elements))


def _variable(tokens: Tokens, space: str, shape: _Shape, external: bool) -> Variable:
    name = tokens.name("a name")
    dimensions = list(_dimensions(tokens))
    element = bytes_of(shape.type) * shape.elements
    initial = b"".join(_values(tokens, shape.type)) if tokens.accept("=") else None
    size = element
    for number, dimension in enumerate(dimensions):
        if dimension is None and number == 0 and initial is not None:
            dimension = -(-len(initial) // max(1, size))
        size *= dimension or 0
    if initial is not None and len(initial) > size:
        tokens.refuse(f"`{name}` has {size} bytes, its initialiser {len(initial)}")
    padded = None if initial is None else initial.ljust(size, b"\0")
    return Variable(name, space, shape.type, size, shape.align, padded, external)


def _dimensions(tokens: Tokens) -> Iterator[int | None]:
    while tokens.accept("["):
        if tokens.accept("]"):
            yield None
            continue
        yield constant(tokens).value
        tokens.expect("]", "after the number of elements")


def _values(tokens: Tokens, kind: str) -> Iterator[bytes]:
    if tokens.peek().startswith('"'):
        yield tokens.take()[1:-1].encode().decode("unicode_escape").encode("latin-1") + b"\0"
    elif tokens.accept("{"):
        while not tokens.accept("}"):
            yield from _values(tokens, kind)
            if not tokens.accept(",") and tokens.peek() != "}":
                tokens.fail("`,` or `}` in the initialiser")
    else:
        if tokens.peek()[:1].isalpha() or tokens.peek()[:1] in ("_", "$"):
            tokens.refuse("a variable that holds the address of another is not supported")
        value, size = constant(tokens), bytes_of(kind)
        if value.float_bits not in (0, 8 * size):
            tokens.refuse(f"a {value.float_bits}-bit float literal initialises a variable of type .{kind}")
        yield (value.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
