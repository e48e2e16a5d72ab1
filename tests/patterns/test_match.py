"""The pattern that comes furthest says what stands in the way, and is followed by advice."""

from __future__ import annotations

import pytest

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input, Reduction
from cutesmith.patterns.graph.nodes import Argument, Graph, Node, Origin
from cutesmith.patterns.match import first_match, most_helpful, plan_kernel
from cutesmith.patterns.pattern_plan import PatternPlan

X = Node("input", (), (4, 8), "float32", Input.whole(0, (4, 8), (8, 1)))


def graph_of(output: Node) -> Graph:
    argument = Argument("x", "tensor", "float32", (4, 8), (8, 1))
    strides = tuple(reversed([1] * len(output.shape)))
    return Graph((argument,), (output,), (strides,), False)


EXP = Node("exp", (X,), (4, 8), "float32", origin=Origin("exp", "aten.exp at line 3"))
SUM = Node("sum", (EXP,), (4, 1), "float32", Reduction((1,)), origin=Origin("sum", "aten.sum at line 4"))
LOG = Node("log", (SUM,), (4, 1), "float32", origin=Origin("log", "aten.log at line 5"))
GRAPH = graph_of(LOG)


def refusing(message: str, operation: str):
    def matcher(graph: Graph) -> PatternPlan:
        raise UnmatchedError(message, operation=operation)

    return matcher


@pytest.mark.parametrize("operation", ["aten.log at line 5", "log"])
def test_the_refusal_that_came_furthest_is_raised(operation: str) -> None:
    matchers = (refusing("stopped at the sum", "sum"), refusing("stopped at the log", operation), refusing("no", ""))
    with pytest.raises(UnmatchedError, match="stopped at the log") as caught:
        first_match(GRAPH, matchers)
    assert caught.value.operation == operation and "a model has to write" in caught.value.hint


def test_ties_go_to_the_first_matcher() -> None:
    refusals = [UnmatchedError("first", operation="exp"), UnmatchedError("second", operation="exp")]
    assert most_helpful(GRAPH, refusals).message == "first"


def test_the_first_pattern_that_takes_the_graph_plans_it() -> None:
    assert plan_kernel(GRAPH, "sm_90a").pattern == "rows"
    assert plan_kernel(graph_of(EXP), "sm_90a").pattern == "elementwise"
