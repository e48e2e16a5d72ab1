"""Other ways to say a product: with a vector it is a sum of rows, and a long sum is one of several shorter ones.

A tile of the tensor core wastes all but a column of its work on a vector, and the product is no more than one visit to
the matrix: what a row kernel does at memory speed. A small result of long sums keeps few multiprocessors busy; cut
along k it is a batch of products, whose results a pointwise kernel adds up, in the same order every time. Hopper
multiplies float8 itself, where the function allows its sums. Matrices that an index takes out of an array, such as the
weights of each token's experts, are read where they lie. Where the user asks for it, factors of float32 may be
rounded to tf32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Contraction, Input, Iota, Reduction, ShortSums, Stored, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.computed import ComputedFactor
from cutesmith.patterns.graph.dtypes import FLOATS8, HALVES, compute_dtype
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_nodes
from cutesmith.patterns.graph.shapes import dense_strides, is_squeeze
from cutesmith.patterns.graph.views import push_permute, push_slice

SHORTEST = 512
"""Of a sum that is cut: its launch has some 16 tiles of k to hide its start."""

MOST_PARTS = 16
"""One pointwise launch reads so many partial results side by side."""

TILES_WANTED = 2 * 132
"""Blocks that keep an H200 busy, two for each multiprocessor."""

USUAL_TILE = 64 * 64

MANY_PARTS, LARGE_TILE, LARGE_TILES_WANTED = 64, 128 * 192, 132
"""Parts that a launch of columns sums up, where as many large tiles as an H200 has multiprocessors read the least."""


def with_vectors_as_rows(graph: Graph) -> Graph:
    """The graph with each product of a matrix, contiguous along k, and a vector as a reduction of its rows.

    It holds for vectors alone: of several rows it would be the product of two matrices element by element.
    """
    vectors = list[Node]()
    rewritten = _rewritten(graph, partial(_row_sums, vectors))
    leaves = [Input.of(node).index for node in nodes_of(tuple(vectors)) if node.op == "input"]
    ones = {(at, dim) for at in leaves for dim, size in enumerate(graph.arguments[at].shape) if size == 1}
    return replace(rewritten, held=graph.held | ones) if vectors else graph


def with_long_sums_in_parts(graph: Graph, *, many: bool = False) -> Graph:
    """The graph with small products of long sums as a sum of products, a few or many; right for the traced sizes."""
    return _rewritten(graph, partial(_parts, many), fixed=True)


def with_returned_factors(graph: Graph) -> Graph:
    """The graph with products that read what the function returns where a factor is that but for sizes of 1.

    Heads of a cache that several queries share have such a size more. Each would be stored by a launch of its own.
    """
    build, changed = GraphBuilder(), list[Node]()
    own = with_nodes(graph, build.interned)
    computed = [output for output in own.outputs if output.is_pointwise]

    def read(factor: Node) -> Node:
        same = [each for each in computed if is_squeeze(factor.shape, each.shape) and _is_view_of(build, factor, each)]
        changed.extend(same)
        return build.reshape(build.stored(same[0]), factor.shape) if same else factor

    reading = with_nodes(
        own, lambda node: replace(node, inputs=tuple(map(read, node.inputs))) if node.op == "contract" else node
    )
    return reading if changed else graph


def _is_view_of(build: GraphBuilder, factor: Node, value: Node) -> bool:
    """Whether a factor is a value of the graph in its own shape."""
    return build.materialise(build.reshape(value, factor.shape)) is factor


def with_float8_factors(graph: Graph) -> Graph:
    """The graph with products of the float8 numbers that became float16, where the tensor cores may sum those up."""
    return _rewritten(graph, _of_float8)


def with_chosen_factors(graph: Graph) -> Graph:
    """The graph with products that read the matrices which an index takes out of an array where they lie."""
    return _rewritten(graph, _of_chosen)


def with_computed_factors(graph: Graph) -> Graph:
    """The graph with products whose kernels compute the right factor while they load it, such as quantised weights."""
    return _rewritten(graph, _of_computed)


def with_tf32(graph: Graph, *, allowed: bool = True) -> Graph:
    """The graph with products of float32 that may round their factors to tf32, or may not; itself where all do so."""
    return _rewritten(graph, partial(_of_rounded_factors, allowed))


def _rewritten(graph: Graph, change: Callable[[GraphBuilder, Node], Node | None], *, fixed: bool = False) -> Graph:
    build, changed = GraphBuilder(), dict[int, Node]()

    def maybe(node: Node) -> Node:
        build.origin = node.origin
        if node.op == "contract":
            other = change(build, node)
        elif any(id(child) in changed and child.op == "reshape" for child in node.inputs):
            other = _before_reshape(build, node)
        else:
            other = None
        if other is not None:
            changed[id(other)] = other
        return node if other is None else other

    rewritten = with_nodes(graph, maybe)
    if not changed:
        return graph
    return replace(rewritten, fixed_shapes=True) if fixed else rewritten


def _before_reshape(build: GraphBuilder, node: Node) -> Node | None:
    """The same work before a reshape of what it is done on, where the builder can put it there."""
    if node.op == "reshape":
        return build.reshape(node.inputs[0], node.shape)
    if not node.is_pointwise:
        return None
    done = build(node.op, *node.inputs, dtype=node.dtype)
    ones = (1,) * (len(node.shape) - len(done.shape))
    return build.materialise(build.expand(build.reshape(done, (*ones, *done.shape)), node.shape))


def _of_float8(build: GraphBuilder, node: Node) -> Node | None:
    if Contraction.of(node).short_sums is ShortSums.NONE:
        return None
    factors = tuple(side.inputs[0] for side in node.inputs if side.op == "cast" and side.inputs[0].dtype in FLOATS8)
    build.origin = node.origin
    return build.node("contract", factors, node.shape, node.dtype, node.attrs) if len(factors) == 2 else None


def _of_computed(build: GraphBuilder, node: Node) -> Node | None:
    x, factor = node.inputs
    kind = Contraction.of(node).accumulate
    if len(node.shape) != 2 or factor.dtype not in HALVES or x.dtype != factor.dtype or kind != "float32":
        return None
    lines = _lines_of(build, factor)
    if lines is None:
        return None
    try:
        ComputedFactor.of(lines)
    except UnmatchedError:
        return None
    computed = build.node("computed", (lines,), factor.shape, factor.dtype)
    return build.node("contract", (x, computed), node.shape, node.dtype, node.attrs)


def _lines_of(build: GraphBuilder, factor: Node) -> Node | None:
    """The value (n, k) that a right factor is the transposed one of, where it is computed."""
    if factor.is_pointwise:
        return push_permute(build, factor, (1, 0))
    if factor.op != "stored":
        return None
    value, (k, n) = factor.inputs[0], factor.shape
    turned = value.shape == (n, k) and Stored.of(factor).stride == (1, k)
    return value if turned and not Stored.of(factor).offset else None


def _of_chosen(build: GraphBuilder, node: Node) -> Node | None:
    if each := _of_each_chosen(build, node):
        return each
    factors = [_chosen(build, side) or side for side in node.inputs]
    if all(new is old for new, old in zip(factors, node.inputs, strict=True)):
        return None
    build.origin = node.origin
    return build.node("contract", factors, node.shape, node.dtype, node.attrs)


def _of_each_chosen(build: GraphBuilder, node: Node) -> Node | None:
    """A row (…, 1, k) times matrices chosen for it, side by side (…, k, count * n), as products of each."""
    row, factor = node.inputs
    matrices = _side_by_side(build, factor) if node.shape[-2] == 1 else None
    chosen = None if matrices is None else _chosen(build, matrices)
    if chosen is None:
        return None
    build.origin = node.origin
    rows = build.reshape(row, (*row.shape[:-2], 1, *row.shape[-2:]))
    shape = (*chosen.shape[:-2], 1, chosen.shape[-1])
    return build.reshape(build.node("contract", (rows, chosen), shape, node.dtype, node.attrs), node.shape)


def _side_by_side(build: GraphBuilder, factor: Node) -> Node | None:
    """The matrices (…, count, k, n) that a factor (…, k, count * n) is made of, as views of what was taken."""
    seen = factor.inputs[0] if factor.op == "reshape" else factor
    taken = seen.inputs[0] if seen.op == "stored" else seen
    if seen.op != "stored" or taken.op != "take" or len(taken.shape) != len(factor.shape) + 1:
        return None
    *batch, count, lines, length = taken.shape
    *others, line, _ = dense_strides(taken.shape)
    if factor.shape == (*batch, length, count * lines) and Stored.of(seen).stride == (*others[:-1], 1, line):
        return push_permute(build, build.stored(taken), (*range(len(others)), len(others) + 1, len(others)))
    if factor.shape == (*batch, lines, count * length) and Stored.of(seen).stride == (
        *others[:-1],
        line,
        others[-1],
        1,
    ):
        return build.stored(taken)
    return None


def _chosen(build: GraphBuilder, factor: Node) -> Node | None:
    """A factor as whole matrices of an array and an index for each product; None where it is something else."""
    taken = factor.inputs[0] if factor.op == "stored" else factor
    batch, rank = factor.shape[:-2], len(factor.shape)
    if taken.op != "take" or len(taken.inputs) != 4 or taken.inputs[1].shape != (*batch, 1, 1):
        return None
    array, index, *places = taken.inputs
    steps = dense_strides(taken.shape)
    seen = Stored.of(factor).stride if factor.op == "stored" else steps
    along = [Iota.of(place).dim if place.op == "iota" else None for place in places]
    if array.shape[1:] != taken.shape[-2:] or along != [rank - 2, rank - 1] or len(seen) != rank:
        return None
    if seen != steps:
        array = push_permute(build, array, (0, 2, 1))
    if array.shape[1:] != factor.shape[-2:] or seen not in (steps, (*steps[:-2], steps[-1], steps[-2])):
        return None
    return build.node("chosen", (array, build.stored(index)), factor.shape, factor.dtype)


def _of_rounded_factors(allowed: bool, build: GraphBuilder, node: Node) -> Node | None:
    attrs = Contraction.of(node)
    if attrs.tf32 is allowed or any(side.dtype != "float32" for side in node.inputs):
        return None
    build.origin = node.origin
    return build.node("contract", node.inputs, node.shape, node.dtype, replace(attrs, tf32=allowed))


def _row_sums(vectors: list[Node], build: GraphBuilder, node: Node) -> Node | None:
    """The sums of rows that a product with a vector is, which is added to `vectors`."""
    a, b = node.inputs
    m, n = node.shape[-2:]
    if len(node.shape) != 2 or min(m, n) != 1 or compute_dtype(node.dtype) != "float32" or math.prod(a.shape) == 0:
        return None
    build.origin = node.origin
    matrix, vector = (a, push_permute(build, b, (1, 0))) if n == 1 else (push_permute(build, b, (1, 0)), a)
    if matrix.op != "input" or Input.of(matrix).stride[-1] != 1:
        return None
    vectors.append(vector)
    kind = Contraction.of(node).accumulate
    products = build.node("mul", (matrix, vector), matrix.shape, kind)
    total = build.node("sum", (products,), (matrix.shape[0], 1), node.dtype, Reduction((1,)))
    return build.reshape(total, node.shape)


def _parts(many: bool, build: GraphBuilder, node: Node) -> Node | None:
    k, count = node.inputs[0].shape[-1], _part_count(node, many)
    if count < 2 or any(side.op not in (*IN_MEMORY, "reshape") for side in node.inputs):
        return None
    build.origin = node.origin
    a, b = map(build.stored, node.inputs)
    cuts = f"{count}, {k // count}"
    left = build.view_in_memory(a, View(f"{{0}}.unflatten(-1, ({cuts})).movedim(-2, 0)"), _split(count, -1))
    right = build.view_in_memory(b, View(f"{{0}}.unflatten(-2, ({cuts})).movedim(-3, 0)"), _split(count, -2))
    if left is None or right is None:
        return None
    kind = compute_dtype(node.dtype)
    shape = (count, *node.shape)
    sums = build.stored(build.node("contract", (left, right), shape, kind, node.attrs))
    if many:
        return build.retype(build.drop_dims(build.reduce("sum", sums, [0], kind), [0]), node.dtype)
    slices = [build.drop_dims(push_slice(build, sums, 0, at, 1), [0]) for at in range(count)]
    while len(slices) > 1:  # pairwise: the error grows with the logarithm
        pairs = [build.node("add", (x, y), node.shape, kind) for x, y in zip(slices[::2], slices[1::2], strict=False)]
        slices = pairs + slices[2 * len(pairs) :]
    return build.retype(slices[0], node.dtype)


def _part_count(node: Node, many: bool) -> int:
    """How many parts of k keep the multiprocessors busy; 1 where nothing is gained, or where a few already do."""
    k, elements = node.inputs[0].shape[-1], math.prod(node.shape)
    if not many:
        most = min(MOST_PARTS, TILES_WANTED // max(1, elements // USUAL_TILE), k // SHORTEST)
        return next((count for count in range(most, 1, -1) if k % count == 0), 1)
    most = min(MANY_PARTS, LARGE_TILES_WANTED // max(1, elements // LARGE_TILE), k // SHORTEST)
    return next((count for count in range(most, MOST_PARTS, -1) if k % count == 0), 1)


def _split(count: int, dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The parts of `dim` in front."""
    return lambda x: torch.unflatten(x, dim, (count, x.shape[dim] // count)).movedim(dim - 1, 0)
