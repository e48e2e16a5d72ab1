"""float32 convolutions whose factors are rounded to tf32, where PyTorch's flag for cuDNN allows it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from cutesmith.judge.reference_side.comparison import compare
from cutesmith.judge.reference_side.known_results import KnownResults
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Load
from cutesmith.judge.reference_side.rounded_factors import TF32, rounded_factors, unmeasured_factors
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.judge.transfer.requests import Start
from cutesmith.problems.precision_flags import convolutions_may_round, without_tf32
from cutesmith.verdicts import Precision
from tests.judge.in_process import said_of

CUDNN = torch.backends.cudnn


@pytest.fixture(autouse=True)
def flags():
    """cuDNN's as they are by default, whatever a problem sets."""
    CUDNN.allow_tf32 = True
    yield
    CUDNN.allow_tf32 = True


def to_bits(x, bits):
    """To so many significant bits, ties away from zero; of 24 bits x itself."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).to(x.dtype)


def weights(*shape):
    """Weights of 17 bits, the same in every call and in each float type."""
    numbers = torch.arange(1, math.prod(shape) + 1)
    return ((numbers * 40503 + numbers * numbers * 977) % 131071 - 65535).view(shape) / 65536


def by_bits(convolution, *shape, bits, **named):
    """A convolution of x with such weights, as a GPU computes it with factors of so many bits."""
    return lambda x: convolution(to_bits(x, bits), to_bits(weights(*shape), bits), **named)


FORMS = {
    "conv1d": (functional.conv1d, (2, 6, 400), (8, 6, 5), {"padding": 2}),
    "conv2d": (functional.conv2d, (2, 6, 30, 31), (8, 6, 3, 3), {"padding": 1}),
    "strided": (functional.conv2d, (2, 6, 60, 61), (8, 6, 3, 3), {"stride": 2}),
    "dilated": (functional.conv2d, (2, 6, 33, 31), (8, 6, 3, 3), {"dilation": 2, "padding": "same"}),
    "points": (functional.conv2d, (2, 40, 30, 31), (8, 40, 1, 1), {}),
    "groups": (functional.conv2d, (2, 6, 30, 31), (8, 3, 3, 3), {"groups": 2}),
    "conv3d": (functional.conv3d, (2, 6, 9, 10, 11), (8, 6, 3, 3, 3), {"padding": 1}),
    "one image": (functional.conv2d, (6, 40, 41), (8, 6, 3, 3), {}),
    "transposed": (functional.conv_transpose2d, (2, 6, 20, 21), (6, 8, 3, 3), {"stride": 2, "output_padding": 1}),
    "transposed 3d": (functional.conv_transpose3d, (1, 6, 7, 8, 9), (6, 8, 3, 3, 3), {"padding": 1}),
}


class Problem:
    """A problem on the CPU whose function is `function(x)`; `before` are lines of its file."""

    def __init__(self, folder, function, before=""):
        path = folder / "problem.py"
        text = "def reference_fn(x): return x\ndef get_inputs(): return [torch.ones(64)]\n"
        path.write_text(f"import torch\n{before}\n{text}")
        self.folder, self.reference = folder, Reference()
        self.reference.start(Start("cpu"))
        self.reference.load(Load("cpu", str(path), 1))
        self.reference.known = KnownResults(function)

    def says(self, x, output, **asked):
        return said_of(self.reference, self.folder, x, output, **asked)


def convolution_of(form):
    convolution, image, weight, named = FORMS[form]

    def function(x):
        return convolution(x, weights(*weight).to(x), **named)

    return function, image, {bits: by_bits(convolution, *weight, bits=bits, **named) for bits in (24, 11, 10, 8)}


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("form", FORMS)
def test_tf32_passes_and_coarser_factors_do_not(tmp_path, form):
    torch.manual_seed(0)
    function, image, kernels = convolution_of(form)
    x, problem = torch.randn(image), Problem(tmp_path, function)
    exact, tf32, ten, bf16 = (problem.says(x, kernels[bits](x)) for bits in (24, 11, 10, 8))
    assert exact.violation is None and not exact.rounded
    assert tf32.violation is None and tf32.rounded and "tf32 in its convolutions moves it by" in tf32.note
    assert ten.violation and bf16.violation and not bf16.rounded
    assert problem.says(x, kernels[11](x), precision=Precision.FLOAT32).violation


def test_an_element_beside_the_knee_of_a_relu_may_be_off_though_all_around_it_are_zero(tmp_path):
    """Where 64 neighbours are 0 in four draws, none of them said what such an element may be off by."""
    torch.manual_seed(0)
    weight, x = weights(2, 6, 3, 3), torch.randn(1, 6, 32, 32)
    below = torch.full((1, 2, 30, 30), -40.0)
    below[0, 0] = 1.0
    below[0, 1, 20, 20] = -functional.conv2d(x.double(), weight.double())[0, 1, 20, 20] - 2e-4

    def function(x):
        return functional.relu(functional.conv2d(x, weight.to(x)) + below.to(x))

    output, problem = function(x), Problem(tmp_path, function)
    assert not output[0, 1].any()
    for far, right in ((4e-4, True), (4e-2, False)):
        output[0, 1, 20, 20] = far
        assert (problem.says(x, output).violation is None) == right
    output[0, 1, 20, 20], output[0, 1, 4, 4] = 0, 4e-4
    assert problem.says(x, output).violation


def faulty(fault):
    """A convolution in tf32 with a fault in its weights."""
    weight = weights(8, 6, 3, 3)
    if fault == "a wrong tap":
        weight[3, 2, 1, 1] = weight[3, 2, 1, 2]
    elif fault == "a lost channel":
        weight[:, 5] = 0
    elif fault == "turned taps":
        weight = weight.flip(-1)
    return lambda x: functional.conv2d(to_bits(x, 11), to_bits(weight, 11), padding=1)


@pytest.mark.parametrize("fault", ["", "a wrong tap", "a lost channel", "turned taps"])
def test_other_faults_are_found_as_before(tmp_path, fault):
    torch.manual_seed(1)
    function, image, _ = convolution_of("conv2d")
    x = torch.randn(image)
    assert bool(Problem(tmp_path, function).says(x, faulty(fault)(x)).violation) is bool(fault)


FLAG_OFF = ("torch.backends.cudnn.allow_tf32 = False", "torch.backends.cudnn.enabled = False")


@pytest.mark.parametrize("before", FLAG_OFF)
def test_where_the_file_says_no_it_is_judged_by_float32(tmp_path, before, monkeypatch):
    monkeypatch.setattr(CUDNN, "enabled", True)
    torch.manual_seed(2)
    function, image, kernels = convolution_of("conv2d")
    x, problem = torch.randn(image), Problem(tmp_path, function, before)
    assert problem.says(x, kernels[24](x)).violation is None
    assert problem.says(x, kernels[11](x)).violation is not None


def test_a_function_may_say_no_for_one_of_its_convolutions(tmp_path):
    def function(x):
        with CUDNN.flags(enabled=True, allow_tf32=False):
            first = functional.conv2d(x, weights(8, 6, 3, 3).to(x))
        return first, functional.conv2d(x, weights(8, 6, 3, 3).to(x), padding=1)

    x = torch.randn(2, 6, 9, 9)
    seen = rounded_factors(function, [x], in_float64(function, [x]))
    assert seen[0] is None and seen[1] is not None


def linear(x, bits):
    return to_bits(x, bits) @ to_bits(weights(48, 8), bits).t().to(x)


def test_products_that_no_flag_covers_are_judged_by_float32(tmp_path):
    torch.manual_seed(3)
    x = torch.randn(2, 30, 31, 8)
    plain = Problem(tmp_path, lambda x: linear(x, 52))
    assert plain.says(x, linear(x, 24)).violation is None
    assert plain.says(x, linear(x, 11)).violation is not None


@pytest.mark.parametrize("rounds", [(11, 24), (11, 11)])
def test_a_product_after_a_convolution_may_not_round(tmp_path, rounds):
    torch.manual_seed(4)
    function, image, kernels = convolution_of("conv2d")
    x = torch.randn(image)
    problem = Problem(tmp_path, lambda x: linear(function(x).permute(0, 2, 3, 1), 52))
    output = linear(kernels[rounds[0]](x).permute(0, 2, 3, 1), rounds[1])
    assert (problem.says(x, output).violation is None) is (rounds[1] == 24)


def test_depthwise_convolutions_are_pytorchs_own_and_not_cudnns(tmp_path):
    torch.manual_seed(5)
    x = torch.randn(2, 8, 30, 31)
    problem = Problem(tmp_path, lambda x: functional.conv2d(x, weights(8, 1, 3, 3).to(x), groups=8))
    ours = [functional.conv2d(to_bits(x, b), to_bits(weights(8, 1, 3, 3), b), groups=8) for b in (24, 11)]
    assert [bool(problem.says(x, output).violation) for output in ours] == [False, True]


def network(x, bits, folded=False):
    """Four convolutions with norms between them; `folded`: each kernel has the scale of the norm in its weights."""
    for depth, channels in enumerate((6, 16, 16, 16)):
        weight = weights(16, channels, 3, 3).roll(depth).to(x) / 6
        scale = (1 + weights(16).abs()).view(-1, 1, 1, 1).to(x)
        weight = to_bits(weight * scale, bits) if folded else to_bits(weight, bits)
        x = functional.conv2d(to_bits(x, bits), weight, padding=1)
        x = (x if folded else x * scale.view(-1, 1, 1)) + 0.1
        x = functional.leaky_relu(x) if depth % 2 else functional.relu(x)
    return x


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "end", [lambda y: y, lambda y: functional.group_norm(y, 4), lambda y: y.mean((2, 3)).softmax(1)]
)
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("bits", [11, 8])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_roundings_are_carried_through_networks(tmp_path, end, folded, bits, seed):
    torch.manual_seed(seed)
    x, problem = torch.randn(3, 6, 24, 25), Problem(tmp_path, lambda x: end(network(x, 52)))
    assert (problem.says(x, end(network(x, bits, folded))).violation is None) is (bits == 11)


@pytest.mark.slow
def test_places_that_tf32_moves_may_be_others(tmp_path):
    torch.manual_seed(7)
    function, _, kernels = convolution_of("conv2d")
    x, problem = torch.randn(12, 6, 40, 41), Problem(tmp_path, lambda x: function(x).argmax(1))
    assert not torch.equal(kernels[11](x).argmax(1), kernels[24](x).argmax(1)), "some differ"
    said = [problem.says(x, kernels[bits](x).argmax(1)).violation for bits in (24, 11, 8)]
    assert [bool(violation) for violation in said] == [False, False, True]


SPECIAL = {
    "one value": lambda x: torch.full_like(x, 0.7),
    "powers of two": lambda x: torch.exp2(x.round()),
    "offset": lambda x: x + 1000,
    "tiny": lambda x: x * 1e-30,
    "large": lambda x: x * 1e30,
    "zeros": torch.zeros_like,
    "NaN": lambda x: x.masked_fill(x > 3, math.nan),
    "Inf": lambda x: x.masked_fill(x > 3, math.inf),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ["conv2d", "transposed", "conv1d"])
@pytest.mark.parametrize("values", SPECIAL)
def test_tf32_passes_on_derived_draws(tmp_path, form, values):
    torch.manual_seed(8)
    function, image, kernels = convolution_of(form)
    x = SPECIAL[values](torch.randn(image))
    for end in (functional.relu, functional.instance_norm):
        if end is functional.instance_norm and values == "large":
            continue  # its squares leave float32
        problem = Problem(tmp_path, lambda x, end=end: end(function(x)))
        said = problem.says(x, end(kernels[11](x)), derived=True)
        assert said.violation is None, said.violation.text


def test_a_stated_tolerance_stands_beside_what_tf32_costs(tmp_path):
    """KernelBench states 1e-4 and compares with PyTorch on a GPU, whose convolutions are of tf32."""
    torch.manual_seed(9)
    function, image, kernels = convolution_of("conv2d")
    x, problem = torch.randn(image), Problem(tmp_path, function)
    assert problem.says(x, kernels[11](x), rtol=1e-4, atol=1e-4).violation is None
    assert all(problem.says(x, kernels[bits](x), rtol=1e-4, atol=1e-4).violation for bits in (10, 8))
    assert problem.says(x, kernels[11](x), rtol=1e-4, atol=1e-4, precision=Precision.FLOAT32).violation


@pytest.mark.sampled(15)
@pytest.mark.parametrize("stated", [{}, {"rtol": 1e-4, "atol": 1e-4}])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_a_reference_that_rounds_itself_excuses_no_more(tmp_path, form, stated):
    """As on a GPU: PyTorch's own result is taken without tf32, and its error is not allowed once more."""
    torch.manual_seed(13)
    convolution, image, weight, named = FORMS[form]

    def on_a_gpu(x):
        bits = 11 if x.dtype == torch.float32 and convolutions_may_round() else 52
        return convolution(to_bits(x, bits), to_bits(weights(*weight), bits).to(x), **named)

    _, _, kernels = convolution_of(form)
    x, problem = torch.randn(image), Problem(tmp_path, on_a_gpu)
    said = [problem.says(x, kernels[bits](x), **stated).violation for bits in (24, 11, 10, 8)]
    assert [bool(violation) for violation in said] == [False, False, True, True]
    assert convolutions_may_round(), "the flag is as before"


