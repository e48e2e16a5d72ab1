"""Recurrent layers in a graph: where one launch is best, how their states are asked for, and loops that are layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cutesmith.patterns.graph.attributes import GATES, Recurrent
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.gate_sums import all_gates, all_weights
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.graph.recurrences import Recurrence, Unlike
from cutesmith.patterns.graph.recurrent_cells import Cell, cell_of, is_zero

TYPES = ("float32", "float16", "bfloat16")
"""Of states that a recurrent layer has."""

MOST_WEIGHTS = 4 * 1024**2
"""Numbers: those of 1024 units of an LSTM. A thread of 128 blocks of 256 has 128 of them in registers."""
MOST_STEPS = 16
"""That a layer of more weights is unrolled for: a step is a product of all multiprocessors then, in its own launch."""

MAY_LACK = ("bias", "hidden", "cell")
"""Inputs of a layer that are zeros where they are not there."""


def is_one_launch(kind: str, units: int, steps: int) -> bool:
    """Whether the steps of a layer are better in one launch than each in its own."""
    return steps > (1 if GATES[kind] * units**2 <= MOST_WEIGHTS else MOST_STEPS)


def both_in_one_launch(kind: str, units: int) -> bool:
    """Whether the registers of a GPU hold the weights of both directions of a layer."""
    return 2 * GATES[kind] * units**2 <= MOST_WEIGHTS


def layer(build: GraphBuilder, kind: str, inputs: Mapping[str, Node], is_reverse: bool, results: int) -> list[Node]:
    """The states of all steps of a layer, as they lie in memory, and as a second result the last cells of an LSTM.

    `inputs` are by the roles of `Recurrent`.
    """
    known = {role: build.stored(node) for role, node in inputs.items() if role not in MAY_LACK or not is_zero(node)}
    (*sizes, _), units = inputs["given"].shape, inputs["weights"].shape[-1]
    found, dtype = list[Node](), inputs["given"].dtype
    for is_cell, shape in ((False, (*sizes, units)), (True, (*sizes[1:], units)))[:results]:
        attrs = Recurrent(kind, tuple(known), is_reverse, cell=is_cell)
        found.append(build.stored(build.node("recur", tuple(known.values()), shape, dtype, attrs)))
    return found


def layer_of(
    build: GraphBuilder, recurrence: Recurrence, body: Node, inner: Mapping[int, Recurrence]
) -> list[tuple[Node, Recurrence]]:
    """What the states of a loop are, whose step is `body`, as those of a recurrent layer, each beside its recurrence.

    `inner` has the recurrences of the `state` nodes in the body, by their numbers. Raises Unlike for any other step.
    """
    carried = recurrence.carried
    if carried.dtype not in TYPES or len(carried.shape) != 3 or recurrence.at != 0:
        raise Unlike
    cell = cell_of(build, body, carried)
    if not is_one_launch(cell.kind, carried.shape[-1], carried.shape[0]):
        raise Unlike
    others = [] if cell.cells is None else [inner[cell.cells]]
    if any(each.carried.dtype != carried.dtype for each in others):  # a layer has one type
        raise Unlike
    inputs = _inputs(build, cell, recurrence)
    for role, each in zip(("hidden", "cell"), (recurrence, *others), strict=False):
        inputs[role] = _start(build, each)
    states, *cells = layer(build, cell.kind, inputs, recurrence.is_reverse, results=1 + len(others))
    found = [(states, recurrence)]
    for whole, each in zip(cells, others, strict=True):
        last = each.states[0 if each.is_reverse else -1]
        found.append((build.reshape(whole, (1, *whole.shape)), replace(each, states=(last,))))
    return found


def _start(build: GraphBuilder, recurrence: Recurrence) -> Node:
    carried, start = recurrence.carried, recurrence.used[0] if recurrence.used else None
    if start is None:
        raise Unlike
    return build.materialise(build.expand(build.cast(start, carried.dtype), carried.shape[1:]))


def _inputs(build: GraphBuilder, cell: Cell, recurrence: Recurrence) -> dict[str, Node]:
    """What all steps are given, the weights and the biases."""
    carried = recurrence.carried
    units, dtype = carried.shape[-1], carried.dtype
    width = len(cell.gates) * units
    weights = all_weights(build, cell.gates, units)
    given = all_gates(build, [each.others for each in cell.gates], units, dtype)
    bias = all_gates(build, cell.biases, units, dtype) if any(cell.biases) else build.constant(0, dtype)
    is_of_one_size = weights.shape == (width, units) and set(bias.shape[:-1]) <= {1}
    if not is_of_one_size or any(each.op in ("carried", "state") for each in nodes_of((weights, given, bias))):
        raise Unlike
    return {
        "given": build.materialise(build.expand(given, (*carried.shape[:-1], width))),
        "weights": build.materialise(weights),
        "bias": build.reshape(build.materialise(build.expand(bias, (*bias.shape[:-1], width))), (width,)),
    }
