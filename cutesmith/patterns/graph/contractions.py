"""Builds products: operands without needless copies, so that a batch of heads stays the view of a projection."""

from __future__ import annotations

import math

from cutesmith.patterns.graph.attributes import Contraction, ShortSums, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import FLOATS8, HALVES, compute_dtype
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import broadcast, regrouped_shape
from cutesmith.patterns.graph.views import push_permute


def contract(
    build: GraphBuilder,
    a: Node,
    b: Node,
    dtype: str,
    *,
    tf32: bool = False,
    short_sums: ShortSums = ShortSums.NONE,
) -> Node:
    """The product of (…, m, k) and (…, k, n) as `dtype`, summed up in the arithmetic class of that.

    Leading dimensions broadcast. A reshape of them that would copy an operand is moved to the result. Factors that were
    fp16 or bf16 before they became float32 stay so, and those of float8 become fp16: float32 sums of their exact
    products are the same numbers. Beside a factor of one number everywhere, rows or columns of the other are summed up.
    """
    if (sums := _with_one_number(build, a, b, dtype)) is not None:
        return sums
    stretched = _product_shape(a, b)
    a, b = _narrow(build, _unstretched(build, a), _unstretched(build, b))
    shape = _product_shape(a, b)
    a, b = _before_reshape(build, a, b)
    attrs = Contraction(compute_dtype(dtype), tf32, short_sums)
    a, b = _as_read(build, a), _as_read(build, b)
    product = build.reshape(build.node("contract", (a, b), _product_shape(a, b), dtype, attrs), shape)
    return build.expand(product, stretched)


def _with_one_number(build: GraphBuilder, a: Node, b: Node, dtype: str) -> Node | None:
    """The product where a factor is one number everywhere, None where neither is; windows are read by products only."""
    if "windows" in (a.op, b.op):
        return None
    wide, shape = compute_dtype(dtype), _product_shape(a, b)
    for factor, other, dim in ((b, a, -1), (a, b, -2)):
        if (number := _one_number(factor)) is not None and _one_number(other) is None:
            terms = build("mul", build.cast(other, wide), build.cast(number, wide), dtype=wide)
            sums = build.reduce("sum", terms, [len(terms.shape) + dim], wide)
            return build.expand(build.cast(sums, dtype), shape)
    return None


def _one_number(factor: Node) -> Node | None:
    while factor.op in ("cast", "expand") and factor.dtype == factor.inputs[0].dtype:
        (factor,) = factor.inputs
    return factor if factor.op == "constant" else None


def _as_read(build: GraphBuilder, factor: Node) -> Node:
    """A computed factor of 16 bits that reads transposed matrices is stored as those lie: no launch has to turn it."""
    plain = factor.inputs[0] if factor.op == "cast" else factor
    if factor.dtype not in HALVES or plain.op in IN_MEMORY:
        return factor
    strides = [Viewed.of(node).stride for node in _read_by(factor) if node.shape[-2:] == factor.shape[-2:]]
    if not (strides and all(stride[-2] == 1 != stride[-1] for stride in strides)):
        return factor
    order = [*range(len(factor.shape) - 2), len(factor.shape) - 1, len(factor.shape) - 2]
    turned = push_permute(build, factor, order)
    return push_permute(build, build.reshape(build.stored(build.first_shape_of(turned)), turned.shape), order)


def _read_by(value: Node) -> list[Node]:
    """What pointwise work on values in memory reads; nothing where there is other work."""
    found, stack, seen = list[Node](), [value], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op in IN_MEMORY:
            found.append(node)
        elif node.is_pointwise or node.op in ("expand", "reshape"):
            stack.extend(node.inputs)
    return found


def _narrow(build: GraphBuilder, a: Node, b: Node) -> tuple[Node, Node]:
    """Both factors as one 16-bit type that they had before a cast to float32; float8 fits in either of the two."""
    given = [side.inputs[0] for side in (a, b) if side.op == "cast" and side.dtype == "float32"]
    dtypes = {side.dtype for side in given}
    halves = dtypes - set(FLOATS8)
    if [side.shape for side in given] != [a.shape, b.shape] or not dtypes <= {*FLOATS8, *HALVES} or len(halves) > 1:
        return a, b
    half = halves.pop() if halves else "float16"
    first, second = (build.cast(side, half) for side in given)
    return first, second


def _product_shape(a: Node, b: Node) -> tuple[int, ...]:
    return (*broadcast([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1])


def _unstretched(build: GraphBuilder, node: Node) -> Node:
    """The value before leading dimensions were stretched, where a product broadcasts them itself."""
    is_copy = node.op == "cast" and node.dtype == node.inputs[0].dtype
    rank, source = len(node.shape), node.inputs[0] if node.op == "expand" or is_copy else node
    if node.is_pointwise and not is_copy:  # stretched before a reshape, and computed at the full shape
        source = build.with_inputs(node, node.inputs, broadcast([each.shape for each in node.inputs]))
    padded = (1,) * (rank - len(source.shape)) + source.shape
    if source is node or padded[-2:] != node.shape[-2:]:
        return build.materialise(node)
    whole = build.reshape(source, padded)
    return whole if whole.op != "expand" else build.materialise(node)


def _before_reshape(build: GraphBuilder, a: Node, b: Node) -> tuple[Node, Node]:
    """Both operands in the leading dimensions that one of them had before those were regrouped."""
    for given in (a, b):
        source = _before_last_ones(build, given) if given.op == "reshape" else given
        flat, old = given.shape[:-2], source.shape[:-2]
        if given.op != "reshape" or source.shape[-2:] != given.shape[-2:] or _product_shape(a, b)[:-2] != flat:
            continue
        if math.prod(flat) != math.prod(old):  # a tensor without elements
            continue
        regrouped = [side for each in (a, b) if (side := _regrouped(build, each, flat, old)) is not None]
        sides = [_unstretched(build, side) for side in regrouped]
        if len(sides) == 2 and all(side.op != "reshape" for side in sides) and _product_shape(*sides)[:-2] == old:
            return sides[0], sides[1]
    return a, b


def _before_last_ones(build: GraphBuilder, given: Node) -> Node:
    """What a factor is a reshape of, without ones behind its matrices: `einsum` puts those there."""
    source = given.inputs[0]
    while source.shape[-1:] == (1,) and source.shape[-2:] != given.shape[-2:]:
        source = build.reshape(source, source.shape[:-1])
    return source


def _regrouped(build: GraphBuilder, node: Node, flat: tuple[int, ...], old: tuple[int, ...]) -> Node | None:
    """A factor with the leading dimensions `old` in place of `flat`; None where it is stretched over a part of one."""
    padded = (1,) * (len(flat) + 2 - len(node.shape)) + node.shape
    batch = regrouped_shape(padded[:-2], flat, old)
    if batch is None:
        return None
    seen = build.reshape(node, (*batch, *node.shape[-2:]))
    return build.reshape(build.stored(node), seen.shape) if seen.op == "reshape" and node.is_pointwise else seen
