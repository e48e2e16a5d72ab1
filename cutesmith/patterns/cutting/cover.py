"""A graph that no single pattern takes, as a chain of launches that some patterns take.

First the products claim their regions, once with the pointwise work around them and once alone; the cover of less
predicted time wins. What the regions read from memory and what the function returns are the targets of the rest. The
largest piece of the graph that makes a target, and that a pattern takes, becomes a launch; where none takes the whole
piece, a value inside it is stored first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import Chain, ChainPlan, Result, returning, standing_alone
from cutesmith.patterns.contraction.plan import match as contraction
from cutesmith.patterns.cutting.attended import Attended, attended_products
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.cutting.nested_transforms import transformed_again, transforms_inside, whole_transform
from cutesmith.patterns.cutting.pieces import Matcher, Matches, Piece, Plan, has_order, without_unread
from cutesmith.patterns.cutting.regions import MOST_OUTPUTS, Regions, base_of, is_pointwise_on_arguments, names_of
from cutesmith.patterns.cutting.rounded_decisions import computed_twice, with_rounded
from cutesmith.patterns.cutting.sharing import CUT
from cutesmith.patterns.cutting.stored_values import first_stored, is_among, nodes_between, reading, seen_from
from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.graph.attributes import Input, Recurrent, Reduction, Sort
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.recurrent_steps import both_in_one_launch
from cutesmith.patterns.graph.shapes import Shape, is_dense
from cutesmith.patterns.windows.plan import match as windows

MOST_REPEATS = 2
"""Launches that compute a value again before it is stored: a second one saves its writing, often a launch."""


def cut(graph: Graph, matchers: Sequence[Matcher]) -> ChainPlan:
    """The cheapest chain of launches that computes the graph; `matchers` take what the products leave, best first.

    Raises UnmatchedError with every operation that stands in the way.
    """
    return covers(graph, matchers)[0]


def covers(graph: Graph, matchers: Sequence[Matcher], known: Matches | None = None) -> list[ChainPlan]:
    """The chains of launches that compute the graph, the cheapest first; `matchers` take what the products leave.

    `known`: what was matched of other graphs of the function. Raises UnmatchedError with every operation that stands in
    the way of them all.
    """
    graph = _with_copies(graph)
    fused = Regions(graph, fused=True)
    ways = [fused, *([Regions(graph, fused=False)] if fused.found else [])]
    if attended := attended_products(graph):
        taken = [product for each in attended for product in (each.first, each.last)]
        ways.insert(0, Regions(graph, fused=True, taken=taken))
    known = known or Matches()
    ways_to_cut = [
        _Cover(graph, regions, matchers, known, attended if regions.taken else [], inside)
        for inside in transforms_inside(fused.order)
        for regions in ways
    ]
    plans, refusals, again = list[ChainPlan](), list[UnmatchedError](), set[int]()
    for cover in ways_to_cut:
        try:
            plans.append(cover.plan())
            again |= cover.computed_twice()
        except UnmatchedError as refusal:
            refusals.append(refusal)
    if not plans:
        raise refusals[0]
    if again:
        return covers(with_rounded(graph, again), matchers, known)
    return sorted(plans, key=H200.seconds)


def _with_copies(graph: Graph) -> Graph:
    """The graph in which an output is copied that the function returns dense, and that is a view with gaps here."""
    build, outputs = GraphBuilder(), list[Node]()
    for node, strides in zip(graph.outputs, graph.output_strides, strict=True):
        base = base_of(node)
        seen = Input.of(base).stride if base.op == "input" else seen_from(base, node).stride
        is_copied = is_dense(node.shape, strides) and not is_dense(node.shape, seen)
        outputs.append(build.node("cast", (node,), node.shape, node.dtype) if is_copied else node)
    return replace(graph, outputs=tuple(outputs))


@dataclass
class _Cover:
    """One way to cut: regions, then pieces for the rest."""

    graph: Graph
    regions: Regions
    matchers: Sequence[Matcher]
    known: Matches
    attended: Sequence[Attended]
    """Pairs of products that one pattern takes: what it leaves in memory, and what it reads from there."""
    inside: frozenset[int] = frozenset()
    """The ids of transforms that may be part of the launch of another one."""
    stored: dict[int, Node] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    refused: list[Node] = field(default_factory=list)
    alone: dict[tuple[int, frozenset[int]], bool] = field(default_factory=dict)  # by a node and what its piece reads

    def plan(self) -> ChainPlan:
        """The chain, or UnmatchedError."""
        for node in self._needed():
            self.stored[id(node)] = node
        made = {id(node) for region in self.regions.found for node in self.regions.outputs_of(region)}
        for each in self.attended:
            if each.beside and self._matched([base_of(each.end), *each.beside], self.matchers):
                made |= {id(base_of(each.end)), *map(id, each.beside)}
        self._store_repeated([node for node in self.stored.values() if id(node) not in made])
        for region in self.regions.found:
            outputs = self.regions.outputs_of(region)
            if not self._matched(outputs, [windows, contraction]):
                self.refused.append(region.products[0])
        self._cover_together([node for node in self.stored.values() if id(node) not in made])
        if self.refused:
            raise _unmatched(self.refused)
        self._read_stored()
        self._sort_once()
        self._results_together()
        return self._chain()

    def computed_twice(self) -> set[int]:
        """The ids of values of 16 bits that a launch computes again, not rounded as others read them."""
        read = {id(node): node for piece in self.pieces for node in self.stored.values() if id(node) in piece.inputs}
        return computed_twice(self.regions.places, self.pieces, read)

    def _needed(self) -> Iterator[Node]:
        """What must lie in memory between launches or at the end, in the graph's order."""
        needed: dict[int, Node] = {}
        for region in self.regions.found:
            needed |= {id(node): node for node in self.regions.outputs_of(region)}
            needed |= {id(node): node for node in self.regions.read_by(region)}
        bases = [base_of(node) for node in self.regions.order if node.op == "stored"]
        inside = {id(node) for each in self.attended for node in each.inside}
        inside |= {id(base_of(node)) for region in self.regions.found for node in region.turned if node.op == "stored"}
        needed |= {id(base): base for base in bases if id(base) not in inside}
        needed |= {id(node): node for node in transformed_again(self.regions.order) if id(node) not in self.inside}
        wholes = (node for each in self.attended for node in (each.end, *each.operands, *each.beside))
        for node in (*self.graph.outputs, *wholes):
            needed[id(base_of(node))] = base_of(node)
        yield from (node for node in self.regions.order if id(node) in needed and node.op != "input")

    def _store_repeated(self, targets: Sequence[Node]) -> None:
        """Stores pointwise values that many targets are made of: the cell of an LSTM is part of all later steps."""
        repeats: Counter[int] = Counter()
        for target in targets:
            piece = nodes_between(self.regions.places, [target], self.stored)
            often = [node for node in piece if repeats[id(node)] >= MOST_REPEATS and node is not target]
            inner = {id(child) for node in often for child in node.inputs}
            last = [node for node in often if node.is_pointwise and id(node) not in inner]
            chosen = {id(node): node for node in last if not is_pointwise_on_arguments(node)}
            if chosen:
                self.stored |= chosen
                piece = nodes_between(self.regions.places, [target], self.stored)
            repeats.update(map(id, piece))

    # Pieces

    def _cover_together(self, targets: list[Node]) -> None:
        """One launch for all targets that need the same products, where a pattern takes them; else one for each."""
        groups: dict[frozenset[object], list[Node]] = {}
        before = _launches_before(self.regions.order)
        for node in targets:
            groups.setdefault(before[id(node)], []).append(node)
        for group in groups.values():
            if len(group) > 1 and self._matched(group, self.matchers):
                continue
            for part in _of_same_rows(group):
                if len(part) == 1 or not self._matched(part, self.matchers):
                    for node in part:
                        self._cover(node)

    def _cover(self, target: Node) -> None:
        """Launches that leave the target in memory; what they store in between is theirs alone."""
        if self._matched([target], self.matchers) or self._cut_once(target):
            return
        if waist := self._last_waist(target):
            self.stored[id(waist)] = waist
            self._cover(waist)
            return
        for inner in (_frontier(target), [child for child in target.inputs if child.op not in LEAVES]):
            cuts = [
                base_of(node)
                for node in inner
                if base_of(node).op not in LEAVES and id(base_of(node)) not in self.stored
            ]
            if cuts and self._matched([target], self.matchers, also=cuts):
                for node in cuts:
                    if id(node) not in self.stored:  # else one before it needed it too
                        self.stored[id(node)] = node
                        self._cover(node)
                return
        self.refused.append(target)
        for node in (base_of(child) for child in target.inputs):
            if node.op not in LEAVES and id(node) not in self.stored:
                self.stored[id(node)] = node
                self._cover(node)

    def _cut_once(self, target: Node) -> bool:
        """Whether one more stored value makes two pieces of which each is taken."""
        inside = [
            node
            for node in nodes_between(self.regions.places, [target], self.stored)
            if node is not target and node.op not in LEAVES
        ]
        for node in reversed([node for node in inside if node.op not in ("reshape", "stored")]):
            if self._stands_alone(node) and self._matched([target], self.matchers, also=[node]):
                assert self._matched([node], self.matchers)
                self.stored[id(node)] = node
                return True
        return False

    def _last_waist(self, target: Node) -> Node | None:
        """The furthest value that is all a launch for the target reads, as a step of an iteration reads the one before.

        A reduction or the like lies between, as pointwise work is cheaper repeated. That launch is kept.
        """
        found, launch = None, list[Piece]()
        open_ends, is_more = _read_by(target), False
        for node in reversed(nodes_between(self.regions.places, [target], self.stored)[:-1]):
            is_work = node.op not in (*LEAVES, "reshape", "stored")
            is_waist = is_work and is_more and open_ends == {id(node)}
            if is_waist and self._matched([target], self.matchers, also=[node]):
                found, launch = node, [self.pieces.pop()]
            elif is_waist and found:
                break
            is_more |= is_work and not node.is_pointwise
            if node.op not in LEAVES:
                open_ends = open_ends - {id(node)} | _read_by(node)
        self.pieces += launch
        return found

    def _stands_alone(self, node: Node) -> bool:
        """Whether a pattern takes the piece that makes a value, which is asked again for every later target."""
        given = {key: each for key, each in self.stored.items() if each is not node}
        key = id(node), frozenset(id(base_of(each)) for each in first_stored([node], given))
        if key not in self.alone:
            self.alone[key] = self._matched([node], self.matchers)
            del self.pieces[len(self.pieces) - self.alone[key] :]
        return self.alone[key]

    def _matched(self, outputs: list[Node], matchers: Sequence[Matcher], also: Sequence[Node] = ()) -> bool:
        """Whether a pattern takes the piece that makes these values of stored ones, and `also` of those; it is kept."""
        stored = {**self.stored, **{id(node): node for node in also}}
        for node in outputs:
            stored.pop(id(node), None)
        graph, reads = reading(returning(self.graph, outputs), stored)
        part, sources = standing_alone(graph)
        if (plan := self.known.plan(part, matchers)) is None:
            return False
        start = len(self.graph.arguments)
        named = tuple(reads[s - start] if isinstance(s, int) and s >= start else s for s in sources)
        self.pieces.append(Piece(outputs, {id(s) for s in named if isinstance(s, Node)}, plan, named))
        return True

    def _read_stored(self) -> None:
        """Launches read what others store of a 16-bit type: computed again it would not be rounded as it is there.

        Others may be cheaper to compute again than to read.
        """
        for at, piece in enumerate(self.pieces):
            given = {key: node for key, node in self.stored.items() if key in piece.inputs}
            again = [
                node for node in nodes_between(self.regions.places, piece.outputs, given) if id(node) in self.stored
            ]
            rounded = any(ITEM_BYTES[node.dtype] == 2 for node in again if not is_among(node, piece.outputs))
            if rounded and self._matched(piece.outputs, self.matchers):
                self.pieces[at] = self.pieces.pop()
                if not has_order(self.pieces):
                    self.pieces[at] = piece
        self.pieces = without_unread(self.pieces, [base_of(node) for node in self.graph.outputs])

    def _sort_once(self) -> None:
        """One launch for sorted elements and their places, which different launches read."""
        sorts: dict[tuple[object, ...], Piece] = {}
        for piece in [each for each in self.pieces if [node.op for node in each.outputs] == ["sort"]]:
            (node,) = piece.outputs
            first = sorts.setdefault((id(node.inputs[0]), replace(Sort.of(node), places=False), node.shape), piece)
            if first is not piece and self._matched([*first.outputs, node], self.matchers):
                *kept, both = self.pieces
                self.pieces = [each for each in kept if each not in (first, piece)] + [both]

    def _results_together(self) -> None:
        """One launch for pointwise results of one shape that no other launch reads, as a cache's keys and values."""
        read = {key for piece in self.pieces for key in piece.inputs}
        groups: dict[Shape, list[Piece]] = {}
        for piece in self.pieces:
            if isinstance(piece.plan, ElementwisePlan) and not any(id(node) in read for node in piece.outputs):
                groups.setdefault(piece.outputs[0].shape, []).append(piece)
        for group in groups.values():
            outputs = [node for piece in group for node in piece.outputs]
            if len(group) > 1 and len(outputs) <= MOST_OUTPUTS and self._matched(outputs, self.matchers):
                *kept, together = self.pieces
                if H200.seconds(together.plan) < sum(H200.seconds(piece.plan) for piece in group):
                    self.pieces = [piece for piece in kept if piece not in group] + [together]
                else:
                    self.pieces = kept

    # The chain

    def _chain(self) -> ChainPlan:
        chain, places = Chain(self.graph), dict[int, int]()
        waiting = list(self.pieces)
        while waiting:
            ready = next(piece for piece in waiting if piece.inputs <= places.keys())
            waiting.remove(ready)
            sources = [places[id(s)] if isinstance(s, Node) else s for s in ready.sources]
            made = chain.add(_stem(ready.plan), ready.plan, sources)
            places |= {id(node): place for node, place in zip(ready.outputs, made, strict=True)}
        launches = tuple(chain.launches)
        if not launches:
            raise UnmatchedError("nothing is computed: all outputs are views of inputs", operation="")
        results = tuple(self._result(node, places) for node in self.graph.outputs)
        slowest = max(range(len(launches)), key=lambda at: H200.seconds(launches[at].plan))
        return ChainPlan(self.graph, launches, results, CUT, slowest)

    def _result(self, node: Node, places: dict[int, int]) -> Result:
        base = base_of(node)
        if base.op == "input":
            return Result(Input.of(base).index, Input.of(base).views)
        return Result(places[id(base)], seen_from(base, node).views)


