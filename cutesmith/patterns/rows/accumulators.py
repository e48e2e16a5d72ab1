"""What a reduction keeps while a thread goes along its row: its variables, how two of them combine, how they start."""

from __future__ import annotations

import math
from collections.abc import Callable

from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.rows.combines import OPERATORS
from cutesmith.patterns.rows.parts import Accumulator, highest, lowest
from cutesmith.patterns.writing.expressions import literal

LOG2E = repr(math.log2(math.e))
PAST_THE_ROW = "Int32(0x7FFFFFFF)"
COMBINED_BY = {
    "sum": "operator.add", "mean": "operator.add", "prod": "operator.mul",
    "any": "operator.or_", "all": "operator.and_",
}  # fmt: skip


class Accumulators:
    """Makes those of reductions, with names by `new_name`; `combines` collects the device functions that they call."""

    def __init__(self, new_name: Callable[[str], str], *, fast: bool) -> None:
        self.new_name, self.fast = new_name, fast
        self.combines: set[str] = set()

    def of(self, node: Node, partner: Node | None) -> Accumulator:
        """That of a reduction, or of a pair that one visit computes."""
        name = self.new_name(node.op)
        if partner is not None:
            return self._fused(node, partner)
        arg = node.op in ("argmax", "argmin")
        kind = COMPUTE_TYPE[node.inputs[0].dtype if arg else node.dtype]
        kind = "Int32" if kind == "Boolean" else kind
        combine = COMBINED_BY.get(node.op, f"combine_{node.op}")
        if node.op in ("max", "min"):
            combine += {"Float32": "_f32", "Float64": "_f64"}.get(kind, "_int")
        if combine not in OPERATORS:
            self.combines.add(combine)
        neutral = {"argmax": lowest, "max": lowest, "argmin": highest, "min": highest}.get(node.op)
        start = neutral(kind) if neutral else literal(node.op in ("prod", "all"), kind)
        if arg:
            return Accumulator((node,), (f"{name}_value", name), (start, PAST_THE_ROW), combine, (kind, "Int32"))
        return Accumulator((node,), (name,), (start,), combine, (kind,))

    def _fused(self, node: Node, partner: Node) -> Accumulator:
        if node.op == "max":
            names: tuple[str, ...] = (self.new_name("max"), self.new_name("sum_exp"))
            self.combines |= {"combine_max_f32", "shift_of"}
            starts: tuple[str, ...] = ("Float32(-math.inf)", "Float32(0.0)")
        else:
            names = tuple(map(self.new_name, ("count", "pivot", "residual", "deviation")))
            self.combines |= {"pivot_of", "squared_deviations", "count_here"}
            starts = ("Float32(0.0)",) * 4
        kind = "online" if node.op == "max" else "moments"
        return Accumulator((node, partner), names, starts, self.exponential, ("Float32",) * len(names), kind)

    @property
    def exponential(self) -> str:
        """The code of exp, with a place for its argument."""
        return f"cute.math.exp2(({{}}) * {LOG2E}, fastmath=True)" if self.fast else "cute.math.exp({})"


def moments_of(accumulator: Accumulator, mean: str) -> tuple[list[str], tuple[str, str]]:
    """Statements for the mean, and for the squared deviations from it, of what was summed around a pivot; their names.

    The corrected two-pass algorithm of Chan, Golub and LeVeque (The American Statistician 37, 1983); NaN without
    columns.
    """
    _, pivot, residual, deviation = accumulator.names
    lines = [
        f"{mean}_step = {residual} / Float32(plan.columns)",
        f"{mean} = {pivot} + {mean}_step",
        f"{deviation} = squared_deviations({deviation}, {residual}, {mean}_step)",
    ]
    return lines, (mean, deviation)
