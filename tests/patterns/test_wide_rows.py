"""Rows that wait in the shared memory of a cluster: when they do, and what they come to."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.rows.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.row_cases import BF16, layer_norm
from tests.patterns.running import first_kernel, like, move, normal


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


WIDE = {
    "softmax": (lambda x: x.softmax(-1), [normal(2, 50001)], 4),
    "even": (lambda x: x.log_softmax(-1), [normal(1, 65536)], 4),
    "layer_norm": (layer_norm, [normal(1, 50002) + 100, normal(50002, seed=1), normal(50002, seed=2)], 4),
    "two tensors": (lambda x, y: (x + y).softmax(-1), [normal(1, 25600), normal(1, 25600, seed=1)], 2),
    "largest": (lambda x: x / x.abs().amax(-1, keepdim=True), [normal(1, 131072, dtype=BF16)], 8),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_a_cluster_keeps_a_wide_row_in_its_shared_memory(name, tmp_path):
    """Each block keeps a part; warps combine in a block first, then the blocks."""
    function, inputs, cluster = WIDE[name]
    plan = plan_of(function, *inputs)
    with emulated_device("sm_90a"):
        module = first_kernel(plan, tmp_path)
        out = module.kernel_fn(*map(move, inputs)).cpu()
    columns = inputs[0].shape[-1]
    planned = module.plan_rows(columns, math.gcd(columns, 16 // inputs[0].element_size()))
    assert (planned.shared, planned.cluster) == (True, cluster) and planned.warps > 1
    assert planned.kept * planned.vector * module.KEPT_BYTES <= module.SHARED_BYTES
    expected = function(*(value.double() for value in inputs)).to(out.dtype)
    tolerance = {BF16: 1e-2, torch.float32: 1e-4 if name == "layer_norm" else 5e-6}[out.dtype]
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_a_row_that_does_not_fit_its_cluster_is_read_again(tmp_path):
    """Columns that are odd are read one by one, and the blocks' parts are rounded up to more than there is room for."""
    x = normal(1, 399_999)
    plan = plan_of(lambda x: x.softmax(-1), x)
    with emulated_device("sm_90a"):
        module = first_kernel(plan, tmp_path)
        out = module.kernel_fn(move(x)).cpu()
    planned = module.plan_rows(399_999, 1)
    assert (planned.cluster, planned.shared) == (8, False)
    torch.testing.assert_close(out, x.double().softmax(-1).float(), rtol=1e-5, atol=1e-9)


def test_rows_that_l2_or_a_block_holds_take_no_cluster():
    for columns in (32768, 100_000, 1 << 20):
        first = plan_of(
            lambda x: x.softmax(-1), normal(1, dtype=BF16).expand(2, columns).contiguous()
        ).configurations()[0]
        assert first.max_cluster == 1, columns


def test_weights_of_a_norm_do_not_wait_in_shared_memory():
    """25 088 numbers a group: two blocks of an SM hold a group each, and are as many threads as it has room for."""
    images, weight = torch.empty(1, 256, 56, 56), torch.empty(256)
    plan = plan_of(lambda x, w, b: F.group_norm(x, 32, w, b), images, weight, weight)
    first, *_ = plan.configurations()
    assert (first.max_cluster, first.max_threads) == (1, 1024)
    assert 2 * (25_088 * 4 + 2048) < 2 * first.shared_bytes < 228 << 10
    narrow = plan_of(lambda x: x.softmax(-1), torch.empty(2, 32768, dtype=BF16)).configurations()[0]
    assert narrow.max_threads == 512  # three such blocks fit
    assert plan.configurations("sm_86")[0].shared_bytes < 99 << 10


@pytest.mark.slow
@pytest.mark.parametrize("side", [254, 255])
def test_a_group_norm_of_wide_rows_spills_nothing(side, tmp_path):
    """Its weights are one for a channel: x is read in vectors of 4 where a channel is; else fewer elements at once."""
    x, weight = torch.empty(128, 32, side, side, device="meta"), torch.empty(32, device="meta")
    plan = plan_of(lambda x, w, b: F.group_norm(x, 8, w, b), x, weight, weight)
    with session("sm_90a") as recorded:
        first_kernel(plan, tmp_path).kernel_fn(*map(like, (x, weight, weight)))
    compiled = recorded.launches[0].compiled
    assert recorded.launches[0].block == (1024, 1, 1) and compiled.registers <= 64
    assert (compiled.stack_bytes, compiled.local_loads, compiled.local_stores) == (0, 0, 0)
