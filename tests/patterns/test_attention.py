"""Kernels of attention: what they compute on the emulated GPU, against float64; which functions are one launch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention import hopper
from cutesmith.patterns.attention.band import Offset
from cutesmith.patterns.attention.plan import match, refusals
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import emulated, exactly, load, move, normal, run_on_few, traced

BF16, F16 = torch.bfloat16, torch.float16


def heads(queries=20, keys=20, width=16, value_width=None, heads=(2,), dtype=BF16, kv_heads=None):
    shapes = (heads, queries, width), (kv_heads or heads, keys, width), (kv_heads or heads, keys, value_width or width)
    return tuple(normal(*h, rows, w, dtype=dtype, seed=seed) for seed, (h, rows, w) in enumerate(shapes))


def written_out(q, k, v, *, change=lambda scores, i, j: scores):
    """Attention as a user writes it, with `change` of the scores and their coordinates."""
    i, j = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=k.device)
    scores = change(q.float() @ k.float().mT * q.shape[-1] ** -0.5, i, j)
    return torch.softmax(scores, dim=-1).to(v.dtype) @ v


def windowed(q, k, v, window):
    hidden = lambda i, j: (i - j >= window) | (i < j)  # noqa: E731
    return written_out(q, k, v, change=lambda s, i, j: s.masked_fill(hidden(i, j), -math.inf))


def alibi(q, k, v, slopes):
    bias = lambda i, j: slopes[:, None, None] * (j - i)  # noqa: E731
    return written_out(q, k, v, change=lambda s, i, j: torch.where(j <= i, s + bias(i, j), -math.inf))


def soft_capped(q, k, v):
    return written_out(q, k, v, change=lambda s, i, j: 5 * torch.tanh(s / 5))


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def gated(q, k, v, gate):
    return F.scaled_dot_product_attention(q, k, v) * torch.sigmoid(gate)


SEEN = torch.rand(20, 33, generator=torch.Generator().manual_seed(3)) < 0.5
SEEN[4] = False  # a query that sees no key
CASES = {
    "causal": (causal, heads(70, 90)),
    "boolean_mask": (masked, (*heads(20, 33), SEEN)),
}
SLOW_CASES = {
    "plain": (F.scaled_dot_product_attention, heads()),
    "bias": (lambda q, k, v, b: written_out(q, k, v, change=lambda s, i, j: s + b), (*heads(9, 33), normal(9, 33))),
    "window": (windowed, (*heads(150, 150), 40)),
    "fp16_odd_widths": (written_out, heads(33, 70, 40, 24, dtype=F16)),
    "added_mask": (masked, (*heads(20, 33), normal(2, 20, 33, dtype=BF16))),
    "grouped": (grouped, heads(17, 17, heads=(2, 6), kv_heads=(2, 2))),
    "alibi": (alibi, (*heads(40, 40), torch.tensor([0.5, 0.25]))),
    "soft_cap": (soft_capped, heads(20, 40)),
    "gate": (gated, (*heads(20, 40), normal(2, 20, 16, dtype=BF16, seed=5))),
    "wide": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.1), heads(20, 20, 128)),
    "two_bytes_aligned": (F.scaled_dot_product_attention, heads(9, 9, 18)),
    "one_query": (F.scaled_dot_product_attention, heads(1, 200)),
    "three_batch_dimensions": (causal, heads(9, 9, heads=(2, 1, 3))),
    "transposed_heads": (lambda q, k, v: causal(*(x.transpose(1, 2) for x in (q, k, v))), heads(2, 2, heads=(1, 9))),
}


def check(function, inputs, folder, arch="sm_80", choose=lambda configurations: configurations[0], also=()):
    """The kernel for these inputs computes the function of them, and of `also`."""
    plan = match(traced(function, inputs))
    with emulated_device(arch):
        kernel_fn = load(plan.render(choose(plan.configurations(arch))), folder).kernel_fn
        outs = [kernel_fn(*map(move, given)).cpu() for given in (inputs, *also)]
    for ours, given in zip(outs, (inputs, *also), strict=True):
        (theirs,) = exactly(function, given)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        tolerance = {BF16: 2e-2, F16: 4e-3}[theirs.dtype]
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    check(*CASES[name], tmp_path)


@pytest.mark.slow
def test_tma_reads_single_queries_and_keys(tmp_path):
    """A size of 1 that is known when compiling takes a dimension from the copy, but not from the tensor map."""
    plan, inputs = match(trace_function(written_out, heads(20, 20, 64))), heads(1, 1, 64)
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        found = kernel_fn(*map(move, inputs)).cpu()
        odd = [x.as_strided(x.shape, (x.stride(0), 1, 1)) for x in map(move, inputs)]  # the stride of one row is any
        again = kernel_fn(*odd).cpu()
    torch.testing.assert_close(found, inputs[2], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(again, found, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    check(*SLOW_CASES[name], tmp_path)


def taking_turns(configurations):
    return next(c for c in configurations if c.turns and c.keys == 80)


def without_a_digit_after_the_point(q, k, v):
    """One key has all the weight: an exponent that is off by a rounding of such a score would be Inf, or 0 of 0."""
    return q * 2.0**20, k * 2.0**20, v


def test_results_of_the_hopper_kernel(tmp_path):
    function, inputs = CASES["causal"]
    check(function, inputs, tmp_path, "sm_90a", taking_turns, [without_a_digit_after_the_point(*inputs)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, *SLOW_CASES])
def test_more_results_of_the_hopper_kernel(name, tmp_path):
    check(*{**CASES, **SLOW_CASES}[name], tmp_path, "sm_90a")


HOPPER_FORMS = {
    "rows_of_zeros": (causal, heads(200, 70)),  # later blocks see the keys that there are, the first a part of a tile
    "far_window": (windowed, (*heads(300, 40), 30)),  # the last blocks see no tile of keys at all
    "one_warpgroup": (causal, heads(250, 250)),
    "other_value_width": (causal, heads(70, 90, 32, 64)),
    "half_a_step": (written_out, heads(20, 20, 72, 40, dtype=F16)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOPPER_FORMS)
def test_forms_of_the_hopper_kernel(name, tmp_path):
    count = 1 if name == "one_warpgroup" else 2
    check(*HOPPER_FORMS[name], tmp_path, "sm_90a", lambda found: next(c for c in found if c.warpgroups == count))


FEW = {
    # (problem, multiprocessors): with two or four tiles for each of two matrices
    "tiles_in_turn": (written_out, heads(200, 90), 3),
    "pairs": (causal, heads(500, 500, 64), 2),
    "pairs_beneath_a_mask": (masked, (*heads(200, 33, heads=(2, 2)), torch.rand(200, 33) < 0.5), 3),
    "no_pairs": (causal, heads(300, 300), 2),
    "one_stage_of_queries": (causal, heads(250, 250, 256), 1),
    "stored_by_threads": (gated, (*heads(200, 40), normal(2, 200, 16, dtype=BF16, seed=5)), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_blocks_that_take_several_tiles(name, tmp_path):
    function, inputs, multiprocessors = FEW[name]
    plan = match(trace_function(function, inputs))
    with emulated_device("sm_90a"):
        source = plan.render(next(c for c in plan.configurations("sm_90a") if c.warpgroups == 2))
        ours = run_on_few(source, tmp_path, inputs, multiprocessors)
    (theirs,) = exactly(function, inputs)
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_the_hopper_kernel_is_for_what_tma_reaches():
    def forms(function, inputs, arch="sm_90a"):
        plan = match(trace_function(function, inputs))
        return {type(c).__name__ for c in plan.configurations(arch)}

    assert forms(causal, heads()) == {"HopperAttentionConfiguration"}
    assert forms(causal, heads(), "sm_100a") == forms(causal, heads(width=18)) == {"AttentionConfiguration"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "scales"),
    [
        (lambda s, i, j: s.masked_fill(j > i, -math.inf), True),
        (lambda s, i, j: s + torch.where(j <= i, 0.0, -math.inf), True),
        (lambda s, i, j: s + j, False),
        (lambda s, i, j: -s, False),
        (lambda s, i, j: torch.where(s < 1, s, -math.inf), False),
    ],
)
def test_a_positive_factor_is_left_to_the_exponents(change, scales):
    problem = match(trace_function(lambda q, k, v: written_out(q, k, v, change=change), heads())).problem
    assert (problem.scale is not None) == scales and problem.score_inside.is_identity == scales


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*CASES, *SLOW_CASES])
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = {**CASES, **SLOW_CASES}[name]
    (ours,), (theirs,) = interpret(traced(function, inputs), list(inputs)), exactly(function, inputs)
    torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=2e-2, atol=2e-2)


def in_the_band(q, k, v):
    """The causal mask as a boolean tensor, which PyTorch adds."""
    seen = torch.arange(k.shape[-2], device=q.device) <= torch.arange(q.shape[-2], device=q.device)[:, None]
    return masked(q, k, v, seen)


@pytest.mark.slow
def test_a_score_that_is_no_number_shows_beneath_a_mask_in_memory(tmp_path):
    """As in PyTorch: -inf is added, so that a hidden key of NaN is NaN everywhere."""
    q, k, v = heads(20, 33)
    k[0, 30, 2], k[1, 30, 2], q[1, 4] = math.nan, math.inf, math.nan
    seen = SEEN | (torch.arange(33) == 30) & (torch.arange(20)[:, None] == 7)
    (ours,) = interpret(trace_function(masked, (q, k, v, seen)), [q, k, v, seen])
    (theirs,) = exactly(masked, (q, k, v, seen))
    assert theirs[0].isnan().any() and theirs[1, 4].isnan().all() and theirs.isfinite().any()
    torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=2e-2, atol=2e-2, equal_nan=True)
    check(masked, (q, k, v, seen), tmp_path)


@pytest.mark.slow
def test_a_score_that_is_no_number_is_nothing_outside_a_band(tmp_path):
    """As in PyTorch's fused kernels of causal attention, and in whatever tile the key lies: later tiles are skipped."""
    q, k, v = heads(70, 90)
    k[0, 30], k[1, 65] = math.nan, math.inf
    plan = match(trace_function(in_the_band, (q, k, v)))
    with emulated_device("sm_80"):
        kernel = load(plan.render(plan.configurations("sm_80")[0]), tmp_path)
        out = kernel.kernel_fn(*map(move, (q, k, v))).cpu()
    assert out[0, :30].isfinite().all() and out[0, 30:].isnan().all() and out[1, :65].isfinite().all()


