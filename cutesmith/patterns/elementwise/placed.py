"""The text of an elementwise kernel whose elements need their coordinates, or are read at computed places."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

from cutesmith.patterns.elementwise.kernel import ElementwiseKernel, ElementwiseWriter, Tensor
from cutesmith.patterns.elementwise.places import (
    Along,
    added,
    along,
    is_coordinate,
    is_fixed,
    reach,
    with_neighbours_last,
    with_places,
)
from cutesmith.patterns.graph.attributes import Constant, Iota, Scalar
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, INDEX, ITEM_BYTES, STORAGE_TYPE
from cutesmith.patterns.graph.instructions import usual_instructions
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.takes import READ_ANYWHERE
from cutesmith.patterns.writing.expressions import Emitter, convert, is_fast
from cutesmith.patterns.writing.naming import Parameter
from cutesmith.patterns.writing.reading import is_inside, place_code, searched, taken

PLACE = COMPUTE_TYPE[INDEX]
VECTOR_BYTES = 16
READ_OF_NEIGHBOURS = 8
"""Instructions. Five neighbours of 8192 x 8192 floats took 166 us on an H200, where one element is a vector."""


@dataclass(frozen=True)
class PlacedKernel(ElementwiseKernel):
    """What `elementwise_places.py.j2` takes beside what the other template does.

    `taken` are read at computed places, `shared` the statements for a whole vector, `coordinates` the dimensions whose
    coordinate is needed. `sizes` follow shapes, `wholes` must come in whole vectors: code of `kernel_fn`.
    """

    taken: list[Tensor]
    shared: list[str]
    coordinates: list[int]
    rank: int
    has_vectors: bool
    sizes: list[str]
    wholes: list[str]
    reach: int
    reads_apart: int
    """Reads of single elements, for each of the result's."""
    scattered: int
    """Of those the reads whose places come from memory, so that neighbours may read from lines anywhere."""
    neighbours: int
    """Reads of whole vectors, each after a test of its own."""
    instructions: int
    """Of a thread for one element, at the traced sizes."""


def has_places(graph: Graph) -> bool:
    """Whether an element depends on where it lies."""
    return any(node.op == "iota" or node.op in READ_ANYWHERE for node in graph.nodes())


