"""Rows in slices: rotary embeddings of normed heads, gates of normed halves; one launch, whatever the sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.cutting.own_places import with_reductions_in_place
from cutesmith.patterns.cutting.viewed_reductions import with_viewed_reductions
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.rows.plan import RowsPlan
from cutesmith.patterns.rows.slices import in_slices
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, close, emulated_hopper, exactly, first_kernel, load, move, normal


def rotated(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def of_heads(x, w, cos, sin):
    return rotated(F.rms_norm(x, x.shape[-1:], w, 1e-6), cos, sin)


def by_slices(x, w, cos, sin):
    """Qwen3's norm, and the halves as slices."""
    y = x.float()
    y = w * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    half = y.shape[-1] // 2
    return y * cos + torch.cat((-y[..., half:], y[..., :half]), -1) * sin


def about_one(x, w, cos, sin):
    """Gemma 3's norm."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return rotated((y * (1 + w.float())).type_as(x), cos, sin)


def of_half_tables(x, w, cos, sin):
    left, right = F.rms_norm(x, x.shape[-1:], w, 1e-6).chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def of_the_first(x, w, cos, sin):
    y = F.rms_norm(x, x.shape[-1:], w, 1e-6)
    first = cos.shape[-1]
    return torch.cat((rotated(y[..., :first], cos, sin), y[..., first:]), -1)


def gated(x, w):
    gate, value = F.rms_norm(x, x.shape[-1:], w, 1e-6).chunk(2, -1)
    return F.silu(gate) * value


def gated_and_summed(x, w, b):
    gate, value = F.layer_norm(x, x.shape[-1:], w, b).chunk(2, -1)
    return F.gelu(gate) * value, x.sum(-1), x.amax(-1, keepdim=True)


def swapped(x):
    left, right = x.softmax(-1).chunk(2, -1)
    return torch.cat((right, left), -1)


def of_projection(qkv, wq, wk, cos, sin):
    """Heads of queries and keys as slices of one tensor, turned as attention takes them."""
    q, k, _ = qkv.unflatten(-1, (-1, wq.shape[0])).split((3, 2, 2), 2)
    return of_heads(q.transpose(1, 2), wq, cos, sin), of_heads(k.transpose(1, 2), wk, cos, sin)


def heads(*shape, width=None, dtype=torch.float32, seed=0):
    """Heads, a weight, and tables for as many positions."""
    *_, length, columns = shape
    tables = [normal(length, width or columns, dtype=dtype, seed=seed + 1 + at) for at in range(2)]
    return [normal(*shape, dtype=dtype, seed=seed), normal(columns, dtype=dtype, seed=seed + 3), *tables]


BF16, FP16 = torch.bfloat16, torch.float16
TURNED = [normal(2, 6, 3, 16).transpose(1, 2), *heads(2, 3, 6, 16)[1:]]
APART = [normal(2, 3, 6, 40)[..., 4:20], *heads(2, 3, 6, 16)[1:]]


def beside_a_column(x, w):
    """Each row has a weight of its own, which its slices have in common."""
    squared = x.clone()
    squared.chunk(2, 1)[-1].mul_(x.chunk(2, 1)[-1])
    shares = w / (squared.abs() + 1)
    return shares.sin(), shares.amin()


CASES = {
    "of_heads": (of_heads, 2, [heads(2, 3, 6, 16), heads(2, 1, 3, 10), TURNED, APART]),
    "of_heads_bf16": (of_heads, 2, [heads(2, 2, 5, 128, dtype=BF16)]),
    "by_slices_fp16": (by_slices, 2, [heads(2, 3, 6, 16, dtype=FP16), heads(1, 2, 4, 96, dtype=FP16)]),
    "about_one_bf16": (about_one, 2, [heads(2, 3, 6, 16, dtype=BF16)]),
    "of_half_tables": (of_half_tables, 2, [heads(2, 3, 6, 16, width=8), heads(1, 2, 3, 40, width=20)]),
    "of_the_first_half": (of_the_first, 4, [heads(2, 3, 6, 16, width=8), heads(1, 1, 3, 16, width=8)]),
    "of_the_first_quarter": (of_the_first, 8, [heads(2, 3, 6, 16, width=4)]),
    "gated": (gated, 2, [(normal(5, 24), normal(24)), (normal(3, 600), normal(600)), (normal(7, 6), normal(6))]),
    "gated_and_summed": (gated_and_summed, 2, [(normal(5, 24), normal(24), normal(24, seed=1))]),
    "beside_a_column": (beside_a_column, 2, [(normal(32, 64), normal(32, 1)), (normal(5, 6), normal(5, 1))]),
    "swapped": (swapped, 2, [(normal(5, 24) + 1000,), (normal(2, 600),)]),
}


def compare(kernel, function, given):
    for ours, exact in zip(as_list(kernel.kernel_fn(*map(move, given))), exactly(function, given), strict=True):
        close(1e-5, scale=2)(ours.cpu(), exact)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_launch_computes_rows_in_slices(name, tmp_path):
    function, slices, sets = CASES[name]
    plan = plan_kernel(trace_function(function, sets[0]), "sm_90a")
    assert isinstance(plan, RowsPlan) and plan.analysis.slices == slices
    with emulated_hopper():
        kernel = first_kernel(plan, tmp_path)
        for given in sets:
            compare(kernel, function, given)


@pytest.mark.slow
def test_heads_of_a_projection_are_read_where_they_lie(tmp_path):
    inputs = [normal(2, 6, 7 * 16), *(normal(16, seed=1) for _ in range(2)), *heads(6, 16)[2:]]
    plan = plan_kernel(trace_function(of_projection, inputs), "sm_90a")
    assert [launch.plan.analysis.slices for launch in plan.launches] == [2, 2]
    with emulated_hopper():
        kernel = first_kernel(plan, tmp_path)
        compare(kernel, of_projection, inputs)
        compare(kernel, of_projection, [normal(1, 3, 7 * 16, seed=5), *inputs[1:3], *heads(3, 16)[2:]])


# Heads of a norm over all of them


def of_flat_norm(q, w, cos, sin):
    """OLMo 2's heads of 16, normed before there are heads."""
    heads = F.rms_norm(q, q.shape[-1:], w, 1e-6).unflatten(-1, (-1, 16)).transpose(1, 2)
    return rotated(heads, cos, sin)


