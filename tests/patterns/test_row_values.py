"""Rows of a product that its own kernel reduces: softmax, norms and sums in one launch, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.configurations import ContractionConfiguration
from cutesmith.patterns.configurations import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.plan import ContractionPlan, match
from cutesmith.patterns.cutting.row_reductions import with_row_reductions
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from tests.patterns.running import as_list, check_product, emulated, exactly, load, move, normal, traced

BF16, HALF = torch.bfloat16, torch.float16


def softmax(x, w):
    return torch.softmax(F.linear(x, w), dim=-1)


def float_softmax(x, w):
    return torch.softmax(F.linear(x, w), dim=-1, dtype=torch.float32)


def log_softmax(x, w, b):
    return F.log_softmax(F.linear(x, w, b) * 3.0, dim=-1)


def layer_norm(x, w, b, g, h):
    return F.layer_norm(F.linear(x, w, b), g.shape, g, h)


def rms_norm(x, w, g):
    return F.rms_norm(F.linear(x, w), g.shape, g, 1e-6)


def l2_norm(x, w, scale):
    return F.normalize((x @ w) * scale[:, None], dim=-1)


def several(x, w, b):
    hidden = F.linear(x, w, b)
    centred = hidden - hidden.mean(dim=-1, keepdim=True)
    return hidden, torch.relu(centred) / (hidden.amax(-1, keepdim=True) - hidden.amin(-1, keepdim=True))


def masked(x, w, mask):
    return torch.softmax(F.linear(x, w).float().masked_fill(mask, float("-inf")), dim=-1)


def residual(x, w, r, g):
    hidden = F.linear(x, w) + r
    return hidden, F.rms_norm(hidden, g.shape, g, 1e-5)


def scores(q, k):
    return torch.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1)


def by_standard_deviation(x, w):
    hidden = F.linear(x, w)
    return hidden / hidden.std(dim=-1, keepdim=True)


def sized(rows, columns, depth, dtype, *others):
    """The factors of a linear layer, and vectors of so many elements: rows, columns or both."""
    sizes = {"m": (rows,), "n": (columns,), "mn": (rows, columns)}
    vectors = (normal(*sizes[each], dtype=dtype, seed=2 + at) for at, each in enumerate(others))
    return (normal(rows, depth, dtype=dtype), normal(columns, depth, dtype=dtype, seed=1), *vectors)


CASES = {
    "softmax_of_a_tile": (softmax, sized(130, 128, 72, BF16)),
    "softmax_of_17": (float_softmax, sized(70, 17, 64, BF16)),
    "log_softmax_of_100": (log_softmax, sized(66, 100, 136, BF16, "n")),
    "layer_norm_of_256": (layer_norm, sized(70, 256, 64, BF16, "n", "n", "n")),
    "rms_norm": (rms_norm, sized(129, 64, 64, HALF, "n")),
    "l2_norm": (lambda x, w, s: l2_norm(x, w.t(), s), sized(40, 96, 64, HALF, "m")),
    "several": (several, sized(65, 40, 64, BF16, "n")),
    "residual": (residual, sized(65, 72, 64, BF16, "mn", "n")),
    "float32": (softmax, sized(70, 96, 40, torch.float32)),
    "standard_deviation": (by_standard_deviation, sized(64, 48, 64, torch.float32)),
    "batches": (scores, (normal(3, 72, 64, dtype=BF16), normal(3, 56, 64, dtype=BF16, seed=1))),
    "masked": (masked, (*sized(66, 48, 64, BF16), normal(66, 48, seed=3) > 1.0)),
}


def fused(function, inputs) -> ContractionPlan:
    """The plan in which the product's kernel reduces its rows."""
    return match(with_row_reductions(traced(function, inputs)))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_reduced_where_they_are_summed_up(case, arch, tmp_path):
    function, inputs = CASES[case]
    plan = fused(function, inputs)
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)
