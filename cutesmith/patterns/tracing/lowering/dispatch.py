"""The table of lowerings: for each ATen operation, how it is said in the nodes of our graph.

A lowering is a function of a `Lowering` context and the operation's own arguments, where tensors are `Node`s; it
returns one node for each result. The families are the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.patterns.graph.attributes import Number
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype, dtype_name, is_float, torch_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.scalars import Scalars

Operand = Node | Number
Lowered = Node | tuple[Node | None, ...]
Rule = Callable[..., Lowered]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}
_OTHER_NAMES = ("prims.", "cutesmith.")


def lowers(*names: str) -> Callable[[R], R]:
    """Registers a lowering for ATen names (`"add"`, for all overloads, or `"sum.dim_IntList"`), or `"prims.x"`."""

    def register(rule: R) -> R:
        for name in names:
            RULES[name if name.startswith(_OTHER_NAMES) else f"aten.{name}"] = rule
        return rule

    return register


def rule_for(operation: Any) -> Rule | None:
    """The lowering of an OpOverload, None when there is none."""
    full = str(operation)
    return RULES.get(full) or RULES.get(full.rsplit(".", 1)[0])


@dataclass
class Lowering:
    """What a lowering may ask: the builder, the run-time scalars, and the shape and dtype of each result."""

    build: GraphBuilder
    scalars: Scalars
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[str]

    @property
    def dtype(self) -> str:
        """The dtype of the (first) result."""
        return self.dtypes[0]

    @property
    def kind(self) -> str:
        """The arithmetic class of the (first) result."""
        return compute_dtype(self.dtype)

    def operand(self, value: Operand, kind: str | None = None) -> Node:
        """A tensor or number ready for arithmetic in `kind` (default: the result's class)."""
        kind = self.kind if kind is None else compute_dtype(kind)
        if isinstance(value, Node):
            return self.build.operand(value, kind)
        return self.scalars.node(self.build, value, kind)

    def operands(self, *values: Operand, kind: str | None = None) -> list[Node]:
        """Each value through `operand`."""
        return [self.operand(value, kind) for value in values]

    def rounded(self, value: Operand, dtype: str) -> Node:
        """A number as PyTorch compares with it: rounded to the tensors' dtype."""
        node = self.operand(value, dtype)
        return self.build.cast(node, dtype) if node.op in ("constant", "scalar") and is_float(dtype) else node

    def truth(self, x: Node) -> Node:
        """Whether the value is not 0, as a bool."""
        return x if x.dtype == "bool" else self.build("ne", x, 0)

    def clamped(self, x: Node, least: Operand | None, most: Operand | None) -> Node:
        """`x` between the bounds; NaN in x or in a bound tensor is carried. Where least > most the result is most."""
        for op, bound in (("maximum", least), ("minimum", most)):
            x = x if bound is None else self.build(op, x, self.operand(bound), dtype=self.dtype)
        return x

    def promoted(self, *values: Operand) -> str:
        """The dtype that PyTorch promotes tensors and numbers to."""
        from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

        with _disable_current_modes():
            stand_ins = [self._stand_in(value) for value in values]
            kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
            return dtype_name(elementwise_dtypes(*stand_ins, type_promotion_kind=kind)[1])

    @staticmethod
    def _stand_in(value: Operand) -> Any:
        if not isinstance(value, Node):
            return value
        return torch.empty((1,) * len(value.shape), dtype=torch_dtype(value.dtype), device="meta")

    def finish(self, node: Node, index: int = 0) -> Node:
        """A lowered value with the dtype and shape of the result `index`."""
        node = self.build.retype(node, self.dtypes[index])
        return self.build.expand(node, self.shapes[index])