def test_without_memory_to_measure_it_tf32_passes_and_bfloat16_does_not(tmp_path):
    torch.manual_seed(14)
    function, _, kernels = convolution_of("conv2d")
    x = torch.randn(12, 6, 64, 65)
    native, exact = function(x), in_float64(function, [x])
    (rounded,) = unmeasured_factors(function, [x], [exact])
    allowed = replace(tolerance_for(torch.float32, None, None), rounded=rounded)
    said = [compare(0, kernels[bits](x), native, exact, allowed).violation for bits in (24, 11, 8)]
    assert [bool(violation) for violation in said] == [False, False, True]
    with CUDNN.flags(enabled=True, allow_tf32=False):
        assert unmeasured_factors(function, [x], [exact]) == [None]


def test_only_convolutions_of_float32_are_seen():
    x = torch.randn(1, 4, 9, 9)
    halves = lambda x: functional.conv2d(x.bfloat16(), weights(4, 4, 3, 3).bfloat16().to(x.bfloat16())).float()  # noqa: E731
    assert rounded_factors(halves, [x], [halves(x).double()]) == [None]
    assert rounded_factors(torch.relu, [x], [x.relu().double()]) == [None]


def test_numbers_of_eleven_bits_stay():
    torch.manual_seed(10)
    x = torch.cat([torch.randn(1000), torch.tensor([0.0, -0.0, 1e-38, 3e38, 1 + 2.0**-10])]).double()
    assert torch.equal(TF32.nearest(TF32.nearest(x)), TF32.nearest(x)) and torch.equal(
        TF32.nearest(x)[1000:1003].float()[0:2], x[1000:1002].float()
    )
    assert torch.equal(TF32.nearest(x)[:1000], to_bits(x[:1000], 11))
    assert TF32.nearest(torch.tensor(1 + 2.0**-11).double()) == 1, "ties go to the even one"


