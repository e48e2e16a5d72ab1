"""The small graph that a traced `reference_fn` is lowered to: what the patterns match and the templates print.

A graph is a DAG of `Node`s over row-major logical shapes. Pointwise nodes (`operations.py`) broadcast their inputs to
their own shape (right-aligned, size 1 stretches). Reductions keep the reduced dimensions as size 1, so that ranks stay
aligned; `argmax` and `argmin` give the first index and treat NaN as the extreme, as PyTorch does. Arithmetic on floats
is meant in float32 (float64 for float64 inputs); a node's `dtype` is the type PyTorch gives it, and rounding to it is
only done where a value is stored or an explicit `cast` asks for it.

The other operations are the leaves and
- `reshape`: the same elements in row-major order (`Reshaping`);
- `gather`: inputs (x, index), along a dimension where the index has size 1;
- `take`: inputs (x, an int64 index for each of its dimensions), x at these coordinates, x lying in memory; what lies
  outside of x has any value;
- `windows`: what a window over an image sees, with zeros outside (`Windows`): the product of a convolution takes it;
- `scaled`: inputs (x, scales), both in memory: numbers of float8 times the scale of their block (`Blocks`), float32:
  a product takes it;
- `chosen`: inputs (x, int index (…, 1, 1)), both in memory: for each of the leading dimensions the matrix of x at that
  index, which lies within x: a product takes it;
- `grouped`: inputs (x of (groups, k, n), ends), both in memory: for each row of a product's left factor the matrix of
  the group that it belongs to; group i ends before row ends[i], and products of rows behind the last are 0;
- `computed`: inputs (x of (n, k),): x as a factor (k, n), pointwise work on numbers in memory, which the kernel of a
  product does while it loads them (`computed.py`);
- `joined`: two tensors in memory, one behind the other (`Joined`): an attention takes it as keys and values;
- `pool`: what becomes of each window over an image (`windows.Pooling`);
- `interleave`: the positions of a transposed convolution, each from the product of its phase (`Interleaving`);
- `depth_to_space`: the positions of (…, outputs * phases, places), where no other product has some (`DepthToSpace`);
- `halves`: two values of one shape side by side along the last dimension, where the kernel that makes both stores them;
- `scan`: what is combined of the elements up to each along a dimension (`Scan`);
- `recur`: the states of a recurrent layer, of which each is made of the one before (`Recurrent`);
- `sort`: the first elements along a dimension in sorted order, or their places (`Sort`);
- `transform`: inputs (real,) or (real, imag): a part of their Fourier transform along the last dimension (`Transform`);
- `pairs`: inputs (first, second), whose elements lie side by side in a last dimension of two: parts of a transform;
- `scatter`: inputs (index, x), which broadcast: what is combined of the elements of x that have one index (`Scatter`);
- `search`: inputs (x in memory, value, a coordinate for each dimension of x but the last): how many elements of a
  sorted line of x lie before the value (`Search`);
- `partial_sums`: the sums of x over its rows in groups, one after another (count, *columns), float32 (`Groups`): a row
  kernel that works on x anyway makes them, and decides which rows are a group;
- `attention_gradient`: inputs (scores, gradient of the weights, log-sum-exp of the scores, result), of softmax(scores)
  v: the gradient of a factor (`AttentionGradient`), over batches where it has size 1 the sum;
- `contract`: the batched product of (…, m, k) and (…, k, n), whose leading dimensions broadcast; it is (…, m, n);
- `masked`: inputs (x, mask), the elements of x at the places of a mask, in a shape that holds all of x: only while a
  function is traced, which writes them back through the same mask or is refused;
- `stored`: a value that lies dense in device memory between two launches, seen through views as an argument is.
What an operation needs beside its inputs is a subclass of `Attributes` (`attributes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from cutesmith.patterns.graph.attributes import (
    NONE,
    Attributes,
    Constant,
    Input,
    Number,
    Reshaping,
    Sized,
    Transform,
    View,
    Viewed,
)
from cutesmith.patterns.graph.call import Call
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import EqualSizes, Place, Size, SizeLaw

LEAVES = frozenset({"input", "scalar", "constant", "sized", "iota"})
OWN_SIZES = frozenset({"take", "sort", "scatter", "search", "transform"})
"""Operations, beside the pointwise ones, that may have a size which no input has."""
REDUCTIONS = frozenset("sum mean max min prod any all argmax argmin var".split())


@dataclass(frozen=True)
class Origin:
    """Where a node comes from: the ATen operation without its overload ("amax"), and what messages say of it.

    `call` is one number for all steps of a call of a pointwise operation, whose result alone PyTorch stores; else 0.
    """

    operation: str = ""
    text: str = ""  # such as "aten.amax at problem.py:4 (`return x.amax(-1)`)"; "" where nothing is known
    call: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True, eq=False)
class Node:
    """One value of the graph: operation, inputs, logical shape, torch dtype name ("bfloat16", "int64", "bool", …)."""

    op: str
    inputs: tuple[Node, ...]
    shape: Shape
    dtype: str
    attrs: Attributes = NONE
    origin: Origin = Origin()
    sizes: tuple[Size, ...] = ()
    """The shape for other inputs, where it is known."""

    @property
    def has_own_shape(self) -> bool:
        """Whether the sizes of its shape may follow from other numbers than the sizes of its inputs."""
        return self.is_pointwise or self.op in OWN_SIZES

    @property
    def is_pointwise(self) -> bool:
        """Whether the node maps elements to elements."""
        return self.op in POINTWISE

    @property
    def is_reduction(self) -> bool:
        """Whether the node reduces dimensions to size 1."""
        return self.op in REDUCTIONS

    @property
    def where(self) -> str:
        """The operation as messages name it: with its source line where that is known."""
        return str(self.origin) or self.op


@dataclass(frozen=True)
class Argument:
    """One argument of `reference_fn`: a tensor (shape, stride in elements, dtype) or a Python scalar (`value`)."""

    name: str
    kind: str  # "tensor" or "scalar"
    dtype: str  # torch dtype name; "int", "float" or "bool" for scalars
    shape: Shape = ()
    stride: Shape = ()
    value: Number | None = None

    @property
    def sizes(self) -> Shape:
        """The numbers that laws of sizes follow: those of the shape, or an integer itself, as dimension -1."""
        return (int(self.value),) if self.kind == "scalar" and self.dtype == "int" and self.value else self.shape

    def size_at(self, dim: int) -> int:
        """The size of a dimension, or the number that the argument is, as dimension -1."""
        return self.shape[dim] if dim >= 0 else int(self.value or 0)


@dataclass(frozen=True)
class Graph:
    """A whole traced function: its arguments, its outputs, and whether it returns a bare tensor or a tuple.

    Outputs carry shape and dtype; `output_strides` are those PyTorch gives them.
    """

    arguments: tuple[Argument, ...]
    outputs: tuple[Node, ...]
    output_strides: tuple[Shape, ...]
    returns_tuple: bool
    fixed_shapes: bool = False
    """The graph holds for the traced sizes only: a constant follows them without a law, or nothing is known."""
    held: frozenset[Place] = frozenset()
    """The (argument, dimension) pairs that it holds for the traced sizes of only, -1 for the value of a number."""
    checked_before: frozenset[Place] = frozenset()
    """Such places whose sizes are compared before the kernel is called, as those of a launch in a chain are."""
    widths_before: frozenset[int] = frozenset()
    """Last dimensions that are the same for all sizes, of the graph that this is a part of."""
    equal: tuple[EqualSizes, ...] = ()
    """Dimensions that the function takes of equal sizes only, or of which it is another graph where sizes differ."""
    most: tuple[tuple[Place, Place], ...] = ()
    """Dimensions that are at most as large as another one, as those of an index of `gather`."""
    not_ones: tuple[tuple[Place, ...], ...] = ()
    """Dimensions of which not all may be 1: a result has another shape then, as by `squeeze`."""
    steps: tuple[tuple[Place, int], ...] = ()
    """Dimensions whose sizes must be multiples of a number: of others the function is another graph, as by `chunk`."""
    free_sizes: bool = False
    """A kernel has to serve other sizes than the traced ones, as far as the graph does."""
    assumes: tuple[str, ...] = ()
    """What it takes for granted of the values of its arguments, as clauses for the head of the kernel's file."""
    call: Call | None = None
    """How the kernel is called, where that is not with the arguments."""

    def nodes(self) -> Iterator[Node]:
        """Every node once, inputs before users."""
        return iter(self._order)

    @cached_property
    def _order(self) -> tuple[Node, ...]:
        return tuple(nodes_of(self.outputs))

    @property
    def holds_for_other_sizes(self) -> bool:
        """Whether no number and no view is known for the traced sizes alone, but for those of the places `held`."""
        return not self.fixed_shapes and all(view.is_proven for node in self.nodes() for view in views_of(node))

    def size_at(self, place: Place) -> int:
        """The traced size of a dimension of an argument, or the number that the argument is."""
        index, dim = place
        return self.arguments[index].size_at(dim)

    @property
    def checked(self) -> frozenset[Place]:
        """The places whose sizes a kernel compares with the traced ones: those held, or all."""
        return self.held if self.holds_for_other_sizes else self.places

    @property
    def places(self) -> frozenset[Place]:
        """All dimensions of the arguments."""
        return frozenset((at, dim) for at, argument in enumerate(self.arguments) for dim in range(len(argument.shape)))

    @property
    def widths(self) -> frozenset[int]:
        """Last dimensions of computed values that are the same for all sizes."""
        known = [(node.shape[-1], node.sizes[-1]) for node in self.nodes() if node.sizes]
        follow = {width for width, size in known if not isinstance(size, SizeLaw) or size.terms}
        return self.widths_before | ({width for width, _ in known} - follow)

    @property
    def moved_bytes(self) -> int:
        """Bytes that must cross device memory once: all argument tensors and outputs, in the traced shapes."""
        reads = sum(math.prod(a.shape) * ITEM_BYTES[a.dtype] for a in self.arguments if a.kind == "tensor")
        return reads + sum(map(bytes_of, self.outputs))

    @property
    def flops(self) -> int:
        """One operation for every element of every pointwise node and reduction, in the traced shapes.

        A product of (m, k) and (k, n) counts 2 m n k.
        """
        return sum(map(_flops, self.nodes()))


