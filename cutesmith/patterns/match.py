"""Which pattern takes a graph, elementwise, totals, row reductions split or not; and what stands in the way of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention import gradient_plan as attention_gradients
from cutesmith.patterns.attention import plan as attention
from cutesmith.patterns.chains import split_rows, totals
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.columns import plan as columns
from cutesmith.patterns.contraction import plan as contraction
from cutesmith.patterns.cutting.attention_gradients import with_attention_gradients
from cutesmith.patterns.cutting.column_halves import with_column_halves
from cutesmith.patterns.cutting.counts import with_counts
from cutesmith.patterns.cutting.cover import covers
from cutesmith.patterns.cutting.dual_products import with_dual_products
from cutesmith.patterns.cutting.finer_shapes import with_finer_shapes
from cutesmith.patterns.cutting.head_products import with_heads_as_products
from cutesmith.patterns.cutting.line_taps import with_taps_as_channels
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.cutting.own_places import with_reductions_in_place
from cutesmith.patterns.cutting.owners import with_owners
from cutesmith.patterns.cutting.partial_sums import with_partial_sums
from cutesmith.patterns.cutting.phase_reductions import with_reductions_of_phases
from cutesmith.patterns.cutting.phases import with_phases
from cutesmith.patterns.cutting.pieces import Matcher as LaunchMatcher
from cutesmith.patterns.cutting.pieces import Matches
from cutesmith.patterns.cutting.reshaped_values import with_functions_behind_reshapes
from cutesmith.patterns.cutting.results_apart import with_results_apart
from cutesmith.patterns.cutting.rewriting import (
    with_chosen_factors,
    with_computed_factors,
    with_float8_factors,
    with_long_sums_in_parts,
    with_returned_factors,
    with_vectors_as_rows,
)
from cutesmith.patterns.cutting.rotated_heads import with_rotated_heads
from cutesmith.patterns.cutting.rounded_decisions import with_rounded_decisions
from cutesmith.patterns.cutting.row_reductions import with_row_reductions
from cutesmith.patterns.cutting.runners_up import runners_up
from cutesmith.patterns.cutting.scores import with_joined_factors, with_plain_scores
from cutesmith.patterns.cutting.sharing import with_shared_kernels
from cutesmith.patterns.cutting.short_lines import with_short_lines
from cutesmith.patterns.cutting.short_reductions import with_short_reductions, with_taken_reductions
from cutesmith.patterns.cutting.small_products import with_small_products
from cutesmith.patterns.cutting.stored_reductions import with_stored_reductions
from cutesmith.patterns.cutting.tables import with_tables
from cutesmith.patterns.cutting.transformed_pairs import with_transformed_pairs
from cutesmith.patterns.cutting.viewed_functions import with_views_of_products
from cutesmith.patterns.cutting.viewed_reductions import with_viewed_reductions
from cutesmith.patterns.elementwise import plan as elementwise
from cutesmith.patterns.graph.block_scales import with_block_scales
from cutesmith.patterns.graph.dtypes import FLOATS8
from cutesmith.patterns.graph.joined import with_parts_of_joined, with_parts_of_joined_reductions
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.interleaving import plan as interleaving
from cutesmith.patterns.pattern_plan import PatternPlan
from cutesmith.patterns.recurrences import plan as recurrences
from cutesmith.patterns.rows import plan as rows
from cutesmith.patterns.scans import plan as scans
from cutesmith.patterns.scatters import plan as scatters
from cutesmith.patterns.selection import plan as selection
from cutesmith.patterns.transforms import plan as transforms
from cutesmith.patterns.windows import plan as windows
from cutesmith.patterns.windows.repetition import with_scales

NEEDS_MODEL = (
    "The offline generator knows products of matrices, attention, elementwise functions, reductions, "
    "totals of those, and what can be cut into them; for anything else a model has to write the kernel."
)

LONG_EPILOGUE = 16
"""Instructions for each sum: a launch of its own may take less time for more."""

CONVERTS_FLOAT8 = 89
"""The first compute capability with instructions for float8."""

P = TypeVar("P", bound=PatternPlan[Any])


AROUND_PRODUCTS: tuple[LaunchMatcher, ...] = (
    attention.match,
    attention_gradients.match,
    elementwise.match,
    interleaving.match,
    windows.match,
    scans.match,
    scatters.match,
    selection.match,
    transforms.match,
    recurrences.match,
    totals.match,
    split_rows.match,
    columns.match,
    rows.match,
)
"""The patterns that take what products leave of a graph that is cut."""
SINGLE: tuple[LaunchMatcher, ...] = (windows.match, contraction.match, *AROUND_PRODUCTS)
"""Every pattern that can take a whole graph, the first that takes it is the best."""


def with_slices_apart(graph: Graph) -> Graph:
    """Short reductions as pointwise work, and reductions of what shares most of that apart."""
    short = with_short_reductions(graph)
    apart = with_results_apart(short)
    return graph if apart is short else apart


SAID_OTHERWISE = (
    with_tables,
    with_finer_shapes,
    with_short_reductions,
    with_slices_apart,
    with_taken_reductions,
    with_owners,
    with_counts,
    with_partial_sums,
    with_parts_of_joined_reductions,
    with_stored_reductions,
    with_viewed_reductions,
    with_transformed_pairs,
)
"""Rewritings of any graph, each of which may take less time."""


def plan_kernel(graph: Graph, arch: str, *, free_sizes: bool = False) -> PatternPlan[Any]:
    """The plan of the first pattern that takes the graph and has a configuration for an architecture such as "sm_90a".

    A graph that no pattern takes as a whole is cut into launches. `free_sizes`: one that holds for other sizes than the
    traced ones gets a plan that does, too. Raises UnmatchedError with the operations in the way.
    """
    return plan_covers(graph, arch, free_sizes=free_sizes, raced=False)[0]


def plan_covers(graph: Graph, arch: str, *, free_sizes: bool = False, raced: bool) -> list[PatternPlan[Any]]:
    """The plan of `plan_kernel`, and where covers are `raced` those beside it that a race may find to be faster."""
    if parse_arch(arch).sm.number < CONVERTS_FLOAT8:
        eighths = [node for node in graph.nodes() if node.dtype in FLOATS8]
        if eighths:
            wrong = f"{eighths[0].dtype} at {eighths[0].where}: {arch} cannot convert it, sm_89 and later can"
            raise UnmatchedError(wrong, operation=eighths[0].where)
    plan, *others = ways_to_launch(with_rounded_decisions(graph), arch, free_sizes=free_sizes)
    if not plan.configurations(arch):
        raise UnmatchedError(f"the pattern {plan.pattern} has no configuration for {arch}", operation=plan.pattern)
    beside = runners_up(plan, [*others, *_unfused(plan)], arch) if raced else []
    found = [with_shared_kernels(each) for each in (plan, *beside)]
    return [replace(each, arch=arch) if isinstance(each, ChainPlan) else each for each in found]


def _unfused(plan: SinglePlan | ChainPlan) -> list[ChainPlan]:
    """The covers of what one pattern takes as a whole, of which no cut was tried: products without their epilogues."""
    if isinstance(plan, ChainPlan):
        return []
    try:
        return covers(plan.graph, AROUND_PRODUCTS)
    except UnmatchedError:
        return []


def whole_or_cut(graph: Graph, arch: str = "sm_90a", *, free_sizes: bool = False) -> SinglePlan | ChainPlan:
    """The plan of one pattern, or of a chain of them; of the ways to say products, that predicted to be the fastest.

    `free_sizes`: of the ways that hold for other sizes as far as the graph does.
    """
    return with_shared_kernels(ways_to_launch(graph, arch, free_sizes=free_sizes)[0])


def ways_to_launch(graph: Graph, arch: str, *, free_sizes: bool) -> list[SinglePlan | ChainPlan]:
    """The plan that `whole_or_cut` takes, and behind it the others that were compared with it."""
    graph = replace(graph if free_sizes else with_scales(graph), free_sizes=free_sizes)
    graph = with_short_lines(with_reductions_in_place(graph))
    others, known = [other for change in SAID_OTHERWISE if (other := change(graph)) is not graph], Matches()
    plans = _one_or_cut(graph, known)
    if not any(node.op == "contract" for node in graph.nodes()):
        return _fastest(plans, others, known)
    sm, duals = parse_arch(arch).sm, list[Graph]()
    for way in dict.fromkeys((graph, with_column_halves(graph))):
        if (dual := with_dual_products(way)) is not way:
            duals.append(dual)
    # Kernels of architectures differ in the room for sums of both, and for whole rows.
    plans = _fastest(plans, [*duals, *_with_rows_reduced(graph)], known, arch)
    phases = [with_phases(graph)]
    if sm == contraction.HOPPER:
        phases += [with_phases(graph, for_tma=True), with_phases(graph, for_tma=True, in_order=True)]
        others += [with_taps_as_channels(graph), with_attention_gradients(graph)]
    reduced = [with_reductions_of_phases(each) for each in phases if each is not graph]
    for way in dict.fromkeys((returned := with_returned_factors(graph), with_vectors_as_rows(returned))):
        plain = with_plain_scores(with_parts_of_joined(way))
        others += [way, plain, with_joined_factors(plain)]
    parts = with_long_sums_in_parts(graph), with_long_sums_in_parts(graph, many=True)
    others += [with_chosen_factors(graph), *parts, *phases]
    others += [each for each in reduced if each not in phases]
    behind = with_functions_behind_reshapes(graph)
    others += [with_computed_factors(graph), behind, with_views_of_products(behind)]
    small = with_small_products(graph)
    others += [small, with_tables(small)] if small is not graph else []
    if {"wgmma", "tcgen05.mma"} & {*sm.tensor_cores}:
        others.append(with_float8_factors(graph))
    if "wgmma" in sm.tensor_cores:
        others.append(with_block_scales(graph))
    free = free_sizes and not graph.fixed_shapes
    fewer = [other for other in others if other.fixed_shapes or other.held != graph.held]
    ways = (other for other in dict.fromkeys(others) if other is not graph and not (free and other in fewer))
    plans = _fastest(plans, ways, known)
    return _fastest(plans, _with_rows_reduced(plans[0].graph), known, arch)


def _with_rows_reduced(graph: Graph) -> list[Graph]:
    """The same in products' kernels, which serve up to as many columns as a tile has; none where nothing is reduced.

    Heads of a projection may have as many for all sizes.
    """
    reduced = graph if graph.free_sizes else with_row_reductions(graph)
    return [each for each in (reduced, with_heads_as_products(graph), with_rotated_heads(graph)) if each is not graph]


def _fastest(
    plans: list[SinglePlan | ChainPlan], others: Iterable[Graph], known: Matches, arch: str = "sm_90a"
) -> list[SinglePlan | ChainPlan]:
    """The plans and those of graphs that say the same; first the fastest of those that stand first, as predicted."""
    for other in others:
        try:
            found = _one_or_cut(other, known)
        except UnmatchedError:
            continue  # no pattern takes it when it is said this way; the first way is left
        is_faster = H200.seconds(found[0], arch) < H200.seconds(plans[0], arch)
        plans = [*found, *plans] if is_faster else [*plans, *found]
    return plans


def _one_or_cut(graph: Graph, known: Matches) -> list[SinglePlan | ChainPlan]:
    """The plan of the first pattern, or the covers that cut the graph; both where an epilogue is long."""
    try:
        plan = first_match(graph, SINGLE)
        long = isinstance(plan, contraction.ContractionPlan) and plan.problem.epilogue_instructions > LONG_EPILOGUE
        long |= isinstance(plan, transforms.TransformsPlan) and bool(plan.problem.spectra)
        return sorted([plan, *covers(graph, AROUND_PRODUCTS, known)], key=H200.seconds) if long else [plan]
    except UnmatchedError as refusal:
        try:
            return [*covers(graph, AROUND_PRODUCTS, known)]
        except UnmatchedError as all_of_them:
            message = f"{all_of_them.message} ({refusal.message})"
            raise UnmatchedError(message, operation=all_of_them.operation, hint=NEEDS_MODEL) from refusal


def first_match(graph: Graph, matchers: Sequence[Callable[[Graph], P]]) -> P:
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
