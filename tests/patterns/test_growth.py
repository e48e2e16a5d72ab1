"""What a network of many layers takes to draft: no more for each layer than the layers before it took."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch

from cutesmith.patterns.cutting.cover import covers
from cutesmith.patterns.cutting.pieces import Matcher, Plan
from cutesmith.patterns.graph.equality import structure
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.match import AROUND_PRODUCTS
from cutesmith.patterns.rows.slices import in_slices
from cutesmith.patterns.tracing.trace import trace_function


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def dense_block(layers: int) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
    """Each layer multiplies all that the layers before it gave, side by side, by 8 columns."""

    def function(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        features = [x]
        for weight in weights:
            features.append(torch.cat(features, -1).relu() @ weight)
        return torch.cat(features, -1)

    return function, [meta(40, 24), *(meta(24 + 8 * layer, 8) for layer in range(layers))]


def calls_in(work: Callable[[], Any]) -> int:
    """The Python functions that are called, and the generators that are asked for more."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def traces(layers: int) -> int:
    function, inputs = dense_block(layers)
    ran = 0

    def counted(*given: torch.Tensor) -> torch.Tensor:
        nonlocal ran
        ran += 1
        return function(*given)

    trace_function(counted, inputs)
    return ran


@pytest.mark.slow
def test_a_trace_is_added_for_a_layer_at_most() -> None:
    """Which sizes grow apart is asked for each of them; the rest of the traces are as many for any network."""
    assert traces(8) - traces(4) <= 8


@pytest.mark.slow
def test_slices_of_a_row_take_as_much_for_each_part() -> None:
    """Whether a value follows the place in the row was found from all that the parts behind it are made of."""

    def joined(parts: int) -> Graph:
        return trace_function(lambda x: torch.cat([x * at for at in range(parts)], -1).softmax(-1), [meta(40, 24)])

    few, many = joined(16), joined(64)
    assert calls_in(lambda: in_slices(many)) <= 5 * calls_in(lambda: in_slices(few))


def test_ways_to_cut_match_each_part_once() -> None:
    matched = Counter[Hashable]()

    def counted(at: int, matcher: Matcher) -> Matcher:
        def match(part: Graph) -> Plan:
            matched[at, structure(part)] += 1
            return matcher(part)

        return match

    graph = trace_function(*dense_block(3))
    found = covers(graph, [counted(at, matcher) for at, matcher in enumerate(AROUND_PRODUCTS)])
    assert len(found) > 1 and max(matched.values()) == 1
