"""Fourier transforms as products with tables, of long lines in two steps, beside PyTorch's in float64."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.fourier import transform
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import emulated, load, move, normal
from tests.patterns.test_complex_numbers import Z, long_convolution, parts

LENGTHS = (512, 4608, 4100, 4099)
"""One that has one table, two long ones, and a long prime, which has one table."""


def pair(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(2, length, dtype=torch.float64), normal(2, length, dtype=torch.float64, seed=1)


@pytest.mark.parametrize("length", LENGTHS)
def test_two_steps_are_as_exact_as_the_numbers(length):
    x, y = pair(length)
    half = length // 2 + 1
    real, imag = transform((x, None), length, -1, half)
    torch.testing.assert_close(torch.complex(real, imag), torch.fft.rfft(x), rtol=0, atol=1e-10)
    real, imag = transform((x, y), length, -1, length)
    torch.testing.assert_close(torch.complex(real, imag), torch.fft.fft(Z(x, y)), rtol=0, atol=1e-10)
    real, imag = transform((x[:, :half], y[:, :half]), length, 1, length, only_real=True)
    padded = torch.fft.ifft(Z(x, y)[:, :half], n=length, norm="forward")
    torch.testing.assert_close(real, padded.real, rtol=0, atol=1e-10)
    assert imag is None


X, Y = normal(2, 3, 1024), normal(2, 3, 1024, seed=1)
CASES = {
    "real": lambda x, y: torch.fft.rfft(x).abs(),
    "both sides": lambda x, y: torch.fft.fft(x).real.contiguous(),
    "complex": lambda x, y: parts(torch.fft.fft(Z(x, y))),
    "inverse": lambda x, y: parts(torch.fft.ifft(Z(x, y))),
    "norms": lambda x, y: parts(torch.fft.ifft(torch.fft.fft(Z(x, y), norm="ortho"), norm="forward")),
    "there and back": lambda x, y: torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * 2, norm="ortho"),
    "hermitian": lambda x, y: torch.fft.irfft(Z(x, y), n=2048),
    "longer": lambda x, y: torch.fft.rfft(x, n=2048).real.contiguous(),
    "shorter spectrum": lambda x, y: torch.fft.irfft(Z(x, y)[..., :600], n=2048),
    "frames": lambda x, y: torch.fft.rfft(x.unfold(-1, 512, 128) * y[0, 0, :512]).abs(),
    "along another dimension": lambda x, y: torch.fft.rfft(x.movedim(-1, 0), dim=0).abs().contiguous(),
    "two dimensions": lambda x, y: parts(torch.fft.fft2(Z(x, y))),
    "prime": lambda x, y: torch.fft.rfft(x[..., :509]).abs(),
    "one line": lambda x, y: torch.fft.rfft(x[0, 0]).abs(),
    "double": lambda x, y: torch.fft.rfft(x.double()).abs(),
    "long convolution": lambda x, y: long_convolution(x, y[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_long_transforms_compute_what_pytorch_does(name):
    graph = trace_function(CASES[name], (X, Y))
    (actual,) = interpret(graph, (X, Y))
    exact = CASES[name](X.double(), Y.double())
    assert actual.shape == exact.shape
    assert float((actual - exact).abs().max()) < 1e-6 * float(exact.abs().max())


@pytest.mark.parametrize(("length", "most"), [(8192, 4 * 64 * 4 * 128 * 2), (509, 510 * 510)])
def test_tables_of_long_lines_are_those_of_two_short_ones(length, most):
    """A line of 8192 has tables for 64 and 128 numbers; a prime one has a table for all of it."""
    inputs = normal(1, 512), normal(1, length, dtype=torch.float64)
    graph = trace_function(lambda x, y: torch.fft.rfft(y).abs() + x.sum(), inputs)
    factors = [side for node in graph.nodes() if node.op == "contract" for side in node.inputs]
    tables = [side.shape for side in factors if len(side.shape) == 2 and min(side.shape) > 1]
    assert tables and max(map(math.prod, tables)) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "name"), [("sm_90a", "frames"), ("sm_90a", "longer"), ("sm_80", "hermitian")])
def test_kernels_of_long_transforms_in_each_batch(arch, name, tmp_path):
    plan = plan_kernel(trace_function(CASES[name], (X, Y)), arch)
    with emulated(arch):
        kernel = load(plan.render(plan.configurations(arch)[0]), tmp_path)
        actual = kernel.kernel_fn(move(X), move(Y)).cpu()
    exact = CASES[name](X.double(), Y.double())
    for own, other in zip(actual.double().flatten(0, 1), exact.flatten(0, 1), strict=True):
        assert float((own - other).abs().max()) < 2e-6 * float(exact.abs().max())
