"""The pattern of totals: a number or a few for a whole tensor, such as the mean of a loss, in two launches.

The first launch is a row kernel whose outputs are one value a row; where all elements are reduced it reduces each row.
The second reduces those values. Without the first, a single thread block would read the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns import rows
from cutesmith.patterns.building.builder import GraphBuilder
from cutesmith.patterns.building.dtypes import compute_dtype
from cutesmith.patterns.tracing.graph import Argument, Graph, Node
from cutesmith.patterns.tracing.sizes import SizeLaw, with_nodes
from cutesmith.patterns.writing.expressions import ITEM_BYTES
from cutesmith.patterns.writing.naming import safe_names
from cutesmith.patterns.writing.sections import join_sections
from cutesmith.runtime.tiling import Problem, Tiling

SPLIT = frozenset({"sum", "mean", "prod", "max", "min", "any", "all"})
"""Reductions of everything that are the same reduction of each row's: rows are equally long, so a mean is too."""

WORTHWHILE = 1 << 16
"""Fewer elements one block reads in about the time of a launch (an estimate: 64 a thread), so one launch is left."""

ROW_VALUES, TOTAL = "row_values", "total"


@dataclass(frozen=True)
class TotalsPlan:
    """A function matched in two halves: values of the rows, and what is made of those."""

    graph: Graph
    first: rows.RowsPlan
    second: rows.RowsPlan
    laws: tuple[SizeLaw, ...]
    pattern: str = "totals"

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: inputs read, outputs written, in the traced shapes."""
        reads = sum(math.prod(a.shape) * ITEM_BYTES[a.dtype] for a in self.graph.arguments if a.kind == "tensor")
        return reads + sum(math.prod(node.shape) * ITEM_BYTES[node.dtype] for node in self.graph.outputs)

    @property
    def algorithmic_flops(self) -> int:
        """One operation for every element of every pointwise node and reduction, in the traced shapes."""
        return self.first.algorithmic_flops + self.second.algorithmic_flops

    def configurations(self, arch: str = "sm_90a") -> list[dict[str, Any]]:
        """Those of the first launch: it reads the tensors."""
        return self.first.configurations(arch)

    def problem(self) -> Problem:
        """That of the first launch."""
        return self.first.problem()

    def tiling(self, configuration: dict[str, Any], section: str) -> Tiling:
        """That of the first launch, whose names come first in the section."""
        return self.first.tiling(configuration, section)

    def render(self, configuration: dict[str, Any]) -> str:
        """Both kernels, and a `kernel_fn` that launches one after the other."""
        section = join_sections(self.first.render(configuration), self.second.render(configuration), ROW_VALUES, TOTAL)
        names = safe_names([a.name for a in self.graph.arguments], frozenset({ROW_VALUES, TOTAL}))
        given = ", ".join(names)
        values = f"{'*' if self.first.graph.returns_tuple else ''}{ROW_VALUES}({given})"
        passed = ", ".join([*names, values, *(law.host_code(names) for law in self.laws)])
        return f"{section}\n\ndef kernel_fn({given}):\n    return {TOTAL}({passed})\n"


def match(graph: Graph) -> TotalsPlan:
    """A plan for a graph of totals, or UnmatchedError when it has none, or one block reads its tensors fast enough."""
    totals = _totals(graph)
    first = _row_values(graph, totals)
    second = _of_row_values(graph, totals, first)
    laws = tuple(node.attrs["law"] for node in _sized(second))
    return TotalsPlan(graph, rows.match(first), rows.match(_with_sizes_as_numbers(second)), laws)


def _totals(graph: Graph) -> list[Node]:
    """The reductions over everything; no output may read a tensor otherwise, no total another."""
    totals = [node for node in graph.nodes() if _is_total(node)]
    below = list(Graph((), tuple(node.inputs[0] for node in totals), (), False).nodes())
    largest = max((math.prod(node.inputs[0].shape) for node in totals), default=0)
    if any(map(_is_total, below)):
        raise UnmatchedError("a total of what another total is part of", operation="")
    if largest < WORTHWHILE and not any(node.is_reduction or node.op == "gather" for node in below):
        raise UnmatchedError("no total of a large tensor, nor of values of rows", operation="")
    for node in _cut(graph, totals).nodes():
        if math.prod(node.shape) != 1 or node.op in ("iota", "gather") or node.is_reduction:
            raise UnmatchedError(f"{node.origin or node.op} is used beside a total", operation=node.op)
    return totals


def _is_total(node: Node) -> bool:
    """Whether a reduction is over all rows: over every dimension but perhaps a last one that is reduced already."""
    if node.op not in SPLIT or not node.inputs[0].shape:
        return False
    last = len(node.inputs[0].shape) - 1
    missing = set(range(last + 1)) - set(node.attrs["dims"])
    return not missing or (last > 0 and missing == {last} and node.inputs[0].shape[last] == 1)


def _cut(graph: Graph, totals: Sequence[Node]) -> Graph:
    """What the outputs are made of once the totals are known; those are leaves."""
    leaves = {id(node): replace(node, op=TOTAL, inputs=()) for node in totals}
    return with_nodes(graph, lambda node: leaves.get(id(node), node))


def _row_values(graph: Graph, totals: Sequence[Node]) -> Graph:
    """What is known of each row before any total: outputs of shape (rows, 1), not rounded to 16 bits."""
    build = GraphBuilder()
    outputs = tuple(_row_value(build, node) for node in totals)
    strides = tuple(_dense(node.shape) for node in outputs)
    return replace(graph, outputs=outputs, output_strides=strides, returns_tuple=len(outputs) > 1)


def _row_value(build: GraphBuilder, total: Node) -> Node:
    (x,) = total.inputs
    build.origin = total.origin
    if len(x.shape) == 1:  # one value a row, as a target of class indices
        x = build.reshape(x, (*x.shape, 1))
    if x.shape[-1] == 1:
        return build.retype(x, compute_dtype(x.dtype))
    shape, last = (*x.shape[:-1], 1), len(x.shape) - 1
    attrs = {name: value for name, value in total.attrs.items() if name != "dims"}
    return build.node(total.op, (x,), shape, compute_dtype(total.dtype), dims=(last,), **attrs)


def _of_row_values(graph: Graph, totals: Sequence[Node], first: Graph) -> Graph:
    """The totals of the first graph's outputs, which are arguments after the original ones, and what follows."""
    build, count = GraphBuilder(), len(graph.arguments)
    parts = [
        Argument(f"part_{place}", "tensor", node.dtype, node.shape, _dense(node.shape))
        for place, node in enumerate(first.outputs)
    ]
    inputs = [_input(build, part, count + place) for place, part in enumerate(parts)]
    ended = {id(total): _ended(build, total, part) for total, part in zip(totals, inputs, strict=True)}
    second = with_nodes(graph, lambda node: ended.get(id(node), node))
    return replace(second, arguments=(*graph.arguments, *parts))


