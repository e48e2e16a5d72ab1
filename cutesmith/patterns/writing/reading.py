"""Reads at computed places: elements of a tensor in memory (`take`), and places in its sorted lines (`search`)."""

from __future__ import annotations

from collections.abc import Sequence

from cutesmith.patterns.graph.attributes import Constant, Iota, Search
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.writing.expressions import Emitter, convert, literal


def taken(emitter: Emitter, node: Node, memory: str) -> str:
    """Emits the load of a `take` from the tensor `memory` where its place lies inside; the name of what is loaded.

    The place of a coordinate of the result always lies inside; outside the value is 0.
    """
    codes = [place_code(emitter, place) for place in node.inputs[1:]]
    computed = COMPUTE_TYPE[node.dtype]
    name = emitter.fresh("take")
    element = convert(f"{memory}[{', '.join(codes)},]", STORAGE_TYPE[node.dtype], computed)
    tests = is_inside(node, codes, memory)
    if tests:
        lines = [f"{name} = {literal(0, computed)}", f"if {tests}:", f"    {name} = {element}"]
        emitter.lines.append("\n".join(lines))
    else:
        emitter.lines.append(f"{name} = {element}")
    return name


def place_code(emitter: Emitter, place: Node) -> str:
    """A coordinate of a `take`; a number is Python's own: the DSL compiles no call of a type inside a branch."""
    return str(Constant.of(place).value) if place.op == "constant" else emitter.value(place)


def is_inside(node: Node, codes: Sequence[str], memory: str) -> str:
    """The test whether the place of a `take`, given by these codes, lies in the tensor; "" where it always does."""
    source, *places = node.inputs
    sizes = zip(places, codes, source.shape, range(len(places)), strict=True)
    return " & ".join(
        f"({code} >= 0) & ({code} < {memory}.shape[{dim}])"
        for place, code, size, dim in sizes
        if not (place.op == "iota" and place.shape[Iota.of(place).dim] == size)
    )


def searched(emitter: Emitter, node: Node, memory: str) -> str:
    """Emits the search of a `search` in the tensor `memory`; the name of the place that is found."""
    _, value, *line = node.inputs
    code, at = emitter.value(value), ", ".join((*map(emitter.value, line), "None"))
    emitter.helpers.add("place_in")
    name = emitter.fresh("place")
    emitter.lines.append(f"{name} = place_in({memory}[{at},], {code}, {Search.of(node).right})")
    return name
