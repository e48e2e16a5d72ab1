"""Views of what is computed from a product, made on the product itself, which is stored: norms of heads that rotate.

Rotary embeddings read both halves of a head, transposed, behind the norm of the head, which would be stored for that.
Where they are views of the product instead, a launch of rows reads the product once, and computes the norm, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from cutesmith.patterns.cutting.own_places import with_reductions_in_place
from cutesmith.patterns.cutting.stored_values import slices_of
from cutesmith.patterns.graph.attributes import Reshaping, Stored, View, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, with_changes, with_nodes
from cutesmith.patterns.graph.size_laws import Size
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice


def with_views_of_products(graph: Graph) -> Graph:
    """The graph in which such views are of products; itself where no row reduction lies between."""
    products = {id(node) for view in graph.nodes() if view.op == "stored" for node in _products_of(view)}
    if not products:
        return graph
    build = GraphBuilder()

    def change(original: Node, node: Node) -> Node:
        build.origin = node.origin
        if id(original) in products:
            return build.stored(node)
        if node is original:
            return node
        if node.op == "reshape" and node.inputs[0].op == "stored":
            seen = build.view_in_memory(node.inputs[0], Reshaping.of(node).view, lambda base: base.view(node.shape))
            return seen or node
        if node.op == "take":
            return take(build, node.inputs[0], node.inputs[1:], node.shape)
        return _seen(build, node) if node.op == "stored" else node

    return with_reductions_in_place(_with_laws(with_changes(graph, change), graph))


def _with_laws(graph: Graph, before: Graph) -> Graph:
    """The graph whose new slices follow the sizes that those of `before` with the same numbers follow."""
    views = [node for node in before.nodes() if node.op == "stored"]
    laws = dict(itertools.chain.from_iterable(map(_laws_of, views)))
    old = {id(node) for node in before.nodes()}

    def follow(node: Node) -> Node:
        if id(node) in old or node.op not in IN_MEMORY:
            return node
        given = Viewed.of(node)
        seen = tuple(View(view.source, laws.get(view.sizes, view.sizes)) for view in given.views)
        return replace(node, attrs=replace(given, views=seen))

    return with_nodes(graph, follow)


def _laws_of(view: Node) -> Iterator[tuple[tuple[Size, ...], tuple[Size, ...]]]:
    """The first element and the number of a view that is one slice, as traced, and as they follow from sizes."""
    shape, _ = Stored.of(view).root
    sliced = [(start, size) for dim, start, size in slices_of(view) or () if size != shape[dim]]
    spans = [each.sizes for each in Stored.of(view).views if each.sizes]
    if len(sliced) == len(spans) == 1:
        yield sliced[0], spans[0]


def _products_of(view: Node) -> list[Node]:
    """The products that a view of a function with reductions is made of; none where other operations are part of it."""
    if not Stored.of(view).views or slices_of(view) is None:
        return []
    made, stack, products = dict[int, Node](), list(view.inputs), list[Node]()
    while stack:
        node = stack.pop()
        if id(node) in made or node.op in (*LEAVES, "stored"):
            continue
        made[id(node)] = node
        if node.op == "contract":
            products.append(node)
        elif node.is_pointwise or node.is_reduction or node.op == "reshape":
            stack += node.inputs
        else:
            return []
    return products if any(node.is_reduction for node in made.values()) else []


def _seen(build: GraphBuilder, view: Node) -> Node:
    """The view of a value, made on what this is computed from."""
    slices = slices_of(view)
    if slices is None:
        return view
    value = push_permute(build, view.inputs[0], [dim for dim, *_ in slices])
    for dim, (_, start, length) in enumerate(slices):  # behind the transpose, as a row's slices are found
        value = push_slice(build, value, dim, start, length)
    return value