def scaled_and_turned(q, w, cos, sin):
    scale = 1 / (1 + (q * w).abs().amax(-1, keepdim=True))
    return rotated((q * w * scale).unflatten(-1, (-1, 16)).transpose(1, 2), cos, sin)


def flat(batch, length, *, dtype=torch.float32):
    """Tokens of three heads, a weight of them all, and tables."""
    return [
        normal(batch, length, 48, dtype=dtype),
        normal(48, dtype=dtype, seed=3),
        *heads(length, 16, dtype=dtype)[2:],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "sets"),
    [
        (of_flat_norm, [flat(2, 5), flat(1, 7), flat(3, 3)]),
        (of_flat_norm, [flat(1, 5, dtype=BF16), flat(1, 4, dtype=BF16)]),
        (scaled_and_turned, [flat(2, 5), flat(1, 3)]),
    ],
)
def test_one_launch_norms_tokens_and_turns_their_heads(function, sets, tmp_path):
    plan = plan_kernel(trace_function(function, sets[0]), "sm_90a")
    assert isinstance(plan, RowsPlan) and plan.analysis.slices == 2 and plan.analysis.reduced == (1, 3)
    with emulated_hopper():
        kernel = first_kernel(plan, tmp_path)
        for given in sets:
            compare(kernel, function, given)


