"""Rotary embeddings of the heads of a projection in the launch of its product, after a norm or without, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.cutting.rotated_heads import with_rotated_heads
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


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def heads_of(x, w, columns):
    return F.linear(x, w).view(*x.shape[:-1], w.shape[0] // columns, columns)


def rotated(x, w, cos, sin):
    heads = heads_of(x, w, cos.shape[-1])
    return heads * cos[:, None] + rotate_half(heads) * sin[:, None]


def normed_and_rotated(x, w, g, cos, sin):
    heads = F.rms_norm(heads_of(x, w, g.shape[0]), g.shape, g, 1e-6)
    return heads * cos[:, None] + rotate_half(heads) * sin[:, None]


def as_models_have_it(x, w, g, cos, sin):
    """Heads before tokens, each token's angles for all heads."""
    heads = F.rms_norm(heads_of(x, w, g.shape[0]), g.shape, g, 1e-6).transpose(1, 2)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return heads * cos + rotate_half(heads) * sin


def in_float32(x, w, cos, sin):
    """Tables of half the columns, as Llama's first code has them."""
    heads = heads_of(x, w, 2 * cos.shape[-1]).float()
    first, second = heads.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def moved_rows(x, w):
    """A product with a vector, of which elements are taken from the row before."""
    y = x @ w
    z = y.clone()
    z[1:] = y[:-1]
    return z


def sized(rows, heads, columns, *, depth=64, tables=1, norm=True, dtype=BF16):
    """Rows, a projection, the weight of a norm, and both tables for each row."""
    rows = (rows,) if isinstance(rows, int) else rows
    angles = [normal(*rows, columns // tables, dtype=dtype, seed=seed) for seed in (3, 4)]
    weights = [normal(columns, dtype=dtype, seed=2)] if norm else []
    return normal(*rows, depth, dtype=dtype), normal(heads * columns, depth, dtype=dtype, seed=1), *weights, *angles


CASES = {
    "one_row": (normed_and_rotated, sized(1, 3, 64)),
    "one_head": (normed_and_rotated, sized(37, 1, 64)),
    "heads_of_128": (normed_and_rotated, sized(67, 3, 128)),
    "32_heads": (normed_and_rotated, sized(17, 32, 64)),
    "rotated_alone": (rotated, sized(41, 3, 64, norm=False)),
    "turned": (as_models_have_it, sized((2, 17), 3, 64)),
    "turned_of_float16": (as_models_have_it, sized((1, 31), 2, 32, dtype=HALF)),
    "in_float32": (in_float32, sized(29, 3, 128, norm=False, tables=2)),
}
SLOW = frozenset(CASES) - {"turned"}


def fused(function, inputs, arch="sm_90a"):
    """The plan in which the halves of heads are products."""
    return plan_kernel(with_rotated_heads(traced(function, inputs)), arch)


def patterns(plan):
    return [each.plan.pattern for each in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]


@pytest.mark.parametrize(
    ("case", "arch"),
    [
        pytest.param(case, arch, marks=[pytest.mark.slow] if case in SLOW or arch == "sm_80" else [])
        for case in CASES
        for arch in ("sm_80", "sm_90a")
    ]
    + [pytest.param("rotated_alone", "sm_100a", marks=pytest.mark.slow)],
)
def test_heads_are_rotated_where_they_are_summed_up(case, arch, tmp_path):
    function, inputs = CASES[case]
    plan = fused(function, inputs, arch)
    assert patterns(plan) == ["contraction"]
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


@pytest.mark.slow
def test_one_kernel_takes_any_rows_and_heads(tmp_path):
    """Where the problem names several sizes, too: a head has 64 columns in all of them."""
    plan = plan_kernel(with_rotated_heads(traced(*CASES["turned"])), "sm_90a", free_sizes=True)
    assert patterns(plan) == ["contraction"]
    check_any_rows_and_heads(plan, as_models_have_it, lambda rows, heads: sized(rows, heads, 64), tmp_path)


@pytest.mark.slow
def test_rare_numbers_of_one_row_stay_in_it(tmp_path):
    """A row that is not finite makes NaN of its own heads; zeros stay zeros."""
    function, inputs = CASES["turned"][0], sized((1, 5), 2, 32)
    x = inputs[0]
    x[0, 1, 3], x[0, 2, 0], x[0, 3] = float("nan"), float("inf"), 0.0
    plan = fused(function, inputs)
    with emulated("sm_90a"):
        ours = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(ours, function(*inputs), rtol=2e-2, atol=3e-2, equal_nan=True)


def empty(*shape):
    return torch.empty(*shape, dtype=BF16, device="meta")


def shared_tables(x, w, g, cos, sin):
    """The angles of a token are those of all sequences."""
    return as_models_have_it(x, w, g, cos[None], sin[None])


def first_columns(x, w, cos, sin):
    """The first half of a head is rotated, the other stays as it is."""
    heads = heads_of(x, w, 2 * cos.shape[-1])
    part, rest = heads.chunk(2, dim=-1)
    return torch.cat((part * cos[:, None] + rotate_half(part) * sin[:, None], rest), dim=-1)


def pairs(x, w, cos, sin):
    """Neighbouring columns turn together."""
    first, second = heads_of(x, w, 2 * cos.shape[-1]).unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)


ANGLES = empty(8192, 128), empty(8192, 128)
HALF_ANGLES = empty(8192, 64), empty(8192, 64)
WEIGHT = empty(4096, 4096)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (normed_and_rotated, (empty(8192, 4096), WEIGHT, empty(128), *ANGLES)),
        (rotated, (empty(8192, 4096), WEIGHT, *ANGLES)),
        (in_float32, (empty(8192, 4096), WEIGHT, *HALF_ANGLES)),
        (shared_tables, (empty(1, 8192, 4096), WEIGHT, empty(128), *ANGLES)),
    ],
)
def test_a_rotation_may_be_part_of_the_products_launch(function, inputs):
    assert patterns(fused(function, inputs)) == ["contraction"]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (shared_tables, (empty(2, 4096, 4096), WEIGHT, empty(128), empty(4096, 128), empty(4096, 128))),
        (first_columns, (empty(8192, 4096), WEIGHT, *HALF_ANGLES)),
        (pairs, (empty(8192, 4096), WEIGHT, *HALF_ANGLES)),
        (normed_and_rotated, (empty(8192, 4096), WEIGHT, empty(512), empty(8192, 512), empty(8192, 512))),
        (moved_rows, (empty(129, 64), empty(64))),
    ],
)
def test_other_rotations_are_left_as_they_are(function, inputs):
    """Angles that rows of two sequences share, parts of a head, neighbours, heads too wide for a tile, or no heads."""
    graph = traced(function, inputs)
    assert with_rotated_heads(graph) is graph


