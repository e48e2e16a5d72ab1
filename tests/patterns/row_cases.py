# ruff: noqa: E501  (a table of one case a line)
"""Functions of rows with inputs: what the row pattern is compiled and run for."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.patterns.running import normal

BF16, FP16, FP64 = torch.bfloat16, torch.float16, torch.float64


def integers(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def rms_with_residual(x, residual, weight):
    total = x + residual
    return F.rms_norm(total, (total.shape[-1],), weight), total


def cross_entropy(x, target):
    return F.cross_entropy(x, target, reduction="none", ignore_index=-100)


def targets(rows: int, columns: int) -> torch.Tensor:
    found = integers(rows, low=0, high=columns)
    found[1] = -100
    return found


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def reserved_names(columns, lane, v, b):
    return (columns * b).softmax(-1) * lane + v


def smoothed(x, target):
    return F.cross_entropy(x, target, reduction="none", label_smoothing=0.1)


def quantised(x):
    value = x.float()
    scale = value.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127.0
    return torch.clamp(torch.round(value / scale), -127, 127).to(torch.int8), scale


def special_rows(columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows that are ordinary, hold NaN, Inf, -Inf or both, are -Inf or Inf throughout, or start or end with one."""
    inf, x = math.inf, normal(9, columns)
    x[1, columns // 2] = math.nan
    x[2, columns // 3] = inf
    x[3, columns // 5] = -inf
    x[4, 0], x[4, -1] = inf, -inf
    x[5], x[6] = -inf, inf
    x[7, 0], x[7, -1] = math.nan, math.nan
    x[8, : columns // 2] = -inf
    return x.to(dtype)


CASES = {
    "softmax": (lambda x: x.softmax(-1), [normal(64, 4096, dtype=BF16)]),
    "log_softmax": (lambda x: x.log_softmax(-1), [normal(65, 1000)]),
    "logsumexp": (lambda x: x.logsumexp(-1), [normal(33, 1000, dtype=FP16)]),
    "reductions": (lambda x: (x.sum(-1), x.mean(-1), x.amax(-1), x.amin(-1), x.prod(-1), x.argmax(-1), x.argmin(-1)), [normal(9, 130)]),
    "any_all": (lambda x: (x.any(-1), x.all(-1)), [(normal(9, 37) > 1.5) * normal(9, 37)]),
    "bool_sums": (lambda m: (m.any(-1, keepdim=True), m.all(-1), m.sum(-1), m.int().argmax(-1)), [normal(9, 37) > 0]),
    "moments": (lambda x: (x.var(-1), x.std(-1, correction=0), x.mean(-1)), [normal(9, 37) + 1000]),
    "layer_norm": (layer_norm, [normal(64, 4096, dtype=BF16), normal(4096, dtype=BF16), normal(4096, dtype=BF16)]),
    "layer_norm_mixed": (lambda x, w: F.layer_norm(x.float(), (x.shape[-1],), w), [normal(9, 64, dtype=BF16), normal(64)]),
    "rms_norm": (rms_with_residual, [normal(64, 4096, dtype=BF16), normal(64, 4096, dtype=BF16, seed=1), normal(4096, dtype=BF16)]),
    "cross_entropy": (cross_entropy, [normal(64, 1000), targets(64, 1000)]),
    "label_smoothing": (smoothed, [normal(64, 1000), targets(64, 1000)]),
    "sized": (lambda x: ((x * x.shape[1] ** -0.5).softmax(-1), x.sum(-1) / x.shape[0], x.argmax(-1) + x.shape[1]), [normal(9, 37)]),
    "gather": (lambda x, i: x.log_softmax(-1).gather(-1, i), [normal(9, 37), integers(9, 1, low=0, high=37)]),
    "cosine": (lambda a, b: F.cosine_similarity(a, b, dim=-1), [normal(33, 1000), normal(33, 1000, seed=1)]),
    "kl": (lambda a, b: F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="none").sum(-1), [normal(33, 100), normal(33, 100, seed=1)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 4, w, b), [normal(3, 8, 4, 4), normal(8), normal(8)]),
    "group_norm_one_group": (lambda x: F.relu(F.group_norm(x, 1)), [normal(2, 8, 4, 4, dtype=FP16)]),
    "group_norm_one_group_affine": (lambda x, w, b: F.group_norm(x, 1, w, b), [normal(3, 8, 4, 4), normal(8), normal(8)]),
    "trailing_two": (lambda x: x - x.mean((-2, -1), keepdim=True), [normal(2, 3, 4, 5)]),
    "all_dimensions": (lambda x: x.sum(), [normal(8, 64)]),
    "normalize": (lambda x: F.normalize(x, dim=-1), [normal(9, 64)]),
    "max_with_index": (lambda x: x.max(-1), [integers(9, 64).to(BF16)]),
    "masked": (lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1), [normal(4, 8, 64), normal(4, 1, 64) > 0]),
    "added_mask": (lambda x, m: (x + m).softmax(-1), [normal(2, 3, 8, 64, dtype=BF16), normal(2, 1, 1, 64, dtype=BF16)]),
    "int64": (lambda x: (x.sum(-1), x.amax(-1), x.argmax(-1)), [integers(9, 37)]),
    "int32_product": (lambda x: x.prod(-1), [integers(9, 7, dtype=torch.int32)]),
    "int8": (lambda x: (x.sum(-1), x.amin(-1), x.argmin(-1)), [integers(9, 48, low=-128, high=128, dtype=torch.int8)]),
    "uint8": (lambda x: (x.amax(-1), x - x.amin(-1, keepdim=True)), [integers(9, 64, low=9, high=256, dtype=torch.uint8)]),
    "double": (lambda x: x.softmax(-1), [normal(9, 64, dtype=FP64)]),
    "double_rows": (lambda x: (x.amax(-1), x.argmin(-1), x.var(-1), x.logsumexp(-1)), [normal(9, 37, dtype=FP64)]),
    "sum_as_double": (lambda x: x.sum(-1, dtype=torch.float64), [normal(9, 64)]),
    "scalar": (lambda x, s: (x * s).softmax(-1), [normal(9, 37), 0.5]),
    "reserved_names": (reserved_names, [normal(9, 37), 2.0, 3.0, 0.5]),
    "column_and_row": (lambda x, w, r: (x * w).sum(-1) * r, [normal(16, 16), normal(16), normal(16, seed=1)]),
    "two_roles": (lambda x, w: (x * w).sum(-1) + w, [normal(16, 16), normal(16)]),
    "kept_row": (lambda x, r: (x * r).sum(-1, keepdim=True), [normal(9, 64), normal(9, 1)]),
    "several_roles": (lambda x: (x.softmax(-1), x.argmax(-1), x.amax(-1, keepdim=True) > 2, x > x.mean(-1, keepdim=True)), [normal(9, 37)]),
    "copied_mask": (lambda m, x: (m, x.sum(-1)), [normal(9, 64) > 0, normal(9, 64)]),
    "ties": (lambda x: (x.argmax(-1), x.argmin(-1)), [integers(33, 1000, low=0, high=3).float()]),
    "transposed": (lambda x: x.softmax(-1), [normal(64, 37).t()]),
    "strided": (lambda x: x.softmax(-1), [normal(16, 72, dtype=BF16)[:, :64]]),
    "odd_pitch": (lambda x: x.softmax(-1), [normal(16, 65, dtype=BF16)[:, :64]]),
    "misaligned": (lambda x: x.softmax(-1), [normal(4097, dtype=BF16)[1:].view(8, 512)]),
    "one_row": (lambda x: x.log_softmax(-1), [normal(1, 3)]),
    "one_column": (lambda x: (x.softmax(-1), x.argmax(-1), x.sum(-1)), [normal(9, 1)]),
    "no_rows": (lambda x: (x.softmax(-1), x.sum(-1)), [normal(0, 64)]),
    "no_columns": (lambda x: (x.sum(-1), x.prod(-1), x.logsumexp(-1), x.mean(-1), x.any(-1)), [normal(9, 0)]),
    "no_columns_moments": (lambda x: (x.var(-1), x.mean(-1)), [normal(9, 0)]),
    "no_columns_softmax": (lambda x: x.softmax(-1), [normal(9, 0)]),
    "odd_wide": (lambda x: x.softmax(-1), [normal(5, 4099, dtype=BF16)]),
    "long": (lambda x: x.softmax(-1), [normal(3, 40000)]),
}  # fmt: skip

COMPILED = (
    "group_norm_one_group any_all moments cross_entropy group_norm uint8 double_rows two_roles "
    "transposed one_column no_rows no_columns".split()
)
"""What is compiled without a GPU; the others only where there is one."""

WIDTHS = {
    "softmax": lambda x: x.softmax(-1),
    "moments": lambda x: (F.layer_norm(x, (x.shape[-1],)), x.mean(-1), x.var(-1, correction=0)),
    "extremes": lambda x: (x.argmax(-1), x.amin(-1), x.sum(-1), x - x.amax(-1, keepdim=True)),
}
"""Run on a GPU at many widths."""

SPECIAL = {
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(-1)),
    "logsumexp": lambda x: (x.logsumexp(-1), x.sum(-1), x.argmax(-1), x.argmin(-1)),
    "extremes": lambda x: (x.amax(-1), x.amin(-1), x.mean(-1), x.any(-1), x.all(-1)),
    "moments": lambda x: (x.var(-1), x.mean(-1), F.layer_norm(x, (x.shape[-1],))),
}
"""Run on a GPU on rows with NaN and infinities."""
