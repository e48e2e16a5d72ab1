"""Heads that share their keys, as grouped queries do, are rows of one tile where each has few queries of its own.

A step of generation has one query a head. A tile has 64 rows or more, and reads all keys: four heads as four tiles read
them four times, which takes twice as long on an H200 (32 caches of 4096 keys), though they come from L2 then.
"""

from __future__ import annotations

from dataclasses import replace

from cutesmith.patterns.attention.analysis import AttentionProblem
from cutesmith.patterns.contraction.analysis import Matrix
from cutesmith.patterns.contraction.epilogue import Epilogue
from cutesmith.patterns.graph.attributes import View
from cutesmith.patterns.graph.results import Result

SWAPPED = "{{0}}.transpose({0}, {1})"


def with_heads_as_rows(problem: AttentionProblem) -> AttentionProblem:
    """The problem with the last batch dimension of its queries as their rows, where that makes more rows of a tile."""
    heads = problem.batch[-1] if problem.batch else 1
    keys_and_values = (problem.k, problem.v, *(problem.more or ()))
    is_shared = len(problem.q.shape) > 2 and all(matrix.shape[-3:-2] in ((), (1,)) for matrix in keys_and_values)
    functions = (problem.score, problem.score_inside, problem.scale, problem.sink, problem.output)
    by_place = problem.band.lower or problem.band.upper or any(map(_knows_the_row, filter(None, functions)))
    if heads <= problem.queries or not is_shared or by_place:
        return problem
    batch = (*problem.batch[:-1], problem.queries)
    logsumexp = problem.logsumexp and replace(problem.logsumexp, result=_swapped_back(problem.logsumexp.result, -2))
    result = _swapped_back(problem.result, -3)
    return replace(problem, batch=batch, queries=heads, q=_swapped(problem.q), result=result, logsumexp=logsumexp)


def _knows_the_row(function: Epilogue) -> bool:
    """Whether a function differs between heads that share keys, or between queries."""
    by_row = any(size != 1 for operand in function.operands for size in operand.shape[-3:-1])
    return by_row or "at_m" in function.coordinates


def _swapped(q: Matrix) -> Matrix:
    def turned(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return (*sizes[:-3], sizes[-2], sizes[-3], sizes[-1])

    return replace(
        q, code=q.code.then(SWAPPED.format(-3, -2)), shape=turned(q.shape), strides=turned(q.strides), transposed=None
    )


def _swapped_back(result: Result, dim: int) -> Result:
    """The result whose dimension `dim`, from the right, and the next one have changed places in the kernel."""
    first = len(result.order) + dim
    moved = {first: first + 1, first + 1: first}
    order = tuple(moved.get(each, each) for each in result.order)
    return replace(result, views=(View(SWAPPED.format(dim, dim + 1)), *result.views), order=order)
