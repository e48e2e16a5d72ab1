"""What lies between two products as attention takes it: nothing but pointwise work and a softmax of all matrices.

Models view the batches and heads of scores as one dimension and as two, to add a mask of one of them, and multiply the
queries by a number. Differential attention subtracts one softmax from another: it is the difference of two attentions.
The same views of queries and keys cost nothing, and the number is one of each score. Keys and
values behind those of a cache are stored, where they are computed, and the cache is read where it lies.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from cutesmith.patterns.attention.softmax import narrow
from cutesmith.patterns.graph.attributes import Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import HALVES, compute_dtype
from cutesmith.patterns.graph.joined import joined_in_memory, rebuilt
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.shapes import Shape, regrouped_shape, same_last

NUMBERS = frozenset({"constant", "sized", "scalar"})


def with_plain_scores(graph: Graph) -> Graph:
    """The graph with views of batches made before products, and numbers that multiply factors behind them."""
    if sum(node.op == "contract" for node in graph.nodes()) < 2:
        return graph
    build, changed = GraphBuilder(), dict[int, Node]()
    plain = with_nodes(graph, functools.partial(_instead_of, build, changed))
    return plain if changed else graph


def with_joined_factors(graph: Graph) -> Graph:
    """The graph with products that read the two parts of a factor where they lie, as those of a cache and new keys."""
    build, changed = GraphBuilder(), list[Node]()

    def instead_of(node: Node) -> Node:
        if node.op != "contract":
            return node
        build.origin = node.origin
        left, right = node.inputs
        joined = joined_in_memory(build, right, -1) or joined_in_memory(build, right, -2)
        changed.extend([joined] if joined else [])
        return replace(node, inputs=(left, joined)) if joined else node

    apart = with_nodes(graph, instead_of)
    return apart if changed else graph


def _instead_of(build: GraphBuilder, changed: dict[int, Node], node: Node) -> Node:
    build.origin = node.origin
    found = None
    if node.op == "contract":
        found = _scaled_behind(build, node) or _of_each_softmax(build, node)
    elif node.op == "div":
        found = _divided_before(build, node)
    elif node.op == "reshape" and _has_other_batches(node.inputs[0].shape, node.shape):
        found = viewed_before(build, node.inputs[0], node.shape)
    elif node.op == "reshape" and _has_other_batches(node.inputs[0].shape, (*node.shape, 1)):  # a number of each row
        rows = viewed_before(build, node.inputs[0], (*node.shape, 1))
        found = rows and build.reshape(rows, node.shape)
    if found is None and any(id(child) in changed for child in node.inputs):
        found = rebuilt(build, node)
    if found is None:
        return build.interned(node)
    found = build.materialise(build.expand(found, node.shape))
    changed[id(found)] = found
    return found


def _has_other_batches(old: Shape, new: Shape) -> bool:
    return old != new and same_last(old, new) >= 2


def _scaled_behind(build: GraphBuilder, product: Node) -> Node | None:
    """A product of multiples as the multiple of a product; None where no factor is one of a number."""
    parts = [_number_apart(factor) for factor in product.inputs]
    numbers = [number for _, number in parts if number]
    if not numbers:
        return None
    factors = [factor for factor, _ in parts]
    alone = build.node("contract", factors, product.shape, product.dtype, product.attrs)
    return functools.reduce(lambda value, number: build("mul", value, number, dtype=product.dtype), numbers, alone)


def _number_apart(factor: Node) -> tuple[Node, Node | None]:
    """What is multiplied by a number, and that; the factor itself where it is something else."""
    for value, number in (factor.inputs, factor.inputs[::-1]) if factor.op == "mul" else ():
        is_same = (value.shape, value.dtype) == (factor.shape, factor.dtype)
        if number.op in NUMBERS and is_same and value.dtype in HALVES:
            return value, number
    return factor, None


def _of_each_softmax(build: GraphBuilder, product: Node) -> Node | None:
    """A product of a sum or difference of several softmaxes, and numbers times such, as one of several products."""
    weights, values = product.inputs
    if weights.op not in ("add", "sub") or any(side.shape != weights.shape for side in weights.inputs):
        return None
    parts = [_factor_apart(side) for side in weights.inputs]
    if not all(value.op in ("div", "where", "cast") and _has_softmax(value) for value, _ in parts):
        return None
    terms, kind = list[Node](), compute_dtype(product.dtype)  # not rounded: most of them may cancel
    for value, factor in parts:
        term = build.node("contract", (value, values), product.shape, kind, product.attrs)
        terms.append(term if factor is None else build("mul", term, factor, dtype=kind))
    return build(weights.op, *terms, dtype=product.dtype)


def _divided_before(build: GraphBuilder, node: Node) -> Node | None:
    """A product of powers that is divided by the sum of each row as a product of quotients: a softmax's weights."""
    product, total = (each.inputs[0] if each.op == "cast" else each for each in node.inputs)
    if product.op != "contract" or total.op != "sum" or product.shape != node.shape:
        return None
    weights, values = product.inputs
    (powers,) = total.inputs
    is_sum = powers.op == "exp" and powers is narrow(weights) and Reduction.of(total).dims == (len(powers.shape) - 1,)
    if not is_sum or len(total.shape) != len(node.shape):
        return None
    quotients = build.retype(build("div", powers, total, dtype=powers.dtype), weights.dtype)
    return build.node("contract", (quotients, values), node.shape, node.dtype, product.attrs)


