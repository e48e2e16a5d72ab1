"""Steps that multiply the state before by a matrix, as recurrent layers do, where a function unrolled them itself."""

from __future__ import annotations

import functools

from cutesmith.patterns.graph.attributes import GATES, Constant, Recurrent, Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.recurrences import Recurrence, reaches
from cutesmith.patterns.graph.views import push_permute

TYPES = ("float32", "float16", "bfloat16")
"""Of states that a recurrent layer has."""

MOST_WEIGHTS = 4 * 1024**2
"""Numbers: those of 1024 units of an LSTM. A thread of 128 blocks of 256 has 128 of them in registers."""
MOST_STEPS = 16
"""That a layer of more weights is unrolled for: a step is a product of all multiprocessors then, in its own launch."""


def is_one_launch(kind: str, units: int, steps: int) -> bool:
    """Whether the steps of a layer are better in one launch than each in its own."""
    return steps > (1 if GATES[kind] * units**2 <= MOST_WEIGHTS else MOST_STEPS)


def both_in_one_launch(kind: str, units: int) -> bool:
    """Whether the registers of a GPU hold the weights of both directions of a layer."""
    return 2 * GATES[kind] * units**2 <= MOST_WEIGHTS


def layer_of(build: GraphBuilder, recurrence: Recurrence, body: Node) -> Node | None:
    """The states of act(given + state before @ weights) as a recurrent layer; None where a step is something else."""
    carried = recurrence.carried
    first = recurrence.used[0] if recurrence.used else None
    is_taken = carried.dtype in TYPES and len(carried.shape) == 3 and recurrence.at == 0 and first is not None
    found = _activation(_plain(body, carried.dtype)) if is_taken else None
    if found is None or first is None or not is_one_launch(found[0], carried.shape[-1], carried.shape[0]):
        return None
    kind, sums = found
    terms = _terms(sums, carried.dtype)
    products = [term for term in terms if reaches(term, carried)]
    if len(products) != 1 or products[0].op != "contract":
        return None
    if _plain(products[0].inputs[0], carried.dtype) is not carried:
        return None
    weights = products[0].inputs[1]
    weights = build.reshape(weights, weights.shape[-2:]) if set(weights.shape[:-2]) <= {1} else weights
    units, of_one_type = carried.shape[-1], first.dtype == weights.dtype == carried.dtype
    fits = of_one_type and weights.shape == (units, units) and first.shape == carried.shape[1:]
    if not fits or reaches(weights, carried):
        return None
    others = [term for term in terms if term is not products[0]] or [build.constant(0, carried.dtype)]
    given = functools.reduce(lambda total, term: build("add", total, term, dtype=carried.dtype), others)
    given = build.cast(build.operand(given, carried.dtype), carried.dtype)
    inputs = {"given": build.expand(given, carried.shape), "weights": push_permute(build, weights, [1, 0])}
    inputs["hidden"] = first
    known = [build.stored(build.materialise(each)) for each in inputs.values()]
    attrs = Recurrent(kind, tuple(inputs), recurrence.is_reverse)
    return build.stored(build.node("recur", known, carried.shape, carried.dtype, attrs))


def _plain(node: Node, dtype: str) -> Node:
    """A value without what stretches or stores it, or rounds it to the type of states, as PyTorch does each sum."""
    while (
        node.op == "expand"
        or (node.op == "stored" and not Stored.of(node).views)
        or (node.op == "cast" and {node.dtype, node.inputs[0].dtype} <= {dtype, "float32"})
    ):
        node = node.inputs[0]
    return node


def _activation(body: Node) -> tuple[str, Node] | None:
    """Which kind of layer a step is of, and what it is a function of."""
    if body.op == "tanh":
        return "tanh", body.inputs[0]
    if body.op == "maximum":
        zeros = [each for each in body.inputs if each.op == "constant" and Constant.of(each).value == 0]
        others = [each for each in body.inputs if each not in zeros]
        if len(zeros) == len(others) == 1:
            return "relu", others[0]
    return None


def _terms(node: Node, dtype: str) -> list[Node]:
    """What a value is the sum of."""
    node = _plain(node, dtype)
    return [term for each in node.inputs for term in _terms(each, dtype)] if node.op == "add" else [node]
