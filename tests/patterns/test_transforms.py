"""Fourier transforms of lines on the emulated GPU, beside PyTorch's in float64: lengths, forms, what is fused."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.graph.line_lengths import is_taken
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.transforms.plan import TransformsPlan
from cutesmith.patterns.transforms.radices import best_gap, conflicts, stages, ways
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, emulated, load, move, normal

SLOW = pytest.mark.slow
REAL, IMAG = normal(3, 24), normal(3, 24, seed=1)


def rfft(x):
    z = torch.fft.rfft(x)
    return z.real.contiguous(), z.imag.contiguous()


def fft(x, y):
    z = torch.fft.fft(torch.complex(x, y))
    return z.real.contiguous(), z.imag.contiguous()


def relative(ours, exact) -> float:
    """The largest difference, where 1 is the largest number."""
    return float((ours.double() - exact).abs().max() / exact.abs().max())


def check(function, *inputs, arch: str = "sm_90a", kind=TransformsPlan, tmp_path, configuration: int = 0) -> str:
    """The kernel of a function, whose results are as exact as those of PyTorch's own transforms."""
    plan = plan_kernel(trace_function(function, inputs), arch)
    assert kind is None or isinstance(plan, kind), plan
    source = plan.render(plan.configurations(arch)[configuration])
    with emulated(arch):
        outs = as_list(load(source, tmp_path).kernel_fn(*map(move, inputs)))
    exact = as_list(function(*(x.double() for x in inputs)))
    for ours, theirs, wanted in zip(outs, as_list(function(*inputs)), exact, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert relative(ours.cpu(), wanted) < 1e-6
    return source


REAL_LENGTHS = (60, 4, 6, 8, 9, 14, 15, 22, 75, 480, 128, 1000, 1024, 1320, 4096)
COMPLEX_LENGTHS = (243, 2, 3, 13, 49, 60, 81, 512, 1000, 1024)
HALVES = (60, 4, 6, 8, 20, 100, 480, 1024, 2048)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("length", REAL_LENGTHS)
def test_spectra_of_real_lines(length, tmp_path):
    check(rfft, normal(3, length), tmp_path=tmp_path)


@SLOW
@pytest.mark.parametrize("length", COMPLEX_LENGTHS)
def test_spectra_of_complex_lines(length, tmp_path):
    check(fft, normal(3, length), normal(3, length, seed=1), tmp_path=tmp_path)


@SLOW
@pytest.mark.parametrize("length", HALVES)
def test_real_lines_of_half_a_spectrum(length, tmp_path):
    x, y = normal(3, length // 2 + 1), normal(3, length // 2 + 1, seed=1)
    check(lambda x, y: torch.fft.irfft(torch.complex(x, y), n=length), x, y, tmp_path=tmp_path)


@SLOW
@pytest.mark.parametrize("configuration", range(1, 12, 3))
@pytest.mark.parametrize("length", [480, 1024])
def test_every_way_to_cut_a_line(length, configuration, tmp_path):
    check(rfft, normal(5, length), tmp_path=tmp_path, configuration=configuration)


FUSED = {
    "frames": lambda x, y: torch.fft.rfft(x.unfold(-1, 8, 4) * y[0, :8]).abs(),
    "there": lambda x, y: torch.fft.rfft(x).abs(),
    "window": lambda x, y: torch.fft.rfft(x * y[0]).abs(),
    "power": lambda x, y: torch.fft.rfft(x * y[0]).abs().square().log1p(),
    "both halves": lambda x, y: torch.fft.fft(x).real.contiguous(),
    "inverse": lambda x, y: torch.fft.ifft(torch.complex(x, y), norm="ortho").imag.contiguous(),
    "longer": lambda x, y: torch.fft.rfft(x, n=32).abs(),
    "longer, odd": lambda x, y: torch.fft.rfft(x[:, :15] * y[:, :15], n=32).abs(),
    "longer, complex": lambda x, y: torch.fft.fft(torch.complex(x, y), n=40).real.contiguous(),
    "a part": lambda x, y: torch.fft.rfft(x)[:, 3:9].abs(),
    "a part, complex": lambda x, y: torch.fft.fft(torch.complex(x, y))[:, 5:19].imag.contiguous(),
    "a part of a real line": lambda x, y: torch.fft.irfft(torch.complex(x, y)[:, :21], n=40)[:, 7:20] * y[:, :13],
    "shorter": lambda x, y: torch.fft.rfft(x, n=20).abs(),
    "filtered": lambda x, y: torch.fft.irfft(torch.complex(x, y)[:, :21] * torch.complex(y[0], x[0])[:21]),
    "hermitian": lambda x, y: torch.fft.hfft(torch.complex(x, y)[:, :21], norm="ortho"),
    "inverse hermitian": lambda x, y: torch.fft.ihfft(x).imag.contiguous(),
    "strided": lambda x, y: torch.fft.rfft(x[:, ::2]).abs(),
    "odd real half": lambda x, y: torch.fft.irfft(torch.complex(x, y), n=45),
    "halves": lambda x, y: torch.fft.rfft(x.half().float()).abs().half(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUSED)
def test_what_lies_around_a_transform_is_part_of_its_launch(name):
    graph = trace_function(FUSED[name], (REAL, IMAG))
    assert isinstance(plan_kernel(graph, "sm_90a"), TransformsPlan)
    (actual,) = interpret(graph, (REAL, IMAG))
    assert relative(actual, FUSED[name](REAL.double(), IMAG.double())) < (1e-3 if name == "halves" else 1e-6)


@SLOW
@pytest.mark.parametrize("name", [name for name in FUSED if name != "halves"])
def test_fused_kernels(name, tmp_path):
    check(FUSED[name], REAL, IMAG, tmp_path=tmp_path)


@SLOW
def test_lines_with_nan_leave_others_alone_and_blocks_go_along_lines(tmp_path):
    """More lines of 8 numbers than a block has at once, then none, then one."""
    function = lambda x: torch.fft.irfft(torch.fft.rfft(x))  # noqa: E731
    x = normal(150, 8)
    x[3, 2], x[149, 0] = math.nan, math.inf
    plan = plan_kernel(trace_function(function, (x,)), "sm_90a")
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        ours, none, one = (kernel_fn(move(each)).cpu() for each in (x, x[:0], x[1:2]))
    assert none.shape == (0, 8)
    finite = [line for line in range(150) if line not in (3, 149)]
    torch.testing.assert_close(ours[finite], x[finite], rtol=0, atol=1e-6)
    torch.testing.assert_close(one, x[1:2], rtol=0, atol=1e-6)
    assert ours[3].isnan().all() and not ours[149].isfinite().any()


CHAINS = {
    "there and back": (lambda x, y: torch.fft.irfft(torch.fft.rfft(x * y)), 1),
    "two dimensions": (lambda x, y: torch.fft.rfft2(x).abs().contiguous(), 3),
    "convolution": (lambda x, y: torch.fft.irfft(torch.fft.rfft(x, n=48) * torch.fft.rfft(y[0], n=48), n=48), 1),
    "magnitude and phase": (lambda x, y: (torch.fft.rfft(x).abs(), torch.fft.rfft(x).angle()), 1),
    "softmax of a spectrum": (lambda x, y: torch.fft.rfft(x).abs().softmax(-1), 2),
    "pairs": (lambda x, y: torch.view_as_real(torch.fft.fft(torch.complex(x, y)) * y), 1),
    "pairs of a real line": (lambda x, y: torch.view_as_real(torch.fft.rfft(x, norm="ortho")), 1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHAINS)
def test_each_transform_is_one_launch(name):
    function, launches = CHAINS[name]
    plan = plan_kernel(trace_function(function, (REAL, IMAG)), "sm_90a")
    assert len(getattr(plan, "launches", [plan])) == launches


@SLOW
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_transforms(name, tmp_path):
    check(CHAINS[name][0], REAL, IMAG, tmp_path=tmp_path, kind=None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["long", "convolution"])
def test_one_compiled_kernel_serves_all_numbers_of_lines(name, tmp_path):
    """Of two dimensions, which are merged or are not; of more lines than a block has at once, too."""
    function = {"long": lambda x, y: torch.fft.rfft(x, n=32).abs(), "convolution": CHAINS["convolution"][0]}[name]
    x, y = normal(2, 3, 24), normal(3, 24, seed=1)
    plan = plan_kernel(trace_function(function, (x, y)), "sm_90a", free_sizes=True)
    with emulated("sm_90a"):
        module = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path)
        for count in (2, 5, 100):
            other = normal(count, 3, 24, seed=2)
            ours = module.kernel_fn(move(other), move(y)).cpu()
            assert relative(ours, function(other.double(), y.double())) < 1e-6
    assert module.compile_transform.cache_info().misses == 1


@SLOW
@pytest.mark.parametrize("shape", [(3, 1, 24), (1, 5, 24), (1, 1, 24), (24,), (2, 0, 24)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_batches_of_lines(shape, order, tmp_path):
    """Dimensions of one line or none, and dimensions that lie in memory the other way round."""
    function = lambda x, y: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y))  # noqa: E731
    x, y = normal(*shape), normal(24, seed=1)
    if len(shape) > 1:
        x = x.permute(*order, 2).contiguous().permute(*order, 2)
    usual = normal(*(max(2, size) for size in shape))
    plan = plan_kernel(trace_function(function, (usual, y)), "sm_90a", free_sizes=True)
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        ours = kernel_fn(move(x), move(y)).cpu()
    assert ours.shape == x.shape
    assert ours.numel() == 0 or relative(ours, function(x.double(), y.double())) < 1e-6


@SLOW
def test_each_argument_may_be_one_element_past_an_aligned_address(tmp_path):
    """One after the other, in one process: a kernel that was compiled for the first is not called for the second."""
    function = lambda x, y: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y))  # noqa: E731
    lines = normal(4, 24), normal(4, 24, seed=1)
    plan = plan_kernel(trace_function(function, lines), "sm_90a")
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        for moved in range(2):
            past = [move(torch.cat((torch.zeros(1), each.flatten())))[1:].view(4, 24) for each in lines]
            ours = kernel_fn(*(past[at] if at == moved else move(each) for at, each in enumerate(lines))).cpu()
            assert relative(ours, function(*(each.double() for each in lines))) < 1e-6


def of_frames(x, window):
    return torch.log1p(torch.fft.rfft(x.unfold(-1, 512, 128) * window).abs())


MEASURED = {
    "magnitudes": (lambda x: torch.fft.rfft(x).abs(), [(10000, 1024)], 29.1),
    "parts": (rfft, [(10000, 1024)], 28.1),
    "magnitudes of 480": (lambda x: torch.fft.rfft(x).abs(), [(20000, 480)], 27.2),
    "complex": (fft, [(10000, 1024)] * 2, 49.0),
    "complex of 480": (fft, [(20000, 480)] * 2, 45.9),
    "spectrogram": (of_frames, [(16, 160000), (512,)], 24.7),
}
"""Functions, shapes, and what an H200 took in µs (evals/results/h200/patterns/transforms_and_heads.json)."""


@pytest.mark.parametrize("name", MEASURED)
def test_predicted_times_are_near_those_that_were_measured(name):
    function, shapes, measured = MEASURED[name]
    plan = plan_kernel(trace_function(function, [torch.empty(shape) for shape in shapes]), "sm_90a")
    assert H200.seconds(plan) * 1e6 == pytest.approx(measured, rel=0.16)


@SLOW
def test_kernels_for_ampere(tmp_path):
    check(rfft, normal(3, 120), arch="sm_80", tmp_path=tmp_path)


def test_lengths_that_are_not_taken_stay_products():
    for x in (normal(2, 34), normal(2, 24, dtype=torch.float64), normal(2, 1), normal(1, 40000)):
        graph = trace_function(lambda x: torch.fft.rfft(x).abs(), (x,))
        assert not any(node.op == "transform" for node in graph.nodes())


@pytest.mark.parametrize("length", [8, 30, 240, 500, 512, 1001, 4096, 8192])
def test_ways_to_cut_a_line_fit_and_meet_few_conflicts(length):
    assert is_taken(length, is_real=False)
    for radices, threads in ways(length)[:4]:
        assert math.prod(radices) == length
        assert max(stage.radix * stage.rounds(threads) for stage in stages(radices)) <= 16
        gap = best_gap(radices, threads)
        assert conflicts(radices, threads, gap) <= min(2, conflicts(radices, threads, 0))
