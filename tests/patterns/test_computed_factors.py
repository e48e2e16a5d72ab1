"""Products of few rows and quantised weights, which are read as they lie, on the emulated GPU against float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.contraction.computed import Computed
from cutesmith.patterns.contraction.configurations import SkinnyConfiguration
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.cutting.rewriting import with_computed_factors
from cutesmith.patterns.match import whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import close, emulated, exactly, interpret_chain, load, move, normal

SMALL = SkinnyConfiguration(8, 16, 1, 2, 1)
WIDE = SkinnyConfiguration(16, 32, 2, 2, 2)


def numbers(*shape, low=-128, high=128, dtype=torch.int8, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, dtype=dtype, generator=generator)


def half(*shape, seed=0, dtype=torch.bfloat16):
    return normal(*shape, seed=seed).to(dtype)


def scales(*shape, seed=2, dtype=torch.bfloat16):
    return (half(*shape, seed=seed).float().abs() / 64 + 0.01).to(dtype)


def of_columns(x, w, s):
    return x @ (w.to(x.dtype) * s[:, None]).t()


def of_all(x, w, s, b):
    return F.relu(F.linear(x, w.to(x.dtype) * s, b))


def behind(x, w, s):
    return F.linear(x, w.to(x.dtype)) * s


def of_groups(x, w, s):
    n, k = w.shape
    return F.linear(x, (w.view(n, -1, 64).to(x.dtype) * s[..., None]).view(n, k))


def of_short_groups(x, w, s):
    n, k = w.shape
    return F.linear(x, (w.view(n, -1, 4).to(x.dtype) * s[..., None]).view(n, k))


def of_four_bits(x, w, s, z):
    n = w.shape[0]
    q = torch.stack([w & 0xF, w >> 4], -1).view(n, s.shape[1], -1)
    return F.linear(x, ((q.to(x.dtype) - z[..., None]) * s[..., None]).view(n, -1))


def of_signed_four_bits(x, w, s):
    n = w.shape[0]
    q = torch.stack([w & 0xF, w >> 4], -1).view(n, -1, 32).to(torch.int8) - 8
    return F.linear(x, (q.to(x.dtype) * s[..., None]).view(n, -1))


def of_words(x, w, s):
    n = w.shape[0]
    q = (w[..., None] >> torch.arange(0, 32, 4, device=w.device, dtype=torch.int32)) & 0xF
    return F.linear(x, ((q.view(n, s.shape[1], -1) - 8).to(x.dtype) * s[..., None]).view(n, -1))


BYTES = {"low": 0, "high": 256, "dtype": torch.uint8}
WORDS = {"low": -(2**31), "high": 2**31, "dtype": torch.int32}
FLOAT8 = normal(21, 160, seed=5).to(torch.float8_e4m3fn)
CASES = {
    "columns": (of_columns, (half(5, 160), numbers(21, 160), scales(21))),
    "float16": (of_columns, (half(5, 160, dtype=torch.float16), numbers(21, 160), scales(21, dtype=torch.float16))),
    "float8": (of_all, (half(3, 160), FLOAT8, scales(1), half(21, seed=7))),
    "behind": (behind, (half(1, 256), numbers(37, 256), scales(37))),
    "odd k": (of_columns, (half(9, 75), numbers(21, 75), scales(21))),
    "groups": (of_groups, (half(7, 256), numbers(40, 256), scales(40, 4))),
    "short groups": (of_short_groups, (half(2, 96), numbers(16, 96), scales(16, 24))),
    "four bits": (
        of_four_bits,
        (half(4, 256), numbers(24, 128, **BYTES), scales(24, 4), half(24, 4)),
    ),
    "signed four bits": (of_signed_four_bits, (half(4, 128), numbers(24, 64, **BYTES), scales(24, 4))),
    "words": (of_words, (half(17, 256), numbers(24, 32, **WORDS), scales(24, 2))),
}


def gated(x, w, s, v, t):
    return F.silu(of_columns(x, w, s)) * of_columns(x, v, t)


def computed_plan(function, inputs) -> ContractionPlan:
    plan = whole_or_cut(trace_function(function, inputs))
    assert isinstance(plan, ContractionPlan) and isinstance(plan.problem.b, Computed)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs = CASES[name]
    plan, arch = computed_plan(function, inputs), "sm_80" if name in ("four bits", "odd k") else "sm_90a"
    configuration = WIDE if name in ("float16", "groups", "words") else SMALL
    with emulated(arch):
        out = load(plan.render(configuration), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    assert (out.shape, out.dtype) == (function(*inputs).shape, inputs[0].dtype)
    close(2**-8, of_largest=True)(out, *exactly(function, inputs))


@pytest.mark.slow
def test_weights_whose_bytes_lie_apart_are_loaded_piece_by_piece(tmp_path):
    """Loads of single bytes take one piece of k at a time, whatever the configuration's depth."""
    function, inputs = of_columns, (half(3, 1024), numbers(21, 1024), scales(21))
    plan = computed_plan(function, inputs)
    apart = inputs[0], inputs[1].t().contiguous().t(), inputs[2]
    with emulated("sm_90a"):
        out = load(plan.render(SkinnyConfiguration(8, 16, 1, 2, 4)), tmp_path).kernel_fn(*map(move, apart)).cpu()
    close(2**-8, of_largest=True)(out, *exactly(function, inputs))


