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
- `pool`: what becomes of each window over an image (`windows.Pooling`);
- `scan`: what is combined of the elements up to each along a dimension (`Scan`);
- `sort`: the first elements along a dimension in sorted order, or their places (`Sort`);
- `scatter`: inputs (index, x), which broadcast: what is combined of the elements of x that have one index (`Scatter`);
- `search`: inputs (x in memory, value, a coordinate for each dimension of x but the last): how many elements of a
  sorted line of x lie before the value (`Search`);
- `contract`: the batched product of (…, m, k) and (…, k, n), whose leading dimensions broadcast; it is (…, m, n);
- `stored`: a value that lies dense in device memory between two launches, seen through views as an argument is.
What an operation needs beside its inputs is a subclass of `Attributes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.shapes import Shape, dense_strides
from cutesmith.patterns.graph.size_laws import Place, Size, SizeLaw, size_code

Number = int | float | bool
A = TypeVar("A", bound="Attributes")

LEAVES = frozenset({"input", "scalar", "constant", "sized", "iota"})
OWN_SIZES = frozenset({"take", "sort", "scatter", "search"})
"""Operations, beside the pointwise ones, that may have a size which no input has."""
REDUCTIONS = frozenset("sum mean max min prod any all argmax argmin var".split())


@dataclass(frozen=True)
class Attributes:
    """What a node needs to know beside its inputs: nothing here, more in the subclasses."""

    @classmethod
    def of(cls: type[A], node: Node) -> A:
        """The node's attributes, which must be of this class."""
        assert isinstance(node.attrs, cls), f"{node.op} has no attributes of {cls.__name__}"
        return node.attrs


NONE = Attributes()


@dataclass(frozen=True)
class View:
    """A view of a tensor as Python source, such as "{0}.narrow(1, {1}, {2})": of the tensor, then of the sizes."""

    source: str
    sizes: tuple[Size, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether it holds for other sizes than the traced ones."""
        return not any(isinstance(size, int) for size in self.sizes)

    def with_sizes(self, change: Callable[[Size], Size]) -> View:
        """The same view of other sizes."""
        return View(self.source, tuple(map(change, self.sizes)))

    def code(self, tensor: str, arguments: Sequence[str]) -> str:
        """The view of a tensor of this name, in a function of these arguments."""
        return self.source.format(tensor, *(size_code(size, arguments) for size in self.sizes))


def seen_code(tensor: str, views: Sequence[View], arguments: Sequence[str]) -> str:
    """The code of the views of a tensor, applied in order, in a function of these arguments."""
    for view in views:
        tensor = view.code(tensor, arguments)
    return tensor


@dataclass(frozen=True)
class Viewed(Attributes):
    """A tensor in device memory, seen through views that `kernel_fn` makes before a launch, without a copy.

    `views` are applied in order; `stride` (in elements) and `offset` are those of the viewed tensor, `root` the shape
    and stride of the tensor itself.
    """

    stride: Shape
    root: tuple[Shape, Shape]
    views: tuple[View, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class Input(Viewed):
    """An argument tensor: its place among the arguments, and how it is seen."""

    index: int = 0

    @classmethod
    def whole(cls, index: int, shape: Shape, stride: Shape) -> Input:
        """The argument itself."""
        return cls(stride, (shape, stride), index=index)

    def code(self, arguments: Sequence[str]) -> str:
        """The viewed argument in a function of arguments of these names."""
        return seen_code(arguments[self.index], self.views, arguments)


@dataclass(frozen=True)
class Stored(Viewed):
    """The result of an earlier launch, the node's only input, and how it is seen; it lies dense in row-major order."""

    @classmethod
    def whole(cls, shape: Shape) -> Stored:
        """The result itself."""
        return cls(dense_strides(shape), (shape, dense_strides(shape)))


@dataclass(frozen=True)
class Contraction(Attributes):
    """How the products are summed: in a type ("float32", "float64", "int32", …), of factors that may be rounded.

    `tf32`: PyTorch's flags allow float32 factors to be rounded to tf32 in this operation.
    """

    accumulate: str
    tf32: bool = False


@dataclass(frozen=True)
class Scalar(Attributes):
    """A Python number that is passed at run time: the argument's place."""

    index: int


@dataclass(frozen=True)
class Constant(Attributes):
    """A number that is known when the kernel is written."""

    value: Number


@dataclass(frozen=True)
class Sized(Attributes):
    """A number that follows the sizes of arguments; `value` is that at the traced sizes."""

    law: SizeLaw
    value: Number


@dataclass(frozen=True)
class Iota(Attributes):
    """The coordinate along `dim` of the node's shape (int64)."""

    dim: int


@dataclass(frozen=True)
class Windows(Attributes):
    """Windows over the trailing dimensions of (…, channels, *sizes): (…, channels * taps, positions), both row-major.

    At position o, tap t reads element (o * step + t * dilation - start) / divisor of each dimension, and 0 where there
    is none. A convolution has the divisor 1; a transposed one has step 1, a dilation below 0, its stride as divisor,
    and `more` positions at the end.
    """

    taps: Shape  # of the weights, which may have other sizes in another call
    start: tuple[int, ...]
    step: tuple[int, ...]
    dilation: tuple[int, ...]
    divisor: tuple[int, ...]
    more: tuple[int, ...]

    @property
    def rank(self) -> int:
        """How many dimensions the windows have."""
        return len(self.taps)

    @property
    def is_spread(self) -> bool:
        """Whether there are places without an element between the elements, as a transposed convolution strides."""
        return any(divisor != 1 for divisor in self.divisor)

    @property
    def are_points(self) -> bool:
        """Whether each window is the element at its place."""
        dims = zip(self.taps, self.start, self.step, self.divisor, self.more, strict=True)
        return all(dim == (1, 0, 1, 1, 0) for dim in dims)

    def law(self, dim: int) -> SizeLaw:
        """The number of positions along a dimension, by its size."""
        start, dilation, reach = self.start[dim], self.dilation[dim], self.dilation[dim] * (self.taps[dim] - 1)
        if dilation > 0:
            return SizeLaw.steps(2 * start - reach - 1, self.step[dim])
        divisor = self.divisor[dim]
        return SizeLaw(2 * start - reach + self.more[dim] + 1 - divisor, Fraction(divisor), (), 1)


@dataclass(frozen=True)
class Scan(Attributes):
    """What is combined of the elements up to each along `dim`, from the last one down where it is `reverse`.

    `operation` is sum, prod, max, min, logsumexp, or argmax and argmin: where the latest extreme is, NaN the first of
    all. `exclusive`: of the elements before each alone; the result may then be one longer than what is scanned. The
    operation linear has inputs (term, factor): h[t] = factor[t] * h[t - 1] + term[t]. `window`: of so many elements
    alone, 0 of all; what is scanned in rounds of doubled windows is made of these.
    """

    dim: int
    operation: str
    reverse: bool = False
    exclusive: bool = False
    window: int = 0


@dataclass(frozen=True)
class Sort(Attributes):
    """Elements along `dim` in rising or falling order, NaN as the largest, equal ones by their place.

    The result has the first of them, as many as its shape says, or with `places` where each of those lies (int64).
    """

    dim: int
    descending: bool = False
    places: bool = False


@dataclass(frozen=True)
class Scatter(Attributes):
    """What is combined of the elements along `dim` whose index is the coordinate of the result.

    `operation` is sum, prod, max, min, or last: the one in the last place. Where there is none the result is the
    operation's neutral element, for last 0. An index outside of the result counts for nothing.
    """

    dim: int
    operation: str


@dataclass(frozen=True)
class Search(Attributes):
    """Whether elements that equal the value count as before it (`right`)."""

    right: bool = False


@dataclass(frozen=True)
class Gather(Attributes):
    """Where the index counts."""

    dim: int


@dataclass(frozen=True)
class Reduction(Attributes):
    """The reduced dimensions, non-negative and sorted; the degrees of freedom that `var` takes off their size."""

    dims: tuple[int, ...]
    correction: float = 0.0


@dataclass(frozen=True)
class Reshaping(Attributes):
    """How a dense tensor is viewed in the shape of a `reshape`."""

    view: View


@dataclass(frozen=True)
class Origin:
    """Where a node comes from: the ATen operation without its overload ("amax"), and what messages say of it."""

    operation: str = ""
    text: str = ""  # such as "aten.amax at problem.py:4 (`return x.amax(-1)`)"; "" where nothing is known

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

    def nodes(self) -> Iterator[Node]:
        """Every node once, inputs before users."""
        return nodes_of(self.outputs)

    @property
    def holds_for_other_sizes(self) -> bool:
        """Whether no number and no view is known for the traced sizes alone, but for those of the places `held`."""
        return not self.fixed_shapes and all(view.is_proven for node in self.nodes() for view in views_of(node))

    def size_at(self, place: Place) -> int:
        """The traced size of a dimension of an argument, or the number that the argument is."""
        index, dim = place
        argument = self.arguments[index]
        return argument.shape[dim] if dim >= 0 else int(argument.value or 0)

    @property
    def checked(self) -> frozenset[Place]:
        """The places whose sizes a kernel compares with the traced ones: those held, or all."""
        return self.held if self.holds_for_other_sizes else self.places

    @property
    def places(self) -> frozenset[Place]:
        """All dimensions of the arguments."""
        return frozenset((at, dim) for at, argument in enumerate(self.arguments) for dim in range(len(argument.shape)))

    @property
    def moved_bytes(self) -> int:
        """Bytes that must cross device memory once: all argument tensors and outputs, in the traced shapes."""
        reads = sum(math.prod(a.shape) * ITEM_BYTES[a.dtype] for a in self.arguments if a.kind == "tensor")
        return reads + sum(math.prod(node.shape) * ITEM_BYTES[node.dtype] for node in self.outputs)

    @property
    def flops(self) -> int:
        """One operation for every element of every pointwise node and reduction, in the traced shapes.

        A product of (m, k) and (k, n) counts 2 m n k.
        """
        return sum(map(_flops, self.nodes()))


def views_of(node: Node) -> tuple[View, ...]:
    """Those that `kernel_fn` makes of the node's value."""
    if isinstance(node.attrs, Viewed):
        return node.attrs.views
    return (node.attrs.view,) if isinstance(node.attrs, Reshaping) else ()


def _flops(node: Node) -> int:
    if node.op == "contract":
        return 2 * math.prod(node.shape) * node.inputs[0].shape[-1]
    if node.op == "pool":
        return math.prod(node.inputs[0].shape)
    if node.is_reduction or node.op in ("scan", "sort", "scatter"):
        return max(math.prod(each.shape) for each in node.inputs)
    return math.prod(node.shape) if node.is_pointwise else 0


def nodes_of(outputs: tuple[Node, ...], known: Iterable[int] = ()) -> Iterator[Node]:
    """Every node that these are made of, and they themselves, once each, inputs before users.

    Those whose id is in `known`, and what they alone are made of, are left out.
    """
    seen = set(known)
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(outputs)]
    while stack:
        node, ready = stack.pop()
        if id(node) in seen:
            continue
        if ready:
            seen.add(id(node))
            yield node
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.inputs))


def with_nodes(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    """The graph with `change` of each node, whose inputs are changed already."""
    return _rebuilt(graph, change, {})


def with_values(graph: Graph, values: Mapping[int, Node]) -> Graph:
    """The graph with other nodes in place of those whose id is in `values`, and what becomes of their users."""
    return _rebuilt(graph, lambda node: node, values)


def _rebuilt(graph: Graph, change: Callable[[Node], Node], known: Mapping[int, Node]) -> Graph:
    done = dict(known)
    for node in nodes_of(graph.outputs, known):
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
