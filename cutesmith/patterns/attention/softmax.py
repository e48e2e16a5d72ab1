"""Softmaxes and log-sum-exps of scores, as a function may write them: what is taken of which value, sinks apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from cutesmith.patterns.attention.band import is_minus_infinity
from cutesmith.patterns.graph.attributes import Iota, Reduction
from cutesmith.patterns.graph.dtypes import is_float, widens
from cutesmith.patterns.graph.nodes import LEAVES, Node
from cutesmith.patterns.graph.shapes import is_squeeze
from cutesmith.patterns.graph.simplification import constant_value


@dataclass(frozen=True)
class Softmax:
    """What a softmax over the last dimension is taken of, a sink apart; `safe`: rows of -inf alone give zeros."""

    scores: Node
    sink: Node | None = None
    safe: bool = False


def softmax_of(node: Node) -> Softmax | None:
    """What a softmax over the last dimension is taken of; None where the value is something else."""
    if node.op == "where":  # PyTorch's safe softmax: zeros where all scores are -inf
        condition, first, second = node.inputs
        inner = softmax_of(narrow(second))
        return replace(inner, safe=True) if inner and _is_zero(first) and _all_hidden(condition, inner.scores) else None
    if node.op == "exp" and node.inputs[0].op == "sub":  # of what is left of the scores above their log-sum-exp
        scores, logarithm = node.inputs[0].inputs
        same = logsumexp_of(logarithm)
        return Softmax(scores) if same and is_same(same, scores) else None
    if node.op != "div" or node.inputs[0].op != "exp" or node.inputs[0].inputs[0].op != "sub":
        return None
    powers, total = node.inputs
    scores, highest = powers.inputs[0].inputs
    if _is_sum_of(total, powers):
        return _unshifted(Softmax(scores)) if _is_highest(highest, scores, None) else None
    sink = _sink(powers, total, highest)
    found = _unshifted(Softmax(scores, sink)) if sink and _is_highest(highest, scores, sink) else None
    return found if found and found.sink and _is_known_by_row(found.sink) else None


def logsumexp_of(node: Node) -> Node | None:
    """The scores whose log-sum-exp over the last dimension a value is, with or without that one; None for others."""
    node = _with_last(node)
    if keeps_infinity(node):
        return logsumexp_of(node.inputs[2])
    for logarithm, highest in (node.inputs, node.inputs[::-1]) if node.op == "add" else ():
        total = _with_last(logarithm.inputs[0]) if logarithm.op == "log" else node
        if _reduces_last(total, "sum") and total.inputs[0].op == "exp" and total.inputs[0].inputs[0].op == "sub":
            scores, shift = total.inputs[0].inputs[0].inputs
            if shift is _with_last(highest) and _is_highest(shift, scores, None):
                return scores
    return None


def keeps_infinity(node: Node) -> bool:
    """Whether a value is an infinite one of its own where there is one: a maximum, as `torch.logsumexp` has it."""
    node = _with_last(node)
    return node.op == "where" and node.inputs[0].op == "isinf" and node.inputs[0].inputs[0] is node.inputs[1]


def _with_last(node: Node) -> Node:
    """A value before dimensions of size 1 left it."""
    while node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
        (node,) = node.inputs
    return node


def narrow(node: Node) -> Node:
    """The value before casts that lose nothing in a product: of a 16-bit type to a wider one, or to a 16-bit one."""
    while node.op == "cast" and is_float(node.dtype) and is_float(node.inputs[0].dtype):
        (node,) = node.inputs
    return node


def pointwise_cone(node: Node) -> list[Node]:
    """The node, and what it is made of, as far as pointwise operations reach."""
    seen: dict[int, Node] = {}
    stack = [node]
    while stack:
        each = stack.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            stack.extend(each.inputs if each.is_pointwise else ())
    return list(seen.values())


def _sink(powers: Node, total: Node, highest: Node) -> Node | None:
    """The score whose power is added to the sum of all others; None where something else is."""
    for first, second in (total.inputs, total.inputs[::-1]) if total.op == "add" else ():
        if _is_sum_of(first, powers) and second.op == "exp":
            (shifted,) = second.inputs
            if shifted.op == "neg" and shifted.inputs[0] is highest:
                return next((each for each in highest.inputs if _is_zero(each)), None)
            if shifted.op == "sub" and shifted.inputs[1] is highest:
                return shifted.inputs[0]
    return None


def _is_known_by_row(node: Node) -> bool:
    """Whether a value is the same for all keys, and made of arguments and numbers alone."""
    free = all(each.is_pointwise or each.op in LEAVES for each in pointwise_cone(node))
    return free and node.shape[-1:] in ((), (1,))


def _unshifted(softmax: Softmax) -> Softmax:
    """The softmax of what the scores were before they lost their row's maximum, which changes no weight."""
    shifted = [each for each in (softmax.scores, softmax.sink) if each is not None]
    if any(each.op != "sub" or each.inputs[1] is not shifted[0].inputs[1] for each in shifted):
        return softmax
    scores, *sink = (each.inputs[0] for each in shifted)
    before = replace(softmax, scores=scores, sink=sink[0] if sink else None)
    return before if _is_highest(shifted[0].inputs[1], scores, before.sink) else softmax