BANDS = {
    "causal": ((), (Offset(0),)),
    "window": ((Offset(1, 3, -1),), (Offset(0),)),
    "boolean_mask": ((), ()),
    "alibi": ((), (Offset(0),)),
    "soft_cap": ((), ()),
}


@pytest.mark.parametrize("name", BANDS)
def test_the_band_of_a_mask(name):
    function, inputs = {**CASES, **SLOW_CASES}[name]
    band = match(traced(function, inputs)).problem.band
    assert (band.lower, band.upper) == BANDS[name]


@pytest.mark.slow
def test_an_added_mask_of_coordinates_costs_what_a_causal_one_does():
    """It selects, is left out inside its band, and the scale is left to the exponents, as beneath a mask in memory."""
    band, causal_one, memory = (
        match(traced(function, inputs)).problem
        for function, inputs in ((in_the_band, heads()), (causal, heads()), CASES["boolean_mask"])
    )
    assert (band.band.lower, band.band.upper) == (causal_one.band.lower, causal_one.band.upper)
    assert band.score.source("score") == causal_one.score.source("score") and band.score_inside.is_identity
    assert band.scale is not None and memory.scale is not None


@pytest.mark.parametrize("scale", [None, 0.125])
def test_a_mask_is_left_out_inside_its_band(scale):
    """Also where the scale is a number that no size explains, as in a trace of one set of sizes."""
    scaled = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)  # noqa: E731
    problem = match(trace_function(scaled, heads())).problem
    assert problem.score.coordinates and problem.scale is not None and problem.score_inside.is_identity


