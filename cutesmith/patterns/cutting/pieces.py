"""The launches of a cut graph before they have places in a chain."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan, Source
from cutesmith.patterns.graph.equality import structure
from cutesmith.patterns.graph.nodes import Graph, Node

Plan = SinglePlan | ChainPlan
Matcher = Callable[[Graph], Plan]


class Matches:
    """What patterns make of parts of a function: the ways to cut it have most parts in common, each is matched once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Plan | None] = {}

    def plan(self, part: Graph, matchers: Sequence[Matcher]) -> Plan | None:
        """That of the first pattern that takes the part; None where none does."""
        named = tuple(argument.name for argument in part.arguments), tuple(node.origin for node in part.nodes())
        key = tuple(matchers), named, structure(part)
        if key not in self._known:
            self._known[key] = _first_plan(part, matchers)
        return self._known[key]


def _first_plan(part: Graph, matchers: Sequence[Matcher]) -> Plan | None:
    for matcher in matchers:
        try:
            return matcher(part)
        except UnmatchedError:
            continue
    return None


@dataclass(eq=False)
class Piece:
    """One launch before it has a place in the chain: the nodes that it returns, and its plan once it is matched.

    `inputs` are the ids of the stored nodes that it reads, `sources` all that it is passed.
    """

    outputs: list[Node]
    inputs: set[int]
    plan: Plan
    sources: tuple[Source | Node, ...]


def has_order(pieces: Iterable[Piece]) -> bool:
    """Whether no piece waits for itself."""
    made, waiting = set[int](), list(pieces)
    while ready := [piece for piece in waiting if piece.inputs <= made]:
        made.update(id(node) for piece in ready for node in piece.outputs)
        waiting = [piece for piece in waiting if piece not in ready]
    return not waiting


def without_unread(pieces: list[Piece], results: Sequence[Node]) -> list[Piece]:
    """The pieces that make a result, or what such a piece reads."""
    while True:
        read = {id(node) for node in results}.union(*(piece.inputs for piece in pieces))
        kept = [piece for piece in pieces if any(id(node) in read for node in piece.outputs)]
        if len(kept) == len(pieces):
            return kept
        pieces = kept
