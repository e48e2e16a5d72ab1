"""Which pattern takes a graph, elementwise, totals, row reductions split or not; and what stands in the way of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention import plan as attention
from cutesmith.patterns.chains import split_rows, totals
from cutesmith.patterns.contraction import plan as contraction
from cutesmith.patterns.cutting.cover import Matcher as LaunchMatcher
from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.elementwise import plan as elementwise
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.pattern_plan import PatternPlan
from cutesmith.patterns.rows import plan as rows

NEEDS_MODEL = (
    "The offline generator knows elementwise functions, reductions over the last dimension or the trailing ones, and "
    "totals of those; for anything else a model has to write the kernel."
)


Matcher = Callable[[Graph], PatternPlan[Any]]


AROUND_PRODUCTS: tuple[LaunchMatcher, ...] = (
    attention.match,
    elementwise.match,
    totals.match,
    split_rows.match,
    rows.match,
)
"""The patterns that take what products leave of a graph that is cut."""
SINGLE: tuple[Matcher, ...] = (contraction.match, *AROUND_PRODUCTS)
"""Every pattern that can take a whole graph, the first that takes it is the best."""


def plan_kernel(graph: Graph, arch: str) -> PatternPlan[Any]:
    """The plan of the first pattern that takes the graph and has a configuration for an architecture such as "sm_90a".

    A graph that no pattern takes as a whole is cut into launches. Raises UnmatchedError with the operations in the way.
    """
    plan = whole_or_cut(graph)
    if not plan.configurations(arch):
        raise UnmatchedError(f"the pattern {plan.pattern} has no configuration for {arch}", operation=plan.pattern)
    return plan


def whole_or_cut(graph: Graph) -> PatternPlan[Any]:
    """The plan of one pattern, or of a chain of them."""
    try:
        return first_match(graph, SINGLE)
    except UnmatchedError:
        return cut(graph, AROUND_PRODUCTS)


def first_match(graph: Graph, matchers: Sequence[Matcher]) -> PatternPlan[Any]:
    """The first plan that there is; all refused: the UnmatchedError of the matcher that came furthest, with advice."""
    refusals: list[UnmatchedError] = []
    for matcher in matchers:
        try:
            return matcher(graph)
        except UnmatchedError as refusal:
            refusals.append(refusal)
    furthest = most_helpful(graph, refusals)
    raise UnmatchedError(furthest.message, operation=furthest.operation, hint=NEEDS_MODEL)


def most_helpful(graph: Graph, refusals: Sequence[UnmatchedError]) -> UnmatchedError:
    """The refusal whose operation comes last in the graph: the pattern that understood most; ties go to the first.

    An operation that is not found in the graph (a property of the whole function) counts as refused at once.
    """
    order = {node.where: position for position, node in enumerate(graph.nodes())}
    order |= {node.op: position for position, node in enumerate(graph.nodes()) if node.op not in order}
    return max(refusals, key=lambda refusal: order.get(refusal.operation, -1))
