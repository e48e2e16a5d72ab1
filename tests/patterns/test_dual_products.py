"""Two products of the same left factor in one kernel: where they meet, what it computes, and which tiles are tried."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.faults import KernelFault
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction import legality
from cutesmith.patterns.contraction.blackwell import legality as blackwell
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.hopper import legality as hopper
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.plan import RESERVED, ContractionPlan, match
from cutesmith.patterns.cutting.dual_products import pairs_of, with_dual_products
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import check_product, emulated, exactly, like, load, move, normal, run_on_few

BF16 = torch.bfloat16
ARCHS = ("sm_80", "sm_90a", "sm_100a")


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


def gate_with_bias(x, gate, up, bias):
    return F.relu(F.linear(x, gate)) * F.linear(x, up, bias)


def unlike(x, gate, up):
    return F.silu(x @ gate) * (x @ up.t())


def gated_batch(x, gate, up):
    return torch.sigmoid(torch.bmm(x, gate)) * torch.bmm(x, up)


# Every edge is cut, k too, and there are more tiles than blocks that share operands.
X, GATE, UP = bf16(200, 136), bf16(264, 136, seed=1), bf16(264, 136, seed=2)
LINEAR = (swiglu, (X, GATE, UP))
BY_ROWS = (swiglu_by_rows, (X, bf16(136, 264, seed=1), bf16(136, 264, seed=2)))
FEW_ROWS = (swiglu, (bf16(5, 264), bf16(200, 264, seed=1), bf16(200, 264, seed=2)))
OPERANDS = (geglu, (X, GATE, UP, bf16(264), bf16(200)))
BIAS = (gate_with_bias, (X, GATE, UP, bf16(264)))
BATCHES = (gated_batch, (bf16(3, 72, 136), bf16(3, 136, 264, seed=1), bf16(3, 136, 264, seed=2)))
TWICE = (swiglu, (X, GATE, GATE))
HALF = (swiglu, (X.half(), GATE.half(), UP.half()))
ODD = (gate_with_bias, (bf16(70, 129), bf16(97, 129, seed=1), bf16(97, 129, seed=2), bf16(97)))
SQUARE = (swiglu, (bf16(72, 72), bf16(72, 72, seed=1), bf16(72, 72, seed=2)))

WARPS = ContractionConfiguration(64, 64, 32, 2, 2, 3, dual=True)
SHARED = Tiles(128, 64, 64, 3, dual=True)
FEW = Tiles(64, 16, 64, 3, warpgroups=1, columns=16, swapped=True, dual=True)
ONE = BlackwellConfiguration(128, 64, 64, 3, dual=True)
PAIR = BlackwellConfiguration(256, 64, 64, 3, pair=True, dual=True)
TRANSPOSED = BlackwellConfiguration(128, 16, 64, 3, columns=16, swapped=True, dual=True)
CASES = {
    "sm_80": {
        "linear": (*LINEAR, WARPS),
        "eight_warps": (*LINEAR, replace(WARPS, tile_m=128, tile_n=128, warps_n=4)),
        "tall": (*LINEAR, replace(WARPS, tile_m=256, warps_m=4)),
        "by_rows": (*BY_ROWS, WARPS),
        "unlike": (unlike, (X, BY_ROWS[1][1], UP), WARPS),
        "few_rows": (*FEW_ROWS, replace(WARPS, tile_m=16, tile_k=64, warps_m=1, warps_n=4)),
        "operands": (*OPERANDS, WARPS),
        "bias": (*BIAS, WARPS),
        "batches": (*BATCHES, WARPS),
        "one_matrix_twice": (*TWICE, WARPS),
        "float16": (*HALF, WARPS),
        "odd": (*ODD, WARPS),
        "square": (*SQUARE, WARPS),
    },
    "sm_90a": {
        "linear": (*LINEAR, SHARED),
        "one_strip": (*LINEAR, replace(SHARED, columns=64)),
        "cluster_m": (*LINEAR, replace(SHARED, cluster_m=2)),
        "cluster_n": (*LINEAR, replace(SHARED, cluster_n=2)),
        "turns": (swiglu, (bf16(300, 136), GATE, UP), Tiles(64, 96, 64, 3, pingpong=True, cluster_m=2, dual=True)),
        "by_rows": (*BY_ROWS, SHARED),
        "few_rows": (*FEW_ROWS, replace(FEW, tile_k=128)),
        "few_rows_shared": (swiglu, (bf16(21, 136), GATE, UP), replace(FEW, tile_m=128, tile_n=32, warpgroups=2)),
        "operands": (*OPERANDS, SHARED),
        "bias": (*BIAS, SHARED),
        "batches": (*BATCHES, SHARED),
        "one_matrix_twice": (*TWICE, SHARED),
        "float16": (*HALF, SHARED),
        "odd": (*ODD, SHARED),
        "square": (*SQUARE, SHARED),
    },
    "sm_100a": {
        "linear": (*LINEAR, ONE),
        "narrow_strips": (*LINEAR, replace(ONE, tile_n=96)),
        "wide": (*LINEAR, replace(ONE, tile_n=256, stages=2, columns=64, accumulators=1)),
        "pair": (swiglu, (bf16(300, 136), GATE, UP), PAIR),
        "pair_by_rows": (*BY_ROWS, replace(PAIR, tile_n=128)),
        "by_rows": (*BY_ROWS, ONE),
        "few_rows": (*FEW_ROWS, replace(TRANSPOSED, tile_k=128)),
        "few_rows_by_rows": (swiglu_by_rows, (bf16(21, 136), *BY_ROWS[1][1:]), replace(TRANSPOSED, tile_n=32)),
        "operands": (*OPERANDS, ONE),
        "few_rows_operands": (geglu, (X[:24], GATE, UP, bf16(264), bf16(24)), replace(TRANSPOSED, tile_n=32)),
        "bias": (*BIAS, ONE),
        "batches": (*BATCHES, ONE),
        "one_matrix_twice": (*TWICE, ONE),
        "float16": (*HALF, ONE),
        "odd": (*ODD, ONE),
        "square": (*SQUARE, ONE),
    },
}
NAMES = [(arch, name) for arch, cases in CASES.items() for name in cases]


def plan_of(function, *inputs):
    return match(with_dual_products(trace_function(function, inputs)))


def against(problem, configuration, arch):
    """What each room says against a configuration of its own."""
    sm = parse_arch(arch).sm
    if arch == "sm_80":
        return [*legality.refusals(problem, configuration, sm)]
    room = hopper if arch == "sm_90a" else blackwell
    return [*room.obstacles(problem, sm), *room.refusals(problem, configuration, sm)]


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "name"), NAMES)
def test_results(arch, name, tmp_path):
    function, inputs, configuration = CASES[arch][name]
    plan = plan_of(function, *inputs)
    assert not against(plan.problem, configuration, arch)
    check_product(plan, configuration, function, inputs, tmp_path, arch)


# On a GPU of few multiprocessors blocks have several tiles each, and tensor memory is used again.
MANY = (bf16(300, 200), bf16(584, 200, seed=1), bf16(584, 200, seed=2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "configuration"),
    [
        ("sm_90a", SHARED),
        ("sm_100a", replace(ONE, tile_n=96)),
        ("sm_100a", replace(ONE, tile_n=192, stages=2, accumulators=1)),
        ("sm_100a", PAIR),
        ("sm_100a", replace(TRANSPOSED, tile_n=64, columns=32)),
    ],
)
def test_blocks_have_several_tiles(arch, configuration, tmp_path):
    with emulated(arch):
        out = run_on_few(plan_of(swiglu, *MANY).render(configuration), tmp_path, MANY, 2)
    torch.testing.assert_close(out, *exactly(swiglu, MANY), rtol=1e-2, atol=0.1)


def planted(place, fault):
    text = plan_of(swiglu, *MANY).render(replace(ONE, tile_n=128))
    assert text.count(place) == 1
    return text.replace(place, fault)


@pytest.mark.slow
def test_sums_that_are_released_too_early_are_found(tmp_path):
    with emulated_device("sm_100a") as device:
        out = run_on_few(planted("if j == BN // EPI_N - 1:", "if j == 0:"), tmp_path, MANY, 2)
    wrong = not torch.allclose(out.float(), exactly(swiglu, MANY)[0].float(), rtol=1e-2, atol=0.1)
    assert list(device.findings) or wrong


@pytest.mark.slow
def test_a_stage_that_does_not_wait_for_the_second_factor_is_found(tmp_path):
    text = planted("tx_count=(BM + 2 * BN)", "tx_count=(BM + BN)")
    with pytest.raises(KernelFault, match="mbarrier"), emulated_device("sm_100a"):
        run_on_few(text, tmp_path, MANY, 2)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 129])
@pytest.mark.parametrize("configuration", [WARPS, SHARED, ONE], ids=ARCHS)
def test_one_kernel_serves_other_sizes(configuration, k, tmp_path):
    arch = ARCHS[(WARPS, SHARED, ONE).index(configuration)]
    plan = plan_of(swiglu, bf16(64, 64), bf16(64, 64, seed=1), bf16(64, 64, seed=2))
    inputs = bf16(37, k), bf16(53, k, seed=1), bf16(53, k, seed=2)
    with emulated(arch):
        out = load(plan.render(configuration), tmp_path).kernel_fn(*map(move, inputs)).cpu()
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", PAIRED)
def test_what_meets_is_one_launch(name, arch):
    function, inputs = PAIRED[name]
    plan = plan_kernel(trace_function(function, inputs), arch)
    assert isinstance(plan, ContractionPlan)
    assert plan.problem.second is not None
    assert plan.configurations(arch)[0].dual


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


def test_right_factors_that_lie_otherwise_are_one_launch_by_cp_async_alone():
    inputs = (SIZES[0], empty(1024, 2048), SIZES[2])
    plan = plan_of(unlike, *inputs)
    for room, arch in ((hopper, "sm_90a"), (blackwell, "sm_100a")):
        assert "both right factors are loaded in the same way" in room.obstacles(plan.problem, parse_arch(arch).sm)
        assert len(plan_kernel(trace_function(unlike, inputs), arch).launches) == 2
    assert plan_kernel(trace_function(unlike, inputs), "sm_80").problem.second is not None


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_copies_of_both_right_factors_count(arch):
    plan = plan_of(swiglu, empty(4096, 4095), empty(4096, 4095), empty(4096, 4095))
    assert plan.why(plan.configurations(arch)[0]).count("is copied first, 33.5 MB") == 3
    even = plan_of(swiglu, empty(4096, 4096), empty(4096, 4096), empty(4096, 4096))
    copied = plan.seconds(plan.configurations(arch)[0]) - even.seconds(even.configurations(arch)[0])
    assert copied > 3 * 2 * 33.5e6 / 8e12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "rows"), [("sm_80", 64), ("sm_90a", 64), ("sm_90a", 4096), ("sm_100a", 64), ("sm_100a", 4096)]
)
def test_no_tile_spills(arch, rows, tmp_path):
    shapes = (rows, 4096), (14336, 4096), (14336, 4096)
    plan = plan_of(swiglu, *map(empty, shapes))
    spilled = {}
    for configuration in plan.configurations(arch)[:12]:
        with session(arch) as recorded:
            load(plan.render(configuration), tmp_path).kernel_fn(*(like(empty(*shape)) for shape in shapes))
        compiled = recorded.launches[0].compiled
        spilled[configuration] = compiled.local_loads + compiled.local_stores
    assert len(spilled) > 4 and not any(spilled.values()), spilled


@pytest.mark.parametrize(
    ("arch", "configuration", "message"),
    [
        ("sm_80", replace(WARPS, tile_m=128, tile_n=128), "256 registers"),
        ("sm_80", replace(WARPS, dual=False), "each product"),
        ("sm_80", replace(WARPS, tile_k=128, stages=6), "bytes of shared memory"),
        ("sm_90a", Tiles(128, 128, 64, 3, pingpong=True, dual=True), "registers"),
        ("sm_90a", Tiles(128, 64, 64, 3), "each product"),
        ("sm_90a", replace(SHARED, split=2), "divide k"),
        ("sm_100a", replace(ONE, tile_n=192), "768 columns of sums"),
        ("sm_100a", replace(ONE, dual=False), "each product"),
        ("sm_100a", replace(ONE, tile_n=256, accumulators=1), "bytes of shared memory"),
    ],
)
def test_tiles_leave_room_for_the_sums_of_both(arch, configuration, message):
    said = against(plan_of(swiglu, *SIZES).problem, configuration, arch)
    assert any(message in why for why in said), said


@pytest.mark.parametrize("arch", ARCHS)
def test_names_of_the_kernel_are_reserved(arch):
    def doubled(x, gate, up, free: float):
        return swiglu(x, gate, up) * free

    plan = plan_of(doubled, X, GATE, UP, 2.0)
    *_, configuration = CASES[arch]["linear"]
    statements = ast.parse(plan.render(configuration)).body
    kernel = next(each for each in statements if getattr(each, "name", "") == "contraction_kernel")
    bound = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert {name for name in bound if "out" not in name} - {"_"} <= RESERVED
    assert plan.problem.arguments[-1] == "free_in"


def test_wide_tiles_of_tensor_memory_have_the_sums_of_one_at_a_time():
    found = plan_of(swiglu, empty(4096, 4096), empty(14336, 4096), empty(14336, 4096)).configurations("sm_100a")
    assert {(c.tile_n > 128, c.accumulators) for c in found} <= {(False, 2), (True, 1)}
    assert all(c.tensor_columns <= 512 for c in found)