@pytest.mark.parametrize(
    "function",
    [
        lambda q: F.rms_norm(q, q.shape[-1:]).view(2, 4, -1, 8),  # heads of 4 tokens, not of one
        lambda q: F.rms_norm(q, q.shape[-1:])[..., :16].unflatten(-1, (-1, 8)).transpose(1, 2),  # a part of the row
        lambda q: F.rms_norm(q, q.shape[-1:]).flip(1).unflatten(-1, (-1, 8)).transpose(1, 2),  # of another row
    ],
)
def test_rows_that_are_seen_otherwise_keep_their_reductions(function):
    graph = trace_function(function, [normal(2, 4, 32)])
    assert with_viewed_reductions(graph) is graph


def scaled_and_summed(x, w, cos, sin, scale):
    y = of_heads(x, w, cos, sin)
    return y * scale[..., None], x.sum(-1), x.amax(-1, keepdim=True)


@pytest.mark.slow
def test_rows_that_share_tables_are_neighbours_whatever_else_they_read_and_return(tmp_path):
    inputs = [*heads(2, 3, 5, 16), normal(2, 3, 5, seed=7)]
    plan = plan_kernel(trace_function(scaled_and_summed, inputs), "sm_90a")
    beside, plain = plan.configurations()[:2]
    assert beside.neighbours and not plain.neighbours
    with emulated_hopper():
        for configuration, order in ((beside, "(2, 0, 1)"), (plain, "(0, 1, 2)")):
            text = plan.render(configuration)
            assert f"KEPT, REDUCED = {order}, (3,)" in text
            for given in (inputs, [TURNED[0][:, :, :5], *inputs[1:]]):
                compare(load(text, tmp_path), scaled_and_summed, given)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [6000, 40000])
def test_long_rows_wait_between_visits(columns, tmp_path):
    plan = plan_kernel(trace_function(of_heads, heads(2, columns)), "sm_90a")
    with emulated_hopper():
        for configuration in plan.configurations()[:3]:
            compare(load(plan.render(configuration), tmp_path), of_heads, heads(2, columns))


@pytest.mark.slow
def test_a_number_that_is_not_finite_goes_through_the_norm_to_both_halves(tmp_path):
    x, *others = heads(4, 16)
    x[1, 3], x[2, 12] = torch.nan, torch.inf
    with emulated_hopper():
        kernel = first_kernel(plan_kernel(trace_function(of_heads, [x, *others]), "sm_90a"), tmp_path)
        compare(kernel, of_heads, [x, *others])


@pytest.mark.slow
def test_a_half_that_is_read_in_place_of_the_other_is_seen(tmp_path):
    plan = plan_kernel(trace_function(of_heads, heads(4, 16)), "sm_90a")
    text = plan.render(plan.configurations()[0])
    wrong = text.replace("m_x[read_row, None, 1]", "m_x[read_row, None, 0]")
    assert wrong != text
    with emulated_hopper(), pytest.raises(AssertionError, match="not close"):
        compare(load(wrong, tmp_path), of_heads, heads(4, 16))


# Sizes


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("of_heads", heads(2, 3, 6, 15), "multiples of 2"),
        ("of_half_tables", heads(2, 3, 6, 16, width=16), "equal sizes|rows of 8 beside 16, not of 16"),
        ("of_the_first_half", heads(2, 3, 6, 16, width=4), "written for"),
        ("gated", [normal(5, 9), normal(9)], "multiples of 2"),
    ],
)
def test_rows_of_other_slices_are_refused(name, given, message, tmp_path):
    function, _, sets = CASES[name]
    with emulated_hopper():
        kernel = first_kernel(plan_kernel(trace_function(function, sets[0]), "sm_90a"), tmp_path)
        with pytest.raises(ValueError, match=message):
            kernel.kernel_fn(*map(move, given))


def of_the_first_eight(x, cos, sin):
    y = F.rms_norm(x, x.shape[-1:])
    return torch.cat((rotated(y[..., :8], cos, sin), y[..., 8:]), -1)