def bytes_of(node: Node) -> int:
    """Bytes of its values, in the traced shape."""
    return math.prod(node.shape) * ITEM_BYTES[node.dtype]


def in_memory(factor: Node) -> tuple[Node, ...]:
    """What a factor of a product is made of in memory: an image, numbers and scales, two parts, or itself."""
    if factor.op == "computed":
        return tuple(_first_in_memory(factor.inputs[0]))
    return factor.inputs if factor.op in ("windows", "scaled", "chosen", "grouped", "joined") else (factor,)


def _first_in_memory(value: Node) -> Iterator[Node]:
    seen, stack = set[int](), [value]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            if node.op in ("input", "stored"):
                yield node
            else:
                stack.extend(node.inputs)


def views_of(node: Node) -> tuple[View, ...]:
    """Those that `kernel_fn` makes of the node's value."""
    if isinstance(node.attrs, Viewed):
        return node.attrs.views
    return (node.attrs.view,) if isinstance(node.attrs, Reshaping) else ()


def place_along(node: Node, dim: int) -> Place | None:
    """The dimension of an argument that a dimension of a view of it is; None where it is not known."""
    if node.op != "input":
        return None
    seen = Input.of(node)
    dims, along = list(zip(*seen.root, strict=True)), (node.shape[dim], seen.stride[dim])
    return (seen.index, dims.index(along)) if dims.count(along) == 1 else None


