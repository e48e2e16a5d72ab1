"""Reductions of rows whose elements are read in a view of the rows, as the mean over all heads is beside each head.

A norm over all channels of a token is followed by its heads: (batch, tokens, heads * 128) is seen as (batch, heads,
tokens, 128). The mean of a row is that over heads and channels there. So one launch computes both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from cutesmith.patterns.cutting.own_places import is_in_place
from cutesmith.patterns.graph.attributes import Input, Reduction, Reshaping, Stored, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, users_of, with_nodes
from cutesmith.patterns.graph.shapes import Shape, dense_strides, is_squeeze

PLACELESS = ("sum", "mean", "prod", "max", "min", "any", "all", "var")
"""Reductions whose result does not follow the order of the elements."""


def with_viewed_reductions(graph: Graph) -> Graph:
    """The graph with such reductions over the dimensions of the view; itself without such."""
    views = [node for node in graph.nodes() if node.op == "input"]
    users = users_of(graph)
    stored = [node for node in graph.nodes() if node.op == "stored" and _is_read_in_place(users[id(node)])]
    found = {id(node): moved for node in stored if (moved := _moved(graph, node, views))}
    if not found:
        return graph
    build = GraphBuilder()

    def changed(node: Node) -> Node:
        if id(node) in found:
            return found[id(node)]
        taken = node.inputs[0] if node.op == "take" else None
        reduced = next((each for each in found.values() if each is taken), None)
        return build.materialise(build.expand(reduced, node.shape)) if reduced else node

    return with_nodes(graph, changed)


def _is_read_in_place(users: Sequence[Node]) -> bool:
    return all(user.is_pointwise or is_in_place(user) for user in users)


def _moved(graph: Graph, node: Node, views: Sequence[Node]) -> Node | None:
    """The reduction that is stored, in the view in which it is read."""
    between, value = list[View](), node.inputs[0]
    while value.op == "reshape" and is_squeeze(value.shape, value.inputs[0].shape):
        between.insert(0, Reshaping.of(value).view)
        (value,) = value.inputs
    if value.op not in PLACELESS or not _is_plain(value.inputs[0]):
        return None
    steps = (*between, *Stored.of(node).views)
    wholes = [leaf for leaf in nodes_of(value.inputs) if leaf.op == "input" and leaf.shape == value.inputs[0].shape]
    for whole, view in itertools.product(wholes[:1], views):
        if Input.of(view).index == Input.of(whole).index and len(view.shape) == len(node.shape):
            moving = _Moving.found(graph, value, whole, view, steps)
            if moving and (moved := moving.reduction(views)) and moved.shape == node.shape:
                return moved
    return None


def _is_plain(value: Node) -> bool:
    """Whether a value is pointwise work on arguments and numbers, which have no places."""
    return all(each.is_pointwise or each.op in LEAVES - {"iota"} for each in nodes_of((value,)))


@dataclass(frozen=True)
class _Moving:
    """A reduction `value` whose rows are those of a view: `dims` of it for each dimension of what is reduced."""

    value: Node
    dims: tuple[tuple[int, ...], ...]
    shape: Shape

    @classmethod
    def found(cls, graph: Graph, value: Node, whole: Node, view: Node, steps: Sequence[View]) -> _Moving | None:
        """For all sizes that are tried; a dimension of 1 is found where it is larger."""
        ways = [_dims(shapes, value, whole, view, steps, graph) for shapes in _sizes(graph, whole)]
        if None in ways:
            return None
        found = [{dims for dims in each if dims} or {()} for each in zip(*filter(None, ways), strict=True)]
        return cls(value, tuple(map(min, found)), view.shape) if all(len(each) == 1 for each in found) else None

    def reduction(self, views: Sequence[Node]) -> Node | None:
        """The reduction over the dimensions of the view; None where what is reduced has no such views."""
        build, over = GraphBuilder(), Reduction.of(self.value)
        known: dict[int, Node] = {}
        for node in nodes_of(self.value.inputs):
            if node.op == "input":
                seen = next((view for view in views if self._is_seen_as(node, view)), None)
                if seen is None:
                    return None
                known[id(node)] = seen
            elif node.is_pointwise:
                inputs = [known[id(child)] for child in node.inputs]
                known[id(node)] = build.node(node.op, inputs, self._moved_shape(node.shape), node.dtype, node.attrs)
            else:
                known[id(node)] = node
        dims = tuple(sorted(itertools.chain(*(self.dims[dim] for dim in over.dims))))
        build.origin = self.value.origin
        return build.node(
            self.value.op,
            [known[id(self.value.inputs[0])]],
            self._moved_shape(self.value.shape),
            self.value.dtype,
            replace(over, dims=dims),
        )

    def _moved_shape(self, shape: Shape) -> Shape:
        sizes = [1] * len(self.shape)
        for dims, size in zip(self.dims[len(self.dims) - len(shape) :], shape, strict=True):
            for dim in dims if size != 1 else ():
                sizes[dim] = self.shape[dim]
        return tuple(sizes)

    def _is_seen_as(self, leaf: Node, view: Node) -> bool:
        """Whether a view of the same argument has at each place what the leaf has there."""
        seen, given = Input.of(view), Input.of(leaf)
        if (seen.index, seen.offset) != (given.index, given.offset):
            return False
        steps = _steps(leaf.shape, given.stride, self.dims, self.shape)
        return view.shape == self._moved_shape(leaf.shape) and _outer(view.shape, seen.stride) == steps


def _steps(shape: Shape, stride: Shape, dims: Sequence[Sequence[int]], view: Shape) -> Shape:
    """The strides along the dimensions of a view of what has these along those that it is made of; 0 where 1 is."""
    steps = [0] * len(view)
    for group, size, step in zip(dims[len(dims) - len(shape) :], shape, stride, strict=True):
        for dim in reversed(group if size != 1 else ()):
            steps[dim], step = step, step * view[dim]
    return tuple(0 if size == 1 else step for size, step in zip(view, steps, strict=True))


def _outer(shape: Shape, stride: Shape) -> Shape:
    return tuple(0 if size == 1 else step for size, step in zip(shape, stride, strict=True))


def _sizes(graph: Graph, whole: Node) -> Iterator[dict[int, tuple[Shape, Shape]]]:
    """Shape and stride of the arguments as they are traced, then with each size of one twice as large, if it is free.

    Of views that show the same for all of them this is known to hold, as sizes of views are products of others.
    """
    traced = {at: (each.shape, each.stride) for at, each in enumerate(graph.arguments) if each.kind == "tensor"}
    yield traced
    index = Input.of(whole).index
    shape, stride = traced[index]
    for dim, size in enumerate(shape):
        if graph.fixed_shapes or (index, dim) in graph.held:
            continue
        longer = tuple(step * (2 if step > stride[dim] else 1) for step in stride)
        yield traced | {index: ((*shape[:dim], 2 * size, *shape[dim + 1 :]), longer)}


def _dims(
    sizes: Mapping[int, tuple[Shape, Shape]], value: Node, whole: Node, view: Node, steps: Sequence[View], graph: Graph
) -> tuple[tuple[int, ...], ...] | None:
    """Which dimensions of a view make up each of what is reduced; None where the result is not seen so, too."""
    names = [f"argument_{at}" for at in range(len(graph.arguments))]
    given = {names[at]: torch.empty_strided(*each, device="meta") for at, each in sizes.items()}
    try:
        root = given[names[Input.of(whole).index]]
        reduced, seen = (_viewed(root, Input.of(node).views, names, given) for node in (whole, view))
        rows = [1 if dim in Reduction.of(value).dims else size for dim, size in enumerate(reduced.shape)]
        result = _viewed(torch.empty(rows, device="meta"), steps, names, given)
    except (RuntimeError, KeyError, NameError, AttributeError):  # sizes that the function does not take
        return None
    dims = _merged(reduced, seen)
    if dims is None:
        return None
    wanted = _steps(tuple(rows), dense_strides(tuple(rows)), dims, tuple(seen.shape))
    return dims if _outer(tuple(result.shape), result.stride()) == wanted else None


def _viewed(
    tensor: torch.Tensor, views: Sequence[View], names: Sequence[str], given: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """A tensor through views, as `kernel_fn` will make them."""
    for view in views:
        tensor = eval(view.code("tensor", names), {}, {**given, "tensor": tensor})  # noqa: S307 - code of our own
    return tensor


def _merged(whole: torch.Tensor, view: torch.Tensor) -> tuple[tuple[int, ...], ...] | None:
    """The dimensions of a view that make up each dimension of a tensor, the outermost first; None if they do not."""
    if whole.storage_offset() != view.storage_offset() or whole.numel() != view.numel():
        return None
    left = sorted((dim for dim in range(view.dim()) if view.shape[dim] != 1), key=lambda dim: view.stride(dim))
    found: list[tuple[int, ...]] = [()] * whole.dim()
    for at in sorted(range(whole.dim()), key=lambda dim: whole.stride(dim)):
        size, step, dims = 1, whole.stride(at), list[int]()
        while size < whole.shape[at] and left and view.stride(left[0]) == step * size:
            size *= view.shape[left[0]]
            dims.insert(0, left.pop(0))
        if size != whole.shape[at]:
            return None
        found[at] = tuple(dims)
    return None if left else tuple(found)
