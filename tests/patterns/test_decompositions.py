"""Operations that are decomposed by rules of ours: their graphs, and a kernel of each kind, against PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.generation.drafting import draft_kernels
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, exactly, normal
from tests.patterns.test_scatters import on_emulator

INDICES = torch.tensor([3, 0, 3, 5, 1, 1, 4])
FEW = torch.tensor([2, 0, 3, 1])
HOLES = torch.where(normal(5, 6, seed=3) > 0.8, math.nan, normal(5, 6))
POSITIVE = normal(7, 3, 3) @ normal(7, 3, 3).mT + torch.eye(3)
WINDOW = normal(8, seed=4)


def resized(mode, **options):
    return lambda x: F.interpolate(x, mode=mode, antialias=True, **options)


def in_place_views(x):
    y = (x * 2).transpose_(0, 1)
    y[1:] += 1
    return y.unsqueeze_(0), torch.relu(x).t_()


def spectrum(x, window):
    return torch.stft(x, 8, hop_length=4, window=window, return_complex=True).abs()


def there_and_back(x, window):
    return torch.istft(torch.stft(x, 8, 2, window=window, return_complex=True), 8, 2, window=window)


def sum_of_products(x, a, b):
    return torch.addbmm(x, a, b, beta=0.5, alpha=2)


def triangles(a, b):
    lower = torch.linalg.solve_triangular(a, b, upper=False)
    return lower, torch.linalg.solve_triangular(a, b.mT, upper=True, left=False, unitriangular=True)


def lists(x, y):
    copies = [x.clone(), y.clone()]
    torch._foreach_mul_(copies, [0.5, 2.0])
    return *torch._foreach_add([x, y], copies, alpha=2), *torch._foreach_norm([x, y]), copies[1]


CASES = {
    "linear, smaller": (resized("bilinear", size=(5, 3)), [normal(2, 3, 12, 8)]),
    "linear, larger": (resized("bilinear", scale_factor=1.5), [normal(1, 2, 6, 5)]),
    "linear, corners": (resized("bilinear", size=(4, 9), align_corners=True), [normal(1, 2, 9, 7)]),
    "cubic": (resized("bicubic", scale_factor=0.4), [normal(1, 2, 11, 10)]),
    "cubic, double": (resized("bicubic", size=(3, 14)), [normal(1, 2, 11, 10, dtype=torch.float64)]),
    "counts": (lambda x: torch.bincount(x, minlength=6), [INDICES]),
    "weighted counts": (lambda x, w: torch.bincount(x, w, minlength=9), [INDICES, normal(7)]),
    "masked scatter": (lambda x, y: x.masked_scatter(x > 0.3, y), [normal(4, 5), normal(5, 4, seed=1)]),
    "put": (lambda x, i, y: torch.put(x, i, y, accumulate=True), [normal(2, 3), INDICES, normal(7, seed=1)]),
    "diagonal scatter": (lambda x, y: torch.diagonal_scatter(x, y, 1), [normal(4, 5), normal(4, seed=1)]),
    "some nonzeros": (lambda x: torch.nonzero_static(x > 0.5, size=9, fill_value=-7), [normal(4, 5)]),
    "repeats": (lambda x, n: torch.repeat_interleave(x, n, 0, output_size=6), [normal(4, 5), FEW]),
    "hamming": (lambda x: x * torch.hamming_window(6, device=x.device), [normal(4, 6)]),
    "symmetric": (lambda x: x * torch.hamming_window(6, False, 0.6, 0.3, device=x.device), [normal(4, 6)]),
    "blackman": (lambda x: x * torch.blackman_window(7, device=x.device), [normal(7)]),
    "bartlett": (lambda x: x * torch.bartlett_window(7, periodic=False, device=x.device), [normal(7)]),
    "one element": (lambda x: x * torch.blackman_window(1, periodic=False, device=x.device), [normal(7)]),
    "frequencies": (lambda x: x * torch.fft.fftfreq(7, 0.1, device=x.device), [normal(7)]),
    "real transform of images": (lambda x: torch.fft.rfft2(x, norm="ortho").abs(), [normal(4, 6)]),
    "its inverse": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=(4, 6)), [normal(4, 6)]),
    "frames": (spectrum, [normal(2, 32), WINDOW]),
    "frames and back": (there_and_back, [normal(32), WINDOW.abs() + 0.5]),
    "views in place": (in_place_views, [normal(4, 3)]),
    "lists": (lists, [normal(4, 3), normal(5)]),
    "median of numbers": (lambda x: (torch.nanmedian(x, 1).values, torch.nanmedian(x)), [HOLES]),
    "pairs": (lambda x: F.pdist(x, p=1), [normal(6, 3)]),
    "sum of products": (sum_of_products, [normal(4, 5), normal(3, 4, 6), normal(3, 6, 5)]),
    "divisors": (lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), [torch.arange(-6, 6), torch.arange(12) // 2 * 3 - 9]),
    "log gammas": (lambda x: torch.special.multigammaln(x, 3), [normal(4, 5).abs() + 2]),
    "sign and size": (lambda a: torch.linalg.slogdet(a), [normal(7, 3, 3)]),
    "solved": (lambda a, b: torch.linalg.solve(a, b), [POSITIVE, normal(7, 3, 2)]),
    "solved for vectors": (lambda a, b: torch.linalg.solve(a, b), [POSITIVE, normal(7, 3)]),
    "solved beside an offset": (lambda a, b: torch.linalg.solve(a, b), [POSITIVE + 300, normal(7, 3)]),
    "solved from the right": (lambda a, b: torch.linalg.solve(a, b, left=False), [POSITIVE, normal(7, 2, 3)]),
    "cholesky": (lambda a: (torch.linalg.cholesky(a), torch.linalg.cholesky(a, upper=True)), [POSITIVE]),
    "triangles": (triangles, [POSITIVE, normal(7, 3, 2)]),
    "by a factor": (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)), [POSITIVE, normal(7, 3, 2)]),
}  # fmt: skip


def compare(function, inputs, found):
    for ours, theirs in zip(found, exactly(function, inputs), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5, equal_nan=True)


SLOW = {"linear, smaller", "linear, larger", "linear, corners", "cubic", "cubic, double"}  # to trace


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_graphs_compute_what_pytorch_does(name):
    function, inputs = CASES[name]
    compare(function, inputs, interpret(trace_function(function, inputs), inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cubic", "masked scatter", "some nonzeros", "frames", "divisors", "triangles", "solved beside an offset"]
)
def test_kernels(name, tmp_path):
    function, inputs = CASES[name]
    compare(function, inputs, *on_emulator(function, inputs, (), tmp_path))


@pytest.mark.slow
def test_pixels_that_no_tap_reads_may_be_nan():
    image = normal(1, 1, 12, 12)
    image[..., 0, 0] = math.nan
    function = resized("bilinear", size=(6, 6))
    (found,) = interpret(trace_function(function, [image]), [image])
    assert torch.equal(found.isnan(), function(image).isnan()) and not found.isnan().all()


HARD = torch.tensor(
    [0.0, -0.0, 1, 2, -1, -2, 0.5, 1e-30, -1e-30, -0.9999, 1e10, -123456.5, math.inf, -math.inf, math.nan]
)
FUNCTIONS = {"lgamma": torch.lgamma, "digamma": torch.digamma, "erfinv": torch.erfinv}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions(name, dtype, tmp_path):
    function, x = FUNCTIONS[name], torch.cat((torch.linspace(-20.03, 20, 401), HARD)).to(dtype)
    x = x / 20 if name == "erfinv" else x
    ((found,),) = on_emulator(function, [x], (), tmp_path)
    expected = function(x.double())
    tolerance = 1e-11 if dtype is torch.float64 else 2e-7  # near a pole a last digit is as much
    torch.testing.assert_close(
        found.double(), expected.to(dtype).double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


REFUSED = {
    "counts without a length": (lambda x: torch.bincount(x), [INDICES], "give it minlength"),
    "repeats without a length": (
        lambda x, n: torch.repeat_interleave(x, n, 0),
        [normal(4), FEW],
        "give it output_size",
    ),
    "an argument turned in place": (lambda x: x.transpose_(0, 1), [normal(4, 3)], "changes argument x in place"),
    "larger matrices": (lambda x: torch.linalg.inv(x), [normal(4, 4)], "linalg_inv_ex"),
    "integers resized": (
        resized("bilinear", size=(5, 3)),
        [torch.ones(1, 1, 9, 9, dtype=torch.uint8)],
        "in no pattern",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    function, inputs, message = REFUSED[name]
    with pytest.raises(UnmatchedError, match=message):
        trace_function(function, inputs)


def test_writes_into_views_without_elements_change_nothing():
    def function(x):
        y = x.clone()
        y[1:] = x[:-1]
        y.transpose(0, -1)[3:].sub_(1)
        return y

    x = normal(1, 2, 3).transpose(1, 2)
    (found,) = interpret(trace_function(function, [x]), [x])
    assert torch.equal(as_list(function(x))[0], found)


def test_what_is_taken_for_granted_of_values_is_kept_with_the_graph():
    counts = trace_function(lambda x: torch.bincount(x, minlength=6) + torch.bincount(x, minlength=6), (INDICES,))
    assert len(counts.assumes) == 1 and "less than minlength" in counts.assumes[0]
    assert trace_function(torch.relu, (normal(3),)).assumes == ()


@pytest.mark.slow
def test_the_head_of_a_file_says_what_is_taken_for_granted(tmp_path):
    problem = tmp_path / "counts.py"
    problem.write_text(
        "import torch\ndef reference_fn(x): return torch.bincount(x, minlength=9)\n"
        "def get_inputs(): return [torch.randint(0, 9, (100,), device='cuda')]\n"
    )
    head = draft_kernels(problem, "sm_90a", limit=1).kernels[0].source.split('"""')[1]
    assert "It takes for granted: what `bincount` counts is less than minlength" in " ".join(head.split())
