"""Lines that are transformed, changed and transformed again in one launch, on the emulated GPU beside float64."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.transforms.plan import TransformsPlan
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, emulated, load, move, normal
from tests.patterns.test_transforms import relative

SLOW = pytest.mark.slow
X, Y, TAPS, SKIP = normal(5, 24), normal(5, 24, seed=1), normal(13, seed=2), normal(5, 1, seed=3)
fft, ifft, rfft, irfft = torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.irfft


def convolution(x, taps, skip):
    """By way of spectra of twice the length, as long convolutions are written."""
    length = 2 * x.shape[-1]
    return irfft(rfft(x, n=length) * rfft(taps, n=length), n=length)[..., : x.shape[-1]] + x * skip


def of_complex(function):
    return lambda x, y: function(torch.complex(x, y), torch.complex(y, x)).imag.contiguous()


FILTERED = {
    "filter": (lambda x, taps: irfft(rfft(x) * taps), X, TAPS),
    "convolution": (convolution, X, Y, SKIP),
    "shared taps": (lambda x, y, s: convolution(x, y[0], s), X, Y, SKIP),
    "numbers of the spectrum": (lambda x: irfft(rfft(x) * torch.arange(13, device=x.device)), X),
    "autocorrelation": (lambda x: irfft(rfft(x).abs() ** 2), X),
    "cross correlation": (lambda x, y: irfft(rfft(x) * rfft(y).conj()), X, Y),
    "whitened": (lambda x, y: irfft(rfft(x) / (rfft(y).abs() + 0.1)), X, Y),
    "functions around": (lambda x, y: irfft(rfft(x.exp() * y)).relu(), X, Y),
    "complex": (of_complex(lambda a, b: ifft(fft(a) * b)), X, Y),
    "pairs": (lambda x, y: torch.view_as_real(ifft(fft(torch.complex(x, y)) * y)), X, Y),
    "two complex": (of_complex(lambda a, b: ifft(fft(a) * fft(b).conj())), X, Y),
    "real as complex": (lambda x, y: ifft(fft(x) * y).real.contiguous(), X, Y),
    "there twice": (of_complex(lambda a, b: fft(fft(a))), X, Y),
    "complex, longer, a part": (of_complex(lambda a, b: ifft(fft(a, n=32) * fft(b, n=32))[:, 3:21]), X, Y),
    "odd": (lambda x, y: irfft(rfft(x[:, :15]) * rfft(y[:, :15]), n=15), X, Y),
    "odd, longer, a part": (lambda x, y: irfft(rfft(x, n=45) * rfft(y[:, :9], n=45), n=45)[:, 4:31] * 2, X, Y),
    "an odd part": (lambda x, y: irfft(rfft(x, n=40) * rfft(y, n=40), n=40)[:, 5:18], X, Y),
    "one odd line": (lambda x, y: irfft(rfft(x[0, :13], n=26) * rfft(y[0, :13], n=26), n=26)[2:15], X, Y),
    "prime": (lambda x, y: irfft(rfft(x[:, :13]) * rfft(y[:, :13]).conj(), n=13), X, Y),
    "two rounds of one thread": (lambda x, y: irfft(rfft(x[:, :4]) * rfft(y[:, :4]), n=4), X, Y),
}


def run(plan, inputs, folder, configuration: int = 0, arch: str = "sm_90a"):
    with emulated(arch):
        kernel_fn = load(plan.render(plan.configurations(arch)[configuration]), folder).kernel_fn
        return as_list(kernel_fn(*map(move, inputs)))


def check(name: str, folder, configuration: int = 0) -> None:
    function, *inputs = FILTERED[name]
    plan = plan_kernel(trace_function(function, tuple(inputs)), "sm_90a")
    assert isinstance(plan, TransformsPlan)
    (ours,), theirs = run(plan, inputs, folder, configuration), function(*(x.double() for x in inputs))
    assert ours.shape == theirs.shape
    assert relative(ours.cpu(), theirs) < 1e-6


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", FILTERED)
def test_what_lies_between_two_transforms_is_part_of_their_launch(name):
    function, *inputs = FILTERED[name]
    graph = trace_function(function, tuple(inputs))
    plan = plan_kernel(graph, "sm_90a")
    assert isinstance(plan, TransformsPlan)
    assert plan.problem.spectra
    (actual,) = interpret(plan.graph, inputs)
    assert relative(actual, function(*(x.double() for x in inputs))) < 1e-6


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", FILTERED)
def test_filtered_lines(name, tmp_path):
    check(name, tmp_path)


@SLOW
@pytest.mark.parametrize("configuration", (1, 3, 6, 9))
@pytest.mark.parametrize("name", ["convolution", "two complex", "odd, longer, a part"])
def test_every_way_to_cut_a_filtered_line(name, configuration, tmp_path):
    check(name, tmp_path, configuration)


@SLOW
def test_a_long_line_of_many_rounds(tmp_path):
    inputs = normal(2, 4096), normal(4096, seed=1), normal(2, 1, seed=2)
    plan = plan_kernel(trace_function(convolution, inputs), "sm_90a")
    (ours,) = run(plan, inputs, tmp_path)
    assert relative(ours.cpu(), convolution(*(x.double() for x in inputs))) < 1e-6


@SLOW
def test_nan_and_inf_stay_in_their_lines_and_nothing_behind_a_line_is_read(tmp_path):
    """More lines than a block has at once, of a tensor whose next numbers are NaN; then none, then one."""
    wide = torch.full((150, 10), math.nan)
    wide[:, :8] = normal(150, 8)
    wide[3, 2], wide[149, 0] = math.nan, math.inf
    x, taps, skip = wide[:, :8], normal(8, seed=1), torch.ones(1, 1)
    plan = plan_kernel(trace_function(convolution, (x, taps, skip)), "sm_90a")
    assert isinstance(plan, TransformsPlan)
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        ours, none, one = (kernel_fn(*map(move, (each, taps, skip))).cpu() for each in (x, x[:0], x[1:2]))
    exact = convolution(x.double(), taps.double(), skip.double())
    assert none.shape == (0, 8)
    finite = [line for line in range(150) if line not in (3, 149)]
    assert relative(ours[finite], exact[finite]) < 1e-6
    assert relative(one, exact[1:2]) < 1e-6
    assert ours[3].isnan().all()
    assert not ours[149].isfinite().any()


def launches(function, *shapes) -> list[str]:
    plan = plan_kernel(trace_function(function, [torch.empty(shape) for shape in shapes]), "sm_90a")
    return [each.plan.pattern for each in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]


@SLOW
def test_taps_of_a_large_batch_are_transformed_once():
    """By a launch of their own where that is predicted to be faster than once more for each line of the batch."""
    assert launches(convolution, (16, 768, 4096), (768, 4096), (768, 1)) == ["transforms"] * 2
    assert launches(convolution, (1, 768, 4096), (768, 4096), (768, 1)) == ["transforms"]


@SLOW
def test_lines_that_no_block_holds_take_launches_of_their_own():
    """Two lines of 8192 complex numbers do not fit, nor do transforms of different lengths."""
    correlation = lambda x, y: irfft(rfft(x) * rfft(y).conj(), n=16384)  # noqa: E731
    assert launches(correlation, (4, 16384), (4, 16384)) == ["transforms"] * 2
    resampled = lambda x: irfft(rfft(x)[:, :13], n=48)  # noqa: E731
    assert "transforms" in launches(resampled, (4, 24))


@SLOW
def test_one_launch_is_predicted_to_take_less_time_than_three():
    graph = trace_function(lambda x, y: irfft(rfft(x) * rfft(y).conj()), (torch.empty(4096, 4096),) * 2)
    plan = plan_kernel(graph, "sm_90a")
    apart = [trace_function(f, (torch.empty(4096, 4096),)) for f in (lambda x: rfft(x).abs(), lambda x: irfft(rfft(x)))]
    assert H200.seconds(plan) < sum(H200.seconds(plan_kernel(each, "sm_90a")) for each in apart)
