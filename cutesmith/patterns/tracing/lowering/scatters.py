"""Lowerings of what is combined by an index: scatters, index_add, segments, bags and histograms.

A `scatter` node combines the elements of each index; what they are combined with is pointwise work after it.
"""

from __future__ import annotations

import math

from cutesmith.patterns.graph.attributes import Constant, Number, Scan, Scatter, Sort, Stored
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.simplification import constant_value
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_slice
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, lowers
from cutesmith.patterns.tracing.lowering.reductions import reduced
from cutesmith.patterns.tracing.lowering.searches import search

OPERATIONS = {"sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod", "mul": "prod", "mean": "sum"}
OPERATIONS |= {"amax": "max", "max": "max", "amin": "min", "min": "min"}
"""PyTorch's words for ways to combine."""
JOINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


def _combined(low: Lowering, index: Node, x: Node, dim: int, count: int, operation: str, dtype: str) -> Node:
    """The elements of x, which broadcast with the index, combined in `count` places along `dim`."""
    index = low.build.operand(index, "int64")
    alone = _sorted_places(index, dim) is not None
    frame = broadcast([index.shape, x.shape])
    index, x = _least(low, index, x)
    shape = (*frame[:dim], count, *frame[dim + 1 :])
    return low.build.node("scatter", (index, x), shape, dtype, Scatter(dim, operation, alone))


def _sorted_places(index: Node, dim: int) -> Node | None:
    """The sort along `dim` that gave these indices, which are all different then."""
    is_whole = index.op == "stored" and Stored.of(index) == Stored.whole(index.shape)
    base = index.inputs[0] if is_whole else index
    return base if base.op == "sort" and Sort.of(base).places and Sort.of(base).dim == dim else None


def _least(low: Lowering, index: Node, x: Node) -> tuple[Node, Node]:
    """Both, no further stretched than it takes to have their common shape: what an index does not know are columns."""
    frame, whole = broadcast([index.shape, x.shape]), low.build.materialise
    inner_index, inner_x = (each.inputs[0] if each.op == "expand" else each for each in (index, x))
    for pair in ((inner_index, inner_x), (inner_index, whole(x))):
        if broadcast([each.shape for each in pair]) == frame:
            return pair
    return whole(index), whole(x)


def _counted(low: Lowering, index: Node, dim: int, count: int) -> Node:
    """How many elements have each index; of one that is stretched, without the dimensions in which it is."""
    inner = index.inputs[0] if index.op == "expand" else index
    inner = low.build.reshape(inner, (1,) * (len(index.shape) - len(inner.shape)) + inner.shape)
    index = inner if inner.shape[dim] == index.shape[dim] else index
    return _combined(low, index, low.build.constant(1, "int32"), dim, count, "sum", "int32")


def joined(
    low: Lowering, x: Node, dim: int, index: Node, source: Node, reduction: str, include_self: bool = True
) -> Node:
    """x combined with the elements of each index, or those alone where there are some."""
    build, count = low.build, x.shape[dim]
    if low.dtype == "bool":
        raise build.unmatched("combines booleans")
    operation = OPERATIONS[reduction]
    source = low.operand(source)
    alike = constant_value(source.inputs[0] if source.op == "expand" else source)
    if operation == "sum" and alike is not None and math.isfinite(alike):  # a multiple of how many there are
        total = build("mul", build.cast(_counted(low, index, dim, count), low.dtype), alike, dtype=low.dtype)
    else:
        total = _combined(low, index, source, dim, count, operation, low.dtype)
    if include_self:
        total = build(JOINED[operation], low.operand(x), total, dtype=low.dtype)
    if include_self and reduction != "mean":
        return total
    number = _counted(low, index, dim, count)
    if reduction == "mean":
        members = build("add", number, 1) if include_self else build("maximum", number, 1)
        divide = "div" if is_float(low.dtype) else "floor_div"
        total = build(divide, total, low.operand(members), dtype=low.dtype)
    return total if include_self else build("where", build("gt", number, 0), total, low.operand(x), dtype=low.dtype)


