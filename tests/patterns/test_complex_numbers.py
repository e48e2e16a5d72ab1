"""Functions that compute with complex numbers inside, traced as pairs of real ones, against PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import emulated_hopper, first_kernel, move, normal

X, Y = normal(3, 4, 6), normal(3, 4, 6, seed=1)
NAN, INF = math.nan, math.inf
ODD = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e3, -1e-3, NAN, INF, -INF])
PAIRS = torch.cartesian_prod(ODD, ODD)


def rotary(x, angles):
    """As Llama's: neighbouring numbers of a head are turned by the angle of their place."""
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


def long_convolution(x, taps):
    n = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(taps, n=n), n=n)[..., : x.shape[-1]]


def parts(z):
    return torch.view_as_real(z.resolve_conj()).contiguous()


Z = lambda x, y: torch.complex(x, y)  # noqa: E731
CASES = {
    "add": lambda x, y: parts(Z(x, y) + x),
    "subtract": lambda x, y: parts(torch.sub(Z(x, y), Z(y, x), alpha=2)),
    "multiply": lambda x, y: parts(Z(x, y) * Z(y, x) * 2),
    "imaginary": lambda x, y: parts(Z(x, y) * 1j - (2 + 3j)),
    "divide": lambda x, y: parts(Z(x, y) / Z(y, x.flip(0))),
    "reciprocal": lambda x, y: parts(1 / Z(x, y)),
    "conjugate": lambda x, y: parts(Z(x, y) * Z(y, x).conj()),
    "size and angle": lambda x, y: Z(x, y).abs() + Z(x, y).angle(),
    "parts": lambda x, y: Z(x, y).real * 2 + Z(x, y).imag,
    "exponential": lambda x, y: parts(Z(x, y).exp()),
    "negative": lambda x, y: parts(-Z(x, y)),
    "views": lambda x, y: parts(Z(x, y).transpose(0, 2)[1:4].unsqueeze(1).reshape(3, 12)),
    "broadcast": lambda x, y: parts(Z(x[:, :1], y[:, :1]) + y),
    "joined": lambda x, y: parts(torch.cat([Z(x, y), Z(y, x)], 1).flip(0)),
    "sum": lambda x, y: parts((Z(x, y) * Z(y, y)).sum(1)),
    "product": lambda x, y: parts(Z(x, y) @ Z(y, x).mT),
    "double": lambda x, y: parts(Z(x, y).to(torch.complex128) * 0.1),
    "spectrum": lambda x, y: torch.fft.rfft(x).abs(),
    "along another dimension": lambda x, y: torch.fft.rfft(x, dim=0, norm="ortho").abs().contiguous(),
    "there and back": lambda x, y: torch.fft.ifft(torch.fft.fft(Z(x, y), n=8), norm="forward").real.contiguous(),
    "two dimensions": lambda x, y: parts(torch.fft.fft2(Z(x, y))),
    "odd length": lambda x, y: torch.fft.irfft(torch.fft.rfft(x, n=5) * 2, n=5),
    "real half": lambda x, y: torch.fft.irfft(Z(x, y), n=7),
    "hermitian": lambda x, y: torch.fft.irfft(Z(x, y)),
    "long convolution": long_convolution,
    "rotary": lambda x, y: rotary(x[None], y[0, :3, :3]),
}


def assert_interpreted(function, *inputs):
    expected = function(*inputs)
    (actual,) = interpret(trace_function(function, inputs), inputs)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CASES)
def test_pairs_of_real_numbers_compute_what_complex_ones_do(name):
    assert_interpreted(CASES[name], X, Y)


@pytest.mark.parametrize("name", ["add", "multiply", "conjugate", "negative", "size and angle"])
def test_zeros_infinities_and_nan_are_as_pytorch_has_them(name):
    assert_interpreted(CASES[name], *PAIRS.T.contiguous())


@pytest.mark.slow
def test_the_length_of_a_fourier_transform_is_free():
    graph = trace_function(long_convolution, (normal(2, 12), normal(2, 12, seed=1)))
    assert graph.holds_for_other_sizes


REFUSED = {
    "a complex result": (lambda x: torch.fft.fft(x), "complex64"),
    "in place": (lambda x: torch.view_as_complex(x * 2).mul_(2).abs(), "computes with complex numbers"),
    "no rule": (lambda x: torch.view_as_complex(x * 2).tanh().abs(), "aten.tanh"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name):
    function, message = REFUSED[name]
    with pytest.raises(UnmatchedError, match=message):
        trace_function(function, (normal(4, 2),))


@pytest.mark.slow
def test_a_rotary_embedding_is_one_launch_and_right(tmp_path):
    inputs = normal(2, 5, 3, 8), normal(5, 4, seed=1)
    plan = plan_kernel(trace_function(rotary, inputs), "sm_90a")
    assert plan.pattern == "elementwise"
    with emulated_hopper():
        kernel = first_kernel(plan, tmp_path)
        for x, angles in (inputs, (normal(1, 9, 2, 4), normal(9, 2, seed=1))):
            actual = kernel.kernel_fn(*map(move, (x, angles)))
            torch.testing.assert_close(actual.cpu(), rotary(x, angles), rtol=2e-5, atol=2e-5)