def _flops(node: Node) -> int:
    if node.op == "contract":
        return 2 * math.prod(node.shape) * node.inputs[0].shape[-1]
    if node.op == "attention_gradient":
        return 2 * math.prod(node.inputs[0].shape) * node.shape[-1]
    if node.op == "pool":
        return math.prod(node.inputs[0].shape)
    if node.op == "recur":
        return 2 * math.prod(node.inputs[0].shape) * node.shape[-1]
    if node.op == "transform":  # 5 n log2(n) for both parts
        length = Transform.of(node).length
        return int(2.5 * math.prod(node.shape[:-1]) * length * math.log2(max(2, length)))
    if node.is_reduction or node.op in ("scan", "sort", "scatter", "partial_sums"):
        return max(math.prod(each.shape) for each in node.inputs)
    return math.prod(node.shape) if node.is_pointwise else 0


def nodes_of(outputs: tuple[Node, ...], known: Iterable[int] = ()) -> Iterator[Node]:
    """Every node that these are made of, and they themselves, once each, inputs before users.

    Those whose id is in `known`, and what they alone are made of, are left out.
    """
    seen = set(known)
    stack = list(reversed(outputs))
    while stack:
        node = stack[-1]
        if id(node) not in seen and (left := [child for child in node.inputs if id(child) not in seen]):
            stack.extend(reversed(left))
            continue
        stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node