@pytest.mark.slow
def test_other_tokens_and_groups_are_served_and_other_sizes_refused(tmp_path):
    function, inputs = CASES["groups"]
    plan = computed_plan(function, inputs)
    others = half(19, 512, seed=4), numbers(33, 512, seed=5), scales(33, 8, seed=6)
    with emulated("sm_90a"):
        kernel = load(plan.render(SMALL), tmp_path).kernel_fn
        out = kernel(*map(move, others)).cpu()
        for wrong in (
            (half(3, 256), numbers(33, 512), scales(33, 8)),
            (half(3, 512), numbers(33, 512), scales(32, 8)),
            (half(3, 512), numbers(33, 512), scales(33, 4)),
        ):
            with pytest.raises(ValueError, match="takes equal sizes"):
                kernel(*map(move, wrong))
    close(2**-8, of_largest=True)(out, *exactly(function, others))


@pytest.mark.slow
def test_scales_of_one_group_and_line_are_those_of_all(tmp_path):
    function, inputs = CASES["short groups"]
    plan = computed_plan(function, inputs)
    one = inputs[0], inputs[1], scales(1, 24)
    with emulated("sm_90a"):
        out = load(plan.render(SMALL), tmp_path).kernel_fn(*map(move, one)).cpu()
    close(2**-8, of_largest=True)(out, *exactly(function, one))


def test_two_products_of_one_factor_each_read_their_weights():
    inputs = half(4, 128), numbers(48, 128), scales(48), numbers(48, 128, seed=3), scales(48, seed=4)
    plan = whole_or_cut(with_computed_factors(trace_function(gated, inputs)))
    expected = exactly(gated, inputs)
    assert [isinstance(launch.plan.problem.b, Computed) for launch in plan.launches] == [True, True]
    torch.testing.assert_close(interpret_chain(plan, inputs), expected, rtol=2**-7, atol=2**-7)


@pytest.mark.slow
def test_few_tokens_read_narrow_weights_and_many_a_copy():
    def launches(tokens: int) -> int:
        inputs = [torch.empty(*shape, dtype=dtype, device="meta") for shape, dtype in weights(tokens)]
        plan = whole_or_cut(trace_function(of_groups, inputs))
        return len(plan.launches) if isinstance(plan, ChainPlan) else 1

    def weights(tokens: int):
        yield (tokens, 4096), torch.bfloat16
        yield (8192, 4096), torch.int8
        yield (8192, 64), torch.bfloat16

    assert [launches(tokens) for tokens in (1, 16, 64, 4096)] == [1, 1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["columns", "float8", "four bits", "words"])
def test_an_infinite_scale_of_a_zero_is_no_number(name, tmp_path):
    function, inputs = CASES[name]
    inputs = tuple(each.clone() for each in inputs)
    inputs[2].view(-1)[:2] = torch.tensor([math.inf, math.nan])[: inputs[2].numel()]
    inputs[1][0] = torch.tensor(1).to(inputs[1].dtype)  # whose high bits are zeros; of one line no weight is
    with emulated("sm_90a"):
        out = load(computed_plan(function, inputs).render(SMALL), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    close(2**-8, of_largest=True)(out, *exactly(function, inputs))
    assert not out.isfinite().all()


@pytest.mark.slow
def test_scales_multiply_sums():
    assert all("mul" not in computed_plan(*CASES[name]).problem.b.source for name in ("columns", "groups", "float8"))
    assert "mul" in computed_plan(*CASES["short groups"]).problem.b.source


@pytest.mark.slow
def test_bytes_become_floats_four_at_once():
    for name, words in (
        ("columns", ["word ^ Uint32(0x80808080)"]),
        ("signed four bits", ["word & Uint32(0x0F0F0F0F)", "word >> 4 & Uint32(0x0F0F0F0F)"]),
    ):
        b = computed_plan(*CASES[name]).problem.b
        assert [each.word for each in b.bytes_of] == words
        assert not b.takes_number


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, s: x @ (w.to(x.dtype) * s[:, None]),  # the weights lie along columns
        lambda x, w, s: F.linear(x, w.to(x.dtype) * w.t().to(x.dtype)),
        lambda x, w, s: F.linear(x, w.to(x.dtype) * torch.arange(64, device=w.device)),
    ],
    ids=["other major", "two orders", "counted"],
)
def test_other_factors_are_not_computed(function):
    inputs = half(4, 64), numbers(64, 64), scales(64)
    plan = whole_or_cut(trace_function(function, inputs))
    kernels = [launch.plan for launch in plan.launches] if isinstance(plan, ChainPlan) else [plan]
    assert not any(isinstance(k.problem.b, Computed) for k in kernels if isinstance(k, ContractionPlan))
