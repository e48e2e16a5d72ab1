"""The plan of a problem: one kernel for all sizes, or one for each of the sizes that the problem names."""

from __future__ import annotations

from typing import Any, cast

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.chains.variants import VariantsPlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.pattern_plan import PatternPlan
from cutesmith.patterns.tracing.trace import trace_problem
from cutesmith.patterns.tracing.variants import trace_variants
from cutesmith.problems.loading import LoadedFile


def plan_problem(loaded: LoadedFile, arch: str) -> PatternPlan[Any]:
    """The plan of a problem's function for an architecture; UnmatchedError with all operations in the way."""
    try:
        graph = trace_problem(loaded)
    except UnmatchedError as refusal:
        try:
            return _plan_of_variants(loaded, arch)
        except UnmatchedError:
            raise refusal from None
    return _plan_of_variants(loaded, arch) if graph.fixed_shapes else plan_kernel(graph, arch)


def _plan_of_variants(loaded: LoadedFile, arch: str) -> PatternPlan[Any]:
    variants = trace_variants(loaded)
    plans = {sizes: cast(SinglePlan | ChainPlan, plan_kernel(graph, arch)) for sizes, graph in variants.graphs.items()}
    return VariantsPlan(variants.places, plans, arch) if variants.places else next(iter(plans.values()))
