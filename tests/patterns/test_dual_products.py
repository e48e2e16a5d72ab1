"""Two products of the same left factor in one kernel: where they meet, what it computes, and which tiles are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.configurations import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import obstacles, refusals
from cutesmith.patterns.contraction.plan import ContractionPlan, match
from cutesmith.patterns.cutting.dual_products import pairs_of, with_dual_products
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import check_product, emulated_hopper, exactly, like, load, move, normal

BF16 = torch.bfloat16
SM90 = parse_arch("sm_90a").sm


def bf16(*shape, seed=0):
    return normal(*shape, dtype=BF16, seed=seed)


def empty(*shape, dtype=BF16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def swiglu(x, gate, up):
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def swiglu_by_rows(x, gate, up):
    return F.silu(x @ gate) * (x @ up)


def geglu(x, gate, up, bias, scale):
    hidden = F.linear(x, gate, bias)
    return F.gelu(hidden) * F.linear(x, up) * scale[:, None], hidden > 0


def gated_batch(x, gate, up):
    return torch.sigmoid(torch.bmm(x, gate)) * torch.bmm(x, up)


# Every edge is cut, k too, and there are more tiles than blocks that share operands.
X, GATE, UP = bf16(200, 136), bf16(264, 136, seed=1), bf16(264, 136, seed=2)
SHARED = Tiles(128, 64, 64, 3, dual=True)
FEW = Tiles(64, 16, 64, 3, warpgroups=1, columns=16, swapped=True, dual=True)
CASES = {
    "shared": (swiglu, (X, GATE, UP), SHARED),
    "one_strip": (swiglu, (X, GATE, UP), replace(SHARED, columns=64)),
    "cluster_m": (swiglu, (X, GATE, UP), replace(SHARED, cluster_m=2)),
    "cluster_n": (swiglu, (X, GATE, UP), replace(SHARED, cluster_n=2)),
    "turns": (swiglu, (bf16(300, 136), GATE, UP), Tiles(64, 96, 64, 3, pingpong=True, cluster_m=2, dual=True)),
    "by_rows": (swiglu_by_rows, (X, bf16(136, 264, seed=1), bf16(136, 264, seed=2)), SHARED),
    "few_rows": (swiglu, (bf16(5, 264), bf16(200, 264, seed=1), bf16(200, 264, seed=2)), replace(FEW, tile_k=128)),
    "few_rows_shared": (swiglu, (bf16(21, 136), GATE, UP), replace(FEW, tile_m=128, tile_n=32, warpgroups=2)),
    "operands": (geglu, (X, GATE, UP, bf16(264), bf16(200)), SHARED),
    "batches": (gated_batch, (bf16(3, 72, 136), bf16(3, 136, 264, seed=1), bf16(3, 136, 264, seed=2)), SHARED),
    "one_matrix_twice": (swiglu, (X, GATE, GATE), SHARED),
    "float16": (swiglu, (X.half(), GATE.half(), UP.half()), SHARED),
}
QUICK = ("turns", "few_rows")


def plan_of(function, *inputs):
    return match(with_dual_products(trace_function(function, inputs)))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_results(name, tmp_path):
    function, inputs, configuration = CASES[name]
    plan = plan_of(function, *inputs)
    assert not [*obstacles(plan.problem, SM90), *refusals(plan.problem, configuration, SM90)]
    check_product(plan, configuration, function, inputs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 129])
def test_the_kernel_serves_sizes_that_tma_cannot_address(k, tmp_path):
    plan = plan_of(swiglu, bf16(64, 64), bf16(64, 64, seed=1), bf16(64, 64, seed=2))
    inputs = bf16(37, k), bf16(53, k, seed=1), bf16(53, k, seed=2)
    with emulated_hopper():
        out = load(plan.render(SHARED), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(out, *exactly(swiglu, inputs), rtol=1e-2, atol=0.1)


SIZES = (empty(512, 1024), empty(2048, 1024), empty(2048, 1024))
PAIRED = {
    "linear": (swiglu, SIZES),
    "rows of a batch": (swiglu, (empty(4, 128, 1024), *SIZES[1:])),
    "kept": (lambda x, g, u: (x @ g.t(), F.silu(x @ g.t()) * (x @ u.t())), SIZES),
    "batch": (gated_batch, (empty(8, 256, 512), empty(8, 512, 1024), empty(8, 512, 1024))),
}
APART = {
    "other left factors": (lambda x, y, g, u: F.silu(x @ g.t()) * (y @ u.t()), (SIZES[0], *SIZES)),
    "values that never meet": (lambda x, g, u: (x @ g.t(), x @ u.t()), SIZES),
    "other widths": (lambda x, g, u: (x @ g.t()) * (x @ u.t()), (*SIZES[:2], empty(1, 1024))),
    "float32": (swiglu, tuple(empty(*each.shape, dtype=torch.float32) for each in SIZES)),
    "one of the other": (lambda x, w: (x @ w) * (x @ (x @ w)), (empty(512, 512), empty(512, 512))),
}


@pytest.mark.parametrize("name", PAIRED)
def test_what_meets_is_one_launch(name):
    function, inputs = PAIRED[name]
    plan = whole_or_cut(trace_function(function, inputs))
    assert isinstance(plan, ContractionPlan)
    assert plan.problem.second is not None


@pytest.mark.parametrize("name", APART)
def test_other_products_are_no_pair(name):
    function, inputs = APART[name]
    graph = trace_function(function, inputs)
    assert not pairs_of(graph.nodes())
    assert with_dual_products(graph) is graph


def test_of_three_products_two_are_a_pair():
    graph = trace_function(lambda x, g, u, v: F.silu(x @ g.t()) * (x @ u.t()) + x @ v.t(), (*SIZES, SIZES[1]))
    ((first, second),) = pairs_of(graph.nodes())
    assert [node for node in graph.nodes() if node.op == "contract"][:2] == [first, second]
    with pytest.raises(UnmatchedError, match="3 products"):
        match(with_dual_products(graph))


def test_a_layer_is_a_pair_and_a_product():
    def layer(x, gate, up, down):
        return x + F.linear(swiglu(x, gate, up), down)

    plan = whole_or_cut(trace_function(layer, (empty(4, 128, 1024), *SIZES[1:], empty(1024, 2048))))
    assert [launch.plan.problem.second is not None for launch in plan.launches] == [True, False]


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures_sum_up_one_product_a_launch(arch):
    plan = plan_kernel(trace_function(swiglu, SIZES), arch)
    assert [launch.plan.problem.second for launch in plan.launches] == [None, None]
    assert plan.configurations(arch)


def test_right_factors_that_lie_otherwise_are_apart():
    function, inputs = (lambda x, g, u: F.silu(x @ g) * (x @ u.t())), (SIZES[0], empty(1024, 2048), SIZES[2])
    with pytest.raises(UnmatchedError, match="loaded in the same way"):
        plan_of(function, *inputs)
    assert len(whole_or_cut(trace_function(function, inputs)).launches) == 2


@pytest.mark.slow
@pytest.mark.parametrize("rows", [64, 4096])
def test_no_tile_spills(rows, tmp_path):
    plan = plan_of(swiglu, empty(rows, 4096), empty(14336, 4096), empty(14336, 4096))
    spilled = {}
    for configuration in plan.configurations():
        with session("sm_90a") as recorded:
            inputs = (rows, 4096), (14336, 4096), (14336, 4096)
            load(plan.render(configuration), tmp_path).kernel_fn(*(like(empty(*shape)) for shape in inputs))
        compiled = recorded.kernel(recorded.launches[0].kernel)
        spilled[configuration] = compiled.local_loads + compiled.local_stores
    assert len(spilled) > 4 and not any(spilled.values()), spilled


def test_tiles_leave_room_for_the_sums_of_both():
    problem = plan_of(swiglu, *SIZES).problem
    assert any("registers" in why for why in refusals(problem, Tiles(128, 128, 64, 3, pingpong=True, dual=True), SM90))
    assert any("each product" in why for why in refusals(problem, Tiles(128, 64, 64, 3), SM90))
    assert any("divide k" in why for why in refusals(problem, replace(SHARED, split=2), SM90))
