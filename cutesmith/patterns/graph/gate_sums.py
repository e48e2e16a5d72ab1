"""What the gates of a recurrent step are sums of: columns of a product with the state before, and of what is given."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.graph.attributes import Contraction, Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.recurrences import Unlike
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.takes import joined_along
from cutesmith.patterns.graph.views import push_permute, push_slice


@dataclass(frozen=True)
class Columns:
    """As many columns of a value as a step has units, from `start` on; `negative`: with the other sign."""

    node: Node
    start: int = 0
    negative: bool = False


@dataclass(frozen=True)
class GateSum:
    """A gate before its activation: the columns of the weights of the state before, and those of what is added."""

    weights: Columns
    others: tuple[Columns, ...]


def gate_sum(build: GraphBuilder, terms: Sequence[Columns], carried: Node) -> GateSum:
    """The terms of a gate, of which one is a product with the state before. Raises Unlike for other ones."""
    products = [term for term in terms if build.reaches(term.node, carried)]
    if len(products) != 1 or products[0].node.op != "contract":
        raise Unlike
    state, weights = products[0].node.inputs
    if plain(state, carried.dtype) is not carried or not set(weights.shape[:-2]) <= {1}:
        raise Unlike
    if build.reaches(weights, carried) or weights.dtype != carried.dtype:
        raise Unlike
    weights = build.reshape(weights, weights.shape[-2:])
    others = tuple(term for term in terms if term is not products[0])
    return GateSum(Columns(weights, products[0].start), others)


def terms_of(build: GraphBuilder, node: Node, dtype: str, start: int = 0) -> list[Columns]:
    """What a value is the sum of, from a column of it on."""
    node = plain(node, dtype)
    if node.op == "add":
        return [term for each in node.inputs for term in terms_of(build, each, dtype, start)]
    source, dim, first = build.slices.get(id(node), (node, None, 0))
    return [Columns(node, start)] if dim != len(source.shape) - 1 else terms_of(build, source, dtype, start + first)


def plain(node: Node, dtype: str) -> Node:
    """A value without what stretches or stores it, or rounds it to the type of states, as PyTorch does each sum."""
    while (
        node.op == "expand"
        or (node.op == "stored" and not Stored.of(node).views)
        or (node.op == "cast" and {node.dtype, node.inputs[0].dtype} <= {dtype, "float32"})
    ):
        node = node.inputs[0]
    return node


def all_gates(build: GraphBuilder, gates: Sequence[Sequence[Columns]], units: int, dtype: str) -> Node:
    """The sums of the columns of each gate side by side, in the last dimension."""
    if len({len(gate) for gate in gates}) > 1:  # joined as sums
        sums = [_sum(build, [_taken(build, each, units) for each in gate], dtype) for gate in gates]
        gates = [[Columns(each)] for each in sums]
    return _sum(build, [_side_by_side(build, each, units, dtype) for each in zip(*gates, strict=True)], dtype)


def _side_by_side(build: GraphBuilder, columns: Sequence[Columns], units: int, dtype: str) -> Node:
    """One term of all gates: the value that has their columns in this order, or one that is made for that.

    Products of one left factor are a product with columns side by side.
    """
    node, is_signed = columns[0].node, any(each.negative for each in columns)
    if _in_order(columns, units) and not (is_signed and node.op == "contract"):
        return _signed(build, columns, units)
    if all(each.node is node for each in columns) and _width(node) == 1 and not is_signed:
        return node
    if all(_is_beside(each.node, node) for each in columns):
        said, rights = Contraction.of(node), [replace(each, node=each.node.inputs[1]) for each in columns]
        right = _side_by_side(build, rights, units, node.inputs[1].dtype)
        return contract(build, node.inputs[0], right, node.dtype, tf32=said.tf32, short_sums=said.short_sums)
    pieces = [build.operand(_taken(build, each, units), dtype) for each in columns]
    shape = broadcast([(units,), *(each.shape for each in pieces)])
    whole = [build.materialise(build.expand(each, shape)) for each in pieces]
    return joined_along(build, whole, len(shape) - 1, dtype)


def all_weights(build: GraphBuilder, gates: Sequence[GateSum], units: int) -> Node:
    """What all gates multiply the state before by, a row for each of their sums: (gates * units, units)."""
    columns = [gate.weights for gate in gates]
    node = columns[0].node
    if _in_order(columns, units):
        return push_permute(build, build.materialise(_signed(build, columns, units)), [1, 0])
    pieces = [push_permute(build, _taken(build, each, units), [1, 0]) for each in columns]
    return joined_along(build, pieces, 0, node.dtype)


def _in_order(columns: Sequence[Columns], units: int) -> bool:
    """Whether the columns are all that one value has."""
    node, gates = columns[0].node, range(len(columns))
    own = [(each.node, each.start) for each in columns] == [(node, at * units) for at in gates]
    return own and _width(node) == len(columns) * units


def _signed(build: GraphBuilder, columns: Sequence[Columns], units: int) -> Node:
    """The value that has these columns in this order, with their signs."""
    node = columns[0].node
    for gate in [at for at, each in enumerate(columns) if each.negative]:
        place = build.iota(node.shape, len(node.shape) - 1)
        is_gate = build("eq", build("floor_div", place, units), gate)
        node = build("where", is_gate, build("neg", node), node)
    return node


def _is_beside(node: Node, other: Node) -> bool:
    """Whether two values are products of one left factor."""
    of_products = node.op == other.op == "contract"
    return of_products and node.inputs[0] is other.inputs[0] and node.attrs == other.attrs and node.shape == other.shape


def _width(node: Node) -> int:
    return node.shape[-1] if node.shape else 1


def _taken(build: GraphBuilder, columns: Columns, units: int) -> Node:
    node = columns.node
    taken = node if _width(node) == 1 else push_slice(build, node, len(node.shape) - 1, columns.start, units)
    return build("neg", taken) if columns.negative else taken


def _sum(build: GraphBuilder, nodes: Sequence[Node], dtype: str) -> Node:
    terms = [build.operand(each, dtype) for each in nodes] or [build.constant(0, dtype, (1,))]
    return build.cast(functools.reduce(lambda total, term: build("add", total, term, dtype=dtype), terms), dtype)