def _factor_apart(weights: Node) -> tuple[Node, Node | None]:
    """What is multiplied by the same number along each row; the value itself where it is something else."""
    for value, factor in (weights.inputs, weights.inputs[::-1]) if weights.op == "mul" else ():
        if value.shape == weights.shape and factor.shape[-1:] in ((), (1,)):
            return value, factor
    return weights, None


def _has_softmax(weights: Node) -> bool:
    """Whether a value is a quotient whose divisor is a sum of each row."""
    quotient = weights
    while quotient.op in ("where", "cast"):
        quotient = quotient.inputs[-1]
    return quotient.op == "div" and any(each.op == "sum" for each in (quotient.inputs[1], *quotient.inputs[1].inputs))


def viewed_before(build: GraphBuilder, node: Node, shape: Shape) -> Node | None:
    """A value made of products in a shape of other batches, whose views are made before; None where they are copies."""
    if node.op == "contract":
        factors = [_viewed_factor(build, each, node.shape, shape) for each in node.inputs]
        given = [each for each in factors if each is not None]
        return build.node("contract", given, shape, node.dtype, node.attrs) if len(given) == 2 else None
    if node.is_reduction and Reduction.of(node).dims == (len(node.shape) - 1,):
        whole = viewed_before(build, node.inputs[0], (*shape[:-1], node.inputs[0].shape[-1]))
        return whole and build.reduce(node.op, whole, [-1], node.dtype, Reduction.of(node).correction)
    if node.is_pointwise:
        inputs = [_viewed_operand(build, each, node.shape, shape) for each in node.inputs]
        found = [each for each in inputs if each is not None]
        return build(node.op, *found, dtype=node.dtype) if len(found) == len(inputs) else None
    seen = build.reshape(node, shape)
    return seen if seen.op != "reshape" or seen.inputs[0] is not node else None


def _viewed_operand(build: GraphBuilder, node: Node, old: Shape, new: Shape) -> Node | None:
    """What a value that broadcasts to a shape is where that has other batches."""
    if not node.shape:
        return node
    target = regrouped_shape((1,) * (len(old) - len(node.shape)) + node.shape, old, new)
    return None if target is None else viewed_before(build, node, target)


def _viewed_factor(build: GraphBuilder, node: Node, old: Shape, new: Shape) -> Node | None:
    """A factor of a product whose result has other batches."""
    ends = node.shape[-2:]
    return _viewed_operand(build, node, (*old[:-2], *ends), (*new[:-2], *ends))
