"""Decompositions of what is computed of matrices of a few rows: by formulas, without a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutesmith.patterns.graph.shapes import broadcast

MOST_SUBSTITUTED = 4  # rows of a triangular matrix: what is written for one grows with their square


def _cofactors(a: torch.Tensor) -> list[list[torch.Tensor]] | None:
    """Those of matrices of up to 3 rows, row by row; None for larger ones."""
    size = a.shape[-1]
    if not 1 <= size <= 3:
        return None
    entry = [[a[..., row, column] for column in range(size)] for row in range(size)]
    if size == 1:
        return [[torch.ones_like(entry[0][0])]]
    if size == 2:
        return [[entry[1][1], -entry[1][0]], [-entry[0][1], entry[0][0]]]
    after = ((1, 2), (2, 0), (0, 1))  # in cyclic order, so that no sign changes
    return [
        [entry[r][c] * entry[s][d] - entry[r][d] * entry[s][c] for c, d in after]  # of minors
        for r, s in after
    ]


def _along_first_row(a: torch.Tensor, cofactors: list[list[torch.Tensor]]) -> torch.Tensor:
    terms = [a[..., 0, column] * cofactor for column, cofactor in enumerate(cofactors[0])]
    return sum(terms[1:], terms[0])


def _det(a: torch.Tensor) -> Any:
    """Of matrices of up to 3 rows, by cofactors; PyTorch's factors, the other results, are for its backward alone."""
    cofactors = _cofactors(a)
    if cofactors is None:
        return NotImplemented
    return _along_first_row(a, cofactors), torch.empty_like(a), a.new_empty(a.shape[:-1], dtype=torch.int32)


def _inverse(a: torch.Tensor, *, check_errors: bool = False) -> Any:
    """Of matrices of up to 3 rows, by cofactors; one that has no inverse gives infinities and NaN."""
    cofactors = _cofactors(a)
    if cofactors is None:
        return NotImplemented
    columns = [torch.stack(row, -1) for row in cofactors]
    inverse = torch.stack(columns, -1) / _along_first_row(a, cofactors)[..., None, None]
    return inverse, a.new_zeros(a.shape[:-2], dtype=torch.int32)


def _slogdet(a: torch.Tensor) -> Any:
    determinant = _det(a)
    if determinant is NotImplemented:
        return NotImplemented
    value, *factors = determinant
    return value.sign(), value.abs().log(), *factors


def _solve(a: torch.Tensor, b: torch.Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """By the inverse of a matrix of up to 3 rows; PyTorch's factors, the other results, are for its backward alone."""
    inverted = _inverse(a.double())  # minors cancel: in the matrix's own type less would be left than by elimination
    if inverted is NotImplemented:
        return NotImplemented
    inverse, pivots = inverted[0], a.new_empty(a.shape[:-1], dtype=torch.int32)
    if b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]):
        columns = b.unsqueeze(-1 if left else -2).double()
        result = (inverse @ columns if left else columns @ inverse).reshape(b.shape)
    else:
        result = inverse @ b.double() if left else b.double() @ inverse
    return result.to(b.dtype), torch.empty_like(a), pivots, inverted[1]


def _cholesky(a: torch.Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Row by row; NaN where a matrix has no such factor."""
    size = a.shape[-1]
    if not 1 <= size <= MOST_SUBSTITUTED:
        return NotImplemented
    factor: list[list[torch.Tensor]] = []
    for row in range(size):
        entries: list[torch.Tensor] = []
        for column in range(row + 1):
            above = entries if column == row else factor[column]
            rest = a[..., column, row] if upper else a[..., row, column]
            for known, other in zip(entries, above):
                rest = rest - known * other
            entries.append(rest.sqrt() if column == row else rest / factor[column][column])
        factor.append([*entries, *[torch.zeros_like(entries[0])] * (size - row - 1)])
    lower = torch.stack([torch.stack(entries, -1) for entries in factor], -2)
    return lower.mT if upper else lower, a.new_zeros(a.shape[:-2], dtype=torch.int32)


def _solve_triangular(
    a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """Row by row, each put into those that follow."""
    size = a.shape[-1]
    if not 1 <= size <= MOST_SUBSTITUTED:
        return NotImplemented
    if not left:
        return _solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    b = b.expand(*broadcast([tuple(a.shape[:-2]), tuple(b.shape[:-2])]), *b.shape[-2:])
    found: dict[int, torch.Tensor] = {}
    for row in range(size)[:: -1 if upper else 1]:
        rest = b[..., row, :]
        for column, value in found.items():
            rest = rest - a[..., row, column, None] * value
        found[row] = rest if unitriangular else rest / a[..., row, row, None]
    return torch.stack([found[row] for row in range(size)], -2)


def _cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> Any:
    lower = factor.mT if upper else factor
    half = _solve_triangular(lower, b, upper=False)
    return NotImplemented if half is NotImplemented else _solve_triangular(lower.mT, half, upper=True)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._linalg_det.default: _det,
    torch.ops.aten._linalg_slogdet.default: _slogdet,
    torch.ops.aten._linalg_solve_ex.default: _solve,
    torch.ops.aten.linalg_inv_ex.default: _inverse,
    torch.ops.aten.linalg_cholesky_ex.default: _cholesky,
    torch.ops.aten.linalg_solve_triangular.default: _solve_triangular,
    torch.ops.aten.cholesky_solve.default: _cholesky_solve,
}
