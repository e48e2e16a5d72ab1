"""Stacks of equal steps as one value: what Python unrolled over a dimension is computed for all of it at once.

Pieces of a stack that are the same operations on neighbouring slices become the operations on what was sliced, with one
dimension more. Where each piece is made of the one before, as the states of a loop over time are, and the step is a
sum, product or extreme, or linear in the state before, that is a scan.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from cutesmith.patterns.graph.attributes import Carried, Constant, Contraction, Reduction, Scan, Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.graph.recurrences import (
    Recurrence,
    Steps,
    Unlike,
    along,
    any_of,
    same_place,
    scanned,
    with_odd,
)
from cutesmith.patterns.graph.recurrent_cells import is_zero
from cutesmith.patterns.graph.recurrent_steps import layer_of
from cutesmith.patterns.graph.shapes import Shape, broadcast
from cutesmith.patterns.graph.step_slices import StepSlices
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice

FEWEST = 4
"""Pieces: of fewer, what follows a dimension is not told from what does not."""
MOST_TRIED = 200
"""Places of a step that are looked at, in one way or another: equal steps have about 60 at most."""


def rerolled(build: GraphBuilder, pieces: Sequence[Node], dim: int, shape: Shape) -> Node | None:
    """The value of `shape` that has the pieces side by side along a dimension, a new one or one that they have.

    None where they are not the same operations on neighbouring slices.
    """
    if len(pieces) < FEWEST or len({(piece.shape, piece.dtype) for piece in pieces}) > 1 or 0 in shape:
        return None
    is_of_products = dim > 0 and any(node.op == "contract" for node in nodes_of((pieces[-1],)))
    places = (dim, 0) if is_of_products else (dim,)  # where products of each step may lie side by side
    for at, is_lenient, steps in itertools.product(places, (False, True), (tuple(pieces), tuple(pieces[::-1]))):
        rolling = _Rolling(build, len(pieces), is_lenient)
        try:
            value = rolling.of(steps, at)
        except Unlike:
            continue
        rolling.remember_states()
        build.rerolled = True
        whole = build.expand(value, along(pieces[0].shape, at, len(pieces)))
        if steps[0] is not pieces[0]:
            whole = _flipped(build, whole, at)
        rank = len(whole.shape)
        turned = whole if at == dim else push_permute(build, whole, [*range(1, dim + 1), 0, *range(dim + 1, rank)])
        return build.reshape(turned, shape)
    return None


def remember_layer(build: GraphBuilder, states: Sequence[Node]) -> bool:
    """Whether these are the states of a recurrent layer, which they are read from then."""
    rolling = _Rolling(build, len(states), is_lenient=False)
    try:
        value = rolling.of(tuple(states), 0)
    except Unlike:
        return False
    is_layer = value.op == "stored" and value.inputs[0].op == "recur"
    if is_layer:
        rolling.remember_states()
        build.rerolled = True
    return is_layer


def _flipped(build: GraphBuilder, node: Node, dim: int) -> Node:
    places = [build.iota(node.shape, each) for each in range(len(node.shape))]
    places[dim] = build("sub", node.shape[dim] - 1, places[dim])
    return take(build, node, places, node.shape)


class _Rolling:
    """What steps come to, place by place: `found` by their ids and by where the new dimension is.

    `is_lenient`: a first or last step may be another in a part of the steps of a recurrence, too.
    """

    def __init__(self, build: GraphBuilder, length: int, is_lenient: bool) -> None:
        self.build, self.length, self.is_lenient = build, length, is_lenient
        self.found: dict[tuple[object, ...], Node] = {}
        self.failed: set[tuple[object, ...]] = set()
        self.running: set[tuple[object, ...]] = set()
        self.tried = 0
        self.open: list[Recurrence] = []
        self.inner: dict[int, Recurrence] = {}
        self.numbers = itertools.count()
        self.slices = StepSlices(build, length, is_lenient)
        self.scans: dict[int, tuple[Node, Recurrence]] = {}

    def of(self, steps: Steps, at: int) -> Node:
        """The value whose dimension `at` has the steps side by side: 1 there where all are the same."""
        key = (at, *map(id, steps))
        if key in self.failed or key in self.running or self.tried > MOST_TRIED:
            raise Unlike
        if key not in self.found:
            self.tried += 1
            self.running.add(key)
            try:
                self.found[key] = self._of(steps, at)
            except Unlike:
                self.failed.add(key)
                raise
            finally:
                self.running.remove(key)
        return self.found[key]

    def _of(self, steps: Steps, at: int) -> Node:
        known = [step for step in steps if step is not None]
        if all(step is known[0] for step in known):
            return self.build.reshape(known[0], along(known[0].shape, at, 1))
        for recurrence in self.open:
            if recurrence.carries(steps, at):
                return recurrence.carried
        ways = (self.slices.neighbouring, self._sliced_alike, self._counted, self._seen_otherwise, self._stepwise)
        used, found_before = [recurrence.used for recurrence in self.open], dict(self.found)
        for way in (*ways, self._odd_at_an_end, self._one_step_off):
            try:
                if (found := way(steps, at)) is not None:
                    return found
            except Unlike:
                if any(each.used != before for each, before in zip(self.open, used, strict=True)):
                    self.found = dict(found_before)  # what was found since may be made of a state before
                for recurrence, before in zip(self.open, used, strict=True):
                    recurrence.used = before
        raise Unlike

    def remember_states(self) -> None:
        """The states of all recurrences are read from what is scanned from now on."""
        for whole, recurrence in self.scans.values():
            for place, state in enumerate(recurrence.states):
                if state and along(state.shape, recurrence.at, len(recurrence.states)) == whole.shape:
                    self.build.states[id(state)] = whole, recurrence.at, place

    def _sliced_alike(self, steps: Steps, at: int) -> Node | None:
        return self.slices.alike(steps, at, self.of)

    def _counted(self, steps: Steps, at: int) -> Node | None:
        """Numbers that rise or fall evenly, by the coordinate."""
        known = [(place, step) for place, step in enumerate(steps) if step is not None]
        if at or any(step.op != "constant" for _, step in known):
            return None
        (first, number), (second, other) = known[0], known[1]
        values = [Constant.of(step).value for _, step in known]
        if not all(map(math.isfinite, values)):
            return None
        step = (values[1] - values[0]) / (second - first)
        start = values[0] - first * step
        kind = number.dtype
        if step != int(step) or start != int(start) or kind == "bool" or other.dtype != kind:
            return None
        if any(value != start + place * step for (place, _), value in zip(known, values, strict=True)):
            return None
        place = self.build("mul", self.build.iota((self.length,), 0), int(step))
        return self.build.operand(self.build("add", place, int(start)), kind)

    # Views

    def _seen_otherwise(self, steps: Steps, at: int) -> Node | None:
        """Reshapes and transposes of other steps."""
        reshaped = [None if step is None else self.build.reshaped.get(id(step)) for step in steps]
        if all(before for before, step in zip(reshaped, steps, strict=True) if step is not None):
            return self._reshaped(steps, tuple(before[-1] if before else None for before in reshaped), at)
        turned = [None if step is None else self.build.permuted.get(id(step)) for step in steps]
        if all(before for before, step in zip(turned, steps, strict=True) if step is not None):
            dims, *others = {tuple(before[1]) for before in turned if before}
            if others:
                return None
            inner = self.of(tuple(before[0] if before else None for before in turned), 0)
            order = [1 + dim for dim in dims]
            return push_permute(self.build, inner, [*order[:at], 0, *order[at:]])
        return None

    def _reshaped(self, steps: Steps, before: Steps, at: int) -> Node | None:
        shape, inner = any_of(steps).shape, any_of(before).shape
        to = same_place(shape, at, inner)
        if to is None:
            return None
        found = self.of(before, to)
        return self.build.reshape(found, along(shape, at, found.shape[to]))

    # Operations

    def _stepwise(self, steps: Steps, at: int) -> Node | None:
        """The same operation in all steps; a scan where each is made of the step before."""
        steps = self._unfolded(steps)
        first, *others = [step for step in steps if step is not None]
        said = first.op, first.dtype, first.attrs, len(first.inputs)
        if any((each.op, each.dtype, each.attrs, len(each.inputs)) != said for each in others) or not first.inputs:
            return None
        if self.build.reaches(steps[2], steps[1]) or self.build.reaches(steps[-3], steps[-2]):
            return self._recurrent(steps, at)
        return self._operation(steps, at)

    def _unfolded(self, steps: Steps) -> Steps:
        """The steps, of which the first in time may have been simplified: a product with a state of zeros."""
        first, second, *_, before, last = steps
        return (self._like(first, second), *steps[1:-1], self._like(last, before))

    def _like(self, step: Node | None, other: Node | None) -> Node | None:
        """A step that is zero, as the product that the next one is with the state before."""
        if step is None or other is None or step.op == other.op:
            return step
        zero = self.build.constant(0, other.dtype)
        if other.op == "mul" and is_zero(step):
            number = next((each for each in other.inputs if each.op == "constant"), None)
            inputs = [number if each is number else zero for each in other.inputs]
            return step if number is None else self.build.node("mul", inputs, (), other.dtype)
        product = step.inputs[0] if step.op == "sum" else step
        if other.op == "contract" and product.op == "mul" and any(map(is_zero, product.inputs)):
            state, weights = other.inputs
            inputs = [self.build.expand(zero, state.shape), weights]
            return self.build.node("contract", inputs, other.shape, other.dtype, other.attrs)
        return step

    def _recurrent(self, steps: Steps, at: int) -> Node:
        shape, dtype = along(_shape(steps), at, self.length), any_of(steps).dtype
        number = Carried(next(self.numbers))
        carried = self.build.node("carried", (), shape, dtype, number)
        is_reverse = not self.build.reaches(steps[2], steps[1])
        recurrence = Recurrence(steps, is_reverse, at, carried)
        found, failed = dict(self.found), self.failed
        self.open.append(recurrence)
        self.failed = set()  # steps that come to nothing else may be the states before
        try:
            body = self._operation(steps, at)
        finally:
            self.open.pop()
            self.failed = failed
            if recurrence.used:  # what was found of the state before holds in here alone
                self.found = found
        if not recurrence.used:
            return body
        if any(self.build.reaches(body, each.carried) for each in self.open):  # two states of one step, as an LSTM has
            self.inner[number.number] = recurrence
            return self.build.node("state", (body,), shape, dtype, number)
        try:
            values = layer_of(self.build, recurrence, body, self.inner)
        except Unlike:
            values = [(scanned(self.build, recurrence, body), recurrence)]
        self.scans |= {id(whole): (whole, each) for whole, each in values}
        return values[0][0]

    def _operation(self, steps: Steps, at: int) -> Node:
        """The operation of all steps on what their inputs come to."""
        build, first, common = self.build, any_of(steps), _shape(steps)
        shape = along(common, at, self.length)
        inputs = [tuple(step and step.inputs[place] for step in steps) for place in range(len(first.inputs))]
        if first.is_pointwise or first.op == "expand":
            given = [self._aligned(each, at, len(common)) for each in inputs]
            return build.expand(given[0] if first.op == "expand" else build(first.op, *given, dtype=first.dtype), shape)
        if any(step is not None and step.shape != common for step in steps):
            raise Unlike
        if first.is_reduction:
            reduction = Reduction.of(first)
            dims = [dim + (dim >= at) for dim in reduction.dims]
            source = self.of(inputs[0], at)
            return build.expand(build.reduce(first.op, source, dims, first.dtype, reduction.correction), shape)
        if first.op == "contract" and 1 in common[-2:]:
            return self._vector_product(inputs, at, first)
        if first.op == "contract" and at <= len(common) - 2:
            return build.expand(self._product(inputs, at, first), shape)
        if first.op == "reshape" and (found := self._reshaped(steps, inputs[0], at)) is not None:
            return found
        if first.op == "stored" and not Stored.of(first).views:
            return self.of(inputs[0], at)
        raise Unlike

    def _product(self, inputs: Sequence[Steps], at: int, first: Node) -> Node:
        """The product of all steps; of a left factor that was joined along k the sum of the products of its parts."""
        build, said, rank = self.build, Contraction.of(first), len(first.shape)
        total: Node | None = None
        for left, (start, width) in self._parts_along_k(inputs[0]):
            a, b = self._aligned(left, at, rank), self._aligned(inputs[1], at, rank)
            if width < b.shape[-2]:
                b = push_slice(build, b, len(b.shape) - 2, start, width)
            product = contract(build, a, b, first.dtype, tf32=said.tf32, short_sums=said.short_sums)
            total = product if total is None else build("add", total, product, dtype=first.dtype)
        assert total is not None
        return total

    def _parts_along_k(self, left: Steps) -> list[tuple[Steps, tuple[int, int]]]:
        """The parts that the left factors of products were joined of, where they lie; else the factors themselves."""
        whole = [(left, (0, any_of(left).shape[-1]))]
        joined = [self._joined_of(step) for step in left if step is not None]
        if None in left or any(each is None or each[0] != len(any_of(left).shape) - 1 for each in joined):
            return whole
        parts = [[(start, part.shape[-1]) for start, part in each[1]] for each in joined if each]
        if any(each != parts[0] for each in parts):
            return whole
        pieces = zip(*[[part for _, part in each[1]] for each in joined if each], strict=True)
        return list(zip(pieces, parts[0], strict=True))

    def _joined_of(self, step: Node) -> tuple[int, list[tuple[int, Node]]] | None:
        while step.op in ("stored", "expand", "cast") and id(step) not in self.build.joined:
            step = step.inputs[0]
        return self.build.joined.get(id(step))

    def _vector_product(self, inputs: Sequence[Steps], at: int, first: Node) -> Node:
        """Sums along k of products (…, m, k, n), where one factor is a vector in each step."""
        build, rank = self.build, len(first.shape)
        if at == rank:
            rows = self._aligned(inputs[0], rank - 2, rank)
            rows = push_permute(build, rows, [*range(rank - 2), rank - 1, rank, rank - 2])
            a = build.reshape(rows, along(rows.shape, rank, 1))
            b = self._aligned(inputs[1], rank, rank)
        else:
            rows = self._aligned(inputs[0], at, rank)
            a = build.reshape(rows, (*rows.shape, 1))
            b = self._aligned(inputs[1], min(at, rank - 2), rank)
        b = build.reshape(b, along(b.shape, rank - 1 if at <= rank - 2 else rank - 2, 1))
        k = rank - 1 + (at <= rank - 1)
        total = build.reduce("sum", build("mul", a, b), [k], first.dtype)
        return build.expand(build.drop_dims(total, [k]), along(first.shape, at, self.length))

    def _aligned(self, steps: Steps, at: int, rank: int) -> Node:
        """What an operand of this rank or a smaller one comes to, aligned to the right."""
        own = max(len(step.shape) for step in steps if step is not None)
        if rank - own <= at:
            return self.of(steps, at - (rank - own))
        value = self.of(steps, 0)
        return self.build.reshape(value, (value.shape[0], *(1,) * (rank - at - own), *value.shape[1:]))

    def _one_step_off(self, steps: Steps, at: int) -> Node | None:
        """The states before each step, of a recurrence whose first step reads another value."""
        if None in steps or self.open and not self.is_lenient:
            return None
        build = self.build
        for is_reverse, states in ((False, (*steps[1:], None)), (True, (None, *steps[:-1]))):
            try:
                whole = self.of(states, at)
            except Unlike:
                continue
            if whole.op != "scan" or Scan.of(whole).reverse != is_reverse:
                continue
            places = [build.iota(whole.shape, dim) for dim in range(len(whole.shape))]
            places[at] = build("add", places[at], 1 if is_reverse else -1)
            first = self.length - 1 if is_reverse else 0
            odd = steps[first]
            assert odd is not None
            return with_odd(self.build, take(build, whole, places, whole.shape), odd, first, at)
        return None

    def _odd_at_an_end(self, steps: Steps, at: int) -> Node | None:
        """Steps of which the first or the last is made in another way."""
        if None in steps or self.open and not self.is_lenient:
            return None
        for place, rest in ((0, (None, *steps[1:])), (len(steps) - 1, (*steps[:-1], None))):
            odd = steps[place]
            assert odd is not None
            try:
                value = self.of(rest, at)
            except Unlike:
                continue
            recurrence = self.scans[id(value)][1] if id(value) in self.scans else None
            if recurrence and recurrence.used and recurrence.used[1] is odd:
                return value
            return with_odd(self.build, value, odd, place, at)
        return None


def _shape(steps: Steps) -> Shape:
    """That to which they broadcast: numbers before the first step have fewer dimensions."""
    try:
        return broadcast([step.shape for step in steps if step is not None])
    except RuntimeError as error:
        raise Unlike from error
