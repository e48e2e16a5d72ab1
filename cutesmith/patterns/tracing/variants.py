"""Functions that do other operations at other sizes, as in a loop over a dimension: a graph for each set of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.nodes import Argument, Graph
from cutesmith.patterns.graph.size_laws import Place
from cutesmith.patterns.tracing.sizes import holding_sizes
from cutesmith.patterns.tracing.specialising import specialised
from cutesmith.patterns.tracing.trace import arguments_of, drawn, trace_fixed
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


def trace_variants(loaded: LoadedFile, first: Graph | None = None) -> Variants:
    """The graphs of a problem at the sizes that its file names: those of all its inputs.

    `first` is what `trace_problem` gave for it, where that gave something. Raises UnmatchedError where one cannot be
    traced.
    """
    sets = [drawn(loaded.get_inputs)]
    if (more := loaded.get_input_sets) is not None:
        sets += drawn(lambda: list(more()))
    if smaller := getattr(loaded.module, "EMULATED_SIZES", None):
        sets.append(drawn(lambda: loaded.get_inputs(**smaller)))
    with cuda_as_cpu(fake=True):
        return variants_of(loaded.reference_fn, sets, str(loaded.contract.path), first)


def variants_of(
    function: Callable[..., Any], sets: Sequence[Sequence[Any]], path: str = "", first: Graph | None = None
) -> Variants:
    """The graphs of a function on several sets of inputs: a set gets its own where the sizes that decide differ.

    `first` is a graph of the first set, of those that `trace_function` gives.
    """
    held = [place for place, _ in first.call.held] if first is not None and first.call is not None else []
    specials = [specialised(function, inputs, held) for inputs in sets]
    if any(special.call != specials[0].call for special in specials):  # numbers may choose a variant
        specials, first = [specialised(function, inputs) for inputs in sets], None if held else first
    function, call = specials[0].function, specials[0].call
    if any(special.call != call for special in specials):
        raise UnmatchedError("the options of this function have other values in other sets of inputs")
    first_set, *others = ((special.inputs, arguments_of(function, special.inputs)) for special in specials)
    # Of sets with the same sizes that decide one is traced: where a size is 1 a graph may be wrong for larger ones.
    asked = [first_set, *sorted(others, key=lambda other: sum(argument.shape.count(1) for argument in other[1]))]
    if len({tuple(len(argument.shape) for argument in arguments) for _, arguments in asked}) > 1:
        raise UnmatchedError("the inputs of this function have other numbers of dimensions in other sets")
    traced = {} if first is None else {0: holding_sizes(first)}

    def graph_of(at: int) -> Graph:
        if at not in traced:
            traced[at] = trace_fixed(function, asked[at][0], path)
        return traced[at]

    for at, (_, arguments) in enumerate(asked):
        if not any(_serves(graph, arguments) for graph in traced.values()):
            graph_of(at)
    places, found = _by_sizes([*traced.values()])
    if any(_sizes_at(places, arguments) not in found for _, arguments in asked):
        # a graph that serves several sets does so at sizes that decide
        places, found = _by_sizes([graph_of(at) for at in range(len(asked))])
    if len(found) > MOST_VARIANTS:
        raise UnmatchedError(f"the function does other operations for each of {len(found)} sizes")
    called = {sizes: graph if graph.call == call else replace(graph, call=call) for sizes, graph in found.items()}
    return Variants(places, called)


def _serves(graph: Graph, arguments: Sequence[Argument]) -> bool:
    """Whether the sizes that a graph holds are those of these arguments."""
    return _sizes_at(sorted(graph.held), graph.arguments) == _sizes_at(sorted(graph.held), arguments)


def _sizes_at(places: Iterable[Place], arguments: Sequence[Argument]) -> tuple[int, ...]:
    return tuple(arguments[index].size_at(dim) for index, dim in places)


def _by_sizes(graphs: Sequence[Graph]) -> tuple[tuple[Place, ...], dict[tuple[int, ...], Graph]]:
    """The places that one of the graphs holds, and the first graph of each of the sizes there."""
    places = tuple(sorted({place for graph in graphs for place in graph.held}))
    found: dict[tuple[int, ...], Graph] = {}
    for graph in graphs:
        found.setdefault(_sizes_at(places, graph.arguments), graph)
    return places, found
