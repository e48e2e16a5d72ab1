"""The gradients of an attention: from its log-sum-exp, its result and the gradient of that, without its weights.

With P = exp(scores - log-sum-exp) and dS = P * (dO V^T - rows of sum(dO * O)) they are dV = P^T dO, dQ = dS K and
dK = dS^T Q, times what the scores are scaled by (FlashAttention, arXiv 2205.14135).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention.analysis import HALVES, aligned_scores, inside_band, product_of
from cutesmith.patterns.attention.band import Band, band_of, is_minus_infinity
from cutesmith.patterns.attention.softmax import narrow, pointwise_cone
from cutesmith.patterns.contraction.analysis import Matrix, matrix_of
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.graph.attributes import AttentionGradient, Input, TensorCode
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.writing.naming import safe_names

NUMBERS = frozenset({"constant", "sized", "scalar"})
NOT_GRADIENTS = "there are no gradients of one attention alone"


@dataclass(frozen=True)
class GradientProblem:
    """Gradients of softmax(scale * q k^T + mask) v where `band` lets queries see keys; sizes are the traced ones.

    `k` and `v` are (…, width, keys). `scale` is that number times what it is given. `score` is the function of a sum
    inside the band, None where that is the scale alone. `safe`: queries that see no key have gradients of 0.
    `shared` are the batch dimensions, 0 the last, along which gradients of keys and values are summed. `of` are those
    that the function returns, in its order: "q", "k", "v".
    """

    graph: Graph
    arguments: tuple[str, ...]
    batch: Shape
    queries: int
    keys: int
    width: int
    q: Matrix
    k: Matrix
    v: Matrix
    result: Matrix
    of_result: Matrix
    logsumexp: TensorCode
    scale: Epilogue
    score: Epilogue | None
    band: Band
    shared: tuple[int, ...]
    of: tuple[str, ...]
    safe: bool

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What scores read beside their sums."""
        return self.score.operands if self.score else ()

    @property
    def matrices(self) -> list[tuple[str, Matrix, int]]:
        """What is read of 16 bits: how messages name it, and the dimension along which its rows are contiguous."""
        named = ("queries", self.q), ("keys", self.k), ("values", self.v), ("gradient", self.of_result)
        rows = [(name, matrix, -2 if name in ("keys", "values") else -1) for name, matrix in named]
        return [*rows, ("result", self.result, -1)]


def analyse(graph: Graph, reserved: Collection[str]) -> GradientProblem:
    """The problem of a graph that returns gradients of one attention of arguments; UnmatchedError for others."""
    first = graph.outputs[0]
    if any(node.op != "attention_gradient" or node.inputs != first.inputs for node in graph.outputs):
        raise UnmatchedError(NOT_GRADIENTS, operation="")
    scores, of_weights, logsumexp, result = first.inputs
    product = product_of(scores)
    if product is None or of_weights.op != "contract" or logsumexp.op != "input":
        raise UnmatchedError(f"{first.where} is not of a product in memory", operation=first.where)
    names, rank = safe_names([argument.name for argument in graph.arguments], reserved), len(scores.shape)
    nodes = [narrow(node) for node in (*product.inputs, *of_weights.inputs, result)]
    if any(node.op != "input" for node in nodes) or len({node.dtype for node in nodes} | {first.dtype}) > 1:
        raise UnmatchedError(f"{first.where} is of values that are not in memory, or of several types", operation="")
    q, k, of_result, v, result_matrix = (matrix_of(node, names, rank) for node in nodes)
    scale, score = _functions(scores, product, names, reserved)
    problem = GradientProblem(
        graph=graph,
        arguments=tuple(names),
        batch=scores.shape[:-2],
        queries=scores.shape[-2],
        keys=scores.shape[-1],
        width=q.shape[-1],
        q=q,
        k=k,
        v=v,
        result=result_matrix,
        of_result=of_result,
        logsumexp=Input.of(logsumexp).code(names).then("{0}.squeeze(-1)"),
        scale=scale,
        score=score,
        band=band_of(scores),
        shared=_shared(graph, scores.shape[:-2]),
        of=tuple(AttentionGradient.of(node).factor for node in graph.outputs),
        safe=AttentionGradient.of(first).safe,
    )
    _check(problem, first)
    return problem


