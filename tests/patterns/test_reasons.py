"""Heads of kernels say why a kernel has its configuration: with numbers of the configuration, and a predicted time."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.generation.drafting import Drafted, reasons, render_valid
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.writing.naming import KERNEL_MARK

BF16, LONGS = torch.bfloat16, torch.int64


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


HEADS = [meta(2, 4, 512, 64, dtype=BF16)] * 3


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


FAMILIES = {
    "vectors": (F.gelu, [meta(1024, 1024, dtype=BF16)], "elementwise", "vector", "sm_90a"),
    "rows": (lambda x: x.softmax(-1), [meta(8192, 4096, dtype=BF16)], "rows", "vector", "sm_90a"),
    "rows in shared memory": (lambda x: x.softmax(-1), [meta(512, 32768)], "rows", "max_threads", "sm_90a"),
    "columns": (lambda x: x.softmax(1), [meta(16, 192, 56, 56)], "columns", "lanes", "sm_90a"),
    "scans": (lambda x: x.cumsum(-1), [meta(512, 4096)], "scans", "vectors", "sm_90a"),
    "scans in rounds": (lambda x: x.cumsum(-1), [meta(1, 1 << 24)], "scans", "stages", "sm_90a"),
    "selection": (lambda x: x.sort(-1)[0], [meta(256, 1024)], "selection", "threads", "sm_90a"),
    "selection by a network": (lambda x: x.topk(4)[0], [meta(4096, 1024)], "selection", "threads", "sm_90a"),
    "scatters": (
        lambda o, i, x: o.index_copy(0, i, x),
        [meta(1000, 64), meta(500, dtype=LONGS), meta(500, 64)],
        "scatters",
        "tile",
        "sm_90a",
    ),
    "atomics": (
        lambda o, i, x: o.index_add(0, i, x),
        [meta(1000, 64), meta(50000, dtype=LONGS), meta(50000, 64)],
        "scatters",
        "vector",
        "sm_90a",
    ),
    "windows": (lambda x: F.max_pool2d(x, 3, 2, 1), [meta(4, 64, 56, 56)], "windows", "outputs", "sm_90a"),
    "products by TMA": (lambda a, b: a @ b, [meta(512, 512, dtype=BF16)] * 2, "contraction", "tile_m", "sm_90a"),
    "products on Blackwell": (lambda a, b: a @ b, [meta(512, 512, dtype=BF16)] * 2, "contraction", "tile_m", "sm_100a"),
    "products by mma.sync": (lambda a, b: a @ b, [meta(512, 512, dtype=BF16)] * 2, "contraction", "tile_m", "sm_80"),
    "direct convolutions": (
        lambda x, w: F.conv2d(x, w),
        [meta(8, 3, 64, 64), meta(16, 3, 3, 3)],
        "contraction",
        "features",
        "sm_90a",
    ),
    "attention on Hopper": (attention, HEADS, "attention", "keys", "sm_90a"),
    "attention": (attention, HEADS, "attention", "keys", "sm_80"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_why_in_numbers_of_its_configuration(name):
    function, inputs, pattern, number, arch = FAMILIES[name]
    plan = plan_kernel(trace_function(function, inputs), arch)
    assert plan.pattern == pattern
    configuration = plan.configurations(arch)[0]
    told = reasons(plan, Drafted(configuration, plan.tiling(configuration)), 0)
    assert str(getattr(configuration, number)) in re.findall(r"\d+", plan.why(configuration))
    assert plan.why(configuration) in told and re.search(r"(prediction|Predicted).* [\d.]+ (µs|us)", told)
    assert "most promising" not in told


def test_a_later_guess_says_its_place_and_its_own_reason():
    plan = plan_kernel(trace_function(lambda x: x.softmax(-1), [meta(8192, 4096, dtype=BF16)]), "sm_90a")
    drafted, _ = render_valid(plan, "sm_90a", 2)
    first, second = (reasons(plan, each, place) for place, each in enumerate(drafted))
    assert second.startswith("Number 2 ") and plan.why(drafted[1].configuration) in second
    assert plan.why(drafted[0].configuration) in first != second


def test_every_kernel_of_a_chain_says_why_in_its_head():
    def normed(x, w, b):
        return F.layer_norm((x @ w).relu(), (512,), b)

    plan = plan_kernel(trace_function(normed, [meta(512, 512, dtype=BF16)] * 2 + [meta(512, dtype=BF16)]), "sm_90a")
    assert isinstance(plan, ChainPlan) and len(plan.launches) > 1
    source = plan.render(plan.configurations()[0])
    unfolded = source.replace("\n# ", " ")
    for launch in plan.launches:
        assert launch.plan.why(launch.plan.configurations()[0]) in unfolded, launch.name
    assert source.count(KERNEL_MARK) == len(plan.launches)
