"""The plan of a problem: one kernel for all sizes, or one for each of the sizes that the problem names."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, cast

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.chains.variants import VariantsPlan
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.graph.attributes import Contraction
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.match import plan_covers, plan_kernel
from cutesmith.patterns.pattern_plan import PatternPlan
from cutesmith.patterns.tracing.trace import trace_problem
from cutesmith.patterns.tracing.variants import trace_variants
from cutesmith.problems.loading import LoadedFile
from cutesmith.verdicts import Precision

TOO_DEEP = (
    "the function nests deeper than Python's stack: a loop of many steps, each with what the one before gave, or a "
    "recursion without end"
)
SHALLOWER = "Compute all steps at once, of the whole tensor: a mask in place of slices, a scan in place of sums so far."


def plan_problem(loaded: LoadedFile, arch: str, *, precision: Precision = Precision.PYTORCH) -> PatternPlan[Any]:
    """The plan of a problem's function for an architecture; UnmatchedError with all operations in the way.

    `precision`: what products of float32 may round their factors to. With TF32 a function without such products is
    refused.
    """
    return plan_covers_of(loaded, arch, precision=precision, raced=False)[0]


def plan_covers_of(
    loaded: LoadedFile, arch: str, *, precision: Precision = Precision.PYTORCH, raced: bool
) -> list[PatternPlan[Any]]:
    """The plan of `plan_problem`, and where covers are `raced` others with different launches, as `match.plan_covers`.

    A function with a kernel for each of several sizes has one cover for each.
    """
    try:
        return _plan(loaded, arch, precision, raced)
    except RecursionError as error:
        raise UnmatchedError(TOO_DEEP, hint=SHALLOWER) from error


def _plan(loaded: LoadedFile, arch: str, precision: Precision, raced: bool) -> list[PatternPlan[Any]]:
    try:
        graph = trace_problem(loaded)
    except UnmatchedError as refusal:
        try:
            return _plan_of_variants(loaded, arch, precision, raced)
        except UnmatchedError:
            raise refusal from None
    if graph.call is not None and _names_more_sizes(loaded):
        return _plan_of_variants(loaded, arch, precision, raced, graph)  # other sets may have other options
    if graph.checked:
        with contextlib.suppress(UnmatchedError):  # the other sets of inputs have no kernel
            return _plan_of_variants(loaded, arch, precision, raced, graph)
    return plan_covers(_of_precision(graph, precision), arch, free_sizes=_names_more_sizes(loaded), raced=raced)


def _names_more_sizes(loaded: LoadedFile) -> bool:
    """Whether the problem has other inputs than those of `get_inputs()`, which a graph may serve, too."""
    return loaded.get_input_sets is not None or hasattr(loaded.module, "EMULATED_SIZES")


def _of_precision(graph: Graph, precision: Precision) -> Graph:
    if precision is Precision.PYTORCH:
        return graph
    if precision is Precision.FLOAT32:
        return with_tf32(graph, allowed=False)
    rounding = with_tf32(graph)
    if rounding is graph and not any(node.op == "contract" and Contraction.of(node).tf32 for node in graph.nodes()):
        wrong = "--precision tf32 changes nothing: the function multiplies no matrices of float32"
        raise UnmatchedError(wrong, operation="--precision tf32", hint="Leave the option out.")
    return rounding


def _plan_of_variants(
    loaded: LoadedFile, arch: str, precision: Precision, raced: bool, first: Graph | None = None
) -> list[PatternPlan[Any]]:
    """One kernel checks the sizes that it holds; of several, the sizes choose one."""
    variants, free = trace_variants(loaded, first), _names_more_sizes(loaded)
    graphs = {sizes: _of_precision(graph, precision) for sizes, graph in variants.graphs.items()}
    variants = replace(variants, graphs=graphs)
    if len(variants.graphs) == 1 and all(dim >= 0 for _, dim in variants.places):
        return plan_covers(next(iter(variants.graphs.values())), arch, free_sizes=free, raced=raced)
    chosen = {sizes: replace(graph, held=frozenset()) for sizes, graph in variants.graphs.items()}
    plans = {sizes: plan_kernel(graph, arch, free_sizes=free) for sizes, graph in chosen.items()}
    return [VariantsPlan(variants.places, cast(dict[tuple[int, ...], SinglePlan | ChainPlan], plans), arch)]