def _functions(
    scores: Node, product: Node, names: list[str], reserved: Collection[str]
) -> tuple[Epilogue, Epilogue | None]:
    """What scores are times their product where the conditions of the band hold, and their function if it is more."""
    aligned, sums = aligned_scores(scores, product)
    inside = inside_band(aligned, band_of(aligned))
    slope = _slope(inside, sums)
    if slope is None:
        message = f"{scores.where} is not a multiple of {product.where} beneath masks"
        raise UnmatchedError(message, operation=scores.where)
    writer = FunctionWriter(names, reserved, len(scores.shape), {-2: "at_m", -1: "at_n"}, fast=True, suffix="mn")
    given = {id(sums): Given.of(sums)}
    scale = writer.function([slope], given)
    return scale, None if is_multiple(inside, sums) else writer.function([inside], given)


def _slope(node: Node, sums: Node) -> Node | None:
    """The multiple of the sums that a value is, what is added or hidden by -inf aside; None for others."""
    if node is sums:
        return node
    if node.op not in ("mul", "cast", "add", "sub", "where"):
        return None
    own = [at for at, each in enumerate(node.inputs) if any(inner is sums for inner in pointwise_cone(each))]
    others = [each for at, each in enumerate(node.inputs) if at not in own]
    inner = _slope(node.inputs[own[0]], sums) if len(own) == 1 else None
    if inner is None or (node.op == "sub" and own != [0]):
        return None
    if node.op == "where":
        return inner if own != [0] and any(map(is_minus_infinity, others)) else None
    if node.op in ("add", "sub"):
        return inner
    inputs = tuple(inner if at in own else each for at, each in enumerate(node.inputs))
    return replace(node, inputs=inputs) if all(map(is_number, others)) else None


def is_multiple(node: Node, sums: Node) -> bool:
    """Whether a value is another one times numbers."""
    while node is not sums and node.op in ("mul", "cast"):
        others = [each for each in node.inputs if not is_number(each)]
        if len(others) != 1:
            return False
        (node,) = others
    return node is sums


def is_number(node: Node) -> bool:
    """Whether a value is a number that is made of constants, sizes and numbers that are passed."""
    cone = pointwise_cone(node)
    return all(each.op in NUMBERS or each.is_pointwise for each in cone) and any(each.op in NUMBERS for each in cone)


def _shared(graph: Graph, batch: Shape) -> tuple[int, ...]:
    """The batch dimensions, 0 the last, that gradients of keys and values have not."""
    summed = {node.shape[:-2] for node in graph.outputs if AttentionGradient.of(node).factor != "q"}
    if len(summed) > 1:
        raise UnmatchedError("gradients of keys and values are summed over other heads", operation="")
    few = next(iter(summed), batch)
    return tuple(d for d, sizes in enumerate(zip(reversed(batch), reversed(few), strict=True)) if sizes[0] != sizes[1])


def _check(problem: GradientProblem, node: Node) -> None:
    p = problem
    if any(offset.argument is not None for offset in (*p.band.lower, *p.band.upper)):
        raise UnmatchedError(f"{node.where} is of scores whose mask an argument moves", operation=node.where)
    whole = all(matrix.shape[:-2] == p.batch for matrix in (p.q, p.of_result, p.result))
    apart = all(matrix.shape[-3 - d] == 1 for matrix in (p.k, p.v) for d in p.shared)
    if not (whole and apart) or p.q.dtype not in HALVES:
        raise UnmatchedError(f"{node.where} is broadcast, or not of 16 bits", operation=node.where)
    if len({p.width, p.k.shape[-2], p.v.shape[-2], p.of_result.shape[-1]}) > 1:
        raise UnmatchedError(f"{node.where} has heads of several widths", operation=node.where)
