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
    places = tuple(sorted({place for graph in graphs for place in graph.held}))
    if len({tuple(len(argument.shape) for argument in graph.arguments) for graph in graphs}) > 1:
        raise UnmatchedError("the inputs of this function have other numbers of dimensions in other sets")
    found: dict[tuple[int, ...], Graph] = {}
    for graph in graphs:
        found.setdefault(tuple(graph.size_at(place) for place in places), graph)
    if len(found) > MOST_VARIANTS:
        raise UnmatchedError(f"the function does other operations for each of {len(found)} sizes")
    return Variants(places, found)
