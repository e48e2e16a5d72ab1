"""Results side by side, as pairs of a rotary embedding: vectors of all lanes, whatever the strides of what is read."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.elementwise.lanes import LanesKernel
from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, exactly, first_kernel, move, normal


def rotated(even, odd, cos, sin):
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def slices(x, cos, sin):
    return rotated(x[..., ::2], x[..., 1::2], cos, sin)


def unbound(x, cos, sin):
    return rotated(*x.unflatten(-1, (-1, 2)).unbind(-1), cos, sin)


def complex_numbers(x, cos, sin):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2)


def every_two(x, cos, sin):
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin


def of_four(x, y):
    return torch.stack((x, y + x, (x > y).float(), x[..., :1] + y), -1)


X = normal(2, 3, 6, 16)
TABLES = normal(6, 8), normal(6, 8, seed=1)
ODD = normal(1, 2, 5, 6), normal(5, 3), normal(5, 3, seed=1)
TURNED = normal(2, 6, 3, 16).transpose(1, 2), *TABLES
APART = normal(2, 3, 6, 32)[..., ::2], *TABLES
CASES = {
    "slices": (slices, [(X, *TABLES), ODD, TURNED, APART, (X[:, :1, :, :2], *(each[:, :1] for each in TABLES))]),
    "unbound": (unbound, [(X, *TABLES), TURNED]),
    "complex_numbers": (complex_numbers, [(X, *TABLES), ODD]),
    "every_two": (every_two, [(X, normal(6, 16), normal(6, 16, seed=1)), (X[..., :10], normal(6, 10), normal(6, 10))]),
    "of_four": (of_four, [(normal(5, 8), normal(5, 8, seed=1)), (normal(3, 7), normal(3, 7, seed=1))]),
    "truths": (lambda x, y: torch.stack((x > y, x < 0), 1), [(normal(9), normal(9, seed=1))]),
    "two_results": (lambda x, y: (torch.stack((x, y), -1), torch.stack((y, -x), -1)), [(normal(3, 4), normal(3, 4))]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_lanes_are_computed_side_by_side(name, tmp_path):
    function, sets = CASES[name]
    plan = plan_kernel(trace_function(function, sets[0]), "sm_90a")
    assert isinstance(plan, ElementwisePlan) and isinstance(plan.kernel, LanesKernel)
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan, tmp_path)
        for given in sets:
            found = as_list(kernel.kernel_fn(*map(move, given)))
            for ours, exact in zip(found, exactly(function, given), strict=True):
                torch.testing.assert_close(ours.cpu(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rotate", [slices, every_two])
def test_a_launch_of_a_chain_has_lanes_too(rotate, tmp_path):
    function = lambda x, w, *tables: rotate(F.rms_norm(x, x.shape[-1:], w, 1e-6), *tables)  # noqa: E731
    width = 16 if rotate is every_two else 8
    tables = [normal(40, width), normal(40, width, seed=1)]
    inputs = [normal(8, 32, 40, 16), normal(16), *tables]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert isinstance(plan.launches[-1].plan.kernel, LanesKernel)
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan, tmp_path)
        for length in (40, 3):
            inputs = [normal(1, 2, length, 16), normal(16), *(each[:length] for each in tables)]
            (exact,) = exactly(function, inputs)
            torch.testing.assert_close(kernel.kernel_fn(*map(move, inputs)).cpu(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_stored_value_may_have_more_dimensions_of_size_1(tmp_path):
    """What a reduction stores keeps its dimension: (1, 40, 16)."""
    function = lambda x: torch.stack((x.amax(0), -x.amax(0)), -1)  # noqa: E731
    inputs = [normal(12, 40, 16)]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert isinstance(plan.launches[-1].plan.kernel, LanesKernel)
    with emulated_device("sm_90a"):
        found = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(found, function(*inputs))


def test_a_slice_of_one_place_is_the_first_in_every_lane(tmp_path):
    """Its own coordinate is 0, whichever lane of the result reads it."""

    def function(x):
        middle = x.mean((1, 2)).median(0).values
        pairs = torch.stack((middle, -middle), -1)
        moved = torch.zeros_like(pairs)
        moved[..., 1::2] = pairs[..., ::2]
        return moved, middle > pairs

    inputs = [normal(4, 8, 1)]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert isinstance(plan.launches[-1].plan.kernel, LanesKernel)
    with emulated_device("sm_90a"):
        found = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs))
    for ours, theirs in zip(found, function(*inputs), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.slow
def test_neighbours_that_lie_a_lane_apart_are_one_tensor():
    kernel = plan_kernel(trace_function(slices, (X, *TABLES)), "sm_90a").kernel
    assert [tensor.name for tensor in kernel.inputs] == ["x_lanes", "cos", "sin"]
    assert kernel.joined == [True, False, False]


@pytest.mark.parametrize("function", [lambda x: x.flip(-1), lambda x: x.roll(1, -1)])
def test_a_last_dimension_that_may_be_longer_has_no_lanes(function):
    kernel = plan_kernel(trace_function(function, (normal(5, 2),)), "sm_90a").kernel
    assert not isinstance(kernel, LanesKernel)
