"""Other launches for the same function whose predicted time is near that of the best, so that a race may decide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.graph.nodes import LEAVES

NEAR = 1.5
"""Times the predicted time of the best cover: up to this another one may be faster.

An H200 took 0.9 to 1.25 of what is predicted for rows, and up to 1.4 for causal attention: those are the bounds of
`tests/patterns/test_predictions.py`. Two covers that err in opposite ways come so far apart.
"""

MOST_RUNNERS_UP = 2


def runners_up(
    best: SinglePlan | ChainPlan, others: Sequence[SinglePlan | ChainPlan], arch: str
) -> list[SinglePlan | ChainPlan]:
    """Of other covers those that launch something else and are predicted to take at most NEAR times as long."""
    most, known, found = NEAR * H200.seconds(best, arch), {_launched(best)}, list[SinglePlan | ChainPlan]()
    for other in sorted(others, key=lambda each: H200.seconds(each, arch)):
        if H200.seconds(other, arch) > most or len(found) == MOST_RUNNERS_UP:
            break
        if (launched := _launched(other)) not in known:
            known.add(launched)
            found.append(other)
    return found


def plans_of(plan: SinglePlan | ChainPlan) -> list[SinglePlan]:
    """Those of its launches."""
    return [launch.plan for launch in plan.launches] if isinstance(plan, ChainPlan) else [plan]


def _launched(plan: SinglePlan | ChainPlan) -> Hashable:
    """What tells covers apart: the pattern, the operations and the results of each launch, in whatever order."""
    return frozenset(Counter(map(_computed, plans_of(plan))).items())


def _computed(plan: SinglePlan) -> Hashable:
    work = [node for node in plan.graph.nodes() if node.op not in (*LEAVES, "reshape", "stored")]
    results = tuple(sorted((node.dtype, math.prod(node.shape)) for node in plan.graph.outputs))
    return plan.pattern, results, frozenset(Counter((node.op, node.shape) for node in work).items())
