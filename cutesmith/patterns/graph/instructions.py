"""How many machine instructions the pointwise operations take: what a prediction of an epilogue's time counts.

Counted in kernels of one operation for sm_90a (nvdisasm of CUDA 13, DSL 4.8.1): what they have more than one of an
addition, for each element. Paths for rare numbers are counted too, as they are part of the code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cutesmith.patterns.graph.attributes import Scalar
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Graph, Node

ISSUED_PER_SECOND = 27.5e12
"""Of threads of an H200: 0.93 of what it can issue. 29 of 34 functions of float32 took 0.88 to 1.06 of that."""
WHERE_ROUNDED = 15 / 27.5
"""The share of them where results are rounded to 16 bits, which takes instructions of its own."""

OF_FLOAT32 = {
    "exp": 8, "exp2": 4, "log": 25, "log2": 27, "log10": 26, "log1p": 26, "expm1": 22, "sqrt": 18, "rsqrt": 4,
    "sin": 107, "cos": 109, "tan": 103, "asin": 22, "acos": 23, "atan": 18, "sinh": 23, "cosh": 15, "tanh": 15,
    "asinh": 40, "acosh": 41, "atanh": 34, "erf": 21, "erfc": 45, "normcdf": 17, "sigmoid": 12, "reciprocal": 22,
    "sign": 5, "exponent": 13, "div": 28, "floor_div": 127, "fmod": 72, "remainder": 77, "pow": 88, "atan2": 57,
}  # fmt: skip
"""Other operations take one."""

OF_USUAL_NUMBERS = {
    "sqrt": 12, "sin": 27, "cos": 28, "tan": 27, "cosh": 20, "sigmoid": 14, "reciprocal": 12, "sign": 8, "div": 14,
    "floor_div": 79, "fmod": 36, "remainder": 40, "atan2": 40,
}  # fmt: skip
"""What an H200 took the time of, where that is another number, as code has paths for rare numbers.

`fmod` and `remainder` of numbers up to five times the divisor; of smaller ones they take half of that.
"""

APPROXIMATE_OF_USUAL_NUMBERS = {
    "exp2": 2, "log2": 2, "log10": 2, "sqrt": 2, "normcdf": 7, "sigmoid": 6, "reciprocal": 3, "div": 3, "tanh": 6,
    "pow": 53,
}  # fmt: skip
"""The same of results that are rounded to 16 bits, at the rate of those."""

APPROXIMATE = {
    "exp": 2, "exp2": 1, "log": 2, "log2": 1, "log10": 5, "sqrt": 1, "sin": 2, "cos": 2, "normcdf": 13, "sigmoid": 4,
    "reciprocal": 8, "div": 8, "tanh": 7,
}  # fmt: skip
"""Where approximate instructions are good enough."""


def instructions(nodes: Iterable[Node], *, fast: bool) -> int:
    """Of the code of the pointwise operations among the nodes, for one element."""
    return sum(_instructions(node, fast=fast) for node in nodes if node.is_pointwise)


def usual_instructions(nodes: Iterable[Node], *, fast: bool) -> int:
    """Those that are carried out for one element, unless it is a rare number."""
    return sum(_usual_instructions(node, fast=fast) for node in nodes if node.is_pointwise)


def more_instructions(graph: Graph, *, fast: bool) -> int:
    """Those that all elements of pointwise operations take beside `Graph.flops`, as exact as float32 or `fast`."""
    pointwise = (node for node in graph.nodes() if node.is_pointwise)
    return sum(math.prod(node.shape) * (_usual_instructions(node, fast=fast) - 1) for node in pointwise)


INTEGER_DIVISIONS = frozenset({"floor_div", "remainder", "fmod", "trunc_div"})
BY_A_SIZE = 6
"""An integer divided by a number that is known when the kernel is compiled, which multiplies and shifts."""


BY_A_ROW = 6
"""A division of the elements of a row by a value of it, whose inverse is taken once."""


def _is_known(number: Node) -> bool:
    return number.op in ("constant", "sized") or (number.op == "scalar" and Scalar.of(number).size is not None)


def _is_shared(divisor: Node, node: Node) -> bool:
    """Whether many elements of a row have one divisor, whose inverse is taken once."""
    return math.prod(divisor.shape) < math.prod(node.shape)


def _instructions(node: Node, *, fast: bool) -> int:
    if node.op in INTEGER_DIVISIONS and not is_float(node.dtype) and _is_known(node.inputs[1]):
        return BY_A_SIZE
    if node.op == "div" and (node.inputs[1].op == "constant" or (fast and _is_shared(node.inputs[1], node))):
        return 1  # a product
    if node.op == "div" and node.dtype != "float64" and node.inputs[1].shape[-1:] == (1,) != node.shape[-1:]:
        return BY_A_ROW
    return (fast and APPROXIMATE.get(node.op)) or OF_FLOAT32.get(node.op, 1)


def _usual_instructions(node: Node, *, fast: bool) -> int:
    count = _instructions(node, fast=fast)
    of_code = (fast and APPROXIMATE.get(node.op)) or OF_FLOAT32.get(node.op)
    usual = APPROXIMATE_OF_USUAL_NUMBERS if fast else OF_USUAL_NUMBERS
    return usual.get(node.op, count) if count == of_code else count
