"""Builds graph nodes: constants folded, reshapes kept out of the way of arithmetic and reductions.

Conventions beyond those of `nodes.py`:
- the tensor inputs of a pointwise node are of one arithmetic class: float16/bfloat16/float32 mixed freely, or all
  float64, or all of the same integer type or bool; constants and run-time scalars are never float16 or bfloat16;
- `expand` is internal to building: it says how far a value is stretched, arithmetic looks through it, and what is left
  of it at an output becomes a `cast` to the same type at the larger shape.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from cutesmith.patterns.graph.attributes import (
    Gather,
    Iota,
    Number,
    Reduction,
    Reshaping,
)
from cutesmith.patterns.graph.dtypes import FLOATS8, PROMOTION, compute_dtype, is_float, same_class, widens
from cutesmith.patterns.graph.node_table import IN_MEMORY, PRODUCTS, NodeTable, is_made_of
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.reshape_views import reshape_view
from cutesmith.patterns.graph.shapes import (
    Shape,
    broadcast,
    dimension_groups,
    insert_ones,
    is_split,
    is_squeeze,
    kept_positions,
    regrouped_shape,
    same_last,
    squeezed_gaps,
)
from cutesmith.patterns.graph.simplification import constant_result, constant_value, equal_operand

MOST_VIEWED = 48
"""Operations that are computed where a view of their result is read; of more the result is stored."""

MAX_POWER = 16  # up to here an integer exponent becomes multiplications

WIDEST_HEAD = 256
"""Columns of a head whose norm or rotation a product's kernel may compute: `contraction/row_values.py` has as many."""

HALVES = (1.5, -1.5, 2.5, -2.5)
"""Exponents that become multiplications of a root: 3 to 20 instructions, where `pow` takes 88."""


