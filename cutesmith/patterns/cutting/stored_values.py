"""What a launch computes and what it reads, given the values that other launches store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cutesmith.patterns.cutting.regions import base_of
from cutesmith.patterns.graph.attributes import Input, Reshaping, Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Argument, Graph, Node, with_values
from cutesmith.patterns.graph.shapes import dense_strides


def nodes_between(places: Mapping[int, int], outputs: Sequence[Node], stored: Mapping[int, Node]) -> list[Node]:
    """The nodes that a launch computes for these, given what is stored, in the graph's order (`places` by ids)."""
    found: dict[int, Node] = {}
    stack = list(outputs)
    while stack:
        node = stack.pop()
        is_given = id(base_of(node)) in stored and not is_among(node, outputs)
        if id(node) not in found and not is_given:
            found[id(node)] = node
            stack.extend(node.inputs)
    return sorted(found.values(), key=lambda node: places[id(node)])


def reading(graph: Graph, stored: dict[int, Node]) -> tuple[Graph, list[Node]]:
    """The graph with an argument for each stored value that it reads, and those; what reads them becomes an input."""
    build, start = GraphBuilder(), len(graph.arguments)
    places: dict[int, int] = {}
    given: dict[int, Node] = {}
    for node in first_stored(graph.outputs, stored):
        base = base_of(node)
        seen = seen_from(base, node)
        place = places.setdefault(id(base), start + len(places))
        attrs = Input(seen.stride, seen.root, seen.views, seen.offset, index=place)
        given[id(node)] = build.node("input", (), node.shape, node.dtype, attrs)
    read = [stored[key] for key in places]
    arguments = [
        Argument(f"value_{at}", "tensor", n.dtype, n.shape, dense_strides(n.shape)) for at, n in enumerate(read)
    ]
    return replace(with_values(graph, given), arguments=(*graph.arguments, *arguments)), read


def first_stored(outputs: Sequence[Node], stored: Mapping[int, Node]) -> Iterator[Node]:
    """The first nodes below the outputs that are stored values or views of them."""
    seen, stack = set[int](), list(outputs)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(base_of(node)) in stored and not is_among(node, outputs):
            yield node
        else:
            stack.extend(node.inputs)


def is_among(node: Node, nodes: Sequence[Node]) -> bool:
    return any(node is each for each in nodes)


def seen_from(base: Node, node: Node) -> Stored:
    """How the memory of `base` is seen as `node`, a reshape of it or a view that was taken of a stored value."""
    whole = Stored.whole(base.shape)
    if node is base:
        return whole
    given = Stored.of(node) if node.op == "stored" else replace(whole, stride=dense_strides(node.shape))
    views, inner = given.views, node.inputs[0] if node.op == "stored" else node
    while inner is not base:
        views, inner = (Reshaping.of(inner).view, *views), inner.inputs[0]
    return replace(given, root=whole.root, views=views)


def seen_once(node: Node) -> Node | None:
    """A view of what is itself a view of a stored value, as one view of that; None where dimensions were merged."""
    (inner,) = node.inputs
    outer, given = Stored.of(node), Stored.of(inner)
    dims = {step: dim for dim, (size, step) in enumerate(zip(*outer.root, strict=True)) if size > 1}
    steps = zip(node.shape, outer.stride, strict=True)
    if outer.root[0] != inner.shape or any(size > 1 and step and step not in dims for size, step in steps):
        return None
    stride = tuple(given.stride[dims[step]] if step in dims else 0 for step in outer.stride)
    starts = ((dim, outer.offset // step % inner.shape[dim]) for step, dim in dims.items())
    offset = given.offset + sum(start * given.stride[dim] for dim, start in starts)
    attrs = replace(given, stride=stride, views=(*given.views, *outer.views), offset=offset)
    return replace(node, inputs=inner.inputs, attrs=attrs)


def slices_of(view: Node) -> list[tuple[int, int, int]] | None:
    """For each dimension of a view that of the value, the first element and their number; None of any other view."""
    seen = Stored.of(view)
    shape, strides = seen.root
    if len(shape) != len(view.shape) or 0 in shape:
        return None
    starts = [seen.offset // stride % size for size, stride in zip(shape, strides, strict=True)]
    left, found = dict(enumerate(strides)), list[int]()
    for size, stride in zip(view.shape, seen.stride, strict=True):
        fitting = [dim for dim, own in left.items() if own == stride and starts[dim] + size <= shape[dim]]
        if not fitting:
            return None
        found.append(min(fitting, key=lambda dim: (shape[dim] == 1) != (size == 1)))
        del left[found[-1]]
    return [(dim, starts[dim], size) for dim, size in zip(found, view.shape, strict=True)]
