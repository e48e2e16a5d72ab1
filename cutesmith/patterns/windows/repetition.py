"""Samples between the elements whose places repeat: a few results lie as the next few, some whole elements further."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.windows import Pooling, Samples, Share, Span


@dataclass(frozen=True)
class Repetition:
    """Neighbouring results along one dimension, which begin at a multiple of `step` elements.

    Each sees elements from `firsts` on with its `weights`, counted from `before` the multiple; all see `seen`.
    """

    step: int
    before: int
    seen: int
    firsts: tuple[int, ...]
    weights: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, samples: Samples, results: int) -> Repetition | None:
        """That of so many results; None where they do not lie whole elements apart, or other sizes change the scale."""
        if samples.aligned or not samples.scale:
            return None
        ratio = Fraction(1 / samples.scale)
        step = ratio * results
        if step.denominator != 1:
            return None
        half = Fraction(0) if samples.taps == 1 and not samples.centred else Fraction(1, 2)
        places = [(place + half) * ratio - (half if samples.taps > 1 else 0) for place in range(results)]
        firsts = [math.floor(place) - (1 if samples.taps == 4 else 0) for place in places]
        weights = [_weights(samples.taps, float(place - math.floor(place))) for place in places]
        before, end = -min(firsts), max(firsts) + samples.taps
        return cls(int(step), before, before + end, tuple(first + before for first in firsts), tuple(weights))


def with_scales(graph: Graph) -> Graph:
    """The graph with scales where sizes said how many results of samples there are; right for the traced sizes.

    A scale that puts results whole elements apart lets them share what they load.
    """

    def scaled(node: Node) -> Node:
        if node.op != "pool" or Pooling.of(node).operation != "sample":
            return node
        pooling, sizes = Pooling.of(node), node.inputs[0].shape
        spans = [_scaled(span, size) for span, size in zip(reversed(pooling.spans), reversed(sizes), strict=False)]
        changed = replace(pooling, spans=tuple(reversed(spans)))
        return node if changed == pooling else replace(node, attrs=changed)

    found = with_nodes(graph, scaled)
    return graph if found.outputs == graph.outputs else replace(found, fixed_shapes=True)


def _scaled(span: Span | Share | Samples, size: int) -> Span | Share | Samples:
    if not isinstance(span, Samples) or span.aligned or span.scale or not size:
        return span
    is_whole = span.count % size == 0 or size % span.count == 0
    return replace(span, count=0, scale=span.count / size) if is_whole else span


def _weights(taps: int, part: float) -> tuple[float, ...]:
    """Of the elements around a place that lies `part` of the way from one to the next; of four: Keys, A = -3/4."""
    if taps == 1:
        return (1.0,)
    if taps == 2:
        return 1 - part, part
    a = -0.75

    def near(away: float) -> float:
        return ((a + 2) * away - (a + 3)) * away * away + 1

    def far(away: float) -> float:
        return ((a * away - 5 * a) * away + 8 * a) * away - 4 * a

    return far(1 + part), near(part), near(1 - part), far(2 - part)