def _launches_before(order: Sequence[Node]) -> dict[int, frozenset[object]]:
    """By the id of each value what tells launches before it apart that pieces do not.

    That is products and transforms, whether those are read from memory, and the shapes of rows that are summed.
    """
    before, behind = dict[int, frozenset[object]](), dict[int, frozenset[object]]()
    for node in order:
        of_inputs = frozenset[object]().union(*(behind[id(child)] for child in node.inputs))
        if node.op == "transform":
            of_inputs |= {whole_transform(node)}
        elif node.op == "stored" and base_of(node).op == "transform":
            of_inputs |= {("stored", whole_transform(base_of(node)))}
        before[id(node)] = of_inputs | {id(node)} if node.op == "contract" else of_inputs
        sums = {node.inputs[0].shape} if node.op == "partial_sums" else set[object]()
        behind[id(node)] = before[id(node)] | sums
        if node.op == "recur":  # both directions of a layer together, whose products differ
            layers: set[object] = {each.inputs for each in nodes_of(node.inputs) if each.op == "recur"}
            layers |= set() if both_in_one_launch(Recurrent.of(node).kind, node.shape[-1]) else {node.inputs}
            before[id(node)], behind[id(node)] = frozenset([node.op, *layers]), frozenset([node.inputs, *layers])
    return before


