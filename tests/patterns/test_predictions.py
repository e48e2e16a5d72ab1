"""Predicted times of products whose epilogues compute much, beside what an H100 took, and what is chosen by them."""

from __future__ import annotations

import json
import statistics
from ast import literal_eval
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.contraction.plan import match as contraction
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.graph.instructions import instructions, more_instructions
from cutesmith.patterns.match import whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function

FULL_SIZE = Path(__file__).parents[2] / "evals/results/kernelbench/full_size"


BATCHES = {1024: 16, 4096: 4, 8192: 4, 16384: 1}
"""By the length of the sequence, as they were timed."""


def attention(width, keys, *, is_causal):
    """The plan of 16 heads."""
    matrix = torch.empty((BATCHES[keys], 16, keys, width), dtype=torch.bfloat16, device="meta")
    return whole_or_cut(
        trace_function(lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=is_causal), [matrix] * 3)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("attention", 1.1), ("causal attention", 1.4)])
def test_attention_beside_what_an_h200_took(name, most):
    recorded = json.loads((FULL_SIZE.parents[1] / "h200/patterns/patterns.json").read_text())["cases"]
    ratios = {}
    for case in (case for case in recorded if case["case"].startswith(f"{name} ")):
        width, keys = (int(number) for number in case["case"].removeprefix(f"{name} ").split(", "))
        took = statistics.median(case["samples"][case["kernels"][0]])
        ratios[width, keys] = took / (H200.seconds(attention(width, keys, is_causal=name != "attention")) * 1e6)
    assert len(ratios) == 8 and all(0.93 < ratio < most for ratio in ratios.values()), ratios


ROWS = {
    "softmax": lambda x, w, t: x.softmax(-1),
    "gelu": lambda x, w, t: F.gelu(x),
    "rmsnorm": lambda x, w, t: F.rms_norm(x, w.shape, w),
    "layernorm": lambda x, w, t: F.layer_norm(x, w.shape, w, w),
    "crossentropy": lambda x, w, t: F.cross_entropy(x, t, reduction="none"),
}


@pytest.mark.slow
def test_rows_of_16_bits_beside_what_an_h200_took():
    """Approximate instructions count as few: with exact ones a softmax was predicted 2.7 times too slow."""
    recorded = json.loads((FULL_SIZE.parents[1] / "h200/speed/speed.json").read_text())["points"]
    ratios = {}
    for point in recorded:
        name, shape = point["point"].split("_")
        rows, columns = map(int, shape.split("x"))
        x = torch.empty((rows, columns), dtype=torch.bfloat16, device="meta")
        plan = whole_or_cut(trace_function(ROWS[name], [x, x[0], torch.empty(rows, dtype=torch.int64, device="meta")]))
        ratios[point["point"]] = point["medians_us"][point["best"]] / (H200.seconds(plan) * 1e6)
    assert len(ratios) == 20 and all(0.9 < ratio < 1.25 for ratio in ratios.values()), ratios


