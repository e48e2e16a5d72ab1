"""Values seen through what leaves their matrices: casts, other batches, a transpose, and products with numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.attention.band import is_minus_infinity
from cutesmith.patterns.attention.gradient import is_number
from cutesmith.patterns.attention.softmax import pointwise_cone
from cutesmith.patterns.graph.attributes import Input, Iota, Reduction, Viewed
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import dense_strides, same_last, without_ones
from cutesmith.patterns.graph.simplification import constant_value


@dataclass(frozen=True)
class Seen:
    """A value as matrices of `base` in other batches or of another type, perhaps transposed, times numbers."""

    base: Node
    is_turned: bool = False
    numbers: tuple[Node, ...] = ()

    def turned(self) -> Seen:
        """The transposed matrices."""
        return replace(self, is_turned=not self.is_turned)


def seen_as(node: Node, *, hidden: Sequence[Node] = (), until: Node | None = None) -> Seen:
    """What a value is seen of, no further than `until`; zeros that one of the masks `hidden` makes are left out."""
    is_turned, numbers = False, list[Node]()
    while node is not until:
        if _keeps_matrices(node):
            (node,) = node.inputs
        elif node.op == "stored" and (turn := _turn(node)) is not None:
            is_turned ^= turn
            (node,) = node.inputs
        elif (factor := _times_number(node)) is not None:
            numbers += leaves_of(factor[1])
            node = factor[0]
        elif (shown := _shown(node, hidden)) is not None:
            node = shown
        else:
            break
    return Seen(node, is_turned, tuple(numbers))


def _times_number(node: Node) -> tuple[Node, Node] | None:
    """A value and the number that it is multiplied by; None for other values."""
    for value, number in (node.inputs, node.inputs[::-1]) if node.op == "mul" else ():
        if is_number(number) and not is_number(value):
            return value, number
    return None


def leaves_of(number: Node) -> list[Node]:
    """The numbers that one is the product of."""
    return [leaf for each in number.inputs for leaf in leaves_of(each)] if number.op == "mul" else [number]


def numbers_of(scores: Node, product: Node) -> list[Node]:
    """The numbers that scores multiply their product by, masks aside."""
    found, stack, seen = list[Node](), [scores], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen or not node.is_pointwise:
            continue
        seen.add(id(node))
        if (factor := _times_number(node)) is not None and any(each is product for each in pointwise_cone(node)):
            found += leaves_of(factor[1])
            stack.append(factor[0])
        else:
            stack.extend(node.inputs)
    return found


def _keeps_matrices(node: Node) -> bool:
    """Whether a value is the same matrices: of another type, or with other batches."""
    if node.op == "cast":
        (inner,) = node.inputs
        return is_float(node.dtype) and is_float(inner.dtype) and without_ones(inner.shape) == without_ones(node.shape)
    return node.op == "reshape" and same_last(node.inputs[0].shape, node.shape) >= 2


def _turn(node: Node) -> bool | None:
    """Whether a view of a stored value has its matrices transposed; None where it has not those matrices."""
    (inner,), seen = node.inputs, Viewed.of(node)
    if len(inner.shape) < 2 or len(node.shape) < 2 or math.prod(node.shape) != math.prod(inner.shape) or seen.offset:
        return None
    rows, columns = inner.shape[-2:]
    batch = [(n, s) for n, s in zip(node.shape[:-2], seen.stride[:-2], strict=True) if n != 1]
    steps = [step * rows * columns for step in dense_strides(tuple(n for n, _ in batch))]
    ends = list(zip(node.shape[-2:], seen.stride[-2:], strict=True))
    straight = [(rows, columns), (columns, 1)]
    if [step for _, step in batch] != steps or ends not in (straight, straight[::-1]):
        return None
    return ends != straight


def _shown(node: Node, hidden: Sequence[Node]) -> Node | None:
    """What a choice between zeros where scores are hidden and a value shows: a gradient is 0 there anyway."""
    if node.op != "where":
        return None
    condition, *sides = node.inputs
    for at, mask in ((at, mask) for mask in hidden for at in range(2)):
        is_hidden = is_minus_infinity(mask.inputs[1 + at]) and constant_value(sides[at]) == 0
        if is_hidden and same_values(condition, mask.inputs[0]):
            return sides[1 - at]
    return None


def key_of(seen: Seen) -> tuple[object, ...]:
    """Equal for the same matrices in memory, whatever batches they are seen in; numbers are left out."""
    node = seen.base
    if node.op not in IN_MEMORY:
        return (id(node), seen.is_turned)
    view = Viewed.of(node)
    which = Input.of(node).index if node.op == "input" else id(node.inputs[0])
    steps = list(zip(node.shape, view.stride, strict=True))
    ends = steps[-2:][::-1] if seen.is_turned else steps[-2:]
    return (node.op, which, view.offset, _joined(steps[:-2]), *ends)


def _joined(steps: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sizes and strides of dimensions, those joined that lie one behind the other."""
    found = list[tuple[int, int]]()
    for size, step in steps:
        if found and size != 1 and found[-1][1] == size * step:
            found[-1] = (found[-1][0] * size, step)
        elif size != 1:
            found.append((size, step))
    return tuple(found)


def same_values(first: Node, second: Node) -> bool:
    """Whether two values are the same matrices, made in the same way in perhaps other batches."""
    return _same_values(first, second, {})


def _same_values(first: Node, second: Node, known: dict[tuple[int, int], bool]) -> bool:
    first, second = seen_alike(first), seen_alike(second)
    pair = id(first), id(second)
    if pair not in known:
        known[pair] = first is second or (
            (first.op, len(first.inputs)) == (second.op, len(second.inputs))
            and _same_work(first, second)
            and (first.op == "contract" or all(_same_values(*each, known) for each in _inputs(first, second)))
        )
    return known[pair]


def _inputs(first: Node, second: Node) -> list[tuple[Node, Node]]:
    return list(zip(first.inputs, second.inputs, strict=True))


def seen_alike(node: Node) -> Node:
    """A value before casts and other batches, not transposed ones."""
    while _keeps_matrices(node) or node.op == "stored" and _turn(node) is False:
        (node,) = node.inputs
    return node


def _same_work(first: Node, second: Node) -> bool:
    """Whether two operations are equal, from the right of their dimensions."""
    if first.op == "contract":
        return all(
            key_of(seen_as(one)) == key_of(seen_as(other)) and seen_as(one).numbers == seen_as(other).numbers
            for one, other in _inputs(first, second)
        )
    if first.op == "iota":
        return _from_right(first, Iota.of(first).dim) == _from_right(second, Iota.of(second).dim)
    if first.is_reduction:
        dims = [[dim - len(node.shape) for dim in Reduction.of(node).dims] for node in (first, second)]
        return dims[0] == dims[1]
    if first.op in IN_MEMORY:
        return key_of(Seen(first)) == key_of(Seen(second))
    return first.attrs == second.attrs and (first.is_pointwise or not first.inputs)


def _from_right(node: Node, dim: int) -> tuple[int, int]:
    return dim - len(node.shape), node.shape[dim]
