"""Float8 read, converted and multiplied on the emulated GPU, to the bit as PyTorch converts."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_bytes, as_list, close, exactly, first_kernel, move, normal

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def on_emulator(function, inputs, folder):
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    with emulated_device("sm_90a"):
        outs = as_list(first_kernel(plan, folder).kernel_fn(*map(move, inputs)))
        return [out.cpu() for out in outs]


def same(found, expected):
    """Equal to the bit, but for the sign of NaN."""
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.float().signbit() & ~found.float().isnan(), expected.float().signbit() & ~expected.isnan())


def between(dtype) -> torch.Tensor:
    """Every number of the type, all middles between two, their neighbours in float32, and what lies beyond."""
    numbers = torch.arange(128, dtype=torch.uint8).view(dtype).float()
    numbers = numbers[numbers.isfinite()]
    step = numbers[-1] - numbers[-2]
    middles = torch.cat((numbers[1:] + numbers[:-1], 2 * numbers[-1:] + step)) / 2
    near = [torch.nextafter(middles, torch.tensor(toward)) for toward in (0.0, math.inf)]
    beyond = torch.tensor([2 * float(numbers[-1]), 1e30, math.inf, math.nan, 1e-30])
    half = torch.cat((numbers, middles, *near, beyond))
    return torch.cat((half, -half))


def bits(*shape: int, seed: int = 0) -> torch.Tensor:
    """Float8 numbers of moderate size."""
    return normal(*shape, seed=seed).clamp(-4, 4).to(E4M3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_each_number_is_read_and_each_rounding_is_that_of_pytorch(dtype, tmp_path):
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype)
    (found,) = on_emulator(lambda x: x.float() + 1, (numbers,), tmp_path)
    same(found, numbers.float() + 1)
    values = between(dtype)
    (found,) = on_emulator(lambda x: x.to(dtype).float() * 2, (values,), tmp_path)
    same(found, values.to(dtype).float() * 2)


@pytest.mark.slow
def test_numbers_of_e4m3_are_stored_as_pytorch_rounds_them(tmp_path):
    values = between(E4M3)
    found, doubled = on_emulator(lambda x: (x.to(E4M3), (x.double() * 2).to(E4M3)), (values,), tmp_path)
    same(found, values.to(E4M3))
    same(doubled, (values.double() * 2).to(E4M3))


def test_e5m2_is_not_stored():
    with pytest.raises(UnmatchedError, match="float8_e5m2"):
        trace_function(lambda x: x.to(E5M2), (normal(8),))


def test_an_architecture_that_cannot_convert_float8_is_named():
    graph = trace_function(lambda x, y: x.to(torch.bfloat16) @ y.to(torch.bfloat16), (bits(16, 16), bits(16, 16)))
    with pytest.raises(UnmatchedError, match="float8_e4m3fn at input: sm_80 cannot convert it"):
        plan_kernel(graph, "sm_80")
    assert plan_kernel(graph, "sm_89").configurations("sm_89")


def quantised(x):
    largest = x.float().abs().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(largest)
    scale = torch.where(mantissa > 0, exponent - 8, 0)
    return torch.ldexp(x.float(), -scale).to(E4M3), scale.squeeze(-1)


@pytest.mark.slow
def test_rows_are_quantised_with_a_power_of_two(tmp_path):
    x = normal(5, 64, dtype=torch.bfloat16) * torch.tensor([[1e-30], [0.0], [1.0], [300.0], [1e30]]).bfloat16()
    for found, expected in zip(on_emulator(quantised, (x,), tmp_path), quantised(x), strict=True):
        assert torch.equal(as_bytes(found), as_bytes(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frexp_is_that_of_pytorch(dtype, tmp_path):
    smallest = torch.finfo(dtype).smallest_normal
    x = torch.tensor([0.0, 1.0, -3.5, 0.5, smallest, -smallest / 4, torch.finfo(dtype).max], dtype=dtype)
    for found, expected in zip(on_emulator(torch.frexp, (x,), tmp_path), torch.frexp(x), strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)


PRODUCTS = {
    "one scale": lambda a, b, s, t: ((a.float() @ b.float().t()) * s[0, 0] + t[0]).bfloat16(),
    "scaled rows": lambda a, b, s, t: torch._scaled_mm(a, b.t(), s, t[None], out_dtype=torch.bfloat16),
    "beside bf16": lambda a, b, s, t: (a.float() @ b.bfloat16().float().t()) * s,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_float8_are_exact_products_of_halves(name):
    inputs = bits(32, 64), bits(48, 64, seed=1), normal(32, 1).abs(), normal(48).abs()
    graph = trace_function(PRODUCTS[name], inputs)
    (product,) = [node for node in graph.nodes() if node.op == "contract"]
    assert {side.dtype for side in product.inputs} <= {"float16", "bfloat16"}
    if name == "scaled rows":
        expected = (inputs[0].double() @ inputs[1].double().t() * inputs[2] * inputs[3]).bfloat16()
    else:
        (expected,) = exactly(PRODUCTS[name], inputs)
    close(1e-5)(interpret(graph, inputs)[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_float8_run(name, tmp_path):
    inputs = bits(32, 64), bits(48, 64, seed=1), normal(32, 1).abs(), normal(48).abs()
    (found,) = on_emulator(PRODUCTS[name], inputs, tmp_path)
    close(1e-5)(found, interpret(trace_function(PRODUCTS[name], inputs), inputs)[0])
