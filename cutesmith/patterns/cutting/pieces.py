"""The launches of a cut graph before they have places in a chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan, Source
from cutesmith.patterns.graph.nodes import Node

Plan = SinglePlan | ChainPlan


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
