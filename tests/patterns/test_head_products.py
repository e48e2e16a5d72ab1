"""Norms of the heads of a projection in the launch of its product: whole rows of a head in a tile, against float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.cutting.head_products import with_heads_as_products
from cutesmith.patterns.match import plan_kernel
from tests.patterns.running import (
    check_any_rows_and_heads,
    check_product,
    emulated,
    first_kernel,
    move,
    normal,
    traced,
)

BF16, HALF = torch.bfloat16, torch.float16


def rms_norms(x, w, g):
    return F.rms_norm((x @ w).view(x.shape[0], -1, g.shape[0]), g.shape, g, 1e-6)


def biased_layer_norms(x, w, b, g, h):
    heads = F.linear(x, w, b).view(*x.shape[:-1], -1, g.shape[0])
    return F.layer_norm(heads, g.shape, g, h)


def turned_norms(x, w, b, g):
    """Heads before tokens, as attention reads them."""
    heads = F.linear(x, w, b).view(*x.shape[:-1], w.shape[0] // g.shape[0], g.shape[0])
    return F.rms_norm(heads, g.shape, g, 1e-6).transpose(1, 2)


def l2_norms(x, w, scale):
    """A number of each head, as in the normalisation of queries and keys."""
    return F.normalize((x @ w).view(x.shape[0], scale.shape[0], -1), dim=-1) * scale


def softmaxes(x, w, r):
    return torch.softmax((F.linear(x, w) + r).view(x.shape[0], 3, -1), dim=-1)


def written_out(x, w, g):
    """As models have it: 1 more than the weight, in float32 until the end."""
    heads = F.linear(x, w).view(*x.shape[:-1], -1, g.shape[0]).float()
    normed = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (normed * (1.0 + g.float())).to(x.dtype)


def sized(rows, heads, columns, depth=64, *, dtype=BF16, linear=False):
    """Rows of a projection, and its weights."""
    shape = (heads * columns, depth) if linear else (depth, heads * columns)
    rows = (rows,) if isinstance(rows, int) else rows
    return normal(*rows, depth, dtype=dtype), normal(*shape, dtype=dtype, seed=1)


def vectors(*sizes, dtype=BF16):
    return tuple(normal(size, dtype=dtype, seed=2 + at) for at, size in enumerate(sizes))


CASES = {
    "one_row": (rms_norms, (*sized(1, 3, 64), *vectors(64))),
    "one_head": (rms_norms, (*sized(37, 1, 64), *vectors(64))),
    "heads_of_128": (rms_norms, (*sized(131, 3, 128), *vectors(128))),
    "32_heads": (rms_norms, (*sized(17, 32, 64), *vectors(64))),
    "heads_of_256": (rms_norms, (*sized(67, 2, 256), *vectors(256))),
    "heads_of_80": (rms_norms, (*sized(13, 3, 80, dtype=HALF), *vectors(80, dtype=HALF))),
    "layer_norm": (biased_layer_norms, (*sized((2, 35), 3, 64, linear=True), *vectors(192, 64, 64))),
    "turned": (turned_norms, (*sized((2, 17), 3, 32, linear=True), *vectors(96, 32))),
    "turned_row": (turned_norms, (*sized((3, 1), 3, 64, linear=True), *vectors(192, 64))),
    "l2_norms": (l2_norms, (*sized(41, 5, 64), normal(5, 1, dtype=BF16, seed=2))),
    "softmaxes": (softmaxes, (*sized(23, 3, 64, linear=True), normal(23, 192, dtype=BF16, seed=2))),
    "written_out": (written_out, (*sized((1, 29), 3, 64, linear=True), *vectors(64))),
    "float32": (rms_norms, (*sized(31, 3, 64, 40, dtype=torch.float32), *vectors(64, dtype=torch.float32))),
}
SLOW = frozenset(CASES) - {"one_row", "turned"}


def fused(function, inputs, arch="sm_90a"):
    """The plan in which heads are products."""
    return plan_kernel(with_heads_as_products(traced(function, inputs)), arch)


@pytest.mark.parametrize(
    ("case", "arch"),
    [
        pytest.param(case, arch, marks=[pytest.mark.slow] if case in SLOW or arch == "sm_80" else [])
        for case in CASES
        for arch in ("sm_80", "sm_90a")
    ],
)
def test_heads_are_normed_where_they_are_summed_up(case, arch, tmp_path):
    function, inputs = CASES[case]
    plan = fused(function, inputs, arch)
    assert patterns(plan) == ["contraction"]
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


def patterns(plan):
    return [each.plan.pattern for each in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]


@pytest.mark.slow
def test_one_kernel_takes_any_rows_and_heads(tmp_path):
    """Where the problem names several sizes, too: a head has 64 columns in all of them."""
    function, inputs = CASES["turned"][0], (*sized((2, 17), 3, 64, linear=True), *vectors(192, 64))
    plan = plan_kernel(traced(function, inputs), "sm_90a", free_sizes=True)
    assert patterns(plan) == ["contraction"]
    given = lambda rows, heads: (*sized(rows, heads, 64, linear=True), *vectors(64 * heads, 64))  # noqa: E731
    check_any_rows_and_heads(plan, function, given, tmp_path)


def test_columns_of_a_head_that_follow_sizes_keep_two_launches():
    """The columns of (…, scale.shape[0], -1) grow with the projection: no tile has those of all sizes."""
    graph = replace(traced(*CASES["l2_norms"]), free_sizes=True)
    assert with_heads_as_products(graph) is graph


@pytest.mark.slow
def test_rare_numbers_of_one_head_stay_in_it(tmp_path):
    """A row that is not finite makes NaN of its own heads; zeros stay zeros."""
    x, w = sized(5, 2, 32)
    x[1, 3], x[2, 0], x[3] = float("nan"), float("inf"), 0.0
    w[:, 40] = 0.0
    inputs = x, w, *vectors(32)
    plan = fused(rms_norms, inputs)
    with emulated("sm_90a"):
        ours = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(ours, rms_norms(*inputs), rtol=1e-2, atol=1e-2, equal_nan=True)


def empty(*shape):
    return torch.empty(*shape, dtype=BF16, device="meta")


@pytest.mark.parametrize(
    ("rows", "heads", "columns", "launches"),
    [
        (8192, 32, 128, ["contraction"]),
        (8192, 16, 256, ["contraction"]),
        (8192, 8, 512, ["contraction", "rows"]),  # wider than any tile
        (8192, 64, 64, ["contraction", "rows"]),  # wgmma of 64 columns reads its factors too often
        (1, 32, 128, ["contraction", "rows"]),  # blocks that divide k read the weights sooner
    ],
)
def test_the_predicted_time_decides(rows, heads, columns, launches):
    inputs = empty(rows, 4096), empty(4096, heads * columns), empty(columns)
    assert patterns(plan_kernel(traced(rms_norms, inputs), "sm_90a")) == launches


def both_projections(x, q, k, g, h):
    """Queries and keys of one layer: each projection is a launch."""
    return rms_norms(x, q, g), rms_norms(x, k, h)


def test_each_projection_is_a_launch():
    inputs = empty(8192, 4096), empty(4096, 4096), empty(4096, 1024), empty(128), empty(128)
    assert patterns(plan_kernel(traced(both_projections, inputs), "sm_90a")) == ["contraction"] * 2


def beside_the_projection(x, w, g):
    return x @ w, rms_norms(x, w, g)


def over_all_heads(x, w, g):
    heads = (x @ w).view(x.shape[0], -1, g.shape[0])
    return heads / heads.float().square().mean((1, 2), keepdim=True).sqrt().to(x.dtype)


@pytest.mark.parametrize("function", [beside_the_projection, over_all_heads])
def test_what_is_not_of_one_head_alone_is_left_as_it_is(function):
    graph = traced(function, (empty(64, 64), empty(64, 96), empty(32)))
    assert with_heads_as_products(graph) is graph


def test_tiles_of_all_heads_lie_side_by_side():
    """They read the same rows of x: blocks that run at once are neighbours in both directions, as of one result."""
    inputs = empty(8192, 4096), empty(4096, 4096), empty(128)
    plan = plan_kernel(traced(rms_norms, inputs), "sm_90a")
    assert "tile_of(block + i * blocks, tiles_m, tiles_n * " in plan.render(plan.configurations()[0])


def test_a_product_of_two_vectors_has_no_heads():
    """Its matrix of one element is seen as a number."""
    x = normal(16).to(BF16)
    graph = traced(torch.dot, (x, x))
    assert with_heads_as_products(graph) is graph
