"""Equal launches share one kernel, and every kernel of a chain has a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, get_args

from cutesmith.patterns.attention.gradient_plan import AttentionGradientPlan
from cutesmith.patterns.attention.gradient_plan import match as attention_gradients
from cutesmith.patterns.attention.plan import AttentionPlan
from cutesmith.patterns.attention.plan import match as attention
from cutesmith.patterns.chains.chain import ChainPlan, Launch, SinglePlan
from cutesmith.patterns.columns.plan import ColumnsPlan
from cutesmith.patterns.columns.plan import match as columns
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.contraction.plan import match as contraction
from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.elementwise.plan import match as elementwise
from cutesmith.patterns.graph.equality import structure
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.interleaving.plan import InterleavingPlan
from cutesmith.patterns.interleaving.plan import match as interleaving
from cutesmith.patterns.recurrences.plan import RecurrencesPlan
from cutesmith.patterns.recurrences.plan import match as recurrences
from cutesmith.patterns.rows.plan import RowsPlan
from cutesmith.patterns.rows.plan import match as rows
from cutesmith.patterns.scans.plan import ScansPlan
from cutesmith.patterns.scans.plan import match as scans
from cutesmith.patterns.scatters.plan import ScattersPlan
from cutesmith.patterns.scatters.plan import match as scatters
from cutesmith.patterns.selection.plan import SelectionPlan
from cutesmith.patterns.selection.plan import match as selection
from cutesmith.patterns.transforms.plan import TransformsPlan
from cutesmith.patterns.transforms.plan import match as transforms
from cutesmith.patterns.windows.plan import WindowsPlan
from cutesmith.patterns.windows.plan import match as windows

CUT = "cut"
"""The pattern of a chain that patterns were found for piece by piece."""


def with_shared_kernels(plan: SinglePlan | ChainPlan) -> SinglePlan | ChainPlan:
    """A cut chain with one kernel for all equal launches; any other plan as it is."""
    if isinstance(plan, ChainPlan) and plan.pattern == CUT:
        return replace(plan, launches=share_kernels(plan.launches))
    return plan


def _code(source: str) -> str:
    """A kernel without the comments that tell the sizes it was predicted for."""
    return "\n".join(line for line in source.splitlines() if not line.startswith("#"))


def share_kernels(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """The launches with names; those whose kernels differ in nothing but the names of arguments have one plan."""
    known = dict[Hashable, tuple[SinglePlan, str]]()  # a network of 300 launches has some 20 graphs
    for launch in launches:
        if (key := _key(launch)) not in known:
            plan = _anonymous(launch.plan)
            known[key] = plan, _code(plan.render(plan.configurations()[0]))  # type: ignore[arg-type]
    sections, texts = zip(*(known[_key(launch)] for launch in launches), strict=True)
    first = {text: texts.index(text) for text in texts}
    stems = [launches[at].name for at in first.values()]
    names, counts = dict[str, str](), dict[str, int]()
    for text, at in first.items():
        stem = launches[at].name
        counts[stem] = counts.get(stem, 0) + 1
        names[text] = stem if stems.count(stem) == 1 else f"{stem}_{counts[stem]}"
    return tuple(
        replace(launch, name=names[text], plan=plan if texts.count(text) > 1 else launch.plan)
        for launch, text, plan in zip(launches, texts, sections, strict=True)
    )


def _key(launch: Launch) -> Hashable:
    return type(launch.plan), structure(launch.plan.graph)


def _anonymous(plan: SinglePlan) -> SinglePlan:
    """The plan of the same graph whose arguments have names by their places."""
    arguments = [
        replace(a, name=f"{'x' if a.kind == 'tensor' else 'number'}{at}") for at, a in enumerate(plan.graph.arguments)
    ]
    return MATCHERS[type(plan)](replace(plan.graph, arguments=tuple(arguments)))


MATCHERS: dict[type[Any], Callable[[Graph], SinglePlan]] = {
    AttentionPlan: attention,
    AttentionGradientPlan: attention_gradients,
    ColumnsPlan: columns,
    ContractionPlan: contraction,
    ElementwisePlan: elementwise,
    InterleavingPlan: interleaving,
    RowsPlan: rows,
    ScansPlan: scans,
    **dict.fromkeys(get_args(ScattersPlan), scatters),
    SelectionPlan: selection,
    RecurrencesPlan: recurrences,
    TransformsPlan: transforms,
    WindowsPlan: windows,
}
"""What made each plan."""
