"""Products for sm_90a: what their kernels compute on the emulated GPU, where they serve, which tiles are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import copied_factors, obstacles, refusals, shared_bytes
from cutesmith.patterns.contraction.hopper.prediction import predict
from cutesmith.patterns.contraction.hopper.proposals import MOST_CANDIDATES, proposals
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import check_product, emulated_hopper, exactly, like, load, move, normal

BF16, F16 = torch.bfloat16, torch.float16
SM90 = parse_arch("sm_90a").sm


def bf16(*shape, seed=0):
    return normal(*shape, dtype=BF16, seed=seed)


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


def plan_of_sizes(m, n, k, dtype=BF16):
    return plan_of(torch.matmul, *(torch.empty(s, dtype=dtype, device="meta") for s in ((m, k), (k, n))))


def problem_of(m=4096, n=4096, k=4096, dtype=BF16):
    return plan_of_sizes(m, n, k, dtype).problem


def linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def rows_scaled(x, weight, scale):
    return (x @ weight.t()) * scale[:, None]


def below_the_diagonal(x, weight, residual, factor):
    product = x @ weight
    return torch.tril(product * factor) + residual, product > 0


def batch_plus(x, weight, residual):
    return torch.bmm(x, weight) + residual


def batch_plus_shared(x, weight, residual):
    return x @ weight + residual


def fp16_relu(x, weight):
    return F.relu(torch.mm(x, weight).float() - 1)


# Every edge is cut, k too, and there are more tiles than blocks that share operands.
LINEAR = (bf16(200, 136), bf16(264, 136, seed=1), bf16(264, seed=2))
ONE_TURN = Tiles(64, 64, 64, 3, warpgroups=1)
SHARED = Tiles(128, 64, 64, 3)
FEW = Tiles(64, 16, 64, 3, warpgroups=1, columns=16, swapped=True)
CASES = {
    "shared": (linear_gelu, LINEAR, SHARED),
    "cluster_n": (linear_gelu, LINEAR, replace(SHARED, cluster_n=2)),
    "turns": (linear_gelu, (bf16(300, 136), *LINEAR[1:]), Tiles(64, 96, 64, 3, pingpong=True, cluster_m=2)),
    "split": (linear_gelu, LINEAR, replace(SHARED, split=2)),
    "wide": (linear_gelu, LINEAR, replace(SHARED, tile_n=128, columns=64)),
    "wide_split": (linear_gelu, LINEAR, replace(SHARED, tile_n=128, columns=64, split=2)),
    "few_rows": (linear_gelu, (bf16(5, 264), bf16(72, 264, seed=1), bf16(72)), replace(FEW, tile_k=128, split=4)),
    "few_rows_scaled": (rows_scaled, (bf16(21, 136), bf16(72, 136, seed=1), bf16(21)), replace(FEW, tile_n=32)),
    "rows_scaled": (rows_scaled, (*LINEAR[:2], bf16(200)), SHARED),
    "both_transposed": (lambda x, w: x.t() @ w.t(), (bf16(136, 72), bf16(264, 136, seed=1)), SHARED),
    "shared_b": (torch.matmul, (bf16(72, 136), bf16(136, 264, seed=1)), Tiles(64, 128, 64, 3, 1, cluster_m=2)),
    "batches": (batch_plus, (bf16(3, 72, 136), bf16(3, 136, 264, seed=1), bf16(1, 72, 264)), SHARED),
    "few_rows_batches": (torch.matmul, (bf16(2, 2, 5, 72), bf16(2, 2, 72, 136, seed=1)), FEW),
    "several": (below_the_diagonal, (bf16(64, 72), bf16(72, 64, seed=1), bf16(64, 64, seed=2), 0.5), ONE_TURN),
    "one_left_factor": (batch_plus_shared, (bf16(72, 136), bf16(3, 136, 264, seed=1), bf16(3, 72, 264)), SHARED),
    "odd_turns": (linear_gelu, (bf16(70, 129), bf16(97, 129, seed=1), bf16(97)), Tiles(64, 96, 64, 3, pingpong=True)),
    "odd_split": (linear_gelu, (bf16(70, 129), bf16(97, 129, seed=1), bf16(97)), replace(SHARED, split=2)),
    "odd_few_rows": (linear_gelu, (bf16(5, 263), bf16(71, 263, seed=1), bf16(71)), replace(FEW, split=2)),
    "odd_batches": (batch_plus, (bf16(3, 71, 137), bf16(3, 137, 67, seed=1), bf16(1, 71, 67)), SHARED),
    "odd_several": (below_the_diagonal, (bf16(63, 71), bf16(71, 65, seed=1), bf16(63, 65, seed=2), 0.5), ONE_TURN),
    "to_fp32": (fp16_relu, (normal(72, 64, dtype=F16), normal(64, 72, dtype=F16)), ONE_TURN),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_results(name, tmp_path):
    function, inputs, configuration = CASES[name]
    plan = plan_of(function, *inputs)
    assert not [*obstacles(plan.problem, SM90), *refusals(plan.problem, configuration, SM90)]
    check_product(plan, configuration, function, inputs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs",
    [
        (bf16(37, 41), bf16(53, 41, seed=1), bf16(53)),
        pytest.param((bf16(16, 0), bf16(24, 0), bf16(24)), marks=pytest.mark.slow),
        pytest.param((bf16(24, 33)[:, 1:], bf16(64, 64, seed=1)[::2, ::2], bf16(32)), marks=pytest.mark.slow),
        pytest.param((bf16(1, 64), bf16(72, 64, seed=1), bf16(72)), marks=pytest.mark.slow),
    ],
    ids=["odd", "no_k", "strided", "one_row"],
)
def test_the_kernel_serves_what_tma_cannot_address(inputs, tmp_path):
    plan = plan_of(linear_gelu, bf16(64, 64), bf16(64, 64), bf16(64))
    with emulated_hopper():
        out = load(plan.render(replace(SHARED, stages=2)), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(out, *exactly(linear_gelu, inputs), rtol=1e-2, atol=0.1)


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    sizes = ((4096, 4096, 4096), (1, 72, 8), (300, 264, 136))
    plan = plan_of(torch.matmul, bf16(64, 64), bf16(64, 64))
    with session("sm_90a") as recorded:
        module = load(plan.render(SHARED), tmp_path)
        for m, n, k in sizes:
            module.kernel_fn(like(torch.empty(m, k, dtype=BF16)), like(torch.empty(k, n, dtype=BF16)))
    assert not recorded.errors
    assert (len(recorded.launches), len(recorded.modules)) == (3, 1)
    assert [launch.grid[0] for launch in recorded.launches] == [132, 2, 15]  # persistent: no more blocks than fit


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 6, 13])
@pytest.mark.parametrize("m", [16, 4096])
def test_proposals_compile(place, m, tmp_path):
    inputs = torch.empty(m, 4096, dtype=BF16), torch.empty(4096, 4096, dtype=BF16), torch.empty(4096, dtype=BF16)
    plan = plan_of(linear_gelu, *inputs)
    configuration = plan.configurations("sm_90a")[place]
    with session("sm_90a") as recorded:
        load(plan.render(configuration), tmp_path).kernel_fn(*map(like, inputs))
    (launch,) = recorded.launches
    assert not recorded.errors
    assert launch.block == (configuration.threads, 1, 1)
    predicted = shared_bytes(plan.problem, configuration)
    assert predicted - 2048 <= launch.dynamic_smem <= predicted


# Where it serves


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((bf16(64, 64), bf16(64, 64)), ""),
        ((bf16(64, 64).t(), bf16(64, 64).t()), ""),
        ((bf16(1, 64), bf16(64, 64)), ""),
        ((normal(64, 64), normal(64, 64)), ""),
        ((normal(64, 64).double(), normal(64, 64).double()), "float16, bfloat16, float32 and float8"),
        ((bf16(64, 0), bf16(0, 64)), "nothing to sum up"),
        ((bf16(2, 64, 64), bf16(64, 64).expand(2, 64, 64)), ""),
    ],
)
def test_obstacles(inputs, message):
    plan = plan_of(torch.matmul, *inputs)
    found = list(obstacles(plan.problem, SM90))
    assert any(message in each for each in found) if message else not found
    assert isinstance(plan.configurations("sm_90a")[0], ContractionConfiguration if message else Tiles)


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "copied", "on_hopper"),
    [
        (8205, 5921, 2949, torch.float32, 2, True),
        (4096, 4096, 4095, BF16, 1, True),
        (4096, 4095, 4096, BF16, 1, True),
        (4097, 4096, 4096, BF16, 0, True),
        (256, 257, 255, BF16, 2, False),
        (64, 1, 64, BF16, 1, False),
    ],
)
def test_copies_that_tma_needs_are_made_where_they_pay(m, n, k, dtype, copied, on_hopper):
    problem = problem_of(m, n, k, dtype)
    assert len(copied_factors(problem, Tiles(128, 128, 64, 4))) == copied
    assert isinstance(plan_of_sizes(m, n, k, dtype).configurations("sm_90a")[0], Tiles) == on_hopper
    if copied:
        fast = problem_of(*(max(8, size // 8 * 8) for size in (m, n, k)), dtype)
        tiles = next(c for c in proposals(problem, SM90, most=100) if not c.ahead)
        assert predict(problem, tiles).seconds > predict(fast, tiles).seconds + copied * 3e-6


def test_other_architectures_get_the_other_form():
    plan = plan_of(torch.matmul, bf16(64, 64), bf16(64, 64))
    assert all(isinstance(plan.configurations(arch)[0], ContractionConfiguration) for arch in ("sm_80", "sm_120a"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"tile_m": 64}, "multiple of 64 for each"),
        ({"tile_n": 264}, "264 columns"),
        ({"columns": 8}, "8 at a time"),
        ({"stages": 1}, "second stage"),
        ({"stages": 12}, "bytes of shared memory"),
        ({"tile_m": 512, "tile_n": 128}, "spill"),
        ({"pingpong": True, "warpgroups": 1}, "take turns"),
        ({"cluster_m": 2, "cluster_n": 2}, "shares one operand"),
        ({"cluster_m": 2, "split": 2}, "share nothing else"),
        ({"cluster_m": 2, "tile_n": 64}, "cannot be loaded by 2 blocks"),
        ({"swapped": True, "tile_m": 64, "warpgroups": 1}, ""),
    ],
)
def test_refusals(change, message):
    found = list(refusals(problem_of(), replace(SHARED, **change), SM90))
    assert any(message in each for each in found) if message else not found


# Which tiles


@pytest.mark.parametrize(
    "shape", [(1, 4096, 14336), (64, 6144, 4096), (256, 6144, 4096), (8192, 8192, 8192), (8, 8, 8)]
)
def test_proposals_are_legal_and_ordered(shape):
    problem = problem_of(*shape)
    found = proposals(problem, SM90)
    assert 8 <= len(found) == len(set(found)) <= MOST_CANDIDATES
    assert not any(reason for c in found for reason in refusals(problem, c, SM90))
    seconds = [predict(problem, c).seconds for c in found]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8192, 8192, 8192), {"tile_m": 128, "tile_n": 192, "pingpong": True, "split": 1}),
        ((16, 4096, 14336), {"swapped": True, "split": 2}),
        ((512, 8192, 28672), {"tile_m": 128, "tile_n": 256, "pingpong": False}),
    ],
)
def test_the_first_choice_is_one_that_an_h200_liked(shape, expected):
    """Each was the fastest of all, or within 1 %, in evals/results/h200/gemm."""
    first = proposals(problem_of(*shape), SM90)[0].to_dict()
    assert {name: first[name] for name in expected} == expected


def test_predictions_follow_bytes_and_flops():
    few, many = problem_of(1, 8192, 8192), problem_of(8192, 8192, 8192)
    best_few, best_many = (predict(p, proposals(p, SM90)[0]) for p in (few, many))
    assert 134e6 / 4.8e12 < best_few.seconds < 134e6 / 2.4e12
    assert 2 * 8192**3 / 990e12 < best_many.seconds < 2 * 8192**3 / 600e12


def test_the_head_says_why():
    plan = plan_of(torch.matmul, torch.empty(4096, 4096, dtype=BF16), torch.empty(4096, 4096, dtype=BF16))
    configuration = Tiles(128, 192, 64, 5, pingpong=True, cluster_m=2)
    told = plan.why(configuration)
    assert "4096 x 4096 x 4096: 704 tiles of 128 x 192 keep 132 multiprocessors busy for 89% of 6 waves." in told
    assert "Predicted on an H200:" in told and "Two blocks of a cluster" in told
    assert "SPLIT" not in plan.render(configuration) and "copied first" not in told
    odd, single = plan_of_sizes(4096, 4096, 4095), plan_of_sizes(8205, 5921, 2949, torch.float32)
    assert "x0 is copied first, 33.5 MB: TMA" in odd.why(odd.configurations()[0])
    assert "Launches before it split each number" in single.why(single.configurations()[0])


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((256, 4096, 14336), (128, 64, 1)),  # 53.6 us on an H200; two blocks with four stages each 61.0
        ((64, 6144, 4096), (64, 64, 1)),  # 21.9 us; 128 x 64 with three stages 23.8
        ((64, 128256, 4096), (128, 64, 1)),  # lines of 256 bytes: 264.7 us, of 128 272.4
        ((2048, 4096, 4096), (128, 256, 1)),  # 92.5 us on an H100, 128 x 128 95.7
    ],
)
def test_the_first_choice_is_what_was_fastest(sizes, tile):
    first = proposals(problem_of(*sizes[:2], k=sizes[2]), SM90)[0]
    assert (first.tile_m, first.tile_n, first.split) == tile


def test_results_of_float32_leave_in_one_strip_beside_the_next_tile():
    """KernelBench 1/7: 128 x 64 took 2630 us on an H100, 128 x 192 in three strips 2775."""
    first = proposals(problem_of(32768, 32768, 64, torch.float32), SM90)[0]
    assert first.tile_n == first.columns == 64


def test_lines_outside_of_a_matrix_cost_time():
    tiles = Tiles(128, 64, 64, 9)
    half, whole = (predict(problem_of(m, 8192, 8192), tiles).seconds for m in (64, 128))
    assert half > 1.15 * whole  # of half the product: 69.4 us on an H200


@pytest.mark.parametrize(
    ("x", "weight", "read_once"),
    [
        ((16, 4096), (4096, 4096), "A"),  # the weights are the left factor of the transposed result
        ((256, 4096), (14336, 4096), "B"),
        ((4096, 4096), (14336, 4096), ""),
        ((4, 16, 512), (4, 4096, 512), "A"),
        ((8, 3, 256, 512), (1, 3, 512, 512), ""),  # all of a batch share them
    ],
)
def test_only_what_is_read_once_leaves_l2_first(x, weight, read_once):
    plan = plan_of(lambda x, w: x @ w.mT, *(torch.empty(s, dtype=BF16, device="meta") for s in (x, weight)))
    source = plan.render(plan.configurations()[0])
    loads = [line for line in source.splitlines() if "cute.copy(tma_" in line and "tma_bar_ptr" in line]
    marked = [line.partition("tma_")[2][0] for line in loads if "cache_policy=EVICT_FIRST" in line]
    assert len(loads) == 2 and "".join(marked) == read_once
