"""Few long rows in launches of their own: which functions are taken, what the launches compute, and the file."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.split_rows import ENOUGH_PARTS, ENOUGH_SIDE_BY_SIDE, FEW_ROWS, LONG_ROW, match
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.row_cases import BF16
from tests.patterns.running import (
    close,
    compare_on_gpu,
    exactly,
    first_kernel,
    interpret_chain,
    like,
    move,
    normal,
    recorded_launches,
)

DIMS = (1, 2, 3)
IMAGES = normal(2, ENOUGH_PARTS // 2, 32, LONG_ROW // (ENOUGH_PARTS // 2) // 32)
SCALE, SHIFT = normal(*IMAGES.shape[1:], seed=1), normal(*IMAGES.shape[1:], seed=2)
GROUPED = normal(1, ENOUGH_PARTS, 16, LONG_ROW // ENOUGH_PARTS // 8)

CHANNELS = normal(512, 16, 8, 8).to(memory_format=torch.channels_last)
ONES = torch.ones(16)


def off_by_mean(x):
    centred = x - x.mean(DIMS, keepdim=True)
    return centred / centred.abs().mean(DIMS, keepdim=True)


def batch_norm_gradients(x, w, grad):
    return vjp(lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)), x, w, w)[1](grad)


OVER_IMAGES = (0, 2, 3)
CASES = {
    "norm": (lambda x: x / torch.norm(x), [IMAGES + 3]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, IMAGES.shape[1:], w, b), [IMAGES + 50, SCALE, SHIFT]),
    "half": (lambda x, w, b: F.layer_norm(x, IMAGES.shape[1:], w, b), [t.to(BF16) for t in (IMAGES, SCALE, SHIFT)]),
    "standardised": (lambda x: (x - x.mean(DIMS, keepdim=True)) / x.std(DIMS, keepdim=True), [IMAGES + 1000]),
    "variance": (lambda x: x.var(DIMS), [IMAGES]),
    "largest": (lambda x: x / x.abs().amax(DIMS, keepdim=True), [IMAGES]),
    "any": (lambda x: x * (x > 4.29).any(DIMS, keepdim=True), [IMAGES]),
    "two rounds": (off_by_mean, [IMAGES + 3]),
    "groups": (lambda x, w: F.group_norm(x, 2, w, w), [GROUPED, normal(ENOUGH_PARTS)]),
    "bias": (lambda x: x.sum(OVER_IMAGES), [CHANNELS]),
    "half bias": (lambda x: x.sum(OVER_IMAGES, keepdim=True), [CHANNELS.to(BF16)]),
    "gradients": (batch_norm_gradients, [CHANNELS + 3, ONES, CHANNELS.flip(0)]),
}


def plan_of(name):
    function, inputs = CASES[name]
    return match(trace_function(function, inputs))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_the_launches_together_are_the_function(name):
    function, inputs = CASES[name]
    for ours, theirs in zip(interpret_chain(plan_of(name), inputs), exactly(function, inputs), strict=True):
        close(1e-4)(ours, theirs)  # what passes between launches is rounded to float32


@pytest.mark.slow
def test_every_launch_has_enough_rows_or_little_to_read():
    for name in ("norm", "layer_norm", "two rounds", "groups"):
        launches = plan_of(name).launches
        rows = {launch.name: launch.plan.tiled_shape().sizes[0] for launch in launches[:-1]}
        assert all(count >= ENOUGH_PARTS for launch, count in rows.items() if launch.startswith("parts")), (name, rows)
        assert launches[-1].plan.pattern == "elementwise"


@pytest.mark.slow
def test_a_mean_and_its_deviations_are_one_round():
    assert [launch.name for launch in plan_of("layer_norm").launches] == ["parts", "wholes", "apply"]
    for name in ("two rounds", "gradients"):
        names = [launch.name for launch in plan_of(name).launches]
        assert names == ["parts", "wholes", "parts_2", "wholes_2", "apply"]


@pytest.mark.parametrize("name", ["variance", "bias", "half bias"])
def test_values_of_rows_are_made_where_parts_are_combined(name):
    assert [launch.name for launch in plan_of(name).launches] == ["parts", "wholes"]


@pytest.mark.slow
def test_channels_that_lie_side_by_side_are_reduced_by_many_blocks(tmp_path):
    plan = plan_of("gradients")
    assert plan.launches[0].plan.blocks >= ENOUGH_SIDE_BY_SIDE
    x, grad = (normal(3, 16, 5, 4, seed=seed).to(memory_format=torch.channels_last) for seed in (1, 2))
    with emulated_device("sm_90a"):
        found = first_kernel(plan, tmp_path).kernel_fn(*map(move, (x, ONES, grad)))
    for ours, exact in zip(found, exactly(batch_norm_gradients, [x, ONES, grad]), strict=True):
        close(1e-5)(ours.cpu(), exact)


def test_parts_are_not_rounded_to_16_bits():
    for launch in plan_of("half").launches[:-1]:
        assert {node.dtype for node in launch.plan.graph.outputs} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm", "layer_norm", "half", "groups"])
def test_three_kernels_in_one_file(name, tmp_path):
    assert recorded_launches(plan_of(name), *CASES[name], tmp_path) == 3


@pytest.mark.slow
def test_other_shapes_are_taken(tmp_path):
    """How many elements were reduced follows the sizes."""
    function = lambda x: (x - x.mean(DIMS, keepdim=True)) / x.std(DIMS, keepdim=True)
    plan = match(trace_function(function, [IMAGES]))
    shorter, laws = normal(3, 5, 7, 6), [law for launch in plan.launches for law in launch.laws]
    assert [law.value([shorter.shape]) for law in laws] == [7 * 6, 5 * 7 * 6 - 1]
    with session("sm_90a") as recorded:
        kernel_fn = first_kernel(plan, tmp_path).kernel_fn
        assert kernel_fn(like(shorter)).shape == shorter.shape
    assert len(recorded.launches) == 3 and not recorded.errors


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 512, 1, 16, 32), (2, 8, 3, 4, 8), (3, 1, 5, 4, 8)])
def test_sizes_of_one_may_be_others_in_another_call(shape, tmp_path):
    function = lambda x: x / torch.linalg.vector_norm(x, dim=(1, 2, 3, 4), keepdim=True)
    plan = match(trace_function(function, [normal(2, 512, 1, 16, 32)]))
    given = normal(*shape, seed=3)
    with emulated_device("sm_90a"):
        out = first_kernel(plan, tmp_path).kernel_fn(move(given)).cpu()
    torch.testing.assert_close(out, function(given))


# What is left to one launch

REFUSED = {
    "short": (lambda x: x / x.sum(DIMS, keepdim=True), normal(2, 8, 8, 8), "many or short"),
    "many": (
        lambda x: x / x.sum(DIMS, keepdim=True),
        torch.empty(FEW_ROWS + 1, 2, 2, LONG_ROW // 4, device="meta"),
        "many or short",
    ),
    "a prime dimension": (lambda x: x.softmax(-1), normal(2, 262147), "does not come in parts"),
    "elementwise": (lambda x: x + 1, IMAGES, "no reduction"),
    "place": (lambda x: x.argmax(), normal(8, LONG_ROW // 8), "parts in several dimensions"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name):
    function, x, message = REFUSED[name]
    with pytest.raises(UnmatchedError, match=message):
        match(trace_function(function, [x]))


@pytest.mark.parametrize(("rows", "pattern"), [(1, "split_rows"), (FEW_ROWS, "split_rows"), (FEW_ROWS + 1, "rows")])
def test_few_long_rows_are_split(rows, pattern):
    x = normal(1).expand(rows, ENOUGH_PARTS, LONG_ROW // ENOUGH_PARTS).contiguous()
    graph = trace_function(lambda x: F.layer_norm(x, x.shape[1:]), [x])
    assert plan_kernel(graph, "sm_90a").pattern == pattern


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_gpu(name, tmp_path):
    function, inputs = CASES[name]
    plan = plan_of(name)
    compare_on_gpu(plan, plan.configurations()[:3], inputs, exactly(function, inputs), tmp_path, close(1e-4))