class PlacedWriter(ElementwiseWriter):
    """Writes it: what is the same for a vector once, what is not for each of its elements."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(with_places(with_neighbours_last(graph)))
        fast = is_fast(graph)
        self._vector = Emitter(self._vector_leaf, fast=fast, helpers=self.helpers, prefix="first_")
        self._each = Emitter(self._leaf, fast=fast, helpers=self.helpers)
        self._wholes: dict[str, None] = {}

    def kernel(self) -> PlacedKernel:
        """The kernel."""
        kernel = super().kernel()
        pairs = kernel.pairs and any(_is_same_below(tensor.node) for tensor in kernel.inputs)
        return PlacedKernel(
            **{each.name: getattr(kernel, each.name) for each in fields(kernel)} | {"pairs": pairs},
            taken=self.taken,
            shared=self._vector.lines,
            coordinates=self._coordinates,
            rank=len(self.shape),
            has_vectors=bool(self._neighbours),
            sizes=self._fixed,
            wholes=list(self._wholes),
            reach=reach(self.graph),
            reads_apart=self._reads_apart,
            scattered=sum(map(self._is_scattered, self._reads)),
            neighbours=len(self._neighbours) + len(self._between),
            instructions=self._instructions(),
        )

    def body(self) -> list[str]:
        """The statements of an element."""
        return self.stores(self._each)

    def key(self) -> list[str]:
        """What tells calls apart, with the numbers that are compiled into a kernel."""
        return [*super().key(), *self._fixed]

    def parameters(self) -> list[Parameter]:
        """The numbers that the kernel takes: those that follow shapes are known when it is compiled."""
        return [each for each in super().parameters() if each.name not in self._fixed]

    @cached_property
    def _fixed(self) -> list[str]:
        """The numbers that are known when the kernel is compiled."""
        return list(dict.fromkeys(self._name_of(node) for node in self.graph.nodes() if is_fixed(node)))

    @cached_property
    def _coordinates(self) -> list[int]:
        """Dimensions of the result whose coordinate some value depends on."""
        rank = len(self.shape)
        iotas = [node for node in self.graph.nodes() if node.op == "iota" and node.shape[Iota.of(node).dim] != 1]
        return sorted({Iota.of(node).dim + rank - len(node.shape) for node in iotas})

    def _instructions(self) -> int:
        """Counted in machine code: what a coordinate, a read of neighbours, and one of a single element take."""
        ways = list(self._neighbours.items())
        numbers = [number for at, way in ways for number in way.numbers(between=at in self._between)]
        sources = [node.inputs[0].shape[-1] for node in self._reads if id(node) in self._neighbours]
        vector = math.gcd(8, *self.shape[-1:], *sources, *numbers)
        own = [node for node in self.graph.nodes() if not self._is_shared(node)]
        vectors = len(ways) + len(self._between)
        shared = 6 * len(self._coordinates) + 2 * len(self._vector.lines) + READ_OF_NEIGHBOURS * vectors
        return usual_instructions(own, fast=is_fast(self.graph)) + 5 * self._reads_apart + shared // vector

    @cached_property
    def _reads_apart(self) -> int:
        return sum(not self._is_shared(node) for node in self._reads) - len(self._neighbours)

    def _is_scattered(self, node: Node) -> bool:
        if self._is_shared(node) or id(node) in self._neighbours or node.op != "take":
            return False
        varying = [place for place in node.inputs[1:] if not self._is_shared(place)]
        return any(each.op in ("input", "take") for each in nodes_of(tuple(varying)))

    @property
    def _reads(self) -> list[Node]:
        return [node for node in self.graph.nodes() if node.op in READ_ANYWHERE]

    @cached_property
    def _neighbours(self) -> dict[int, Along]:
        """The reads of neighbours: takes from lines of a tensor, at places that follow the last coordinate."""
        found: dict[int, Along] = {}
        for node in self.graph.nodes():
            if node.op == "take" and node.inputs[0].shape[-1:] != (1,):
                *line, last = node.inputs[1:]
                way = along(last, self._is_shared) if all(map(self._is_shared, line)) else None
                found |= {id(node): way} if way else {}
        return found

    @cached_property
    def _between(self) -> set[int]:
        """Those of them that are parts of two vectors."""
        widths = {id(node): VECTOR_BYTES // ITEM_BYTES[node.dtype] for node in self._reads}
        return {at for at, way in self._neighbours.items() if way.is_between(widths[at])}

    @cached_property
    def _varying(self) -> set[int]:
        """Values that are not the same for all neighbours along the last dimension."""
        found: set[int] = set()
        for node in self.graph.nodes():
            is_wide = node.op == "input" and (node.shape[-1:] != (1,) or not self._coordinates)
            varies = any(id(each) in found for each in node.inputs[node.op in READ_ANYWHERE :])
            if is_wide or varies or is_coordinate(node, -1):
                found.add(id(node))
        return found

    def _is_shared(self, node: Node) -> bool:
        return id(node) not in self._varying

    def _leaf(self, node: Node) -> str | None:
        """An element's own; what the whole vector has in common is computed once."""
        if node.op == "constant":
            return None
        if self._is_shared(node):
            return self._vector.value(node)
        if node.op == "input":
            return self.element(node, "v * plan.steps[{}]")
        if node.op == "iota":
            return convert(f"(coordinate_{len(self.shape) - 1} + v)", PLACE, COMPUTE_TYPE[node.dtype])
        if id(node) in self._neighbours:
            return self._neighbour(node, self._neighbours[id(node)])
        return self._read(self._each, node)

    def _vector_leaf(self, node: Node) -> str | None:
        """What a vector has in common, or the first of its elements has."""
        if node.op == "input":
            return self.element(node, "0")
        if node.op == "iota":
            dim = Iota.of(node).dim
            code = f"coordinate_{dim + len(self.shape) - len(node.shape)}"
            return convert(code if node.shape[dim] != 1 else f"{PLACE}(0)", PLACE, COMPUTE_TYPE[node.dtype])
        if is_fixed(node):
            return convert(self._name_of(node), PLACE, COMPUTE_TYPE[node.dtype])
        return self.number(node) or self._read(self._vector, node)

    def _read(self, emitter: Emitter, node: Node) -> str | None:
        """An element at a computed place."""
        if node.op == "take":
            return taken(emitter, node, self._memory(node))
        return searched(emitter, node, self._memory(node)) if node.op == "search" else None

    def _memory(self, node: Node) -> str:
        """The tensor that is read at computed places."""
        return next(f"m_{tensor.name}" for tensor in self.taken if tensor.node is node.inputs[0])

    def _neighbour(self, node: Node, way: Along) -> str:
        """An element of neighbours that are loaded together."""
        memory, emitter, between = self._memory(node), self._vector, id(node) in self._between
        wholes = way.codes(self._whole_code, between=between)
        self._wholes |= dict.fromkeys([*wholes, f"{memory.removeprefix('m_')}.shape[-1]"])
        if between:
            return self._between_vectors(node, way)
        *codes, last = [place_code(emitter, place) for place in node.inputs[1:]]
        first = f"({last} - (plan.vector - 1))" if way.backwards else last
        name = emitter.fresh("take")
        place = ", ".join(["None", *codes, f"{first} // plan.vector"])
        copy = f"cute.autovec_copy(in_vectors({memory}, plan.vector)[{place}], r_{name})"
        tests = is_inside(node, [*codes, last], memory)
        lines = [f"r_{name} = cute.make_rmem_tensor((plan.vector,), {STORAGE_TYPE[node.dtype]})"]
        lines += [f"r_{name}.fill(0)", f"if {tests}:", f"    {copy}"] if tests else [copy]
        emitter.lines.append("\n".join([*lines, f"v_{name} = r_{name}.load()"]))
        at = "plan.vector - 1 - v" if way.backwards else "v"
        return convert(f"v_{name}[{at}]", STORAGE_TYPE[node.dtype], COMPUTE_TYPE[node.dtype])

    def _between_vectors(self, node: Node, way: Along) -> str:
        """An element of the two vectors in which neighbours lie: that of the first of them, and that of the last."""
        memory, emitter = self._memory(node), self._vector
        codes = [place_code(emitter, place) for place in node.inputs[1:-1]]
        ends = [place_code(each, node.inputs[-1]) for each in (emitter, self._last)]
        name = emitter.fresh("take")
        lines = [f"r_{name} = cute.make_rmem_tensor((plan.vector, 2), {STORAGE_TYPE[node.dtype]})", f"r_{name}.fill(0)"]
        for half, end in enumerate(ends):
            tests = is_inside(node, [*codes, end], memory)
            place = ", ".join(["None", *codes, f"{end} // plan.vector"])
            copy = f"cute.autovec_copy(in_vectors({memory}, plan.vector)[{place}], r_{name}[None, {half}])"
            lines += [f"if {tests}:", f"    {copy}"] if tests else [copy]
        emitter.lines.append("\n".join(lines))
        element = f"r_{name}[({added(way.shift, self._compiled_code)}) % plan.vector + v]"
        return convert(element, STORAGE_TYPE[node.dtype], COMPUTE_TYPE[node.dtype])

    @cached_property
    def _last(self) -> Emitter:
        """Computes places of the last element of a vector."""
        emitter = Emitter(self._last_leaf, fast=is_fast(self.graph), helpers=self.helpers, prefix="last_")
        emitter.lines = self._vector.lines
        return emitter

    def _last_leaf(self, node: Node) -> str | None:
        if self._is_shared(node):
            return self._vector.value(node)
        is_own = is_coordinate(node, -1)
        return f"(coordinate_{len(self.shape) - 1} + (plan.vector - 1))" if is_own else None

    def _compiled_code(self, node: Node) -> str:
        """A number that is known when the kernel is compiled, as Python's own."""
        if node.op == "constant":
            return str(Constant.of(node).value)
        return f"plan.sizes[{self._fixed.index(self._name_of(node))}]"

    def _whole_code(self, node: Node) -> str:
        return str(Constant.of(node).value) if node.op == "constant" else self._name_of(node)

    def _name_of(self, number: Node) -> str:
        return self.sized[id(number)] if number.op == "sized" else self.arguments[Scalar.of(number).index]


def _is_same_below(node: Node) -> bool:
    """Whether elements below each other are one, and those side by side are not."""
    return len(node.shape) > 0 and node.shape[-1] != 1 and node.shape[-2:-1] in ((), (1,))
