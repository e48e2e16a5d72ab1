"""The scatter pattern in the form that is predicted to be the fastest."""

from __future__ import annotations

from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.takes import with_takes
from cutesmith.patterns.scatters import atomics, walk
from cutesmith.patterns.scatters.analysis import analyse
from cutesmith.patterns.scatters.atomics import AtomicsPlan
from cutesmith.patterns.scatters.walk import WalkPlan

ScattersPlan = WalkPlan | AtomicsPlan


def match(graph: Graph) -> ScattersPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not pointwise work around a scatter."""
    problem = analyse(with_takes(graph))
    walked, added = walk.planned(problem), atomics.planned(problem)
    found = (walked, added, added.in_shared_memory() if added is not None else None)
    return min((plan for plan in found if plan is not None), key=lambda plan: plan.warp_instructions)
