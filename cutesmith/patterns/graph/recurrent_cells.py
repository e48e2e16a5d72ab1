"""Steps of a function's own loop that are those of a recurrent layer: which kind, and what their gates are sums of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cutesmith.patterns.graph.attributes import Carried, Constant
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.gate_sums import Columns, GateSum, gate_sum, plain, terms_of
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.recurrences import Unlike


@dataclass(frozen=True)
class Cell:
    """A step of a layer: its gates in PyTorch's order, and of an LSTM the number of the recurrence of its cells.

    `biases` of the gates are added to the products with the state before, where other terms are not: of a GRU.
    """

    kind: str
    gates: tuple[GateSum, ...]
    biases: tuple[tuple[Columns, ...], ...] = ()
    cells: int | None = None


def cell_of(build: GraphBuilder, body: Node, carried: Node) -> Cell:
    """The step that `body` is a state of, made of the state before, `carried`. Raises Unlike for any other step."""
    step = _Step(build, carried)
    for kind in (step.simple, step.lstm, step.gru):
        try:
            return kind(step.plain(body))
        except Unlike:
            continue
    raise Unlike


class _Step:
    """The parts of a step, whatever the order of sums and products in it; each part raises Unlike for another one."""

    def __init__(self, build: GraphBuilder, carried: Node) -> None:
        self.build, self.carried = build, carried

    def simple(self, body: Node) -> Cell:
        """tanh or relu of a sum."""
        if body.op == "maximum":
            return Cell("relu", (self._gate(self._apart(body, "maximum", is_zero)[1]),))
        return Cell("tanh", (self._gate(self._inside(body, "tanh")),))

    def lstm(self, body: Node) -> Cell:
        """sigmoid(o) * tanh(c), where c is sigmoid(f) * (c before) + sigmoid(i) * tanh(g)."""
        out, squashed = self._apart(body, "mul", _is_sigmoid)
        state = self.plain(self._inside(squashed, "tanh"))
        kept, added = self._apart(self._inside(state, "state"), "add", lambda node: self._is_kept(node, state))
        forget, _ = self._apart(kept, "mul", _is_sigmoid)
        come, new = self._apart(added, "mul", _is_sigmoid)
        sums = [self._inside(each, "sigmoid") for each in (come, forget, out)]
        sums.insert(2, self._inside(new, "tanh"))
        return Cell("lstm", tuple(map(self._gate, sums)), cells=Carried.of(state).number)

    def _is_kept(self, node: Node, state: Node) -> bool:
        factors = map(self.plain, node.inputs) if node.op == "mul" else ()
        return any(each.op == "carried" and each.attrs == state.attrs for each in factors)

    def gru(self, body: Node) -> Cell:
        """(1 - z) * n + z * (state before), where n is tanh(given + sigmoid(r) * (product + bias)).

        Where z says how much is new, 1 - z is the sigmoid of what z's sum is with the other sign.
        """
        update, new, is_of_new = self._mixed(body)
        terms = self._terms(self._inside(new, "tanh"))
        given = tuple(each for each in terms if not self.build.reaches(each.node, self.carried))
        if len(given) != len(terms) - 1:
            raise Unlike
        (damped,) = (each.node for each in terms if each not in given)
        reset, product = self._apart(damped, "mul", _is_sigmoid)
        inside = self._gate(product)
        gates = [self._gate(self._inside(each, "sigmoid")) for each in (reset, update)]
        own = {id(each.node) for each in inside.others}
        biases = [tuple(each for each in gate.others if id(each.node) in own) for gate in gates]
        others = [tuple(each for each in gate.others if id(each.node) not in own) for gate in gates]
        sums = [GateSum(gate.weights, rest) for gate, rest in zip((*gates, inside), (*others, given), strict=True)]
        if is_of_new:
            (weights,) = _negated([sums[1].weights])
            sums[1] = GateSum(weights, _negated(sums[1].others))
            biases[1] = _negated(biases[1])
        return Cell("gru", tuple(sums), biases=(*biases, inside.others))

    def _mixed(self, body: Node) -> tuple[Node, Node, bool]:
        """z, n, and whether z says how much is new: of n + z * (state before - n), as PyTorch has it, or of
        (1 - z) * n + z * (state before), or of either with n and the state in each other's place.
        """
        try:
            scaled, start = self._apart(body, "add", lambda node: node.op == "mul" and self._has(node, "sub"))
            update, apart = self._apart(scaled, "mul", _is_sigmoid)
            end, begin = map(self.plain, apart.inputs)
            if begin is start and self.carried in (begin, end):
                return update, end if begin is self.carried else begin, begin is self.carried
        except Unlike:
            pass
        kept, added = self._apart(body, "add", lambda node: self.carried in map(self.plain, node.inputs))
        is_of_new = not any(map(_is_sigmoid, map(self.plain, kept.inputs)))
        scaled, rested = (added, kept) if is_of_new else (kept, added)
        update, one_part = self._apart(scaled, "mul", _is_sigmoid)
        rest, other_part = self._apart(rested, "mul", lambda node: node.op == "sub")
        one, other = map(self.plain, rest.inputs)
        if other is not update or one.op != "constant" or Constant.of(one).value != 1:
            raise Unlike
        return update, one_part if is_of_new else other_part, is_of_new

    # Parts

    def plain(self, node: Node) -> Node:
        """What `gate_sums.plain` gives of values of the states' type."""
        return plain(node, self.carried.dtype)

    def _terms(self, node: Node) -> list[Columns]:
        return terms_of(self.build, node, self.carried.dtype)

    def _gate(self, node: Node) -> GateSum:
        return gate_sum(self.build, self._terms(node), self.carried)

    def _inside(self, node: Node, op: str) -> Node:
        """What the operation is of."""
        if node.op != op:
            raise Unlike
        return self.plain(node.inputs[0])

    def _has(self, node: Node, op: str) -> bool:
        return any(self.plain(each).op == op for each in node.inputs)

    def _apart(self, node: Node, op: str, is_first: Callable[[Node], bool]) -> tuple[Node, Node]:
        """The two inputs of an operation whose inputs may change places, the one that fits first."""
        inputs = list(map(self.plain, node.inputs)) if node.op == op else []
        first = next((each for each in inputs if is_first(each)), None)
        if first is None:
            raise Unlike
        return first, inputs[1] if first is inputs[0] else inputs[0]


def is_zero(node: Node) -> bool:
    """Whether a value is made of zeros, as first states are where a network is given none."""
    while node.op in ("expand", "cast"):
        node = node.inputs[0]
    return node.op == "constant" and Constant.of(node).value == 0


def _is_sigmoid(node: Node) -> bool:
    return node.op == "sigmoid"


def _negated(columns: Iterable[Columns]) -> tuple[Columns, ...]:
    return tuple(replace(each, negative=not each.negative) for each in columns)
