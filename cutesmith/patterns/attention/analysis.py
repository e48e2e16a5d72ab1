"""What an attention is: softmax(score(Q K^T)) V, where `score` is any pointwise function of a product and its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention.band import Band, band_of, is_minus_infinity
from cutesmith.patterns.attention.softmax import (
    Softmax,
    is_same,
    keeps_infinity,
    logsumexp_of,
    narrow,
    pointwise_cone,
    softmax_of,
)
from cutesmith.patterns.contraction.analysis import Matrix, matrix_of
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, write_epilogue
from cutesmith.patterns.graph.attributes import Constant, Sized, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import widens
from cutesmith.patterns.graph.instructions import instructions
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, with_nodes, with_values
from cutesmith.patterns.graph.results import Result, result_of
from cutesmith.patterns.graph.shapes import Shape, is_dense
from cutesmith.patterns.graph.simplification import constant_value
from cutesmith.patterns.writing.naming import safe_names

HALVES = frozenset({"float16", "bfloat16"})
FLOATS = HALVES | {"float32"}
COORDINATES = LEAVES - {"input"}
"""What a mask is made of that reads no tensor."""
NOT_ATTENTION = "there is no softmax between two products of matrices"


@dataclass(frozen=True)
class Logsumexp:
    """The log-sum-exp of each row of scores as one more output, in this place among both and of this type.

    `infinite`: an infinite maximum of a row is its log-sum-exp, as `torch.logsumexp` has it; else that is NaN.
    """

    place: int
    dtype: str
    result: Result
    infinite: bool


@dataclass(frozen=True)
class AttentionProblem:
    """softmax over keys of `score(q k^T)`, times v; sizes are the traced ones.

    `score` is the function of each sum, `score_inside` the same where the band's conditions hold, of so many
    `instructions`. Where all that a
    score does is to be scaled by a positive number, and perhaps hidden, `scale` is that product as a function of the
    sum, and the other two leave it out: the softmax scales its exponents. `more` are keys and values behind those of
    `k` and `v`, as behind a cache. `sink` is one more score of each query, of
    a key whose value is 0. `empty_rows` is what a query gets that sees no key: 0 (PyTorch's own attention) or NaN (a
    plain softmax).
    """

    graph: Graph
    arguments: tuple[str, ...]
    batch: Shape
    queries: int
    keys: int
    width: int
    value_width: int
    q: Matrix
    k: Matrix
    v: Matrix
    more: tuple[Matrix, Matrix] | None
    score: Epilogue
    score_inside: Epilogue
    instructions: int
    scale: Epilogue | None
    sink: Epilogue | None
    band: Band
    empty_rows: float
    result: Result
    output: Epilogue
    logsumexp: Logsumexp | None

    @property
    def matrices(self) -> dict[str, tuple[Matrix, int]]:
        """All matrices by their names in the kernel, and the dimension along which their rows are contiguous."""
        found = {"q": (self.q, -1), "k": (self.k, -2), "v": (self.v, -1)}
        return found | ({"k2": (self.more[0], -2), "v2": (self.more[1], -1)} if self.more else {})

    @property
    def dtype(self) -> str:
        """The torch dtype name of queries, keys and values."""
        return self.q.dtype


@dataclass(frozen=True)
class _Parts:
    """The nodes of an attention: both products, the softmax between them and the operands in memory.

    Those are queries, keys and values, and where these are joined of two parts, the second ones.
    """

    scores_product: Node
    softmax: Softmax
    product: Node
    operands: list[Node]

    @property
    def scores(self) -> Node:
        """What the softmax is taken of."""
        return self.softmax.scores


def analyse(graph: Graph, reserved: Collection[str]) -> AttentionProblem:
    """The problem of a graph that is one attention of arguments; UnmatchedError where it is something else."""
    parts = _parts(graph)
    product, logsumexp = parts.product, _logsumexp(graph, parts)
    outputs = [output for at, output in enumerate(graph.outputs) if not logsumexp or at != logsumexp.place]
    result = result_of(outputs[0])
    are_dense = all(map(is_dense, (output.shape for output in graph.outputs), graph.output_strides))
    if result is None or result.value.shape != product.shape or len(outputs) > 1 or not are_dense:
        raise UnmatchedError(f"{product.where} is not followed by pointwise work alone", operation=product.where)
    if outputs[0].dtype == "bool":  # the kernel's copies have no type for it: a launch of its own compares
        raise UnmatchedError(f"{product.where} leaves as booleans", operation=product.where)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    rank, band = len(product.shape), band_of(parts.scores)
    scores, sums = aligned_scores(parts.scores, parts.scores_product)
    scaled = _scaled(scores, sums)
    fast = outputs[0].dtype in HALVES
    writer = FunctionWriter(names, reserved, rank, {-2: "at_m", -1: "at_n"}, fast=fast, suffix="mn")

    def score(node: Node, of: Node) -> Epilogue:
        return writer.function([node], {id(of): Given.of(of)})

    inside, given = inside_band(scores, band), scaled or sums
    written, written_inside = (score(node, given) for node in (scores, inside))
    sink = writer.function([parts.softmax.sink], {}) if parts.softmax.sink else None
    taken = {*reserved, *written.names, *(sink.names if sink else ())}
    q, k, v, *more = (matrix_of(node, names, rank) for node in parts.operands)
    if more and (band.lower or band.upper):
        raise UnmatchedError("the keys have two parts beneath a mask of coordinates", operation=product.where)
    return AttentionProblem(
        graph=graph,
        arguments=tuple(names),
        batch=product.shape[:-2],
        queries=product.shape[-2],
        keys=scores.shape[-1],
        width=q.shape[-1],
        value_width=v.shape[-1],
        q=q,
        k=k,
        v=v,
        more=(more[0], more[1]) if more else None,
        score=written,
        score_inside=written_inside,
        instructions=_instructions(inside, given, fast=fast),
        scale=score(scaled, sums) if scaled else None,
        sink=sink,
        band=band,
        empty_rows=0.0 if parts.softmax.safe else float("nan"),
        result=result,
        output=_output(graph, result.value, product, names, taken),
        logsumexp=logsumexp,
    )


def _output(graph: Graph, value: Node, product: Node, names: list[str], taken: Collection[str]) -> Epilogue:
    """What becomes of the product; storing it rounds to the result's type, which takes no function."""
    if value.op == "cast" and value.inputs[0] is product and value.dtype in FLOATS:
        value = product = replace(product, dtype=value.dtype)
    return write_epilogue(replace(graph, outputs=(value,)), [product], names, taken)


