"""Lowerings of products of matrices and vectors; `linear`, `matmul` and `einsum` come as these."""

from __future__ import annotations

import math

import torch

from cutesmith.patterns.graph.attributes import Contraction, Number, ShortSums
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.dtypes import HALVES, compute_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.views import push_permute
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, lowers


def check_one_type(low: Lowering, a: Node, b: Node) -> None:
    """Refuse factors of two types, as PyTorch does: its meta tensors take them."""
    if a.dtype != b.dtype:
        raise low.build.unmatched(
            f"multiplies {a.dtype} by {b.dtype}; PyTorch takes one type: cast one of both by .to()"
        )


def matrix_product(low: Lowering, a: Node, b: Node, dtype: str = "") -> Node:
    """a @ b of two matrices, or of as many of each, as `dtype`, or as that of the result."""
    if low.dtype == "bool":
        raise low.build.unmatched("multiplies matrices of booleans")
    check_one_type(low, a, b)
    tf32 = a.dtype == "float32" and torch.backends.cuda.matmul.allow_tf32
    return contract(low.build, a, b, dtype or low.dtype, tf32=tf32)


def _column(low: Lowering, vector: Node) -> Node:
    return low.build.reshape(vector, (*vector.shape, 1))


@lowers("mm", "bmm")
def _mm(low: Lowering, a: Node, b: Node) -> Node:
    return matrix_product(low, a, b)


@lowers("matmul")
def _matmul(low: Lowering, a: Node, b: Node) -> Node:
    """A batch on both sides stays as it is, so that it is only viewed; a single matrix on the right takes all rows."""
    result = tuple(low.shapes[0])
    rows = low.build.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    columns = _column(low, b) if len(b.shape) == 1 else b
    if len(columns.shape) == 2:
        rows = low.build.reshape(rows, (math.prod(rows.shape[:-1]), rows.shape[-1]))
    return low.build.reshape(matrix_product(low, rows, columns), result)


@lowers("mv")
def _mv(low: Lowering, a: Node, x: Node) -> Node:
    return low.build.reshape(matrix_product(low, a, _column(low, x)), tuple(low.shapes[0]))


@lowers("dot", "vdot")
def _dot(low: Lowering, x: Node, y: Node) -> Node:
    row = low.build.reshape(x, (1, *x.shape))
    return low.build.reshape(matrix_product(low, row, _column(low, y)), ())


@lowers("addmm", "baddbmm")
def _addmm(low: Lowering, added: Node, a: Node, b: Node, *, beta: Number = 1, alpha: Number = 1) -> Node:
    return _scaled_sum(low, added, matrix_product(low, a, b, compute_dtype(low.dtype)), beta, alpha)


@lowers("addmv")
def _addmv(low: Lowering, added: Node, a: Node, x: Node, *, beta: Number = 1, alpha: Number = 1) -> Node:
    product = low.build.reshape(matrix_product(low, a, _column(low, x), compute_dtype(low.dtype)), tuple(low.shapes[0]))
    return _scaled_sum(low, added, product, beta, alpha)


def _scaled_sum(low: Lowering, added: Node, product: Node, beta: Number, alpha: Number) -> Node:
    """beta * added + alpha * product, rounded once; with beta = 0 PyTorch does not read what is added, NaN or not."""
    scaled = _times(low, product, alpha)
    if beta == 0:
        return low.build.retype(scaled, low.dtype)
    return low.build("add", scaled, _times(low, low.operand(added), beta), dtype=low.dtype)


def _times(low: Lowering, value: Node, factor: Operand) -> Node:
    return value if factor == 1 else low.build("mul", value, low.operand(factor), dtype=value.dtype)


@lowers("_scaled_mm")
def _scaled_mm(
    low: Lowering,
    a: Node,
    b: Node,
    scale_a: Node,
    scale_b: Node,
    bias: Node | None = None,
    scale_result: Node | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Node:
    """A product of float8 matrices, times scales of all, of rows of `a` and of columns of `b`, plus bias.

    A result of 16 bits does not show that sums of pieces of k have 14.
    """
    if any(math.prod(s.shape) not in (1, size) for s, size in zip((scale_a, scale_b), low.shapes[0], strict=True)):
        raise low.build.unmatched("has scales of blocks")
    if scale_result is not None:
        raise low.build.unmatched("scales its result")
    short = ShortSums.WHOLE if use_fast_accum else ShortSums.OF_PIECES
    product = contract(
        low.build,
        low.build.cast(a, "float32"),
        low.build.cast(b, "float32"),
        "float32",
        short_sums=short if low.dtype in HALVES else ShortSums.NONE,
    )
    for scale in (scale_a, scale_b):
        product = low.build("mul", product, low.build.reshape(scale, scale.shape if len(scale.shape) == 2 else ()))
    return product if bias is None else low.build("add", product, low.operand(bias, "float32"))


@lowers("_int_mm")
def _int_mm(low: Lowering, a: Node, b: Node) -> Node:
    return contract(low.build, a, b, low.dtype)


@lowers("_grouped_mm")
def _grouped_mm(
    low: Lowering,
    x: Node,
    weights: Node,
    offs: Node | None = None,
    bias: Node | None = None,
    out_dtype: torch.dtype | None = None,
) -> Node:
    """x[rows, k] times weights[groups, k, n] of each row's group, or x[groups, m, k] times weights[k, columns]."""
    if bias is not None or len(x.shape) == len(weights.shape) == 2:
        raise low.build.unmatched("multiplies groups of k, or adds a bias")
    if offs is None:
        return matrix_product(low, x, weights)
    if offs.dtype != "int32":
        raise low.build.unmatched(f"takes offs of int32, not {offs.dtype}")
    if len(weights.shape) == 3:
        return _by_groups(low, x, weights, offs)
    columns, matrices = push_permute(low.build, weights, (1, 0)), push_permute(low.build, x, (0, 2, 1))
    return push_permute(low.build, _by_groups(low, columns, matrices, offs), (1, 0))


def _by_groups(low: Lowering, x: Node, matrices: Node, ends: Node) -> Node:
    build, shape = low.build, matrices.shape[1:]
    grouped = build.node("grouped", (build.stored(matrices), build.stored(ends)), shape, matrices.dtype)
    attrs = Contraction(compute_dtype(low.dtype))
    return build.node("contract", (x, grouped), (x.shape[0], shape[1]), low.dtype, attrs)
