"""Transposed convolutions by phases: the graph and its launches against float64, what is chosen, no zero multiplied."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.legality import moved_outputs
from cutesmith.patterns.contraction.hopper.proposals import proposals as hopper_proposals
from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.cutting.phases import with_phases
from cutesmith.patterns.cutting.sharing import with_shared_kernels
from cutesmith.patterns.generation.planning import plan_problem
from cutesmith.patterns.match import AROUND_PRODUCTS, plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.problems.loading import load_file
from tests.patterns.interpret import interpret
from tests.patterns.running import close, emulated_hopper, exactly, load, move, normal


def turned(dims: int, **options):
    function = getattr(F, f"conv_transpose{dims}d")
    return lambda x, w, *b: function(x, w, *b, **options)


def planned(function, inputs):
    return with_shared_kernels(cut(with_phases(trace_function(function, inputs)), AROUND_PRODUCTS))


def drawn(image, weights):
    return normal(*image), normal(*weights, seed=1)


CASES = {
    "even": (turned(2, stride=2, padding=1), (*drawn((2, 4, 5, 6), (4, 3, 4, 4)), normal(3))),
    "more_positions": (
        lambda x, w, b: F.relu(F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)),
        (*drawn((2, 4, 5, 6), (4, 3, 3, 3)), normal(3)),
    ),
    "dilated": (turned(1, stride=3, dilation=2, groups=2), drawn((2, 4, 9), (4, 3, 4))),
    "common_divisor": (turned(2, stride=(4, 2), dilation=(6, 2), padding=(1, 2)), drawn((1, 3, 4, 5), (3, 2, 3, 2))),
    "fewer_taps": (turned(2, stride=5, padding=1, dilation=2), drawn((2, 3, 3, 4), (3, 4, 3, 3))),
    "no_phase_of_a_dimension": (turned(2, stride=(1, 3)), drawn((2, 3, 4, 3), (3, 4, 2, 2))),
    "solid": (
        turned(3, stride=(2, 2, 3), padding=(1, 0, 2), output_padding=(1, 1, 0), groups=2),
        (*drawn((1, 4, 2, 3, 3), (4, 2, 3, 2, 5)), normal(4)),
    ),
    "one_position": (turned(1, stride=4), drawn((2, 3, 1), (3, 2, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = CASES[name]
    graph = with_phases(trace_function(function, inputs))
    assert graph.fixed_shapes and sum(node.op == "contract" for node in graph.nodes()) >= 1
    (ours,), (theirs,) = interpret(graph, list(inputs)), exactly(function, inputs)
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_as_many_products_as_pytorch_sums_up(name):
    """Every product is one of an element and a tap, but those outside of the image at its edges."""
    function, inputs = CASES[name]
    graph = trace_function(function, inputs)
    by_phases = with_phases(graph)
    (one,) = (node for node in graph.nodes() if node.op == "contract")
    x, w = inputs[:2]
    counts = [node for node in by_phases.nodes() if node.op == "contract"]
    edges = math.prod((n + 4 * t) / n for n, t in zip(x.shape[2:], w.shape[2:], strict=True))
    needed = x.numel() * math.prod(w.shape[1:])
    done = sum(math.prod(node.shape) * node.inputs[0].shape[-1] for node in counts)
    assert done <= needed * edges and done < math.prod(one.shape) * one.inputs[0].shape[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch"), [("fewer_taps", "sm_80"), ("common_divisor", "sm_90a"), ("even", "sm_90a")])
def test_results(name, arch, tmp_path):
    function, inputs = CASES[name]
    plan = planned(function, inputs)
    with emulated_device(arch):
        out = load(plan.render(plan.configurations(arch)[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    assert out.shape == function(*inputs).shape
    close(3e-6, of_largest=True)(out, *exactly(function, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_infinite_weight_meets_elements_alone(dtype, tmp_path):
    function, (x, w, b) = CASES["more_positions"]
    w = w.abs()
    w[:2, :, 1] = -math.inf
    inputs = x.abs().to(dtype), w.to(dtype), b.to(dtype)
    plan = planned(function, inputs)
    with emulated_device("sm_90a"):
        ours = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    theirs = function(*inputs)
    assert not theirs.isnan().any()
    torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


def plan_of_sizes(function, image, weights):
    inputs = [torch.empty(*shape, device="meta") for shape in (image, weights)]
    return plan_kernel(trace_function(function, inputs), "sm_90a")


def test_large_ones_go_by_phases_whose_products_are_hopper_s():
    plan = plan_of_sizes(turned(3, stride=2, padding=1, dilation=2), (16, 32, 16, 32, 32), (32, 64, 3, 3, 3))
    assert [launch.plan.pattern for launch in plan.launches] == ["elementwise", "contraction", "interleaving"]
    assert isinstance(plan.launches[1].plan.configurations("sm_90a")[0], HopperConfiguration)


@pytest.mark.slow
def test_an_image_is_copied_once_for_the_products_of_all_phases():
    plan = plan_of_sizes(turned(2, stride=2, padding=1), (128, 64, 128, 128), (64, 64, 3, 3))
    products = [launch for launch in plan.launches if launch.plan.pattern == "contraction"]
    copies = [launch for launch in plan.launches if launch.plan.graph.outputs[0].shape == (128, 128, 128, 64)]
    assert [launch.plan.pattern for launch in copies] == ["elementwise"]
    assert len(products) == 4
    assert all(launch.plan.problem.b.strides[1] == 1 and launch.plan.problem.b.shape[1] == 64 for launch in products)


@pytest.mark.slow
@pytest.mark.parametrize("taps", [3, 4])
def test_results_of_lines_that_tma_stores(taps, tmp_path):
    """Several products of an image with its channels last; one product of the image as it is."""
    function, inputs = turned(2, stride=2, padding=1), drawn((1, 16, 6, 7), (16, 8, taps, taps))
    graph = with_phases(trace_function(function, inputs), for_tma=True)
    assert with_phases(graph, for_tma=True) is graph
    assert all(node.shape[-1] % 4 == 0 for node in graph.nodes() if node.op == "contract")
    plan = with_shared_kernels(cut(graph, AROUND_PRODUCTS))
    with emulated_device("sm_90a"):
        out = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    close(3e-6, of_largest=True)(out, *exactly(function, inputs))


@pytest.mark.slow
def test_windows_beyond_the_image_on_hopper(tmp_path):
    """Lines have places beyond the last position, which see no element."""
    graph = with_phases(
        trace_function(turned(2, stride=2, padding=1), drawn((2, 16, 5, 6), (16, 32, 4, 4))), for_tma=True
    )
    (product,) = (
        launch.plan for launch in cut(graph, AROUND_PRODUCTS).launches if launch.plan.pattern == "contraction"
    )
    hopper = next(c for c in hopper_proposals(product.problem, parse_arch("sm_90a").sm) if not c.joined)
    assert not moved_outputs(product.problem, hopper)
    inputs = [normal(*argument.shape, seed=at) for at, argument in enumerate(product.graph.arguments)]
    with emulated_hopper():
        out = load(product.render(hopper), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    (expected,) = interpret(product.graph, inputs)
    close(2e-3, of_largest=True)(out, expected.float())


PROBLEM = """
import torch