def test_both_halves_of_a_head_are_stored_into_one_tensor():
    plan = fused(*CASES["turned"])
    (launch,) = plan.launches
    first, second = launch.plan.problem.epilogue.outputs
    assert (first.half, second.half) == (("out", 0), ("out", 1))
    assert "out.chunk(2, -1)" in plan.render(plan.configurations("sm_90a")[0])


def shared_keys(x, w, wk, cos, sin):
    """Queries and keys of fewer heads, which attention reads in another order once more."""
    (q, k), cos, sin = ((heads_of(x, each, 64).transpose(1, 2) for each in (w, wk)), cos[:, None], sin[:, None])
    q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
    return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)


def test_rotated_keys_are_read_in_yet_another_order(tmp_path):
    tokens = normal(2, 17, 64, dtype=BF16)
    weights = normal(256, 64, dtype=BF16, seed=1) / 16, normal(128, 64, dtype=BF16, seed=2) / 16
    inputs = (tokens, *weights, normal(2, 17, 64, dtype=BF16, seed=3), normal(2, 17, 64, dtype=BF16, seed=4))
    graph = with_rotated_heads(traced(shared_keys, inputs))
    assert not any(node.op == "stored" and node.inputs[0].op == "stored" for node in graph.nodes())
    plan = plan_kernel(graph, "sm_90a")
    assert patterns(plan)[-1] == "attention"
    check_product(plan, plan.configurations("sm_90a")[0], shared_keys, inputs, tmp_path)
