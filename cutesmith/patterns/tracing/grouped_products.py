"""Products of groups of rows, each group with a matrix of its own, whose ends are values of a tensor.

The ends are not known when a kernel is launched. So the rows are cut into tiles, and each tile is multiplied with the
matrix of each group that has rows in it: a batch of products whose factors are chosen by an index. Tile t of the rows
and group g are number t + g of the batch, of which there are as many as tiles and groups together. Layers of a mixture
of experts are computed in such blocks too (MegaBlocks, Gale et al. 2022, section 5).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

TILE = 64
"""Rows: those of a wgmma. A group computes less than two tiles too much."""


def _grouped_mm(
    x: torch.Tensor,
    weights: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """x[rows, k] times weights[groups, k, n] of each row's group, or x[groups, m, k] times weights[k, columns]."""
    if bias is not None or (x.dim() == 2 and weights.dim() == 2):
        return NotImplemented
    if offs is None:
        product = torch.bmm(x, weights)
    elif weights.dim() == 2:
        product = _by_groups(weights.mT, x.mT, offs).mT
    else:
        product = _by_groups(x, weights, offs)
    return product if out_dtype is None else product.to(out_dtype)


def _by_groups(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows behind the last group have any value, as PyTorch leaves them."""
    rows, last = x.shape[0], weights.shape[0] - 1
    if rows == 0:
        return x @ weights[0]
    count = functools.partial(torch.arange, dtype=ends.dtype, device=x.device)
    row = count(rows)
    group_of_row = torch.searchsorted(ends, row, right=True, out_int32=True).clamp(max=last)
    begins = torch.nn.functional.max_pool1d(group_of_row[None], 1, TILE)[0]  # every 64th
    begins = begins + count(len(begins))  # the first number of each tile
    number = count(len(begins) + last + 1)
    tile = torch.searchsorted(begins, number, right=True, out_int32=True) - 1
    rows_of_tile = tile[:, None] * TILE + count(TILE)
    tiles = torch.nn.functional.embedding(rows_of_tile.clamp(max=rows - 1), x)
    products = tiles @ weights.index_select(0, (number - tile).clamp(max=last))
    return products.flatten(0, 1).index_select(0, row + TILE * group_of_row)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {torch.ops.aten._grouped_mm.default: _grouped_mm}