def _of_same_rows(targets: Sequence[Node]) -> list[list[Node]]:
    """First reductions of the same rows together, every other target alone."""
    groups: dict[object, list[Node]] = {}
    for node in targets:
        is_first = node.is_reduction and not any(each.is_reduction for each in nodes_of(node.inputs))
        key: object = (node.inputs[0].shape, Reduction.of(node).dims) if is_first else id(node)
        key = node.inputs if node.op == "recur" else key  # states and last cells of a layer
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _read_by(node: Node) -> set[int]:
    """The ids of what a node is made of, without numbers and coordinates."""
    return {id(child) for child in node.inputs if child.op == "input" or child.op not in LEAVES}


def _frontier(target: Node) -> list[Node]:
    """The nearest nodes below the target's pointwise work that are not pointwise themselves."""
    found: dict[int, Node] = {}
    stack, seen = list(target.inputs), set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.is_pointwise:
            stack.extend(node.inputs)
        elif node.op not in LEAVES:
            found[id(node)] = node
    return list(found.values())


def _stem(plan: Plan) -> str:
    return {"contraction": "product", "elementwise": "pointwise"}.get(plan.pattern, plan.pattern)


def _unmatched(nodes: Sequence[Node]) -> UnmatchedError:
    names = names_of(nodes)
    return UnmatchedError(f"no pattern takes {'; '.join(names)}", operation=names[0])
