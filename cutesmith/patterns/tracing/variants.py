"""Functions that do other operations at other sizes, as in a loop over a dimension: a graph for each set of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.size_laws import Place
from cutesmith.patterns.tracing.trace import trace_fixed
from cutesmith.recording.facade import cuda_as_cpu

if TYPE_CHECKING:
    from cutesmith.problems.loading import LoadedFile

MOST_VARIANTS = 12
"""Kernels of other sizes in one file."""


@dataclass(frozen=True)
class Variants:
    """Graphs of one function, each for its own sizes at `places`; the first is that of `get_inputs()`."""

    places: tuple[Place, ...]
    graphs: dict[tuple[int, ...], Graph]


def trace_variants(loaded: LoadedFile) -> Variants:
    """The graphs of a problem at the sizes that its file names: those of all its inputs.

    Raises UnmatchedError where one cannot be traced.
    """
    with cuda_as_cpu(fake=True):
        sets = [loaded.get_inputs(), *(loaded.get_input_sets() if loaded.get_input_sets else ())]
        if smaller := getattr(loaded.module, "EMULATED_SIZES", None):
            sets.append(loaded.get_inputs(**smaller))
        return variants_of(loaded.reference_fn, sets, str(loaded.contract.path))


def variants_of(function: Callable[..., Any], sets: Sequence[Sequence[Any]], path: str = "") -> Variants:
    """The graphs of a function on several sets of inputs: a set gets its own where the sizes that decide differ."""
    graphs = [trace_fixed(function, list(inputs), path) for inputs in sets]
    if len({tuple(len(argument.shape) for argument in graph.arguments) for graph in graphs}) > 1:
        raise UnmatchedError("the inputs of this function have other numbers of dimensions in other sets")
    needed = list[Graph]()
    for graph in graphs:
        if not any(all(graph.size_at(p) == other.size_at(p) for p in other.held) for other in needed):
            needed.append(graph)
    places, found = _by_sizes(needed)
    if any(tuple(map(graph.size_at, places)) not in found for graph in graphs):
        places, found = _by_sizes(graphs)  # a graph that serves several sets does so at sizes that decide
    if len(found) > MOST_VARIANTS:
        raise UnmatchedError(f"the function does other operations for each of {len(found)} sizes")
    return Variants(places, found)


def _by_sizes(graphs: Sequence[Graph]) -> tuple[tuple[Place, ...], dict[tuple[int, ...], Graph]]:
    """The places that one of the graphs holds, and the first graph of each of the sizes there."""
    places = tuple(sorted({place for graph in graphs for place in graph.held}))
    found: dict[tuple[int, ...], Graph] = {}
    for graph in graphs:
        found.setdefault(tuple(map(graph.size_at, places)), graph)
    return places, found