class GraphBuilder(NodeTable):
    """A node table that also simplifies what it is asked for."""

    # Arithmetic

    def __call__(self, op: str, *operands: Node | Number, dtype: str | None = None) -> Node:
        """A pointwise operation; numbers become constants of the operands' class; `dtype` is the result's."""
        values = operands[1:] if op == "where" else operands
        kind = next((node.dtype for node in values if isinstance(node, Node)), None)
        if kind is None:
            kind = "float32" if any(isinstance(value, float) for value in values) else "int64"
        nodes = [node if isinstance(node, Node) else self.constant(node, kind) for node in operands]
        if dtype is None:
            dtype = POINTWISE[op].own_dtype or _result_dtype(nodes[1:] if op == "where" else nodes)
        return self._pointwise(op, nodes, dtype)

    def cast(self, node: Node, dtype: str) -> Node:
        """Converts to `dtype`; a float's cast through a wider float is dropped."""
        if node.dtype == dtype:
            return node
        if node.op == "expand":
            return self.expand(self.cast(node.inputs[0], dtype), node.shape)
        if node.op == "cast" and is_float(dtype) and widens(node.inputs[0].dtype, node.dtype):
            return self.cast(node.inputs[0], dtype)
        return self._pointwise("cast", [node], dtype)

    def operand(self, node: Node, dtype: str) -> Node:
        """`node` ready for arithmetic in the class of `dtype`: cast only when the class differs."""
        return node if same_class(node.dtype, dtype) else self.cast(node, compute_dtype(dtype))

    def retype(self, node: Node, dtype: str) -> Node:
        """The same value labelled `dtype`: a new label for unrounded arithmetic of one class, a cast otherwise."""
        if node.dtype == dtype:
            return node
        if node.op in ("expand", "reshape"):
            return self.node(node.op, (self.retype(node.inputs[0], dtype),), node.shape, dtype, node.attrs)
        if node.op in ("constant", "scalar") and same_class(node.dtype, dtype):
            return node
        leaf = node.op in ("cast", "input", "stored", "iota", "constant", "scalar", "gather")
        if leaf or not same_class(node.dtype, dtype) or not is_float(dtype) or dtype in FLOATS8:
            return self.cast(node, dtype)
        return self.node(node.op, node.inputs, node.shape, dtype, node.attrs)

    def _pointwise(self, op: str, nodes: Sequence[Node], dtype: str) -> Node:
        logical = broadcast([node.shape for node in nodes])
        inputs = [self._strip(node, op) for node in nodes]
        folded = self._folded(op, inputs, dtype)
        if folded is not None:
            return self.expand(folded, logical)
        sunk = self._sink_reshape(op, inputs, dtype)
        if sunk is None:
            sunk = self.node(op, inputs, broadcast([node.shape for node in inputs]), dtype)
        return self.expand(sunk, logical)

    def _folded(self, op: str, inputs: Sequence[Node], dtype: str) -> Node | None:
        """A simpler node equal to `op(inputs)` of `dtype`, or None."""
        number = constant_result(op, inputs, dtype)
        if number is not None:
            return self.constant(number, dtype)
        if (operand := equal_operand(op, inputs, dtype)) is not None:
            return self.retype(operand, dtype)
        exponent = constant_value(inputs[1]) if op == "pow" else None
        return None if exponent is None else self._power(inputs[0], exponent, dtype)

    def _power(self, base: Node, exponent: Number, dtype: str) -> Node | None:
        """Small exponents become multiplications, of (r)sqrt where they are halves; ±0.5 as PyTorch computes them."""
        if not is_float(dtype):
            small = 0 <= exponent <= MAX_POWER
            return self.retype(self._repeated(base, int(exponent)), dtype) if small and base.dtype == dtype else None
        if exponent in (0.5, -0.5):
            return self("sqrt" if exponent > 0 else "rsqrt", base, dtype=dtype)
        if exponent in HALVES:
            return self._power_of_root(base, exponent, dtype)
        if not abs(exponent) <= MAX_POWER or exponent != int(exponent):
            return None
        power = self._repeated(base, abs(int(exponent)))
        return self.retype(self("reciprocal", power) if exponent < 0 else power, dtype)

    def _power_of_root(self, base: Node, exponent: Number, dtype: str) -> Node:
        """One or two and a half: no part of the product overflows or vanishes where the power does not.

        As of `pow`, zeros have no sign and -inf gives what inf does.
        """
        root = self("abs", self("sqrt" if exponent > 0 else "rsqrt", base))
        power = self._repeated(root, int(abs(exponent) * 2))
        limit = math.inf if exponent > 0 else 0.0
        return self.retype(self("where", self("eq", base, -math.inf), limit, power), dtype)

    def _repeated(self, base: Node, exponent: int) -> Node:
        if exponent == 0:
            return self.expand(self.constant(1, compute_dtype(base.dtype)), base.shape)
        if exponent == 1:
            return base
        half = self._repeated(base, exponent // 2)
        square = self("mul", half, half)
        return self("mul", square, base) if exponent % 2 else square

    def _strip(self, node: Node, op: str) -> Node:
        while node.op == "expand" or (op != "cast" and node.op == "cast" and widens(node.inputs[0].dtype, node.dtype)):
            node = node.inputs[0]
        return node

    def _sink_reshape(self, op: str, inputs: list[Node], dtype: str) -> Node | None:
        """Computes on un-squeezed values and squeezes the result, so that reduced dimensions stay aligned."""
        for node in inputs:
            if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
                shape = broadcast([each.shape for each in inputs])
                return self.reshape(self._unsqueezed(op, inputs, dtype, node), shape)
        return self._before_reshape(op, inputs, dtype)

    def _before_reshape(self, op: str, inputs: list[Node], dtype: str) -> Node | None:
        """Computes on the value before a reshape, when the other operands can be seen in its shape for free."""
        reshaped = next((node for node in inputs if node.op == "reshape"), None)
        shape = broadcast([node.shape for node in inputs])
        if reshaped is None or reshaped.shape != shape:
            return None
        source = reshaped.inputs[0]
        sides = [source if node is reshaped else self._reshape_broadcast(node, shape, source.shape) for node in inputs]
        if any(side is None or (side is not source and side.op == "reshape") for side in sides):
            return None
        return self.reshape(self._pointwise(op, [side for side in sides if side is not None], dtype), shape)

    def _unsqueezed(self, op: str, inputs: list[Node], dtype: str, squeezed: Node) -> Node:
        source = squeezed.inputs[0]
        gaps = [gap for gap in squeezed_gaps(source.shape, squeezed.shape) if gap < len(squeezed.shape)]
        aligned = [source if node is squeezed else self.reshape(node, insert_ones(node.shape, gaps)) for node in inputs]
        return self._pointwise(op, aligned, dtype)

    # Reductions

    def reduce(self, op: str, node: Node, dims: Sequence[int], dtype: str, correction: float = 0.0) -> Node:
        """Reduces `dims` to size 1; the reduced dimensions stay."""
        node = self.materialise(node)
        while node.op == "cast" and widens(node.inputs[0].dtype, node.dtype) and node.inputs[0].shape == node.shape:
            node = node.inputs[0]
        rank = len(node.shape)
        if not rank:
            return self._reduced_number(op, node, dtype, correction)
        dims = tuple(sorted(dim % rank for dim in dims))
        if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
            source = node.inputs[0]
            kept = kept_positions(source.shape, node.shape)
            reduced = self.reduce(op, source, [kept[dim] for dim in dims], dtype, correction)
            return self.reshape(reduced, tuple(1 if dim in dims else size for dim, size in enumerate(node.shape)))
        shape = tuple(1 if dim in dims else size for dim, size in enumerate(node.shape))
        if op == "var" and shape == node.shape:
            return self._deviation_of_one(node, dtype, correction)
        same = same_last(node.inputs[0].shape, node.shape) if node.op == "reshape" else 0
        if same and dims[0] >= rank - same:  # leading dimensions were regrouped, which the reduction does not see
            return self.reshape(self.reduce(op, node.inputs[0], [dim - rank for dim in dims], dtype, correction), shape)
        return self.node(op, (node,), shape, dtype, Reduction(dims, correction))

    def _reduced_number(self, op: str, x: Node, dtype: str, correction: float) -> Node:
        """A reduction over no dimension: the number itself, its truth, its place, or its deviation from itself."""
        if op in ("argmax", "argmin"):
            return self.retype(self("lt", x, x), dtype)  # 0, which is made of x: a constant alone is not a kernel's
        if op == "var":
            return self._deviation_of_one(x, dtype, correction)
        return self.retype(self.operand(x, dtype), dtype)

    def _deviation_of_one(self, x: Node, dtype: str, correction: float) -> Node:
        """The variance of one element. ptxas may round the element and its mean differently, 0 times it is exact."""
        return self("div", self("abs", self("mul", x, 0.0)), max(1.0 - correction, 0.0), dtype=dtype)

    def drop_dims(self, node: Node, dims: Sequence[int]) -> Node:
        """The value without `dims`, each of size 1."""
        gone = {dim % len(node.shape) for dim in dims} if node.shape else set()
        return self.reshape(node, tuple(size for dim, size in enumerate(node.shape) if dim not in gone))

    def gather(self, node: Node, index: Node, dim: int) -> Node:
        """`node` at `index` along `dim`, where `index` has size 1."""
        node, index = self.materialise(node), self.materialise(index)
        if node.op == "reshape" and same_last(node.inputs[0].shape, node.shape) >= len(node.shape) - dim:
            inner, picked = node.inputs[0], index.shape  # leading dimensions were regrouped before
            more = len(inner.shape) - len(node.shape)
            places = self.reshape(index, (*inner.shape[: dim + more], *picked[dim:]))
            return self.reshape(self.gather(inner, places, dim + more), picked)
        shape = tuple(1 if at == dim else size for at, size in enumerate(node.shape))
        return self.node("gather", (node, index), shape, node.dtype, Gather(dim))

    # Reshape

    def settled(self, node: Node, *, sliced: bool = False) -> Node:
        """The value as it lies in memory, where a product has read it, or where it takes long to compute again.

        A slice of what was joined is one of its pieces, however many others there are.

        Each state of a recurrence is made of the one before. Views that were made on its arguments would repeat all
        steps for every state.
        """
        if not node.is_pointwise:
            return node
        if id(node) in self.factors:
            return self.reshape(self.stored(self.factors[id(node)]), node.shape)
        return self.stored(node) if is_long(node, self.joined if sliced else ()) else node

    def reshape(self, node: Node, shape: Shape) -> Node:
        """The elements of `node` in row-major order as `shape`; a `reshape` node stays where no input can take it.

        Raises ValueError for a shape of more or fewer elements: without values PyTorch takes a bias of any length, say.
        """
        if node.shape == shape:
            return node
        if math.prod(node.shape) != math.prod(shape):
            raise ValueError(f"{math.prod(node.shape)} elements have no shape {shape}")
        if node.op == "reshape":
            return self.reshape(node.inputs[0], shape)
        if node.op in ("constant", "scalar"):
            return self.expand(node, shape)
        for source in self.reshaped.get(id(node), ()):  # reshaped there and back, as `einsum` does
            if source.shape == shape:
                return source
        return self.viewed_once(("reshape", shape), node, lambda: self._with_pieces(node, self._reshape(node, shape)))

    def _with_pieces(self, node: Node, reshaped: Node) -> Node:
        """A value that was reshaped, of which is remembered what is joined in it, where it only got ones."""
        if id(node) in self.joined and is_squeeze(reshaped.shape, node.shape):
            dim, pieces = self.joined[id(node)]
            at = kept_positions(reshaped.shape, node.shape)[dim]
            before, after = reshaped.shape[:at], reshaped.shape[at + 1 :]
            seen = [(start, self.reshape(piece, (*before, piece.shape[dim], *after))) for start, piece in pieces]
            self.joined[id(reshaped)] = at, seen
        return reshaped

    def first_shape_of(self, node: Node) -> Node:
        """The value that a computed one is a reshape of, as it was computed first; else itself."""
        return self.reshaped.get(id(node), [node])[-1]

    def _reshape(self, node: Node, shape: Shape) -> Node:
        node = self.settled(node)
        pushed = self._reshaped(node, shape)
        if pushed is not None:
            self.reshaped.setdefault(id(pushed), []).extend((node, *self.reshaped.get(id(node), ())))
            return pushed
        attrs = Reshaping(reshape_view(node.shape, shape))
        return self.node("reshape", (self.materialise(node),), shape, node.dtype, attrs)

    def _reshaped(self, node: Node, shape: Shape) -> Node | None:
        if node.op in IN_MEMORY:
            return self.view_in_memory(node, reshape_view(node.shape, shape), lambda base: base.view(shape))
        if node.op == "iota":
            return self._reshape_iota(node, shape)
        if node.op == "expand":
            source = self._reshape_broadcast(node.inputs[0], node.shape, shape)
            return None if source is None else self.expand(source, shape)
        if node.op == "take" and is_split(node.shape, shape):
            places = [self._reshape_broadcast(place, node.shape, shape) for place in node.inputs[1:]]
            known = [self.materialise(place) for place in places if place is not None]
            return self.node("take", (node.inputs[0], *known), shape, node.dtype) if len(known) == len(places) else None
        if not node.is_pointwise or (_only_adds_ones(node.shape, shape) and is_made_of(node, PRODUCTS)):
            return None  # a product's kernel has values of its own shape, without ones of a batch or of a token
        pushed = [self._reshape_broadcast(each, node.shape, shape) for each in node.inputs]
        inputs = [each for each in pushed if each is not None]
        if len(inputs) < len(pushed):
            return None
        # Only un-squeezing goes further than to the arguments; a squeeze is better left to the users of the value.
        reshapes = any(each.op == "reshape" and each.shape != each.inputs[0].shape for each in inputs)
        if reshapes and not is_squeeze(shape, node.shape):
            return None
        return self.with_inputs(node, inputs, shape)

    def _reshape_broadcast(self, node: Node, old: Shape, new: Shape) -> Node | None:
        """`node`, which is broadcast to `old`, so that it broadcasts to `new`; None when a group is half broadcast."""
        if all(size == 1 for size in node.shape):
            return self.reshape(node, ())
        target = regrouped_shape((1,) * (len(old) - len(node.shape)) + node.shape, old, new)
        if target is None:
            return None
        if node.op == "reshape" and node.inputs[0].shape == target:
            return node.inputs[0]
        keeps_ones = len(node.shape) == len(old) and node.shape[:1] == (1,)  # so that the way back is the same
        while not keeps_ones and target and target[0] == 1 and len(node.shape) < len(target):
            target = target[1:]
        return self.reshape(node, target)

    def _reshape_iota(self, node: Node, shape: Shape) -> Node:
        """The coordinate of what was one dimension, by those of the dimensions that it is split into or merged with."""
        along, every = Iota.of(node).dim, (list(range(len(node.shape))), list(range(len(shape))))
        groups = dimension_groups(node.shape, shape) or [every]
        before, after = next(group for group in groups if along in group[0])
        place = self.expand(self.constant(0, "int64"), shape)
        for at, dim in enumerate(after):
            step = math.prod(shape[later] for later in after[at + 1 :])
            place = self("add", place, self("mul", self.iota(shape, dim), step))
        if along != before[-1]:
            place = self("floor_div", place, math.prod(node.shape[dim] for dim in before if dim > along))
        return place if along == before[0] else self("remainder", place, node.shape[along])


def _only_adds_ones(old: Shape, new: Shape) -> bool:
    """Whether a reshape adds those of one sequence, or of one token of each; columns as few as a head's may be one."""
    is_wide = old[-1:] > (WIDEST_HEAD,)
    return is_squeeze(new, old) and (is_wide or new == (1,) * (len(new) - len(old)) + old)


def is_long(node: Node, joined: Container[int] = ()) -> bool:
    """Whether a value is computed by many operations of others that are stored, those in other `joined` ones aside."""
    seen: set[int] = set()
    stack, reads = [node], False
    while stack and len(seen) <= MOST_VIEWED:
        each = stack.pop()
        if each.op in IN_MEMORY or each.op == "contract":
            reads |= each.op != "input"
        elif id(each) not in seen:
            seen.add(id(each))
            stack.extend(() if id(each) in joined and each is not node else each.inputs)
    return reads and len(seen) > MOST_VIEWED


def _result_dtype(nodes: Sequence[Node]) -> str:
    tensors = [node for node in nodes if node.op not in ("constant", "scalar")]
    return max((node.dtype for node in tensors or nodes), key=PROMOTION.index)