def _is_highest(node: Node, scores: Node, sink: Node | None) -> bool:
    """Whether a value is the maximum of each row of scores, and of its sink."""
    if sink is None:
        return _reduces_last(node, "max") and is_same(node.inputs[0], scores)
    sides = (node.inputs, node.inputs[::-1]) if node.op == "maximum" else ()
    return any(_is_highest(first, scores, None) and second is sink for first, second in sides)


def _is_sum_of(node: Node, powers: Node) -> bool:
    return _reduces_last(node, "sum") and is_same(node.inputs[0], powers)


def is_same(first: Node, second: Node) -> bool:
    """Whether two values are equal at each place: made in the same way, of coordinates that may have other ones."""
    return _is_same(_unwidened(first), _unwidened(second), {})


def _unwidened(node: Node) -> Node:
    """The value before casts to wider types, perhaps with leading dimensions of size 1 more."""
    while node.op == "cast" and widens(node.inputs[0].dtype, node.dtype) and _has_shape_of(node.inputs[0], node):
        (node,) = node.inputs
    return node


def _has_shape_of(node: Node, other: Node) -> bool:
    return is_float(node.dtype) and (1,) * (len(other.shape) - len(node.shape)) + node.shape == other.shape


def _is_same(first: Node, second: Node, known: dict[tuple[int, int], bool]) -> bool:
    pair = id(first), id(second)
    if pair not in known:
        equal = (first.op, first.dtype, len(first.inputs)) == (second.op, second.dtype, len(second.inputs))
        if first is second:
            known[pair] = True
        elif first.op == "iota":
            known[pair] = equal and _place(first) == _place(second)
        else:
            equal &= first.attrs == second.attrs and (first.is_pointwise or first.op == "constant")
            known[pair] = equal and all(map(partial(_is_same, known=known), first.inputs, second.inputs))
    return known[pair]


def _place(node: Node) -> tuple[int, int]:
    """The dimension of a coordinate, from the right, and its size."""
    along = Iota.of(node).dim
    return along - len(node.shape), node.shape[along]


def _is_zero(node: Node) -> bool:
    return constant_value(node) == 0


def _all_hidden(condition: Node, scores: Node) -> bool:
    """Whether the condition says that a row of scores is -inf alone."""
    if not _reduces_last(condition, "all"):
        return False
    (hidden,) = condition.inputs
    return hidden.op == "eq" and hidden.inputs[0] is scores and is_minus_infinity(hidden.inputs[1])


def _reduces_last(node: Node, op: str) -> bool:
    return node.op == op and Reduction.of(node).dims == (len(node.shape) - 1,)
