"""How exact generated Fourier transforms are: beside PyTorch's own of float32 on the CPU, both against float64."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated, load, move, normal

MOST = 2.0
"""Times the error of PyTorch's own transform."""
OFFSET = 1000.0
LENGTHS = (13, 8, 143, 210, 480, 1001, 1024, 2002, 4096)
"""Of factors 2, 3, 5, 7, 11 and 13."""


def parts(z):
    return z.real.contiguous(), z.imag.contiguous()


FORMS = {
    "forward": lambda x, y: parts(torch.fft.fft(torch.complex(x, y))),
    "inverse": lambda x, y: parts(torch.fft.ifft(torch.complex(x, y))),
    "real": lambda x, y: parts(torch.fft.rfft(x)),
    "real inverse": lambda x, y: torch.fft.irfft(torch.complex(x, y)),
    "there and back": lambda x, y: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]),
}


def errors(found, exact) -> tuple[float, float]:
    """The largest error and the root of the mean square of all, relative to the largest number of each line."""
    found, exact = (torch.stack([each.cpu().double() for each in as_list(values)]) for values in (found, exact))
    largest = exact.square().sum(0).sqrt().amax(-1, keepdim=True)
    relative = (found - exact).abs() / largest
    return float(relative.max()), float(relative.square().mean().sqrt())


@pytest.mark.sampled(45)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("form", FORMS)
def test_errors_are_at_most_twice_those_of_pytorch(form, length, tmp_path):
    """Lines of random numbers, and lines with a large offset: as many that some of either meet bad roundings."""
    function, count = FORMS[form], length // 2 + 1 if form == "real inverse" else length
    lines = max(4, 8192 // length)
    x = torch.cat((normal(lines, count), normal(lines, count, seed=1) + OFFSET))
    y = normal(2 * lines, count, seed=2)
    plan = plan_kernel(trace_function(function, (x, y)), "sm_90a")
    with emulated("sm_90a"):
        ours = as_list(load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn(move(x), move(y)))
    exact, theirs = (as_list(function(*values)) for values in ((x.double(), y.double()), (x, y)))
    for rows in (slice(lines), slice(lines, None)):
        mine, others = (
            errors([part[rows] for part in found], [part[rows] for part in exact]) for found in (ours, theirs)
        )
        assert all(own <= MOST * other for own, other in zip(mine, others, strict=True)), (mine, others)
