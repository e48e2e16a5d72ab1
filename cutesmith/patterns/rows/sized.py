"""Constants that follow sizes, in a kernel that knows its columns when it is compiled and its rows when it runs."""

from __future__ import annotations

import math

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Sized
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.size_laws import size_value
from cutesmith.patterns.rows.analysis import RowsAnalysis
from cutesmith.patterns.rows.parts import Visit


def sized_code(analysis: RowsAnalysis, node: Node, visit: Visit) -> str:
    """The DSL scalar of a `sized` node. Raises UnmatchedError for sizes that are neither all columns nor all rows."""
    law, kind = Sized.of(node).law, COMPUTE_TYPE[node.dtype]
    rows, columns = _follows(analysis, node)
    if kind.startswith("Int") and (law.shift or not law.is_integer):
        raise UnmatchedError(f"{node.origin or 'a constant'} is not an integer for all sizes", operation="sized")
    if not rows:
        return f"{kind}({law.code(analysis.row_code)})"
    product = f"{visit.rows}.to({kind})" + (f" * {kind}({analysis.row_code})" if columns else "")
    if law.power in (0.5, -0.5):
        product = f"cute.math.sqrt({product})"
    offset, factor = (f"{kind}({int(n) if kind.startswith('Int') else n!r})" for n in (law.offset, law.factor))
    scaled = f"{factor} / ({product})" if law.power < 0 else f"{factor} * {product}"
    return f"({offset} + {scaled})" if law.offset else f"({scaled})"


def _follows(analysis: RowsAnalysis, node: Node) -> tuple[bool, bool]:
    """Whether a law's sizes are those of all row dimensions, and of all column dimensions."""
    shapes = [argument.sizes for argument in analysis.graph.arguments]
    sizes = sorted(size_value(size, shapes) for size in Sized.of(node).law.dims)
    sides = analysis.rows_shape, tuple(size * analysis.slices for size in analysis.columns_shape)
    for rows, columns in ((False, True), (True, False), (True, True)):
        chosen = [size for side, taken in zip(sides, (rows, columns), strict=True) for size in side if taken]
        if sizes == sorted(size for size in chosen if size != 1) and math.prod(chosen) > 1:
            return rows, columns
    raise UnmatchedError(
        f"{node.origin or 'a constant'} follows sizes {sizes}, which are neither all rows nor all columns of "
        f"{analysis.shape}",
        operation="sized",
    )