def _logsumexp(graph: Graph, parts: _Parts) -> Logsumexp | None:
    """The output that is the log-sum-exp of the scores, which a sink takes no part in; None where there is none."""
    for place, output in enumerate(graph.outputs if parts.softmax.sink is None else ()):
        result = result_of(output)
        scores = logsumexp_of(narrow(result.value)) if result else None
        rows = parts.product.shape[:-1]
        is_theirs = scores is not None and is_same(scores, parts.scores) and output.dtype in FLOATS
        if result and is_theirs and not result.is_reordered and result.value.shape in (rows, (*rows, 1)):
            whole = result.views if result.value.shape == rows else (View("{0}.unsqueeze(-1)"), *result.views)
            seen = Result(result.value, whole, tuple(range(len(rows))))
            return Logsumexp(place, output.dtype, seen, keeps_infinity(narrow(result.value)))
    return None


def aligned_scores(scores: Node, product: Node) -> tuple[Node, Node]:
    """The scores, and their product in as many dimensions: leading ones of size 1 may be missing.

    What a mask of coordinates is added to is chosen by it.
    """
    sums = replace(product, shape=scores.shape)
    return _replaced(_replaced(scores, {id(product): sums}), {}, _chosen), sums


def _scaled(scores: Node, sums: Node) -> Node | None:
    """The product of the sums and a positive number, where the scores are that or -inf; None where they are not."""
    if beneath := _beneath(scores):
        visible, mask = beneath
        free = all(node is not sums for node in pointwise_cone(mask.inputs[0]))
        return _scaled(visible, sums) if free else None
    if scores.op != "mul" or not any(node is sums for node in scores.inputs):
        return None
    return scores if any(_is_positive(node) for node in scores.inputs) else None


def _beneath(scores: Node) -> tuple[Node, Node] | None:
    """What a mask hides by -inf, and the choice that is the mask: between that and -inf, or added, of 0 and -inf."""
    if scores.op == "where":
        shown = [branch for branch in scores.inputs[1:] if not is_minus_infinity(branch)]
        return (shown[0], scores) if len(shown) == 1 else None
    sides = (scores.inputs, scores.inputs[::-1]) if scores.op == "add" else ()
    for visible, mask in sides:
        inner = _beneath(mask) if mask.op == "where" else None
        if inner and constant_value(inner[0]) == 0:
            return visible, mask
    return None


