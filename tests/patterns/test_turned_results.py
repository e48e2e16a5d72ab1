"""Results of products that are read with heads side by side, or in another order of batches and rows: no copies."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.graph.shapes import common_parts
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import check_product, emulated, exactly, first_kernel, load, move, normal


def side_by_side(q, k):
    """Heads of (batch, heads, rows, columns) as columns of (batch, rows, heads * columns)."""
    y = q @ k
    return y.transpose(1, 2).reshape(*y.shape[::2], y.shape[1] * y.shape[3])


def scaled_and_turned(q, k, bias):
    return torch.relu(q @ k * 0.5 + bias).transpose(0, 1).contiguous()


def stacked(q, k):
    y = torch.tanh(q @ k)
    return y.permute(2, 0, 1, 3).reshape(-1, y.shape[-1] * y.shape[1])


def projected(x, inside, out):
    """Self-attention of float32, which no attention kernel takes."""
    q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in (x @ inside).chunk(3, -1))
    return (torch.softmax(q @ k.mT / 2, -1) @ v).transpose(1, 2).flatten(2) @ out


FORMS = {
    "side_by_side": (side_by_side, (normal(2, 3, 5, 16), normal(2, 3, 16, 8))),
    "turned": (scaled_and_turned, (normal(3, 5, 16), normal(3, 16, 8), normal(8))),
    "stacked": (stacked, (normal(2, 3, 5, 16), normal(2, 3, 16, 8))),
}


def plan_of(function, inputs, arch="sm_90a"):
    return plan_kernel(trace_function(function, inputs), arch)


SLOW = [pytest.param(arch, marks=pytest.mark.slow) for arch in ("sm_80", "sm_100a")]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", *SLOW])
@pytest.mark.parametrize("name", FORMS)
def test_a_result_is_stored_in_the_order_in_which_it_is_returned(name, arch, tmp_path):
    function, inputs = FORMS[name]
    for dtype in (torch.float32, torch.bfloat16):
        given = [each.to(dtype) for each in inputs]
        plan = plan_of(function, given, arch)
        launches = [each.plan for each in plan.launches] if isinstance(plan, ChainPlan) else [plan]
        assert [type(each) for each in launches] == [ContractionPlan]
        check_product(plan, plan.configurations(arch)[0], function, given, tmp_path, arch)


@pytest.mark.slow
def test_other_sizes_are_right_or_refused(tmp_path):
    function, inputs = FORMS["side_by_side"]
    with emulated("sm_90a"):
        kernel_fn = first_kernel(plan_of(function, inputs), tmp_path).kernel_fn
        for sizes in ((1, 3, 9, 20), (4, 2, 1, 4)):
            b, h, m, n = sizes
            given = normal(b, h, m, 16), normal(b, h, 16, n)
            (theirs,) = exactly(function, given)
            torch.testing.assert_close(kernel_fn(*map(move, given)).cpu(), theirs, rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match="multiples of 4 as columns"):
            kernel_fn(*map(move, (normal(2, 3, 5, 16), normal(2, 3, 16, 6))))


def test_lines_that_tma_cannot_write_are_moved_by_a_launch():
    """What it takes to copy six columns is told by the plan, whatever the architecture."""
    plan = whole_or_cut(trace_function(side_by_side, (normal(2, 3, 5, 16), normal(2, 3, 16, 6))))
    assert isinstance(plan, ChainPlan)
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "elementwise"]


@pytest.mark.slow
def test_self_attention_of_float32_takes_four_launches(tmp_path):
    inputs = normal(2, 8, 16), normal(16, 48), normal(16, 16)
    plan = plan_of(projected, inputs)
    patterns = [launch.plan.pattern for launch in plan.launches]
    assert patterns == ["contraction"] * 4  # the softmax is part of the scores' product
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        for x in (inputs[0], -2 * inputs[0], normal(3, 4, 16)):
            (theirs,) = exactly(projected, [x, *inputs[1:]])
            ours = kernel_fn(*map(move, [x, *inputs[1:]])).cpu()
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_result_that_others_read_as_it_is_stays_as_it_is():
    def both(q, k, w):
        y = q @ k
        return y.transpose(1, 2).flatten(2) @ w, y.sum(-1)

    plan = whole_or_cut(trace_function(both, (normal(2, 3, 5, 16), normal(2, 3, 16, 8), normal(24, 8))))
    assert [node.shape for node in plan.launches[0].plan.graph.outputs][0] == (2, 3, 5, 8)


def attended(x, inside, into, out, after, batch_first=True):
    """`torch.nn.MultiheadAttention` of float32 in evaluation, as its module calls it."""
    x = x.transpose(0, 1) if batch_first else x
    ours, _ = torch.nn.functional.multi_head_attention_forward(
        x, x, x, x.shape[-1], 2, inside, into, None, None, False, 0.0, out, after, training=False, need_weights=False
    )
    return ours.transpose(0, 1) if batch_first else ours


WEIGHTS = normal(48, 16), normal(48), normal(16, 16), normal(16)


@pytest.mark.slow
@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_projections_are_read_where_they_lie(batch_first):
    """Heads are merged with the batch, and split from it again: what lies between is a view."""
    function = partial(attended, batch_first=batch_first)
    patterns = [launch.plan.pattern for launch in plan_of(function, (normal(3, 8, 16), *WEIGHTS)).launches]
    turned = ["elementwise"] if batch_first else []  # the rows of the first product
    assert patterns == [*turned, *["contraction"] * 4]


@pytest.mark.slow
def test_a_module_of_attention_computes_itself_for_other_sizes(tmp_path):
    with emulated("sm_90a"):
        kernel_fn = first_kernel(plan_of(attended, (normal(3, 8, 16), *WEIGHTS)), tmp_path).kernel_fn
        for sizes in ((3, 8, 16), (2, 5, 16), (1, 8, 16)):
            given = [normal(*sizes), *WEIGHTS]
            (theirs,) = exactly(attended, given)
            torch.testing.assert_close(kernel_fn(*map(move, given)).cpu(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ((256, 4, 512), (256, 32, 64), [(256,), (4, 8), (64,)]),
        ((4, 3, 5), (12, 5), [(4, 3), (5,)]),
        ((2, 1, 6), (2, 1, 2, 3), [(2,), (1,), (2,), (3,)]),
        ((2, 6), (12,), [(2, 6)]),
        ((6, 4), (8, 3), None),
        ((0, 4), (4, 0), None),
    ],
)
def test_parts_of_merged_dimensions_split_both_shapes(old, new, parts):
    assert common_parts(old, new) == parts
