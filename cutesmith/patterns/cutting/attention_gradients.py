"""The backward pass of attention as gradients of one attention, which need no matrix of scores in memory.

Autograd writes dS = P * dP - P * rows of sum(P * dP), of the softmax P and dP = dO V^T, and multiplies it by K and Q,
and P by dO. These products become `attention_gradient`s of the scores, dP, the scores' log-sum-exp and the result O,
which the attention itself leaves: the sums of P * dP are those of dO * O. Gradients that are not rounded to 16 bits in
the end are left as they are, since the kernel rounds P and dS.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cutesmith.patterns.attention.analysis import product_of
from cutesmith.patterns.attention.band import band_of, every_query_sees_a_key
from cutesmith.patterns.attention.softmax import Softmax, narrow, pointwise_cone, softmax_of
from cutesmith.patterns.cutting.scores import viewed_before, with_plain_scores
from cutesmith.patterns.cutting.seen_matrices import Seen, key_of, numbers_of, same_values, seen_as
from cutesmith.patterns.graph.attributes import AttentionGradient, Constant, Contraction, Input, Reduction, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import HALVES
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, users_of, with_nodes, with_values
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.views import push_permute


def with_attention_gradients(graph: Graph) -> Graph:
    """The graph with gradients of each attention whose backward pass it has; itself where it has none."""
    if not any(map(_weights_of, graph.nodes())):
        return graph
    build = GraphBuilder()
    plain = with_nodes(with_plain_scores(_with_plain_factors(graph)), build.interned)
    users = users_of(plain)
    found: dict[int, Node] = {}
    for backward in filter(None, map(_backward_of, plain.nodes())):
        found |= _Gradients(build, plain, users, backward).found()
    return with_nodes(with_values(plain, found), functools.partial(_of_whole_argument, build)) if found else graph


@dataclass(frozen=True)
class _Backward:
    """The gradient of scores, and what it is made of: the softmax, and the gradient of its weights."""

    of_scores: Node
    weights: Node
    softmax: Softmax
    product: Node
    of_weights: Node


def _backward_of(node: Node) -> _Backward | None:
    """What a value is the gradient of scores of, as PyTorch computes it behind a softmax; None for others."""
    if (weights := _weights_of(node)) is None:
        return None
    softmax = softmax_of(narrow(seen_as(weights).base))
    product = product_of(softmax.scores) if softmax and softmax.sink is None else None
    if softmax is None or product is None:
        return None
    if not softmax.safe and not every_query_sees_a_key(band_of(softmax.scores), *softmax.scores.shape[-2:]):
        return None  # a row of -inf alone makes all gradients of values NaN
    for first, second in (node.inputs[0].inputs, node.inputs[0].inputs[::-1]):
        of_weights = seen_as(second)
        is_product = of_weights.base.op == "contract" and not of_weights.is_turned and not of_weights.numbers
        if is_product and same_values(first, weights):
            return _Backward(node, weights, softmax, product, of_weights.base)
    return None


def _weights_of(node: Node) -> Node | None:
    """P of P * dP - P * rows of sum(P * dP); None for other values."""
    if node.op != "sub" or any(side.op != "mul" or len(side.shape) < 2 for side in node.inputs):
        return None
    both, weighted = node.inputs
    for weights, total in (weighted.inputs, weighted.inputs[::-1]):
        is_of_rows = total.op == "sum" and Reduction.of(total).dims == (len(total.shape) - 1,)
        if is_of_rows and same_values(total.inputs[0], both):
            return weights
    return None


# Factors


def _with_plain_factors(graph: Graph) -> Graph:
    """The graph with products that read 16-bit factors as they lie in memory, and multiply by numbers behind."""
    build = GraphBuilder()

    def instead_of(node: Node) -> Node:
        node = build.interned(node)
        return _of_plain_factors(build, node) or node if node.op == "contract" else node

    return with_nodes(graph, instead_of)


def _of_plain_factors(build: GraphBuilder, product: Node) -> Node | None:
    """The same product of factors as they lie in memory; None where it is one, or a factor is computed in float32."""
    sides = [seen_as(factor) for factor in product.inputs]
    if any(side.base.dtype not in HALVES for side in sides):
        return None
    factors = [_viewed(build, side, factor.shape) for side, factor in zip(sides, product.inputs, strict=True)]
    if None in factors or all(new is old for new, old in zip(factors, product.inputs, strict=True)):
        return None
    build.origin = product.origin
    alone = build.node("contract", [each for each in factors if each], product.shape, product.dtype, product.attrs)
    numbers = [*sides[0].numbers, *sides[1].numbers]
    if not numbers:
        return alone
    number = functools.reduce(lambda one, other: build("mul", one, other), numbers)
    return build.node("mul", (alone, number), product.shape, product.dtype)


def _viewed(build: GraphBuilder, seen: Seen, shape: Shape) -> Node | None:
    """The matrices of a factor as a view of what lies in memory; None where that would be a copy."""
    base = build.stored(seen.base)
    if seen.is_turned:
        rank = len(base.shape)
        base = push_permute(build, base, [*range(rank - 2), rank - 1, rank - 2])
    found = build.reshape(base, shape) if math.prod(base.shape) == math.prod(shape) else base
    return found if found.op in IN_MEMORY and found.shape == shape else None


def _of_whole_argument(build: GraphBuilder, node: Node) -> Node:
    """An argument whose batches were joined and told apart again is seen as one whose dimensions changed places alone.

    That holds for other sizes; batches of equal sizes are not told apart by the traced ones.
    """
    if node.op != "input" or all(view.is_proven for view in Input.of(node).views):
        return node
    seen, batch = Input.of(node), node.shape[:-2]
    root, dims = (list(zip(*each, strict=True)) for each in (seen.root, (node.shape, seen.stride)))
    if seen.offset or len(set(batch)) < len(batch) or sorted(dims) != sorted(root):
        return node
    whole = build.node("input", (), seen.root[0], node.dtype, Input.whole(seen.index, *seen.root))
    order = [root.index(each) for each in dims]
    view = View(f"{{0}}.permute({', '.join(map(str, order))})")
    return build.view_in_memory(whole, view, lambda base: base.permute(order)) or node


# Gradients


@dataclass(frozen=True)
class _Gradients:
    """Those of the factors of one attention."""

    build: GraphBuilder
    graph: Graph
    users: Mapping[int, Sequence[Node]]
    backward: _Backward

    def found(self) -> dict[int, Node]:
        """The gradients in place of the values that they are, by their ids."""
        ends = list(self._ends())
        of_weights, result = (self._of_weights(), self._result()) if ends else (None, None)
        if of_weights is None or result is None:
            return {}
        build, scores = self.build, self._scores
        build.origin = self.backward.of_scores.origin
        highest = build.materialise(build.reduce("max", scores, [-1], "float32"))
        total = build.reduce("sum", build("exp", build("sub", scores, highest, dtype="float32")), [-1], "float32")
        seen = build.reshape(build.stored(result), (*self._batch, *result.shape[-2:]))
        logarithm = build("add", build("log", total), highest)
        inputs = scores, of_weights, build("where", build("isinf", highest), highest, logarithm), seen
        made = {id(end): self._made(of, inputs, shape, end) for of, shape, end in ends}
        return made | dict(self._results(result))

    def _made(self, of: str, inputs: Sequence[Node], shape: Shape, end: Node) -> Node:
        attrs = AttentionGradient(of, self.backward.softmax.safe)
        gradient = self.build.node("attention_gradient", inputs, shape, inputs[-1].dtype, attrs)
        return _seen_in(self.build, gradient, end)

    @cached_property
    def _scores(self) -> Node:
        """The scores in the batches of their gradient, where those are other ones."""
        return self._in_batches(self.backward.softmax.scores)

    def _in_batches(self, node: Node) -> Node:
        """Scores or weights in the batches of the gradient of scores, where that takes no copy."""
        shape = self.backward.of_scores.shape
        if shape[-len(node.shape) :] == node.shape:
            return self.build.materialise(self.build.expand(node, shape))
        seen = viewed_before(self.build, node, shape) if math.prod(shape) == math.prod(node.shape) else None
        return self.build.materialise(seen) if seen else node

    @property
    def _batch(self) -> Shape:
        return self._scores.shape[:-2]

    @cached_property
    def _factors(self) -> dict[str, object]:
        """What the gradient of scores, or the weights, are multiplied by for the gradient of each factor."""
        product, of_weights = self.backward.product, self.backward.of_weights
        return {
            "q": key_of(seen_as(product.inputs[1]).turned()),
            "k": key_of(seen_as(product.inputs[0])),
            "v": key_of(seen_as(of_weights.inputs[0])),
        }

    def _ends(self) -> Iterator[tuple[str, Shape, Node]]:
        """Of each product that is a gradient: of which factor, its shape, the last value that is no more than it."""
        for node in self.graph.nodes():
            left, right = [self._seen(side) for side in node.inputs] if node.op == "contract" else (None, None)
            if left is None or right is None:
                continue
            for weight, other, is_turned in ((left, right, False), (right.turned(), left.turned(), True)):
                of = self._which(weight)
                if of and key_of(other) == self._factors[of]:
                    numbers = [*weight.numbers, *other.numbers]
                    if end := self._end(node, of, is_turned, numbers):
                        yield (of, *end)

    def _seen(self, factor: Node) -> Seen:
        masks = [each for each in pointwise_cone(self.backward.softmax.scores) if each.op == "where"]
        return seen_as(factor, hidden=masks)

    def _which(self, weight: Seen) -> str | None:
        """The factor whose gradient a product with this is."""
        if same_values(weight.base, self.backward.of_scores):
            return "k" if weight.is_turned else "q"
        return "v" if weight.is_turned and same_values(weight.base, self.backward.weights) else None

    def _end(self, node: Node, of: str, is_turned: bool, numbers: list[Node]) -> tuple[Shape, Node] | None:
        """The shape of a gradient, and the last value made of a product that is it; None where its scale is another."""
        found, batch, wanted = None, self._batch, self._scale if of != "v" else []
        while True:
            if not is_turned and node.dtype in HALVES and _are_equal(numbers, wanted):
                found = (*batch, *node.shape[-2:]), node
            if len(self.users[id(node)]) != 1 or any(node is output for output in self.graph.outputs):
                return found
            (user,) = self.users[id(node)]
            step = seen_as(user, until=node)
            if step.base is node:
                numbers, is_turned = [*numbers, *step.numbers], is_turned ^ step.is_turned
            elif of != "q" and not is_turned and self._sums_heads(user):
                batch = self._few
            else:
                return found
            node = user

    @cached_property
    def _few(self) -> Shape:
        """The batches of keys and values: 1 where those of queries share them."""
        factors = self.backward.product.inputs[1], self.backward.of_weights.inputs[1]
        sizes = [(1,) * (len(self._batch) + 2 - len(each.shape)) + each.shape[:-2] for each in factors]
        return tuple(1 if all(few == 1 for few in each) else size for size, *each in zip(self._batch, *sizes))

    def _sums_heads(self, node: Node) -> bool:
        """Whether a value is the sum over all batches that share their keys and values."""
        if node.op != "sum":
            return False
        whole, dims = node.inputs[0].shape[:-2], Reduction.of(node).dims
        summed = [(size, d in dims) for d, size in enumerate(whole) if size != 1]
        shared = [(size, few == 1) for size, few in zip(self._batch, self._few, strict=True) if size != 1]
        return summed == shared and all(dim < len(whole) for dim in dims)

    @cached_property
    def _scale(self) -> list[Node]:
        """The numbers that the scores are a product with."""
        return numbers_of(self.backward.softmax.scores, self.backward.product)

    def _of_weights(self) -> Node | None:
        """The gradient of the weights in the batches of the scores."""
        product, scores = self.backward.of_weights, self._scores
        missing = (1,) * (len(scores.shape) - len(product.shape))
        if missing + product.shape == scores.shape:
            return product
        shapes = [(*self._batch, *factor.shape[-2:]) for factor in product.inputs]
        seen = zip(map(seen_as, product.inputs), shapes, strict=True)
        factors = [each for each in (_viewed(self.build, *pair) for pair in seen) if each]
        if len(factors) < 2:
            return None
        return self.build.node("contract", factors, scores.shape, product.dtype, product.attrs)

    def _result(self) -> Node | None:
        """The result of the attention: of weights that are rounded, as attention rounds them; None without a view."""
        build, values = self.build, self.backward.of_weights.inputs[1]
        weights = self._in_batches(narrow(seen_as(self.backward.weights).base))
        weights = build.cast(weights, seen_as(values).base.dtype)
        ends, seen = values.shape[:-3:-1], seen_as(values).turned()
        few = (*(1,) * (len(weights.shape) - len(values.shape)), *values.shape[:-2])
        right = _viewed(build, seen, (*weights.shape[:-2], *ends)) or _viewed(build, seen, (*few, *ends))
        if right is None or len(right.shape) != len(weights.shape):
            return None
        if any(n not in (1, size) for n, size in zip(right.shape[:-2], weights.shape[:-2], strict=True)):
            return None
        whole = (*weights.shape[:-1], right.shape[-1])
        return build.node("contract", (weights, right), whole, weights.dtype, Contraction("float32"))

    def _results(self, result: Node) -> Iterator[tuple[int, Node]]:
        """The ids of values of the graph that are the result, and how they are seen of it."""
        key = key_of(seen_as(self.backward.of_weights.inputs[1]).turned())
        for node in self.graph.nodes():
            weight, other = [seen_as(side) for side in node.inputs] if node.op == "contract" else (None, None)
            if weight is None or other is None or weight.is_turned or key_of(other) != key:
                continue
            if same_values(weight.base, self.backward.weights) and not (weight.numbers or other.numbers):
                rounded = [user for user in self.users[id(node)] if user.op == "cast" and user.dtype == result.dtype]
                ends = [node] if node.dtype == result.dtype else rounded
                yield from ((id(end), _seen_in(self.build, result, end)) for end in ends)


def _seen_in(build: GraphBuilder, value: Node, end: Node) -> Node:
    """A value that lies in memory in the shape of another node."""
    return value if end.shape == value.shape else build.reshape(build.stored(value), end.shape)


def _are_equal(numbers: Sequence[Node], others: Sequence[Node]) -> bool:
    """Whether the products of numbers are equal, whatever sizes they follow."""
    constants = [[Constant.of(n).value for n in side if n.op == "constant"] for side in (numbers, others)]
    rest = [sorted(repr(n.attrs) for n in side if n.op != "constant") for side in (numbers, others)]
    return rest[0] == rest[1] and math.isclose(*map(math.prod, constants), rel_tol=1e-6)