def replaced(low: Lowering, x: Node, dim: int, index: Node, source: Node) -> Node:
    """x with the last element of each index in its place."""
    build, count = low.build, x.shape[dim]
    kind = "int32" if low.dtype == "bool" else low.dtype
    last = _combined(low, index, build.operand(low.operand(source), kind), dim, count, "last", kind)
    places = _sorted_places(build.operand(index, "int64"), dim)
    if places is not None and index.shape[dim] == places.inputs[0].shape[dim] == count:
        return low.operand(last)  # every place has one
    there = build("gt", _counted(low, index, dim, count), 0)
    return build("where", there, low.operand(last), low.operand(x), dtype=low.dtype)


def _at_one_place(low: Lowering, x: Node, dim: int, index: Node, value: Node) -> Node:
    """x with a value at the only index along `dim`."""
    here = low.build("eq", low.build.iota(x.shape, dim), low.build.operand(index, "int64"))
    return low.build("where", here, low.operand(value), low.operand(x), dtype=low.dtype)


def _part(low: Lowering, x: Node, dim: int, index: Node, source: Operand) -> Node:
    """Those elements of a scatter's source that have an index."""
    beside = zip(index.shape, x.shape, strict=True)
    if any(size != full for at, (size, full) in enumerate(beside) if at != dim):
        raise low.build.unmatched("scatters into a part of a tensor")
    source = low.operand(source)
    for at, size in enumerate(index.shape if source.shape else ()):
        source = push_slice(low.build, source, at, 0, size)
    return source


# Scatters


@lowers("scatter.src", "scatter.value")
def _scatter(low: Lowering, x: Node, dim: int, index: Node, source: Operand) -> Node:
    if not x.shape:
        return low.operand(source)
    dim = dim % len(x.shape)
    source = _part(low, x, dim, index, source)
    return (_at_one_place if index.shape[dim] == 1 else replaced)(low, x, dim, index, source)


@lowers("scatter_add", "scatter_reduce.two", "scatter.reduce", "scatter.value_reduce")
def _scatter_reduce(
    low: Lowering,
    x: Node,
    dim: int,
    index: Node,
    source: Operand,
    reduction: str = "",
    *,
    reduce: str = "",
    include_self: bool = True,
) -> Node:
    reduction = reduction or reduce or "sum"
    if not x.shape:
        raise low.build.unmatched("scatters into a number")
    dim = dim % len(x.shape)
    source = _part(low, x, dim, index, source)
    if index.shape[dim] == 1 and include_self and reduction in ("sum", "add"):
        return _at_one_place(low, x, dim, index, low.build("add", low.operand(x), source, dtype=low.dtype))
    return joined(low, x, dim, index, source, reduction, include_self)


# By an index of one dimension


def _along(low: Lowering, index: Node, dim: int, rank: int) -> Node:
    """An index with one dimension, as the dimension `dim` of as many."""
    size = math.prod(index.shape)
    return low.build.reshape(index, tuple(size if at == dim else 1 for at in range(rank)))


def _slices(x: Node, dim: int, source: Node) -> Node:
    """A source of slices of x, whose other sizes are compared here: on tensors without values PyTorch does not."""
    if len(source.shape) != len(x.shape) or any(
        ours != theirs for at, (ours, theirs) in enumerate(zip(source.shape, x.shape, strict=True)) if at != dim
    ):
        raise RuntimeError(f"a source of shape {source.shape} does not fit into {x.shape} along dimension {dim}")
    return source


@lowers("index_add")
def _index_add(low: Lowering, x: Node, dim: int, index: Node, source: Node, *, alpha: Number = 1) -> Node:
    dim = dim % len(x.shape)
    source = _slices(x, dim, low.operand(source))
    if alpha != 1:
        source = low.build("mul", source, low.operand(alpha), dtype=low.dtype)
    return joined(low, x, dim, _along(low, index, dim, len(x.shape)), source, "sum")


