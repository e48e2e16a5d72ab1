"""Special functions by series and recurrences, traced, against PyTorch's own in float64."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import emulated, first_kernel

FUNCTIONS = {
    "i0": (torch.special.i0, -30, 30),
    "i0e": (torch.special.i0e, -90, 90),
    "i1": (torch.special.i1, -30, 30),
    "i1e": (torch.special.i1e, -90, 90),
    "erfcx": (torch.special.erfcx, -8, 60),
    "log_ndtr": (torch.special.log_ndtr, -60, 6),
    "polygamma 1": (lambda x: torch.special.polygamma(1, x), 0.02, 60),
    "polygamma 4": (lambda x: torch.special.polygamma(4, x), 0.02, 60),
    "chebyshev t": (lambda x: torch.special.chebyshev_polynomial_t(x, 9), 1, 2),
    "chebyshev u": (lambda x: torch.special.chebyshev_polynomial_u(x, 4), 1, 2),
    "hermite h": (lambda x: torch.special.hermite_polynomial_h(x, 4), 3, 9),
    "hermite he": (lambda x: torch.special.hermite_polynomial_he(x, 4), 3, 9),
    "laguerre": (lambda x: torch.special.laguerre_polynomial_l(x, 3), -9, 0),
    "legendre": (lambda x: torch.special.legendre_polynomial_p(x, 7), 1, 2),
}  # the polynomials where they have no zeros: relative errors are compared


def _traced(function, x):
    return interpret(trace_function(function, [x]), [x])[0]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 6e-6), (torch.float64, 1e-12), (torch.bfloat16, 1e-2)]
)
def test_values_are_those_of_float64(name, dtype, tolerance):
    function, low, high = FUNCTIONS[name]
    x = torch.linspace(low, high, 1999, dtype=torch.float64).to(dtype)
    ours, exact = _traced(function, x), function(x.double())
    assert ours.dtype == dtype
    error = (ours.double() - exact).abs() / exact.abs().clamp(min=1e-30)
    assert float(error.max()) < max(tolerance, 1e-9 if name == "polygamma 1" else 0)  # PyTorch's own is off by 1e-10


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_oscillate_as_in_float64(order):
    function = getattr(torch.special, f"bessel_j{order}")
    x = torch.linspace(-30, 30, 3001)
    assert float((_traced(function, x).double() - function(x.double())).abs().max()) < 1e-6
    with pytest.raises(UnmatchedError, match=f"bessel_j{order}"):
        _traced(function, x.double())  # PyTorch's own is right to 2e-7 only: nothing to be compared with


@pytest.mark.slow
def test_polygamma_is_reflected_at_negative_arguments():
    x = torch.tensor([-0.5, -1.25, -2.75, -3.5, 0.25])
    for order in (1, 2, 3):
        ours, exact = (
            _traced(lambda x, n=order: torch.special.polygamma(n, x), x),
            torch.special.polygamma(order, x.double()),
        )
        assert torch.allclose(ours.double(), exact, rtol=3e-5, atol=1e-4)


@pytest.mark.slow
def test_values_at_the_ends():
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])
    for function in (torch.special.i0e, torch.special.i1e, torch.special.erfcx):
        assert torch.allclose(_traced(function, x), function(x), equal_nan=True)
    assert _traced(lambda x: torch.special.polygamma(2, x), x[:2]).tolist() == [-math.inf, -math.inf]


def test_a_recurrence_of_too_many_steps_is_refused():
    with pytest.raises(UnmatchedError, match="chebyshev_polynomial_t"):
        trace_function(lambda x: torch.special.chebyshev_polynomial_t(x, 5000), [torch.ones(4)])


@pytest.mark.slow
def test_a_kernel_of_several_special_functions(tmp_path):
    def function(x):
        return torch.special.i0(x), torch.special.bessel_j1(x), torch.special.erfcx(x.abs())

    x = torch.linspace(-20, 20, 515)
    kernel = first_kernel(plan_kernel(trace_function(function, [x]), "sm_90a"), tmp_path)
    with emulated("sm_90a"):
        found = [value.cpu() for value in kernel.kernel_fn(x.cuda())]
    for ours, exact in zip(found, function(x.double()), strict=True):
        assert torch.allclose(ours.double(), exact, rtol=3e-6, atol=1e-6)