def _chosen(node: Node) -> Node:
    """A sum with a mask of coordinates alone as a choice: what a tile hides is hidden wherever the tiles end.

    An Inf or NaN beneath such a mask does not show, as in PyTorch's fused kernels of causal attention. Other masks are
    added, as there.
    """
    beneath = _beneath(node) if node.op == "add" else None
    if beneath is None:
        return node
    visible, mask = beneath
    condition, *sides = mask.inputs
    if not all(each.is_pointwise or each.op in COORDINATES for each in pointwise_cone(condition)):
        return node
    chosen = (side if is_minus_infinity(side) else visible for side in sides)
    return replace(mask, inputs=(condition, *chosen), shape=node.shape)


def _is_positive(node: Node) -> bool:
    """Whether a number is above 0 in every call: a constant, or a product of sizes to some power."""
    if node.op == "sized":
        law = Sized.of(node).law
        return law.offset == 0 and law.factor > 0
    if node.op == "mul":
        return all(map(_is_positive, node.inputs))
    return node.op == "constant" and 0 < Constant.of(node).value < math.inf


def _replaced(node: Node, values: Mapping[int, Node], change: Callable[[Node], Node] = lambda node: node) -> Node:
    """The node with others in place of those whose id is in `values`, and each changed that is made of them."""
    alone = Graph((), (node,), (), False)
    return with_nodes(with_values(alone, values), change).outputs[0]


def inside_band(scores: Node, band: Band) -> Node:
    """The scores where all conditions of the band hold; what does not depend on them stays the same node."""
    build = GraphBuilder()
    known = {id(node): build.constant(holds, "bool") for node, holds in band.conditions}
    followed = [*known.values()]  # the constants that follow from the conditions

    def simpler(node: Node) -> Node:
        if not node.is_pointwise or not any(child is each for child in node.inputs for each in followed):
            return node
        made = build(node.op, *node.inputs, dtype=node.dtype)
        followed.extend([made] if made.op == "constant" else [])
        return made

    return _replaced(scores, known, simpler)


def _instructions(scores: Node, given: Node, *, fast: bool) -> int:
    """Of the function of a score, beside those of what it is given."""
    known = {id(node) for node in pointwise_cone(given)}
    return instructions((node for node in pointwise_cone(scores) if id(node) not in known), fast=fast)


def _parts(graph: Graph) -> _Parts:
    for product in (node for node in graph.nodes() if node.op == "contract"):
        weights, values = product.inputs
        found = softmax_of(narrow(weights))
        if found is None:
            continue
        inner = product_of(found.scores)
        if inner is None:
            continue
        sources = [narrow(operand) for operand in (*inner.inputs, values)]
        if all(source.op == "joined" for source in sources[1:]):
            (keys, more), (values, others) = (source.inputs for source in sources[1:])
            if keys.shape[-1] == values.shape[-2]:
                sources = [sources[0], keys, values, more, others]
        _check_operands(product, weights, sources)
        return _Parts(inner, found, product, sources)
    raise UnmatchedError(NOT_ATTENTION, operation="")


def _check_operands(product: Node, weights: Node, operands: list[Node]) -> None:
    """All of one 16-bit type, in memory; the weights are rounded to it before the second product."""
    for operand in operands:
        if operand.op != "input":
            raise UnmatchedError(f"{operand.where} is computed before the products", operation=operand.where)
    kinds = {operand.dtype for operand in operands}
    rounded = {weights.dtype, _rounded_to(weights)} & kinds
    if len(kinds) > 1 or not kinds <= HALVES or not rounded:
        kinds.add(weights.dtype)
        raise UnmatchedError(f"{product.where} multiplies {', '.join(sorted(kinds))}", operation=product.where)


def _rounded_to(node: Node) -> str:
    """The narrowest type that the value is rounded to by the casts at its end."""
    return node.inputs[0].dtype if node.op == "cast" and widens(node.inputs[0].dtype, node.dtype) else node.dtype


def product_of(scores: Node) -> Node | None:
    """The only product that the scores are a pointwise function of."""
    products = [node for node in pointwise_cone(scores) if node.op == "contract"]
    if len(products) != 1:
        return None
    missing = len(scores.shape) - len(products[0].shape)
    return products[0] if (1,) * missing + products[0].shape == scores.shape else None