def reference_fn(x, w):
    return torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1)

def get_inputs(size=24):
    return [torch.randn(2, 32, size, size, device="cuda"), torch.randn(32, 32, 4, 4, device="cuda")]
"""
SETS = """
def get_input_sets():
    yield get_inputs(9)
"""


@pytest.mark.parametrize(("more", "fixed"), [("", True), (SETS, False)])
def test_a_problem_of_several_sizes_keeps_the_kernel_that_serves_all(more, fixed, tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM + more)
    plan = plan_problem(load_file(tmp_path / "problem.py"), "sm_90a")
    assert any(launch.plan.graph.fixed_shapes for launch in plan.launches) == fixed


def test_where_no_position_has_a_product_there_are_no_phases():
    """All positions lie between the elements that are moved apart; there was a launch without inputs."""
    function = turned(3, stride=2, padding=1, dilation=2, groups=2)
    inputs = drawn((1, 4, 2, 5, 4), (4, 2, 1, 2, 1))
    assert function(*inputs).shape == (1, 4, 1, 9, 5) and not function(*inputs).any()
    graph = trace_function(function, inputs)
    assert with_phases(graph) is graph


def test_a_convolution_that_does_not_stride_stays_one_product():
    graph = trace_function(turned(2, padding=1), drawn((1, 3, 5, 5), (3, 2, 3, 3)))
    assert with_phases(graph) is graph