def places_of(order: Iterable[Node]) -> dict[int, int]:
    """For the id of each node its place in the order."""
    return {id(node): at for at, node in enumerate(order)}


def users_of(graph: Graph) -> dict[int, list[Node]]:
    """For the id of each node what reads it, once for each time."""
    users: dict[int, list[Node]] = {id(node): [] for node in graph.nodes()}
    for node in graph.nodes():
        for child in node.inputs:
            users[id(child)].append(node)
    return users


def with_nodes(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    """The graph with `change` of each node, whose inputs are changed already."""
    return _rebuilt(graph, change, {})


def with_some(graph: Graph, ids: Container[int], change: Callable[[Node], Node]) -> Graph:
    """The graph with `change` of the nodes of these ids alone, whose inputs are changed already."""
    return with_changes(graph, lambda original, node: change(node) if id(original) in ids else node)


def with_changes(graph: Graph, change: Callable[[Node, Node], Node]) -> Graph:
    """The graph with `change` of each node as it was, and as it is with inputs that are changed already."""
    originals = iter(list(graph.nodes()))  # with_nodes changes them in the same order
    return with_nodes(graph, lambda node: change(next(originals), node))


def with_values(graph: Graph, values: Mapping[int, Node]) -> Graph:
    """The graph with other nodes in place of those whose id is in `values`, and what becomes of their users."""
    return _rebuilt(graph, lambda node: node, values)


def _rebuilt(graph: Graph, change: Callable[[Node], Node], known: Mapping[int, Node]) -> Graph:
    done = dict(known)
    for node in nodes_of(graph.outputs, known) if known else graph.nodes():
        inputs = tuple(done[id(child)] for child in node.inputs)
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        done[id(node)] = change(node if same else replace(node, inputs=inputs))
    return replace(graph, outputs=tuple(done[id(node)] for node in graph.outputs))


def for_traced_sizes(graph: Graph) -> Graph:
    """The graph with the traced numbers in place of laws: right for the traced shapes only."""
    if not any(node.op == "sized" for node in graph.nodes()):
        return graph

    def fixed(node: Node) -> Node:
        return replace(node, op="constant", attrs=Constant(Sized.of(node).value)) if node.op == "sized" else node

    return replace(with_nodes(graph, fixed), fixed_shapes=True)