ONE_OF_EACH = {
    **{name: getattr(torch, name) for name in "exp log sqrt sin asin tanh erf sigmoid reciprocal".split()},
    "normcdf": torch.special.ndtr,
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions_beside_what_an_h200_took(dtype):
    """Code for rare numbers is not counted: `sin` of float32 was predicted to take seven times as long as it does."""
    recorded = json.loads((FULL_SIZE.parents[1] / "h200/patterns/functions.json").read_text())["cases"]
    took = {case["case"]: statistics.median(case["samples"][case["kernels"][0]]) for case in recorded}
    ratios = {}
    for name, function in ONE_OF_EACH.items():
        if (named := f"{name} {str(dtype).removeprefix('torch.')}") in took:
            summed = lambda x, of=function: sum((of(x + (0.5 + 0.01 * at)) for at in range(8)), x * 0)  # noqa: E731
            x = torch.empty((4096, 4096), dtype=dtype, device="meta")
            ratios[named] = took[named] / (H200.seconds(whole_or_cut(trace_function(summed, [x]))) * 1e6)
    assert len(ratios) >= 7 and all(0.85 < ratio < 1.1 for ratio in ratios.values()), ratios


@pytest.fixture(autouse=True)
def rounded_convolutions():
    """As PyTorch has it by default, and as the convolutions were timed."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, True
    yield
    torch.backends.cudnn.allow_tf32 = before


def convolved(function, *shapes):
    """The graph of a convolution and a function of its result, of tensors without memory."""
    convolve = F.conv3d if len(shapes[0]) == 5 else F.conv2d
    given = [torch.empty(shape, device="meta") for shape in shapes]
    return trace_function(lambda x, w, b, *more: function(convolve(x, w, b), *more), given)


RECORDED = {
    "2/1 ": (lambda y, b: y.relu() + b, (128, 64, 128, 128), (128, 64, 3, 3), (128,), (128, 1, 1)),
    "2/4 ": (lambda y: F.mish(F.mish(y)), (64, 64, 256, 256), (128, 64, 3, 3), (128,)),
    "2/7 ": (
        lambda y, b: (F.gelu(F.leaky_relu(F.relu(y))).neg().exp() + 1).reciprocal() + b,  # a sigmoid, as it was timed
        (64, 8, 32, 64, 64), (32, 8, 3, 3, 3), (32,), (32, 1, 1, 1),
    ),
    "2/54 ": (lambda y, m: F.gelu(F.leaky_relu(y * m)), (64, 64, 256, 256), (64, 64, 3, 3), (64,), (64, 1, 1)),
    "2/71 ": (lambda y: F.leaky_relu(y / 2), (128, 8, 128, 128), (64, 8, 3, 3), (64,)),
}  # fmt: skip

LATER = {"2/4 "}  # timed since its function is a loop


@pytest.mark.parametrize("name", RECORDED)
def test_a_prediction_for_an_h200_is_near_what_an_h100_took(name):
    """Whose memory is a quarter slower. Without the instructions of epilogues 7 was predicted 2.7 times too fast."""
    file = "level2_compiled_again.json" if name in LATER else "level2_tf32.json"
    cases = json.loads((FULL_SIZE / file).read_text())["cases"]
    (case,) = (case for case in cases if case["case"].startswith(name))
    kernel, *_ = case["kernels"]
    plan = contraction(convolved(*RECORDED[name]))
    predicted = plan.seconds(HopperConfiguration(*literal_eval(kernel)))
    assert 0.8 < statistics.median(case["samples"][kernel]) * 1e-6 / predicted < 1.6


def test_instructions_are_counted():
    def of(function):
        return instructions(trace_function(function, [torch.empty(8)]).nodes(), fast=False)

    assert of(lambda x: x / 3.0) == 1 < of(lambda x: 3.0 / x) and of(torch.relu) <= 2
    assert 80 < of(lambda x: F.mish(F.mish(x))) < 120
    halves = trace_function(torch.exp, [torch.empty(8, dtype=torch.bfloat16)])
    assert instructions(halves.nodes(), fast=True) < instructions(halves.nodes(), fast=False)
    assert more_instructions(trace_function(torch.exp, [torch.empty(8)]), fast=False) == 7 * 8


@pytest.mark.slow
def test_a_long_function_gets_a_launch_of_its_own_where_that_takes_less_time():
    function, image, *_ = RECORDED["2/7 "]
    plan = whole_or_cut(convolved(function, image, (40, 8, 3, 3, 3), (40,), (40, 1, 1, 1)))
    assert isinstance(plan, ChainPlan)
    *_, product, after = (type(each.plan).__name__ for each in plan.launches)  # taps may become channels before them
    assert (product, after) == ("ContractionPlan", "ElementwisePlan")
    for name in ("2/1 ", "2/7 "):  # a tile of 32 columns has few sums
        plan = whole_or_cut(convolved(*RECORDED[name]))
        assert isinstance(plan.launches[-1].plan if isinstance(plan, ChainPlan) else plan, ContractionPlan)
    small = convolved(RECORDED["2/7 "][0], (1, 8, 8, 8, 8), *RECORDED["2/7 "][2:])
    assert isinstance(whole_or_cut(small), ContractionPlan)


@pytest.mark.slow
def test_rows_that_nothing_holds_are_read_by_each_visit():
    """An H200 took 150 µs: x is read three times, the gradient twice."""

    def gradients(x, w, grad):
        return vjp(lambda x, w: F.relu(F.batch_norm(x, None, None, w, w, training=True)), x, w)[1](grad)

    with torch.device("meta"):
        x, w = torch.empty(64, 128, 56, 56), torch.empty(128)
        plan = whole_or_cut(trace_function(gradients, [x, w, x]))
        held = whole_or_cut(trace_function(gradients, [x[:2], w, x[:2]]))
    assert plan.pattern == held.pattern == "rows" and held.repeated_bytes == 0
    assert plan.algorithmic_bytes + plan.repeated_bytes == pytest.approx(6 * 4 * x.numel(), rel=1e-3)
    assert 1.4e-4 < H200.seconds(plan) < 1.6e-4
