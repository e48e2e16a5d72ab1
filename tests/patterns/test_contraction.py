"""Kernels of products: what they compute on the emulated GPU, against float64; which tiles they are tried with."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.legality import refusals
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import as_list, exactly, first_kernel, like, load, move, normal

BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


def computed(function, inputs, folder, *, arch="sm_80", configuration=None):
    """The outputs of the best guess's kernel, or of a configuration's, on the emulated GPU."""
    plan = plan_of(function, *inputs)
    source = plan.render(configuration or plan.configurations(arch)[0])
    with emulated_device(arch):
        return [out.cpu() for out in as_list(load(source, folder).kernel_fn(*map(move, inputs)))]


def integers(*shape, dtype=torch.int64):
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


CASES = {
    "bf16_bias_gelu": (linear_gelu, (normal(70, 40, dtype=BF16), normal(72, 40, dtype=BF16), normal(72, dtype=BF16))),
    "fp32_bias_relu": (lambda x, w, b: F.relu(F.linear(x, w, b)), (normal(33, 40), normal(36, 40), normal(36))),
    "several": (lambda a, b, c: (F.relu(a @ b), (a @ b) * c > 0.5), (normal(5, 6), normal(6, 4), normal(5, 4))),
}
SLOW_CASES = {
    "fp16_odd": (torch.matmul, (normal(37, 41, dtype=F16), normal(41, 53, dtype=F16))),
    "masked": (lambda a, b, mask: (a @ b).masked_fill(mask, 0.5), (normal(9, 8), normal(8, 8), normal(9, 8) > 0)),
    "fp32_batches": (lambda a, b, c: a @ b + c, (normal(2, 3, 9, 20), normal(1, 3, 20, 18), normal(2, 1, 9, 1))),
    "bf16_both_transposed": (torch.matmul, (normal(40, 72, dtype=BF16).t(), normal(56, 40, dtype=BF16).t())),
    "bf16_n_major": (torch.matmul, (normal(72, 40, dtype=BF16), normal(40, 56, dtype=BF16))),
    "fp32_transposed": (torch.matmul, (normal(37, 70).t(), normal(37, 53))),
    "fp64": (torch.matmul, (normal(37, 41, dtype=F64), normal(41, 53, dtype=F64))),
    "int64": (torch.matmul, (integers(17, 41), integers(41, 33))),
    "int8_wraps": (torch.matmul, (integers(17, 41, dtype=torch.int8), integers(41, 33, dtype=torch.int8))),
    "no_k": (lambda a, b: a @ b + 1, (normal(5, 0), normal(0, 4))),
    "one_k": (lambda a, b: a @ b + 1, (normal(5, 1), normal(1, 4))),
    "vector": (torch.mv, (normal(70, 33), normal(33))),
    "dot": (torch.dot, (normal(300), normal(300, seed=1))),
    "coordinates": (lambda a, b: torch.tril(a @ b, -1), (normal(9, 6), normal(6, 9))),
    "number": (lambda a, b, s: (a @ b) * s, (normal(9, 6), normal(6, 9), 2.5)),
    "residual": (lambda a, b: (a @ b).to(BF16) + a, (normal(40, 40, dtype=BF16), normal(40, 40, dtype=BF16))),
    "itself": (lambda a: a @ a + a.t(), (normal(20, 20),)),
    "strided": (torch.matmul, (normal(20, 30)[:, 3:17], normal(14, 60)[:, ::2])),
    "three_dimensions": (linear_gelu, (normal(2, 9, 16), normal(12, 16), normal(12))),
}


def check(function, inputs, folder):
    for ours, theirs in zip(computed(function, inputs, folder), exactly(function, inputs), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        tolerance = {BF16: 1e-2, F16: 2e-3, torch.float32: 3e-6, F64: 1e-13}.get(theirs.dtype, 0)
        size = max(1.0, float(theirs.double().abs().max()))
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * size)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    check(*CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    check(*SLOW_CASES[name], tmp_path)


@pytest.mark.parametrize("shape", [(0, 5, 4), (5, 4, 0)])
def test_an_empty_result_needs_no_launch(shape, tmp_path):
    m, k, n = shape
    with session("sm_80") as recorded:
        kernel_fn = first_kernel(plan_of(torch.matmul, normal(7, 5), normal(5, 6)), tmp_path).kernel_fn
        out = kernel_fn(like(normal(m, k)), like(normal(k, n)))
    assert out.shape == (m, n) and not recorded.launches


@pytest.mark.slow
@pytest.mark.parametrize("k", [8, 300])
def test_float32_is_as_exact_as_pytorch_s(k, tmp_path):
    """Root mean square, against float64; PyTorch's is the CPU's float32 here, which rounds as a GPU does."""
    a, b = normal(33, k), normal(k, 40, seed=1)
    (ours,) = computed(torch.matmul, (a, b), tmp_path)
    exact = a.double() @ b.double()
    errors = [math.sqrt(float(((each.double() - exact) ** 2).mean())) for each in (ours, a @ b)]
    assert errors[0] <= 2 * errors[1]


@pytest.mark.slow
def test_infinities_and_the_largest_numbers_are_float32_s(tmp_path):
    a, b = normal(5, 9), torch.ones(9, 8)
    a[0, 0], a[1, 2], a[2, 3], b[0, 1], b[0, 2] = math.inf, math.nan, 3.4028234e38, -1, 0
    b[3] = 0.5
    (ours,) = computed(torch.matmul, (a, b), tmp_path)
    torch.testing.assert_close(ours, a @ b, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    sizes = ((24, 16, 32), (40, 32, 8), (12, 48, 12))
    with session("sm_90a") as recorded:
        module = first_kernel(plan_of(torch.matmul, normal(24, 16), normal(16, 32)), tmp_path)
        outs = [module.kernel_fn(like(normal(m, k)), like(normal(k, n))) for m, k, n in sizes]
    assert [tuple(out.shape) for out in outs] == [(m, n) for m, _, n in sizes]
    assert (len(recorded.launches), len(recorded.modules)) == (3, 1)


# Configurations


def problem_of(dtype=BF16, m=4096, n=4096, k=4096):
    shapes = (m, k), (k, n)
    return plan_of(torch.matmul, *(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)).problem


GOOD = ContractionConfiguration(128, 128, 32, 2, 2, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"tile_m": 24}, "multiple of 32"),
        ({"tile_k": 8}, "multiple of 16"),
        ({"tile_n": 256}, "do not cover"),
        ({"stages": 16}, "bytes of shared memory"),
        ({"warps_m": 1, "warps_n": 2, "tile_m": 64, "tile_n": 64, "tile_k": 128}, "do not cover the tile's k"),
    ],
)
def test_legality(change, message):
    found = list(refusals(problem_of(), replace(GOOD, **change), parse_arch("sm_80").sm))
    assert any(message in each for each in found) if message else not found


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("dtype", [BF16, torch.float32, F64, torch.int8])
def test_every_architecture_has_a_dozen_tiles_or_so(arch, dtype):
    plan = plan_of(torch.matmul, torch.empty(512, 512, dtype=dtype), torch.empty(512, 512, dtype=dtype))
    assert len(plan.configurations(arch)) >= (4 if dtype in (F64, torch.int8) else 10)


def test_large_products_get_large_tiles_and_small_ones_small_tiles():
    large, small = (
        plan_of(torch.matmul, *(torch.empty(size, size, dtype=BF16, device="meta"),) * 2).configurations("sm_80")[0]
        for size in (4096, 128)
    )
    assert large.tile_m * large.tile_n >= 128 * 128 and small.tile_m * small.tile_n <= 32 * 64


def test_tf32_only_where_it_is_allowed():
    problem = problem_of(torch.float32)
    assert arithmetic_of(problem) is Arithmetic.TF32_THRICE
    assert arithmetic_of(replace(problem, tf32=True)) is Arithmetic.TF32


def test_a_mixture_of_dtypes_is_refused():
    with pytest.raises(UnmatchedError, match="multiplies"):
        arithmetic_of(replace(problem_of(), b=problem_of(F16).b))
