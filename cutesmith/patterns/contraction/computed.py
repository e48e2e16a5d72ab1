"""A right factor that the kernel computes while it loads: the device function of its elements, and what that reads."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Passed
from cutesmith.patterns.graph.attributes import Constant, Input, TensorCode
from cutesmith.patterns.graph.computed import ComputedFactor, K, Leaf, N
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, HALVES, ITEM_BYTES, STORAGE_TYPE, is_float
from cutesmith.patterns.graph.nodes import Node, in_memory
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.writing.expressions import Emitter, convert, literal
from cutesmith.patterns.writing.naming import fresh_name
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS

SMALL = 256
"""Integers up to this are exact in every 16-bit float."""


@dataclass(frozen=True)
class Side(Passed):
    """A tensor with a number for each `group` of k of a line; dimensions are None where it has one for all."""

    rank: int
    along_n: int | None
    along_k: int | None
    group: int

    def element(self, n: str, group: str) -> str:
        """The code of the element in memory at a line and a group."""
        places = {self.along_n: n, self.along_k: group}
        return f"m_{self.name}[{', '.join(places.get(dim, '0') for dim in range(self.rank))}]"


@dataclass(frozen=True)
class Bytes:
    """Four small integers, made of four numbers at once: a word that has each of them, `more` than it is, in a byte."""

    word: str
    more: int = 0

    @property
    def offset(self) -> str:
        """What is taken off a float whose last digits are such a byte."""
        return repr(float(2**23 + self.more))


@dataclass(frozen=True)
class Computed:
    """A right factor (k, n) of type `dtype` that is made of numbers (n, k // packed) in memory, contiguous along k.

    `code` is that of the numbers, `source` the device function of one of them that returns `packed` elements. It takes
    the floats that `bytes_of` numbers make, then the number itself where it `takes_number`, then those of `sides`.
    `scale` multiplies sums, those of pieces of k where it changes along k. `instructions` are those of an element.
    """

    code: TensorCode
    numbers: str
    dtype: str
    shape: Shape
    strides: Shape
    packed: int
    bytes_of: tuple[Bytes, ...]
    takes_number: bool
    sides: tuple[Side, ...]
    scale: Side | None
    source: str
    helpers: tuple[str, ...]
    instructions: float
    bytes: int
    transposed: TensorCode | None = None
    contiguous: int = -2

    @property
    def storage(self) -> str:
        """DSL type of an element, as the tensor cores take it."""
        return STORAGE_TYPE[self.dtype]

    @property
    def numbers_computed(self) -> str:
        """DSL type of the number that the function takes."""
        return COMPUTE_TYPE[self.numbers]

    @property
    def passed(self) -> tuple[Side, ...]:
        """All tensors beside the numbers, in the order in which a launch takes them."""
        return (*self.sides, *([self.scale] if self.scale else []))

    def number(self, code: str) -> str:
        """`code`, a number of the type in memory, as the function takes it."""
        return convert(code, STORAGE_TYPE[self.numbers], self.numbers_computed)

    @property
    def run(self) -> int:
        """Neighbours along k in 16 bytes."""
        return 16 // ITEM_BYTES[self.numbers] * self.packed

    def vector(self, most_bytes: int = 16) -> int:
        """Numbers of the widest aligned access, at the traced shapes."""
        return math.gcd(most_bytes // ITEM_BYTES[self.numbers], self.shape[0] // self.packed, self.strides[1])


def computed_of(factor: Node, names: Sequence[str], reserved: Collection[str], *, fast: bool) -> Computed:
    """The operand that a `computed` factor is; UnmatchedError where its numbers do not lie along k."""
    found = ComputedFactor.of(factor.inputs[0])
    taken, sides = {*names, *reserved}, list[Side]()
    for leaf in (*found.sides, *([found.scale] if found.scale else [])):
        sides.append(_side(leaf, names, taken))
        taken.add(sides[-1].name)
    scale = sides.pop() if found.scale else None
    k, n = factor.shape
    function = _Function(found, sides, fast=fast)
    return Computed(
        code=_numbers_code(found.numbers, names),
        numbers=found.numbers.node.dtype,
        dtype=factor.dtype,
        shape=(k, n),
        strides=(1, Input.of(found.numbers.node).stride[found.numbers.along(N)[0]]),
        packed=found.packed,
        bytes_of=tuple(function.bytes_of),
        takes_number=function.takes_number,
        sides=tuple(sides),
        scale=scale,
        source=function.source(),
        helpers=tuple(SPECIAL_FUNCTIONS[name].strip("\n") for name in sorted(function.helpers)),
        instructions=function.instructions / found.packed,
        bytes=sum(math.prod(node.shape) * ITEM_BYTES[node.dtype] for node in in_memory(factor)),
    )


def _numbers_code(leaf: Leaf, names: Sequence[str]) -> TensorCode:
    """The numbers as (n, k // packed), contiguous along k."""
    given, node = Input.of(leaf.node), leaf.node
    (row,), along = leaf.along(N), leaf.along(K)
    steps = [given.stride[dim] for dim in along]
    sizes = [node.shape[dim] for dim in along]
    merged = all(a == b * size for a, b, size in zip(steps, steps[1:], sizes[1:], strict=False))
    if steps[-1] != 1 or not merged:
        raise UnmatchedError(f"{node.where} does not lie along k", operation=node.where)
    seen = (node.shape[row], math.prod(sizes)), (given.stride[row], 1)
    if seen == given.root and not given.offset:
        return TensorCode(names[given.index])
    code = given.code(names)
    if row == 0 and along == list(range(1, 1 + len(along))):
        return code.then("{0}.flatten(1)") if len(node.shape) > 2 else code
    if [*along, row] == [0, 1]:
        return code.then("{0}.t()")
    raise UnmatchedError(f"{node.where} has its lines behind k", operation=node.where)


def _side(leaf: Leaf, names: Sequence[str], taken: Collection[str]) -> Side:
    given, rank = Input.of(leaf.node), len(leaf.node.shape)
    code, argument = given.code(names), names[given.index]
    along_n, along_k = (next(iter(leaf.along(axis)), None) for axis in (N, K))
    return Side(
        name=fresh_name(f"{argument}_nk", taken),
        code=code if rank else code.then("{0}.view(1)"),
        dtype=leaf.node.dtype,
        rank=max(1, rank),
        along_n=along_n,
        along_k=along_k,
        group=leaf.group,
    )


class _Function:
    """Writes the function of a number and what belongs to it."""

    def __init__(self, found: ComputedFactor, sides: Sequence[Side], *, fast: bool) -> None:
        self.number, self.takes_number = found.numbers.element, False
        self.names = {id(leaf.element): side.name for leaf, side in zip(found.sides, sides, strict=True)}
        self.bytes_of, self.helpers = list[Bytes](), set[str]()
        self.emitter = Emitter(self._leaf, fast=fast, helpers=self.helpers)
        self.results = [self.emitter.as_type(element, "Float32") for element in found.elements]
        self.parameters = [f"byte_{at}: Float32" for at in range(len(self.bytes_of))]
        self.parameters += [f"number: {COMPUTE_TYPE[self.number.dtype]}"] if self.takes_number else []
        self.parameters += [f"{side.name}: {side.computed}" for side in sides]

    @property
    def instructions(self) -> int:
        """Of one call, with what makes floats of bytes."""
        conversions = sum("float_of_small(" in line for line in self.emitter.lines)
        return len(self.emitter.lines) + conversions + 2 * len(self.bytes_of)

    def source(self) -> str:
        """The device function, `element` or `elements`."""
        body = "\n".join(f"    {line}" for line in [*self.emitter.lines, f"return {', '.join(self.results)}"])
        name = "elements" if len(self.results) > 1 else "element"
        return f"@cute.jit\ndef {name}({', '.join(self.parameters)}):\n{body}"

    def _leaf(self, node: Node) -> str | None:
        if id(node) in self.names:
            return self.names[id(node)]
        if node is self.number:
            self.takes_number = True
            return "number"
        if not _is_exact_cast(node):
            return None
        if code := self._as_float(node.inputs[0]):
            return code
        self.helpers.add("float_of_small")
        return f"float_of_small({self.emitter.as_type(node.inputs[0], 'Int32')})"

    def _as_float(self, node: Node) -> str | None:
        """The float that equals a small integer, where it is made of bytes of several numbers at once."""
        if node.op == "constant":
            return literal(Constant.of(node).value, "Float32")
        if node is self.number and node.dtype == "int8":
            return self._of_bytes(Bytes("word ^ Uint32(0x80808080)", 128))
        if word := self._word(node):
            return self._of_bytes(Bytes(word))
        if node.op in ("add", "sub") and _is_small(node):
            left, right = map(self._as_float, node.inputs)
            return f"({left} {'+' if node.op == 'add' else '-'} {right})" if left and right else None
        return self._as_float(node.inputs[0]) if node.op == "cast" and _keeps(node) else None

    def _word(self, node: Node) -> str | None:
        """Code of a word whose four bytes are the integer for four numbers; None where that is not known."""
        if node is self.number:
            return "word" if node.dtype == "uint8" else None
        inner = self._word(node.inputs[0]) if node.inputs else None
        if inner is None or len(node.inputs) != 2 or node.inputs[1].op != "constant":
            return inner if node.op == "cast" and _keeps(node) else None
        value = int(Constant.of(node.inputs[1]).value)
        if node.op == "bitwise_and" and 0 <= value < 256:
            return f"{inner} & Uint32(0x{value * 0x01010101:08X})"
        if node.op == "shift_right" and 0 <= value < 8:
            shifted = inner if inner == "word" else f"({inner})"
            return f"{shifted} >> {value} & Uint32(0x{(255 >> value) * 0x01010101:08X})"
        return None

    def _of_bytes(self, made: Bytes) -> str:
        if made not in self.bytes_of:
            self.bytes_of.append(made)
        return f"byte_{self.bytes_of.index(made)}"


def _keeps(cast: Node) -> bool:
    """Whether an integer fits into the type that it is converted to."""
    return not is_float(cast.dtype) and _bounds(cast) is not None and _bounds(cast) == _bounds(cast.inputs[0])


def _is_exact_cast(node: Node) -> bool:
    """Whether an integer becomes a float of 16 or 32 bits that is equal to it."""
    return node.op == "cast" and node.dtype in (*HALVES, "float32") and _is_small(node.inputs[0])


def _is_small(node: Node) -> bool:
    """Whether an integer is known to be exact in 16 bits."""
    bounds = _bounds(node)
    return bounds is not None and -SMALL <= bounds[0] <= bounds[1] <= SMALL


def _bounds(node: Node) -> tuple[int, int] | None:
    """The least and the largest that an integer may be, None where that is not known."""
    if is_float(node.dtype):
        return None
    if node.op == "constant":
        return (int(Constant.of(node).value),) * 2
    known = {"uint8": (0, 255), "int8": (-128, 127)}.get(node.dtype)
    inner = [_bounds(each) for each in node.inputs]
    if node.op == "bitwise_and":
        masks = [bounds[1] for bounds in inner if bounds is not None and bounds[0] >= 0]
        return (0, min(masks)) if masks else known
    found, (left, right) = None, inner if len(inner) == 2 else (None, None)
    if node.op == "cast":
        found = inner[0]
    elif left is not None and right is not None and node.op == "shift_right" and left[0] >= 0 <= right[0]:
        found = (left[0] >> right[1], left[1] >> right[0])
    elif left is not None and right is not None and node.op == "add":
        found = (left[0] + right[0], left[1] + right[1])
    elif left is not None and right is not None and node.op == "sub":
        found = (left[0] - right[1], left[1] - right[0])
    fits = found is not None and (known is None or known[0] <= found[0] <= found[1] <= known[1])
    return found if fits else known
