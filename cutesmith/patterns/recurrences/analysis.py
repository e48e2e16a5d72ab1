"""What a recurrent layer's kernel computes: its steps, and which of its results are wanted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Recurrent
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.writing.naming import safe_names

MOST_LAYERS = 2
"""In one launch: the two directions of a layer that goes both ways."""


@dataclass(frozen=True)
class Layer:
    """One recurrent layer in one direction: `states` and `last` are its results, None where they are not wanted."""

    node: Node
    states: Node | None
    last: Node | None

    @property
    def said(self) -> Recurrent:
        """The kind of layer, its direction, and what its inputs are."""
        return Recurrent.of(self.node)

    @property
    def inputs(self) -> dict[str, Node]:
        """The inputs, by what they are."""
        return dict(zip(self.said.roles, self.node.inputs, strict=True))

    @property
    def results(self) -> tuple[Node, ...]:
        """Those that are wanted."""
        return tuple(node for node in (self.states, self.last) if node is not None)


@dataclass(frozen=True)
class RecurrenceProblem:
    """The steps of equal layers that do not wait for each other; sizes are the traced ones."""

    graph: Graph
    arguments: tuple[str, ...]
    layers: tuple[Layer, ...]

    @property
    def node(self) -> Node:
        """A result of the first layer."""
        return self.layers[0].node

    @property
    def said(self) -> Recurrent:
        """What all layers are, but for their directions."""
        return self.layers[0].said

    @property
    def steps(self) -> int:
        """How many states follow each other."""
        return self.layers[0].inputs["given"].shape[0]

    @property
    def rows(self) -> int:
        """The batch."""
        return self.layers[0].inputs["given"].shape[1]

    @property
    def units(self) -> int:
        """Numbers of a state."""
        return self.node.shape[-1]


def analyse(graph: Graph, reserved: Collection[str]) -> RecurrenceProblem:
    """The problem of a graph of recurrent layers, or UnmatchedError naming the first node in the way.

    `reserved` are the names that the template binds.
    """
    for node in graph.nodes():
        if node.op not in ("recur", "input"):
            message = f"{node.where} ({node.op}) is not part of a recurrent layer"
            raise UnmatchedError(message, operation=node.where)
    layers = tuple(map(_layer, _by_inputs(graph).values()))
    if not layers or any(output.op != "recur" for output in graph.outputs):
        raise UnmatchedError("no recurrent layer in the graph", operation="")
    first, *others = layers
    for other in others:
        if _form(other) != _form(first) or len(layers) > MOST_LAYERS:
            where = other.node.where
            raise UnmatchedError(f"{where} is another layer than {first.node.where}", operation=where)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    return RecurrenceProblem(graph, tuple(names), layers)


def _by_inputs(graph: Graph) -> dict[object, list[Node]]:
    found = dict[object, list[Node]]()
    for node in graph.nodes():
        if node.op == "recur":
            key = tuple(map(id, node.inputs)), replace(Recurrent.of(node), cell=False)
            found.setdefault(key, []).append(node)
    return found


def _layer(nodes: list[Node]) -> Layer:
    cells = {Recurrent.of(node).cell: node for node in nodes}
    return Layer(nodes[0], cells.get(False), cells.get(True))


def _form(layer: Layer) -> object:
    """What layers of one launch have in common."""
    shapes = tuple((role, node.shape, node.dtype) for role, node in layer.inputs.items() if role != "given")
    return layer.said.kind, shapes, layer.inputs["given"].shape