@pytest.mark.slow
def test_a_row_that_sees_nothing_is_nan_in_a_plain_softmax(tmp_path):
    hide_all = lambda q, k, v: written_out(q, k, v, change=lambda s, i, j: s.masked_fill(j >= i, -math.inf))  # noqa: E731
    plan = match(trace_function(hide_all, heads(9, 9)))
    with emulated_device("sm_80"):
        kernel = load(plan.render(plan.configurations("sm_80")[0]), tmp_path)
        out = kernel.kernel_fn(*map(move, heads(9, 9))).cpu()
    assert out[:, 0].isnan().all() and out[:, 1:].isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_scores_that_have_no_digit_after_the_point_give_numbers(arch, tmp_path):
    check(causal, without_a_digit_after_the_point(*heads(9, 40)), tmp_path, arch)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("function", "inputs", "because"),
    [
        (lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, heads(dtype=torch.float32), "multiplies float32"),
        (lambda q, k, v: torch.sigmoid(q @ k.mT) @ v, heads(), "no softmax between two products"),
        (lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v, heads(), "no softmax between two products"),
        (lambda q, k, v: causal(q + 1, k, v), heads(), "computed before the products"),
        (lambda q, k, v: causal(q, k, v), heads(width=17), "does not begin at 4 bytes"),
        (lambda q, k, v: (q.float() @ k.float().mT).softmax(-1) @ v.float(), heads(), "multiplies bfloat16, float32"),
        (lambda q, k, v: causal(q, k, v) > 0, heads(), "leaves as booleans"),
    ],
)
def test_what_is_not_one_launch_says_why(function, inputs, because):
    with pytest.raises(UnmatchedError, match=because):
        match(trace_function(function, inputs))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_heads_that_the_tiles_have_no_room_for_are_refused_before_they_are_compiled(arch, tmp_path):
    """The tiles of 8200 elements would be unrolled for minutes: the judge drew such a size on an H200."""
    plan = match(traced(F.scaled_dot_product_attention, heads(width=64)))
    source = plan.render(plan.configurations(arch)[0])
    q, k, v = heads(width=8200, queries=3, keys=3)
    with emulated(arch), pytest.raises(ValueError, match=r"heads of 8200 and 8200 elements: pass at most \d{3} and"):
        load(source, tmp_path).kernel_fn(*move((q, k, v)))


