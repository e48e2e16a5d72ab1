"""The region of each product, or pair of them: the pointwise work that its kernel does before anything is stored.

A region grows from its product along pointwise nodes of the product's shape, and those of its rows where they are
reduced there. What else such a node reads is computed in the same place when it is pointwise work on arguments, and
otherwise comes from memory. A region takes a node only where no launch would come to wait for itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cutesmith.patterns.contraction.analysis import may_be_turned
from cutesmith.patterns.contraction.epilogue import values_of
from cutesmith.patterns.contraction.row_values import reduces_rows
from cutesmith.patterns.cutting.dual_products import pairs_of
from cutesmith.patterns.graph.attributes import Contraction
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, in_memory, nodes_of, places_of, users_of
from cutesmith.patterns.graph.results import last_view

MOST_OUTPUTS = 4
"""Of one region: most are tensors of the result's size that a block writes."""


@dataclass(eq=False)
class Region:
    """Products and the nodes that their kernel computes after them, in the graph's order.

    `turned` are those of the nodes that view its only result in the order in which it is stored.
    """

    products: tuple[Node, ...]
    nodes: list[Node]
    turned: list[Node] = field(default_factory=list)


@dataclass
class Regions:
    """Every region of a graph, who owns which node, and what must lie in memory beside the graph's outputs."""

    graph: Graph
    fused: bool
    taken: Sequence[Node] = ()
    """Products that are part of a larger pattern, and have no region."""
    order: list[Node] = field(init=False)
    places: dict[int, int] = field(init=False)
    users: dict[int, list[Node]] = field(init=False)
    owners: dict[int, Region] = field(default_factory=dict)
    found: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.order = list(self.graph.nodes())
        self.places = places_of(self.order)
        self.users = users_of(self.graph)
        taken = set(map(id, self.taken))
        others = [node for node in self.order if id(node) not in taken]
        marked = [node for node in others if node.op != "contract" or Contraction.of(node).dual]
        pairs = {id(first): (first, second) for first, second in pairs_of(marked)}
        for node in others:
            if node.op == "contract" and id(node) not in self.owners:
                self._claim(pairs.get(id(node), (node,)))

    def _claim(self, products: tuple[Node, ...]) -> None:
        region = Region(products, list(products))
        self.found.append(region)
        self.owners |= {id(product): region for product in products}
        if not self.fused:
            return
        for node in self.order[self.places[id(products[0])] + 1 :]:
            if id(node) not in self.owners and self._fits(node, region):
                region.nodes.append(node)
                self.owners[id(node)] = region
        while len(self.outputs_of(region)) > MOST_OUTPUTS:
            del self.owners[id(region.nodes.pop())]
        for output in reversed(self.outputs_of(region)):
            self._leave_to_readers(output, region)
        self._end_in_order(region)

    def _leave_to_readers(self, output: Node, region: Region) -> None:
        """A result that other results alone make is computed where it is read: the square of a residual, for a norm.

        Its readers compute it of fewer bytes, and have it in no other way, as the factor of a product has to lie in
        memory.
        """
        made = self._made_of_results(output, region)
        if made and not any(node is output for node in self.graph.outputs) and self._is_computed_by_all(output, region):
            region.nodes = [node for node in region.nodes if id(node) not in made]
            for key in made:
                del self.owners[key]

    def _made_of_results(self, output: Node, region: Region) -> dict[int, Node]:
        """What of a region makes an output of others that have no more bytes, and nothing else in it; or nothing."""
        others = {id(node) for node in self.outputs_of(region) if node is not output}
        made, stack = dict[int, Node](), [output]
        while stack:
            node = stack.pop()
            if id(node) in others and ITEM_BYTES[node.dtype] <= ITEM_BYTES[output.dtype]:
                continue
            if node.op == "contract" or (node.shape and self.owners.get(id(node)) is not region):
                return {}
            made[id(node)] = node
            stack += [child for child in node.inputs if id(child) not in made]
        own = {key: node for key, node in made.items() if self.owners.get(key) is region}
        users = (user for key, node in own.items() if node is not output for user in self.users[key])
        return {} if any(id(user) not in own for user in users) else own

    def _is_computed_by_all(self, output: Node, region: Region) -> bool:
        """Whether all that reads a value, or another shape of it, is pointwise or a reduction."""
        readers = list(self.users[id(output)])
        for reader in readers:
            if reader.op == "reshape":
                readers += self.users[id(reader)]
            elif self.owners.get(id(reader)) is region or not (reader.is_pointwise or reader.is_reduction):
                return False
        return bool(readers)

    def _end_in_order(self, region: Region) -> None:
        """A result that is read in another order of its batches and rows alone is stored in that."""
        output, *others = self.outputs_of(region)
        first = region.products[0]
        free = self.graph.free_sizes and not Contraction.of(first).rows  # of whole rows the columns stay the same
        if others or free or values_of(output)[0].shape != first.shape or not may_be_turned(first, output.dtype):
            return
        end = last_view(output, self.users)
        while end is not output:
            region.turned.insert(0, end)
            (end,) = end.inputs
        region.nodes += region.turned
        self.owners |= {id(node): region for node in region.turned}

    def _fits(self, node: Node, region: Region) -> bool:
        shape, rows = region.products[0].shape, Contraction.of(region.products[0]).rows
        is_last = node.op in ("depth_to_space", "halves") and node.inputs[0].shape == shape
        is_of_rows = rows and (reduces_rows(node, shape) or (node.is_pointwise and node.shape == (*shape[:-1], 1)))
        if not (is_last or is_of_rows) and (not node.is_pointwise or node.shape != shape):
            return False
        if not any(self.owners.get(id(child)) is region for child in node.inputs):
            return False
        outside = [child for child in node.inputs if self.owners.get(id(child)) is not region]
        return not any(self._waits_for(child, region) for child in outside)

    def _waits_for(self, node: Node, region: Region) -> bool:
        """Whether a node needs what the region computes, directly or through the launch of another region."""
        seen: set[int] = set()
        stack = [node]
        while stack:
            each = stack.pop()
            owner = self.owners.get(id(each))
            if owner is region:
                return True
            for member in owner.nodes if owner is not None else [each]:
                if id(member) not in seen:
                    seen.add(id(member))
                    stack.extend(member.inputs)
        return False

    def outputs_of(self, region: Region) -> list[Node]:
        """The nodes of a region that something outside of it reads, or the function returns."""
        inside = set(map(id, region.nodes))
        results = set(map(id, self.graph.outputs))
        return [
            node
            for node in region.nodes
            if id(node) in results or any(id(user) not in inside for user in self.users[id(node)])
        ]

    def read_by(self, region: Region) -> Iterator[Node]:
        """The values that a region's kernel reads from memory, arguments apart."""
        factors = [side for product in region.products for side in product.inputs]
        sides = itertools.chain.from_iterable(map(in_memory, factors))
        yield from (base_of(side) for side in sides if side.op != "input")
        for node in region.nodes[len(region.products) : len(region.nodes) - len(region.turned)]:
            for child in node.inputs:
                if self.owners.get(id(child)) is not region and not is_pointwise_on_arguments(child):
                    yield base_of(child)


def is_pointwise_on_arguments(node: Node) -> bool:
    """Whether a value can be computed where it is used, from arguments, numbers and constants alone."""
    return all(each.is_pointwise or each.op in LEAVES for each in nodes_of((node,)))


def base_of(node: Node) -> Node:
    """The value in memory that `node` is: a reshape, or a view of a stored value, is the same memory."""
    if node.op == "stored":
        return base_of(node.inputs[0])
    inner = node
    while inner.op == "reshape":
        inner = inner.inputs[0]
    return node if inner.op in IN_MEMORY else inner


def names_of(nodes: Sequence[Node]) -> list[str]:
    """Each operation once, as messages name it."""
    return list(dict.fromkeys(node.where for node in nodes))