@lowers("index_reduce")
def _index_reduce(
    low: Lowering, x: Node, dim: int, index: Node, source: Node, reduce: str, *, include_self: bool = True
) -> Node:
    dim = dim % len(x.shape)
    return joined(low, x, dim, _along(low, index, dim, len(x.shape)), _slices(x, dim, source), reduce, include_self)


@lowers("index_copy")
def _index_copy(low: Lowering, x: Node, dim: int, index: Node, source: Node) -> Node:
    dim = dim % len(x.shape)
    index = _along(low, index, dim, len(x.shape))
    return (_at_one_place if index.shape[dim] == 1 else replaced)(low, x, dim, index, source)


@lowers("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(low: Lowering, x: Node, dim: int, index: Node, value: Operand) -> Node:
    dim = dim % len(x.shape)
    index = _along(low, index, dim, len(x.shape))
    if index.shape[dim] == 1:
        return _at_one_place(low, x, dim, index, low.operand(value))
    there = low.build("gt", _counted(low, index, dim, x.shape[dim]), 0)
    return low.build("where", there, low.operand(value), low.operand(x), dtype=low.dtype)


@lowers("embedding_dense_backward")
def _embedding_backward(low: Lowering, grad: Node, index: Node, rows: int, padding: int, scaled: bool) -> Node:
    build, count = low.build, math.prod(index.shape)
    place = build.reshape(build.operand(index, "int64"), (count, 1))
    place = build("where", build("eq", place, padding), -1, place) if padding >= 0 else place
    grad = build.reshape(grad, (count, grad.shape[-1]))
    total = _combined(low, place, low.operand(grad), 0, rows, "sum", low.dtype)
    if not scaled:
        return total
    number = build("maximum", _counted(low, place, 0, rows), 1)
    return build("div", total, low.operand(number), dtype=low.dtype)


# Segments and bags


def _step(offsets: Node) -> Number | None:
    """How far apart offsets are that are made of their places alone; None for others."""
    if offsets.op == "iota":
        return 1
    if offsets.op != "mul" or {each.op for each in offsets.inputs} != {"iota", "constant"}:
        return None
    return next(Constant.of(each).value for each in offsets.inputs if each.op == "constant")


def _segments(low: Lowering, offsets: Node, count: int) -> Node:
    """Which segment each of so many elements is in: the last one that begins no later."""
    if (step := _step(offsets)) is not None:
        return low.build("floor_div", low.build.iota((count,), 0), step)
    return low.build("sub", search(low, offsets, low.build.iota((count,), 0), right=True), 1)


@lowers("segment_reduce")
def _segment_reduce(
    low: Lowering,
    x: Node,
    reduce: str,
    *,
    lengths: Node | None = None,
    indices: Node | None = None,
    offsets: Node | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Node:
    build, borders = low.build, offsets if lengths is None else lengths
    if borders is None or len(borders.shape) != 1 or axis != 0:
        raise build.unmatched("has segments of several dimensions")
    if lengths is not None:
        ends = build.node(
            "scan", (build.materialise(build.operand(lengths, "int64")),), lengths.shape, "int64", Scan(0, "sum")
        )
        segment = search(low, ends, build.iota(x.shape[:1], 0), right=True)
    else:
        segment = _segments(low, build.operand(borders, "int64"), x.shape[0])
    rows, place = low.shapes[0][0], _along(low, segment, 0, len(x.shape))
    total = _combined(low, place, low.operand(x), 0, rows, OPERATIONS[reduce], low.dtype)
    if initial is not None:
        total = build(JOINED[OPERATIONS[reduce]], total, low.operand(initial), dtype=low.dtype)
    if reduce != "mean":
        return total
    number = low.operand(_counted(low, place, 0, rows))
    empty = float("nan") if initial is None else initial
    mean = build("div", total, number, dtype=low.dtype)
    return build("where", build("eq", number, 0), low.operand(empty), mean, dtype=low.dtype)


@lowers("_embedding_bag_forward_only", "_embedding_bag", "embedding_bag.padding_idx", "embedding_bag")
def _embedding_bag(
    low: Lowering,
    weight: Node,
    index: Node,
    offsets: Node,
    scaled: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Node | None = None,
    include_last_offset: bool = False,
    padding: int | None = -1,
) -> tuple[Node | None, ...]:
    """The first result alone: sums (mode 0), means or maxima of the rows of each bag, 0 of an empty one."""
    build, (count,), bags = low.build, index.shape, low.shapes[0][0]
    index, offsets = build.operand(index, "int64"), build.operand(offsets, "int64")
    if (length := _step(offsets)) is not None and bags * length == count > 0:
        total = _bags_of_one_length(low, weight, build.reshape(index, (bags, int(length), 1)), mode, weights, padding)
        return (total, *[None] * (len(low.shapes) - 1))
    bag = _segments(low, offsets, count)
    if padding is not None and padding >= 0:
        bag = build("where", build("eq", index, padding), -1, bag)
    place, row = build.reshape(bag, (count, 1)), build.reshape(index, (count, 1))
    x = take(build, weight, [row, build.iota((count, weight.shape[1]), 1)], (count, weight.shape[1]))
    if weights is not None:
        x = build("mul", low.operand(x), low.operand(build.reshape(weights, (count, 1))), dtype=low.dtype)
    total = _combined(low, place, x, 0, bags, "max" if mode == 2 else "sum", low.dtype)
    if mode:
        number = low.operand(_counted(low, place, 0, bags))
        whole = build("div", total, number, dtype=low.dtype) if mode == 1 else total
        total = build("where", build("gt", number, 0), whole, low.operand(0), dtype=low.dtype)
    return (total, *[None] * (len(low.shapes) - 1))


def _bags_of_one_length(
    low: Lowering, weight: Node, row: Node, mode: int, weights: Node | None, padding: int | None
) -> Node:
    """Sums, means or maxima along each line of an index (bags, length, 1): reductions, not scatters."""
    build, shape = low.build, (*row.shape[:2], weight.shape[1])
    x = low.operand(take(build, weight, [row, build.iota(shape, 2)], shape))
    if weights is not None:
        x = build("mul", x, low.operand(build.reshape(weights, row.shape)), dtype=low.dtype)
    if padding is None or padding < 0:
        return reduced(low, ("sum", "mean", "max")[mode], x, 1)
    counts = build("ne", row, padding)
    x = build("where", counts, x, low.operand(float("-inf") if mode == 2 else 0), dtype=low.dtype)
    total = reduced(low, "max" if mode == 2 else "sum", x, 1)
    number = build.reshape(build.reduce("sum", build.cast(counts, "int64"), [1], "int64"), (row.shape[0], 1))
    if mode == 1:
        total = build("div", total, low.operand(number), dtype=low.dtype)
    return build("where", build("gt", number, 0), total, low.operand(0), dtype=low.dtype) if mode else total


@lowers("histc")
def _histc(low: Lowering, x: Node, bins: int = 100, least: Number = 0, most: Number = 0) -> Node:
    """Equal bins between two numbers, the last with its upper end."""
    build = low.build
    if least == most:
        raise build.unmatched("has bins that depend on values")
    x = build.reshape(low.operand(x), (math.prod(x.shape),))
    place = build(
        "div", build("mul", build("sub", x, low.operand(least)), low.operand(bins)), low.operand(most - least)
    )
    inside = build("logical_and", build("ge", x, low.operand(least)), build("le", x, low.operand(most)))
    place = build("minimum", build.cast(build("where", inside, place, low.operand(-1)), "int64"), bins - 1)
    return build.cast(_counted(low, place, 0, bins), low.dtype)