@pytest.mark.parametrize("apart", [False, True])
def test_flags_are_as_before_afterwards(apart):
    if apart:
        if not hasattr(CUDNN, "conv"):
            pytest.skip("this release of torch has one flag only")
        CUDNN.rnn.fp32_precision = "ieee"
    try:
        assert convolutions_may_round()
        with without_tf32():
            assert not convolutions_may_round()
        assert convolutions_may_round()
    finally:
        if apart:
            CUDNN.rnn.fp32_precision = CUDNN.conv.fp32_precision


def test_tf32_passes_where_products_of_zeros_decide_about_nan(tmp_path):
    """Every result is NaN with the products of zeros around the image, which PyTorch multiplies in float64."""
    torch.manual_seed(11)
    image, taps = torch.randn(2, 6, 8, 8), torch.randn(6, 1, 3, 3)
    taps[2, 0, 0, 0] = math.nan

    def function(taps, bits=52):
        seen = functional.conv2d(image.to(taps), taps, padding=1, groups=6)
        return functional.conv2d(to_bits(seen, bits), to_bits(weights(8, 6, 1, 1).to(taps), bits))

    problem = Problem(tmp_path, function)
    assert in_float64(function, [taps]).isnan().all() and function(taps).isfinite().any()
    said = [problem.says(taps, function(taps, bits), derived=True).violation for bits in (24, 11, 8)]
    assert [bool(violation) for violation in said] == [False, False, True]


def test_sums_at_the_largest_number_may_overflow_by_tf32(tmp_path):
    largest = torch.finfo(torch.float32).max
    x = torch.full((1, 1, 9, 9), largest * (1 - 2.0**-12))
    problem = Problem(tmp_path, lambda x: functional.conv2d(x, torch.ones(1, 1, 1, 1).to(x) * (1 + 2.0**-13)))
    for output, right in ((torch.inf, True), (largest, True), (largest / 2, False), (-torch.inf, False)):
        assert (problem.says(x, torch.full_like(x, output), derived=True).violation is None) is right
