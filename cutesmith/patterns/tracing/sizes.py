"""Which numbers of a traced graph follow the sizes of its arguments, and by what law.

Label smoothing over V classes traces as a multiplication by 0.1 / V, attention scores by d ** -0.5, heads as a view of
(4, 7, 12, 64): a kernel that held the traced numbers would be right for the traced sizes only. The function is traced
again on larger tensors. A constant that changes becomes a `sized` node; a size in a view or of a value becomes a law.
Where a constant or the number of operations follows sizes without a law, the graph is one of fixed shapes. A size
without a law stays a number, and a kernel that needs it refuses other inputs. Traces see the given sizes and some times
those: a law that ends beyond, as `min(size, 4096)` does, is for verification on other input sets to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cutesmith.patterns.graph.attributes import Constant, Input, Reshaping, Sized, Viewed
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.equality import Slot
from cutesmith.patterns.graph.nodes import Graph, Node, views_of
from cutesmith.patterns.graph.size_laws import Place, Size, SizeLaw
from cutesmith.patterns.tracing.equal_sizes import SizesTogether
from cutesmith.patterns.tracing.law_limits import LawLimits
from cutesmith.patterns.tracing.laws import Group, Laws
from cutesmith.patterns.tracing.scalars import untraceable
from cutesmith.patterns.tracing.study import Series, Study, Trace, changes, kept_places


def follow_sizes(graph: Graph, trace: Trace, numbers: Sequence[int] = (), model: frozenset[str] = frozenset()) -> Graph:
    """The graph with laws in place of numbers that follow sizes, or marked as one of fixed shapes.

    `trace` runs the function again on arguments of other shapes. It raises what the function raises for them, or
    TooManyOperations. `numbers` are the places of integers among the arguments that are followed as sizes are;
    UnmatchedError where one has no law. The sizes of the arguments of a `model` are held.
    """
    study = Study(graph, trace, tuple(numbers), model)
    followed, followed_groups = replace(graph, fixed_shapes=True), tuple[Group, ...]()
    for groups in study.ways():
        found, finer = _following(study, groups)
        if followed.fixed_shapes or len(found.held) < len(followed.held):
            followed, followed_groups = found, finer
        if not (followed.fixed_shapes or followed.held):
            break
    grown_numbers = {index for group in followed_groups for index, dim in group if dim < 0}
    if numbers and (grown_numbers != set(numbers) or not followed.holds_for_other_sizes):
        raise untraceable(" or ".join(graph.arguments[index].name for index in numbers))
    held = followed.held.union(kept_places(graph), study.of_model, study.other_sizes(followed_groups))
    if not followed.holds_for_other_sizes:
        return replace(followed, held=held)
    together = SizesTogether(study, followed_groups)
    limits = LawLimits.of(study, followed_groups, followed)
    followed = replace(followed, not_ones=tuple(limits.not_ones()), steps=tuple(limits.steps()))
    held = held.union(limits.only_ones(), together.fixed())
    return replace(followed, equal=together.compared(), most=tuple(together.most()), held=held)


def holding_sizes(graph: Graph) -> Graph:
    """A graph of fixed shapes as one that says which sizes it holds: all but those of 1, and of taps and blocks."""
    if not graph.fixed_shapes:
        return graph
    kept = set(kept_places(graph))
    return replace(graph, held=frozenset(p for p in graph.places if p not in kept and graph.size_at(p) > 1))


def _following(study: Study, groups: tuple[Group, ...]) -> tuple[Graph, tuple[Group, ...]]:
    """The graph that follows these sizes as far as there are laws, and the groups that it follows."""
    graph, held = study.graph, frozenset[Place]()
    while groups:
        lawless, series = list[Slot](), study.series(groups)
        if series is not None:
            finer = tuple(group for group in study.finer(groups, series) if not group <= held)
            if finer != groups:
                groups, series = finer, study.series(finer) or series
            laws = study.laws(groups, series)
            if not (lawless := list(_lawless(graph, series, laws))):
                return replace(_followed(graph, series, laws), held=held), groups
        without = study.moving(groups, lawless)
        groups = tuple(group for group in groups if group not in without) if without else ()
        held = held.union(*without)
    return replace(graph, fixed_shapes=True), ()


def _lawless(graph: Graph, series: Series, laws: Laws) -> Iterator[Slot]:
    """The constants and the sizes of views that change and have no law, or have several values."""
    for node in graph.nodes():
        slot = Slot(id(node))
        of = laws.of_number if is_float(node.dtype) else laws.of_size
        if node.op == "constant" and changes(series, slot) and of(series[slot]) is None:
            yield slot
        sizes = [size for view in views_of(node) for size in view.sizes]
        for slot in (Slot(id(node), "view", at) for at, size in enumerate(sizes) if isinstance(size, int)):
            if slot not in series or laws.of_size(series[slot]) is None:
                yield slot


def _followed(graph: Graph, series: Series, laws: Laws) -> Graph:
    """The graph with the laws of all numbers that change."""
    done: dict[int, Node] = {}
    for node in graph.nodes():
        changed = replace(node, inputs=tuple(done[id(child)] for child in node.inputs)) if node.inputs else node
        if changes(series, Slot(id(node))):
            law = (laws.of_number if is_float(node.dtype) else laws.of_size)(series[Slot(id(node))])
            assert law is not None, "lawless numbers are held"
            changed = replace(changed, op="sized", attrs=Sized(law, Constant.of(node).value))
        done[id(node)] = _with_sizes(node, changed, series, laws)
    return replace(graph, outputs=tuple(done[id(node)] for node in graph.outputs))


def _with_sizes(node: Node, changed: Node, series: Series, laws: Laws) -> Node:
    """`changed` with what is known of the sizes in the views and in the shape of `node`."""

    def known(kind: str, at: int, size: Size) -> Size:
        values = series.get(Slot(id(node), kind, at))
        if values is None or not isinstance(size, int):
            return size
        return (_part_of_viewed(node, values, series, laws) if kind == "view" else None) or laws.of_size(values) or size

    places = iter(range(len(node.shape) * 8 + 8))
    views = tuple(view.with_sizes(lambda size: known("view", next(places), size)) for view in views_of(node))
    sizes = tuple(known("shape", at, size) for at, size in enumerate(node.shape)) if node.has_own_shape else ()
    attrs = node.attrs
    if isinstance(attrs, Viewed):
        return replace(changed, attrs=replace(attrs, views=views)) if views else changed
    if isinstance(attrs, Reshaping):
        return replace(changed, attrs=Reshaping(views[0]))
    return replace(changed, sizes=sizes) if sizes else changed


def _part_of_viewed(node: Node, values: Sequence[float], series: Series, laws: Laws) -> SizeLaw | None:
    """The law of a size that is a part of one of the viewed tensor, as half of its columns are.

    Another argument may have the same size, but it may also be broadcast where this one is not.
    """
    root = node.attrs.root[0] if isinstance(node.attrs, Viewed) else ()
    for dim in range(len(root)):
        place = (node.attrs.index, dim) if isinstance(node.attrs, Input) else None
        whole = series.get(Slot(id(node), "root", dim))
        if whole is not None and (law := laws.within(values, whole, place)) is not None:
            return law
    return None