@pytest.mark.slow
def test_a_number_of_channels_that_is_the_same_for_all_sizes_holds_the_row(tmp_path):
    """8 of 16 channels are two of four slices; 8 of 32 are not, and a kernel for both has to have no slices."""
    inputs = [normal(5, 16), normal(5, 8), normal(5, 8, seed=1)]
    graph = trace_function(of_the_first_eight, inputs)
    plan = plan_kernel(graph, "sm_90a")
    assert plan.analysis.slices == 4
    with emulated_hopper(), pytest.raises(ValueError, match="written for"):
        first_kernel(plan, tmp_path).kernel_fn(move(normal(5, 32)), *map(move, inputs[1:]))
    free = plan_kernel(graph, "sm_90a", free_sizes=True)
    assert len(free.launches) == 2
    with emulated_hopper():
        compare(first_kernel(free, tmp_path), of_the_first_eight, [normal(5, 32), *inputs[1:]])


def of_a_product(x, weight, wq, wk, cos, sin):
    """Heads of 16 channels whatever else there is, as a model with a number for them has."""
    q, k, _ = F.linear(x, weight).unflatten(-1, (-1, 16)).split((3, 2, 2), 2)
    return tuple(rotated(F.rms_norm(each.transpose(1, 2), (16,), w), cos, sin) for each, w in ((q, wq), (k, wk)))


@pytest.mark.slow
def test_rows_that_are_as_long_for_all_sizes_have_slices_for_all_sizes(tmp_path):
    others = [normal(112, 24, seed=4), *(normal(16, seed=seed) for seed in (1, 2))]
    inputs = [normal(2, 6, 24), *others, *heads(6, 16)[2:]]
    plan = plan_kernel(trace_function(of_a_product, inputs), "sm_90a", free_sizes=True)
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "rows", "rows"]
    with emulated_hopper():
        kernel = first_kernel(plan, tmp_path)
        for given in (inputs, [normal(1, 3, 24), *others, *heads(3, 16)[2:]]):
            compare(kernel, of_a_product, given)


# What has no slices


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x.softmax(-1).roll(3, -1), [normal(5, 16)]),
        (lambda x: x.softmax(-1).flip(-1), [normal(5, 16)]),
        (lambda x: x.softmax(-1)[..., ::2] * x.softmax(-1)[..., 1::2], [normal(5, 16)]),
        (lambda x: rotated(x - x.argmax(-1, keepdim=True), x, x), [normal(5, 16)]),
        (lambda x: rotated(x - x.mean(0), x, x), [normal(5, 16)]),
        (lambda x: torch.cat((x, x - x.mean(-1, keepdim=True)), -1), [normal(5, 16)]),
        (lambda x: torch.cat((x[..., :1], x.softmax(-1)[..., 1:]), -1), [normal(5, 16)]),
        (lambda x, y: y * x.mean(-1, keepdim=True), [normal(5, 16), normal(5, 8)]),
        (lambda x, y: (x - x.mean(-1, keepdim=True), y.reshape(()) * 2), [normal(5, 16), normal(1)]),
        (lambda x: (torch.cat((x[:, :1], x[:, :4]), -1), x.prod(-1)), [normal(8, 5)]),
        (lambda x: (x.logsumexp(-1), x[:, 1:]), [normal(8, 0)]),
        (lambda x: x.sum(-1, keepdim=True).view(1, 40).tril(), [normal(40, 16)]),
    ],
)
def test_elements_that_meet_others_elsewhere_are_not_slices(function, inputs):
    assert in_slices(trace_function(function, inputs)) is None


def moved_into_the_first(x):
    top = x.max(0).values.abs()
    moved = top.clone()
    moved[..., :1] += moved[..., -1:]
    return x == moved


def test_a_reduction_of_more_dimensions_than_its_readers_have_is_stored():
    graph = with_reductions_in_place(trace_function(moved_into_the_first, [torch.ones(8, 1, 32, 3, dtype=torch.int32)]))
    assert any(node.op == "take" and len(node.inputs[0].shape) > len(node.shape) for node in graph.nodes())
    assert all(
        len(node.shape) >= len(child.shape) for node in graph.nodes() if node.op == "cast" for child in node.inputs
    )
