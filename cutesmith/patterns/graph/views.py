"""Pushes permutations and slices up through a graph to the arguments, where `kernel_fn` makes them for free.

What cannot be pushed further, past a product of matrices above all, is stored, and the view is one of the stored value.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.graph.attributes import TRANSPOSED, Gather, Iota, Reduction, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY, PRODUCTS, is_made_of
from cutesmith.patterns.graph.nodes import REDUCTIONS, Node
from cutesmith.patterns.graph.shapes import Shape, common_parts, is_squeeze, kept_positions, same_last

# Permute


def push_permute(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node:
    """The transposed value, with the transposition made on the arguments or on a value that is stored.

    One that was transposed before is seen as what it was then: `einsum` turns factors back and forth.
    """
    if id(node) in build.permuted:
        node, before = build.permuted[id(node)]
        dims = [before[dim] for dim in dims]
    if list(dims) == list(range(len(dims))):
        return node
    made = build.viewed_once(("permute", *dims), node, lambda: _permuted(build, node, dims))
    build.permuted[id(made)] = node, dims
    return made


def _permuted(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node:
    if _keeps_order(node, dims):
        return build.reshape(build.settled(node), tuple(node.shape[dim] for dim in dims))
    return _turned(build, node, dims)


def _keeps_order(node: Node, dims: Sequence[int]) -> bool:
    """Whether only dimensions of size 1 change places."""
    long_dims = [dim for dim in dims if node.shape[dim] != 1]
    return long_dims == sorted(long_dims)


def _turned(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node:
    node, shape = build.settled(node), tuple(node.shape[dim] for dim in dims)
    if node.op in IN_MEMORY:
        view = TRANSPOSED if tuple(dims) == (1, 0) else View(f"{{0}}.permute({', '.join(map(str, dims))})")
        viewed = build.view_in_memory(node, view, lambda base: base.permute(*dims))
        assert viewed is not None
        return viewed
    if node.op == "expand":
        return build.expand(_permute_broadcast(build, node.inputs[0], dims), shape)
    if is_made_of(node, PRODUCTS):
        return push_permute(build, build.stored(node), dims)
    return _permute_node(build, node, dims, shape)


def _permute_node(build: GraphBuilder, node: Node, dims: Sequence[int], shape: Shape) -> Node:
    if node.op == "iota":
        return build.iota(shape, list(dims).index(Iota.of(node).dim))
    if node.is_pointwise:
        inputs = [_permute_broadcast(build, each, dims) for each in node.inputs]
        return build.with_inputs(node, inputs, shape)
    if node.is_reduction:
        reduced = [at for at, dim in enumerate(dims) if dim in Reduction.of(node).dims]
        order = [dims[at] for at in reduced]
        if node.op in ("argmax", "argmin") and order != sorted(order):
            return push_permute(build, build.stored(node), dims)
        attrs = replace(Reduction.of(node), dims=tuple(reduced))
        return build.node(node.op, [push_permute(build, node.inputs[0], dims)], shape, node.dtype, attrs)
    if node.op == "take" and dims[-1] == len(dims) - 1:  # neighbours stay neighbours
        source, *places = node.inputs
        permuted = [build.materialise(_permute_broadcast(build, place, dims)) for place in places]
        return build.node(node.op, [source, *permuted], shape, node.dtype)
    if node.op == "gather":
        inputs = [push_permute(build, each, dims) for each in node.inputs]
        return build.gather(inputs[0], inputs[1], list(dims).index(Gather.of(node).dim))
    if node.op == "reshape" and (turned := _turned_alone(node, dims)):  # leading dimensions were regrouped before
        source, more = node.inputs[0], len(node.inputs[0].shape) - len(dims)
        last = [dim + more for dim in dims[-turned:]]
        return build.reshape(push_permute(build, source, [*range(len(dims) + more - turned), *last]), shape)
    if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
        source = node.inputs[0]  # transposed before its ones were dropped; they move to the end
        kept = kept_positions(source.shape, node.shape)
        dropped = [dim for dim in range(len(source.shape)) if dim not in kept]
        return build.reshape(push_permute(build, source, [kept[dim] for dim in dims] + dropped), shape)
    if node.op == "reshape" and (parts := _permuted_parts(build, node, dims)) is not None:
        return build.reshape(parts, shape)
    return push_permute(build, build.stored(node), dims)


def _permuted_parts(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node | None:
    """The parts of merged dimensions, permuted where they lie: what splits them again finds them so, without a copy."""
    source, parts = node.inputs[0], common_parts(node.inputs[0].shape, node.shape)
    if source.op not in IN_MEMORY or id(node) in build.factors or parts is None:
        return None
    finer = build.reshape(source, tuple(itertools.chain.from_iterable(parts)))
    starts = [0, *itertools.accumulate(map(len, parts))]
    order = [at for dim in dims for at in range(starts[dim], starts[dim + 1])]
    return push_permute(build, finer, order) if finer.op in IN_MEMORY else None


def _turned_alone(node: Node, dims: Sequence[int]) -> int:
    """How many of the last dimensions, which a reshape left as they were, change places alone; 0: others do, too."""
    kept = same_last(node.inputs[0].shape, node.shape)
    return kept if list(dims[: len(dims) - kept]) == list(range(len(dims) - kept)) else 0


def _permute_broadcast(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node:
    if all(size == 1 for size in node.shape):
        return node if not node.shape else build.reshape(node, ())
    padded = build.reshape(node, (1,) * (len(dims) - len(node.shape)) + node.shape)
    if _keeps_order(padded, dims) and is_made_of(padded, REDUCTIONS) and not is_made_of(padded, PRODUCTS):
        # What it is made of is turned, as its other operands are: a reshape would hide that it is a value of rows.
        return build.viewed_once(("turn", *dims), padded, lambda: _turned(build, padded, dims))
    return push_permute(build, padded, dims)


# Slice


def push_slice(build: GraphBuilder, node: Node, dim: int, start: int, length: int, step: int = 1) -> Node:
    """Elements start, start+step, … (`length` of them) along `dim`, of the arguments or of a value that is stored."""
    if length == node.shape[dim] and start == 0 and (step == 1 or length == 1):
        return node
    span = start, length, step
    pieces = _sliced_pieces(build, node, dim, start, length) if step == 1 else []
    if len(pieces) == 1:
        return build.retype(pieces[0][1], node.dtype)
    sliced = build.viewed_once(("slice", dim, *span), node, lambda: _sliced(build, node, dim, span))
    if pieces:
        build.joined[id(sliced)] = dim, pieces
    return sliced


def _sliced_pieces(build: GraphBuilder, node: Node, dim: int, start: int, length: int) -> list[tuple[int, Node]]:
    """What of the values that were joined along a dimension lies in a slice; nothing where none were."""
    found, (along, pieces) = list[tuple[int, Node]](), build.joined.get(id(node), (dim, []))
    for first, piece in pieces if along == dim else ():
        begin, end = max(start, first), min(start + length, first + piece.shape[dim])
        if begin < end:
            found.append((begin - start, push_slice(build, piece, dim, begin - first, end - begin)))
    return found


def once_scanned(build: GraphBuilder, node: Node) -> Node:
    """A state of a recurrence that became a scan as its place in what is scanned; any other value as it is."""
    if id(node) not in build.states:
        return node
    whole, dim, place = build.states[id(node)]
    return build.drop_dims(push_slice(build, whole, dim, place, 1), [dim])


def _sliced(build: GraphBuilder, node: Node, dim: int, span: tuple[int, int, int]) -> Node:
    start, length, step = span
    node, shape = build.settled(node, sliced=True), (*node.shape[:dim], length, *node.shape[dim + 1 :])
    if node.op in IN_MEMORY:
        return _slice_input(build, node, dim, *span)
    if node.op == "expand":
        return build.expand(_slice_broadcast(build, node.inputs[0], node.shape, dim, span), shape)
    if is_made_of(node, PRODUCTS):
        return push_slice(build, build.stored(node), dim, *span)
    if node.op == "iota":
        along = Iota.of(node).dim
        coordinate = build.iota(shape, along)
        return coordinate if dim != along else build("add", build("mul", coordinate, step), start)
    if node.is_pointwise:
        inputs = [_slice_broadcast(build, each, node.shape, dim, span) for each in node.inputs]
        return build.with_inputs(node, inputs, shape)
    return _slice_node(build, node, dim, span, shape)


def _slice_input(build: GraphBuilder, node: Node, dim: int, start: int, length: int, step: int) -> Node:
    index = (slice(None),) * dim + (slice(start, start + length * step, step),)
    if step == 1:
        code = View(f"{{0}}.narrow({dim}, {{1}}, {{2}})", (start, length))
    else:
        code = View(f"{{0}}[{':, ' * dim}{{1}}:{{2}}:{step}]", (start, start + length * step))
    viewed = build.view_in_memory(node, code, lambda base: base[index])
    assert viewed is not None
    return viewed


def _slice_broadcast(build: GraphBuilder, node: Node, shape: Shape, dim: int, span: tuple[int, int, int]) -> Node:
    own = dim - (len(shape) - len(node.shape))
    if own < 0 or (node.shape[own] == 1 and shape[dim] != 1):
        return node
    return push_slice(build, node, own, *span)


def _slice_node(build: GraphBuilder, node: Node, dim: int, span: tuple[int, int, int], shape: Shape) -> Node:
    if node.is_reduction and dim not in Reduction.of(node).dims:
        return build.node(node.op, [push_slice(build, node.inputs[0], dim, *span)], shape, node.dtype, node.attrs)
    if node.op == "gather" and dim != Gather.of(node).dim:
        inputs = [push_slice(build, each, dim, *span) for each in node.inputs]
        return build.gather(inputs[0], inputs[1], Gather.of(node).dim)
    if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
        at = kept_positions(node.inputs[0].shape, node.shape)[dim]
        return build.reshape(push_slice(build, node.inputs[0], at, *span), shape)
    return push_slice(build, build.stored(node), dim, *span)