def test_every_configuration_fits_its_architecture():
    plan = match(trace_function(causal, heads(300, 300, 256)))
    for arch in ("sm_80", "sm_90a", "sm_100a"):
        assert plan.configurations(arch)
        why = hopper.refusals if arch == "sm_90a" else refusals
        assert not any(list(why(plan.problem, c, parse_arch(arch).sm)) for c in plan.configurations(arch))


def one_of_the_keys(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def of_a_cache(queries, keys, q_heads=8, batch=3):
    qkv = heads(queries, keys, heads=(batch, q_heads), kv_heads=(batch, 2))
    return *qkv, normal(batch, 1, 1, keys, seed=5) < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "queries"), [("sm_80", 1), *(pytest.param("sm_90a", n, marks=pytest.mark.slow) for n in (1, 3))]
)
def test_heads_that_share_keys_are_rows_of_a_tile(arch, queries, tmp_path):
    inputs = of_a_cache(queries, 70)
    plan = match(trace_function(one_of_the_keys, inputs))
    assert (plan.problem.queries, plan.problem.batch) == (4, (3, 2, queries))
    with emulated_device(arch):
        kernel = load(plan.render(plan.configurations(arch)[0]), tmp_path)
        for given in (inputs, of_a_cache(queries, 131, q_heads=16, batch=5)):
            (exact,) = exactly(one_of_the_keys, given)
            torch.testing.assert_close(kernel.kernel_fn(*map(move, given)).cpu(), exact, rtol=8e-3, atol=8e-3)
        q, k, v, mask = inputs
        with pytest.raises(ValueError, match=r"written for \(\*, 2, \*, \*\)"):
            kernel.kernel_fn(*map(move, (q, torch.cat((k, k), 1), torch.cat((v, v), 1), mask)))


@pytest.mark.slow
def test_more_queries_than_heads_stay_the_rows():
    plan = match(trace_function(one_of_the_keys, of_a_cache(6, 20)))
    assert (plan.problem.queries, plan.problem.batch) == (6, (3, 2, 4))


@pytest.mark.slow
def test_a_causal_mask_keeps_queries_as_rows():
    plan = match(trace_function(grouped, heads(2, 20, heads=(2, 8), kv_heads=(2, 2))))
    assert plan.problem.queries == 2


def in_parts(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "lengths"), [(1, (1100, 1877, 200)), pytest.param(3, (1024, 124), marks=pytest.mark.slow)]
)
def test_keys_of_few_tiles_are_read_in_parts(queries, lengths, tmp_path):
    function = lambda q, k, v: in_parts(q, k, v).transpose(1, 2).flatten(2)  # noqa: E731
    given = heads(queries, lengths[0], heads=(2, 6), kv_heads=(2, 3), width=32)
    plan = match(trace_function(function, given))
    text = plan.render(plan.configurations("sm_90a")[0])
    assert "combine_kernel" in text
    with emulated("sm_90a"):
        kernel = load(text, tmp_path)
        for keys in lengths:  # 9 steps are 3 parts of 3 and an empty one; 124 keys one part
            inputs = heads(queries, keys, heads=(2, 6), kv_heads=(2, 3), width=32)
            (exact,) = exactly(function, inputs)
            torch.testing.assert_close(kernel.kernel_fn(*map(move, inputs)).cpu(), exact, rtol=8e-3, atol=4e-3)
        q, k, v = given
        k[..., 0], q[..., 0] = -math.inf, 1.0  # every score is -inf: a row that sees no key is zero in parts, too
        assert not kernel.kernel_fn(*map(move, (q, k, v))).cpu().any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["few keys", "many tiles", "a causal mask", "sm_80"])
def test_other_attention_takes_one_launch(case):
    heads_of, keys = (200,) if case == "many tiles" else (2,), 100 if case == "few keys" else 1100
    function = causal if case == "a causal mask" else F.scaled_dot_product_attention
    plan = match(trace_function(lambda q, k, v: function(q, k, v), heads(20, keys, heads=heads_of)))
    arch = "sm_80" if case == "sm_80" else "sm_90a"
    assert "combine_kernel" not in plan.render(plan.configurations(arch)[0])