def _with_sizes_as_numbers(graph: Graph) -> Graph:
    """What follows the sizes of the original arguments as further numbers: the second kernel does not see those."""
    sized, start = _sized(graph), len(graph.arguments)
    values = [node.attrs["value"] for node in sized]
    numbers = [Argument(f"size_{place}", "scalar", "float", value=value) for place, value in enumerate(values)]
    scalars = {
        id(node): replace(node, op="scalar", attrs=MappingProxyType({"index": start + place}))
        for place, node in enumerate(sized)
    }
    graph = with_nodes(graph, lambda node: scalars.get(id(node), node))
    return replace(graph, arguments=(*graph.arguments, *numbers))


def _sized(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op == "sized"]


def _ended(build: GraphBuilder, total: Node, part: Node) -> Node:
    """The total of the rows' values in `part`, in the shape that its users expect."""
    attrs = {name: value for name, value in total.attrs.items() if name != "dims"}
    whole = build.reduce(total.op, part, range(len(part.shape)), total.dtype, **attrs)
    return build.reshape(whole, total.shape)


def _input(build: GraphBuilder, part: Argument, index: int) -> Node:
    layout = {"stride": part.stride, "offset": 0, "root": (part.shape, part.stride)}
    return build.node("input", (), part.shape, part.dtype, index=index, views=(), **layout)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
