"""Products for sm_100a: what their kernels compute on the emulated GPU, where they serve, which tiles are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration as Tiles
from cutesmith.patterns.contraction.blackwell.legality import obstacles, refusals, shared_bytes
from cutesmith.patterns.contraction.blackwell.prediction import predict
from cutesmith.patterns.contraction.blackwell.proposals import MOST_CANDIDATES, proposals
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import check_product, emulated_blackwell, exactly, like, load, normal, run_on_few

BF16, F16 = torch.bfloat16, torch.float16
SM100 = parse_arch("sm_100a").sm


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


def fp16_relu(x, weight):
    return F.relu(torch.mm(x, weight).float() - 1)


LINEAR = (bf16(200, 136), bf16(264, 136, seed=1), bf16(264, seed=2))  # every edge is cut, k too
ONE = Tiles(128, 128, 64, 3)
PAIR = Tiles(256, 128, 64, 3, pair=True)
FEW = Tiles(128, 16, 64, 3, columns=16, swapped=True)
CASES = {
    "one": (linear_gelu, LINEAR, ONE),
    "three_strips": (linear_gelu, LINEAR, replace(ONE, tile_n=96)),
    "wide": (linear_gelu, LINEAR, replace(ONE, tile_n=256, columns=64, accumulators=1)),
    "pair": (linear_gelu, (bf16(300, 136), *LINEAR[1:]), PAIR),
    "few_rows": (linear_gelu, (bf16(5, 264), bf16(72, 264, seed=1), bf16(72)), FEW),
    "few_rows_scaled": (rows_scaled, (bf16(21, 136), bf16(72, 136, seed=1), bf16(21)), replace(FEW, tile_n=32)),
    "rows_scaled": (rows_scaled, (*LINEAR[:2], bf16(200)), ONE),
    "both_transposed": (lambda x, w: x.t() @ w.t(), (bf16(136, 72), bf16(264, 136, seed=1)), ONE),
    "b_by_rows": (torch.matmul, (bf16(72, 136), bf16(136, 264, seed=1)), replace(ONE, tile_n=192)),
    "pair_both_transposed": (lambda x, w: x.t() @ w.t(), (bf16(136, 72), bf16(264, 136, seed=1)), PAIR),
    "batches": (batch_plus, (bf16(3, 72, 136), bf16(3, 136, 264, seed=1), bf16(1, 72, 264)), ONE),
    "few_rows_batches": (torch.matmul, (bf16(2, 2, 5, 72), bf16(2, 2, 72, 136, seed=1)), FEW),
    "several": (below_the_diagonal, (bf16(64, 72), bf16(72, 64, seed=1), bf16(64, 64, seed=2), 0.5), ONE),
    "odd": (linear_gelu, (bf16(70, 129), bf16(97, 129, seed=1), bf16(97)), ONE),
    "odd_few_rows": (linear_gelu, (bf16(5, 263), bf16(71, 263, seed=1), bf16(71)), FEW),
    "odd_batches": (batch_plus, (bf16(3, 71, 137), bf16(3, 137, 67, seed=1), bf16(1, 71, 67)), PAIR),
    "odd_several": (below_the_diagonal, (bf16(63, 71), bf16(71, 65, seed=1), bf16(63, 65, seed=2), 0.5), ONE),
    "to_fp32": (fp16_relu, (normal(72, 64, dtype=F16), normal(64, 72, dtype=F16)), ONE),
}


FAST = ("pair", "several")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_results(name, tmp_path):
    function, inputs, configuration = CASES[name]
    plan = plan_of(function, *inputs)
    assert not [*obstacles(plan.problem, SM100), *refusals(plan.problem, configuration, SM100)]
    check_product(plan, configuration, function, inputs, tmp_path, "sm_100a")


# A GPU of few multiprocessors: its blocks have several tiles each, and tensor memory is used again.
MANY = (bf16(300, 200), bf16(584, 200, seed=1), bf16(584, seed=2))


@pytest.mark.slow
@pytest.mark.parametrize("configuration", [replace(ONE, tile_n=96), replace(ONE, accumulators=1), PAIR])
def test_blocks_have_several_tiles(configuration, tmp_path):
    text = plan_of(linear_gelu, *MANY).render(configuration)
    with emulated_blackwell():
        out = run_on_few(text, tmp_path, MANY, 2)
    torch.testing.assert_close(out, *exactly(linear_gelu, MANY), rtol=1e-2, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("if j == BN // EPI_N - 1:", "if j == 0:"),
        ("cp_async_bulk_wait_group(BUFFERS - 1, read=True)", "cp_async_bulk_wait_group(BUFFERS, read=True)"),
        ("cute.arch.fence_view_async_tmem_load()", "pass"),
    ],
    ids=["sums_released_early", "buffer_written_early", "sums_not_awaited"],
)
def test_planted_faults_are_found(place, fault, tmp_path):
    text = plan_of(linear_gelu, *MANY).render(ONE)
    assert text.count(place) == 1
    with emulated_device("sm_100a") as device:
        out = run_on_few(text.replace(place, fault), tmp_path, MANY, 2)
    wrong = not torch.allclose(out.float(), exactly(linear_gelu, MANY)[0].float(), rtol=1e-2, atol=0.1)
    assert list(device.findings) or wrong


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    sizes = ((8192, 8192, 4096), (1, 72, 8), (300, 264, 136))
    plan = plan_of(torch.matmul, bf16(64, 64), bf16(64, 64))
    with session("sm_100a") as recorded:
        module = load(plan.render(PAIR), tmp_path)
        for m, n, k in sizes:
            module.kernel_fn(like(torch.empty(m, k, dtype=BF16)), like(torch.empty(k, n, dtype=BF16)))
    assert not recorded.errors
    assert (len(recorded.launches), len(recorded.modules)) == (3, 1)
    assert [launch.grid[0] for launch in recorded.launches] == [148, 2, 12]  # persistent: no more blocks than fit


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 6, 11])
@pytest.mark.parametrize("m", [16, 4096])
def test_proposals_compile(place, m, tmp_path):
    inputs = torch.empty(m, 4096, dtype=BF16), torch.empty(4096, 4096, dtype=BF16), torch.empty(4096, dtype=BF16)
    plan = plan_of(linear_gelu, *inputs)
    configuration = plan.configurations("sm_100a")[place]
    with session("sm_100a") as recorded:
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
        ((normal(64, 64).double(), normal(64, 64).double()), "float32 and float8, not float64"),
        ((bf16(64, 0), bf16(0, 64)), "nothing to sum up"),
        ((bf16(2, 64, 64), bf16(64, 64).expand(2, 64, 64)), ""),
    ],
)
def test_obstacles(inputs, message):
    plan = plan_of(torch.matmul, *inputs)
    found = list(obstacles(plan.problem, SM100))
    assert any(message in each for each in found) if message else not found
    assert isinstance(plan.configurations("sm_100a")[0], ContractionConfiguration if message else Tiles)


def test_copies_that_tma_needs_are_made_where_they_pay():
    for sizes, expected in (((4096, 4096, 4095), Tiles), ((64, 65, 63), ContractionConfiguration)):
        assert isinstance(plan_of_sizes(*sizes).configurations("sm_100a")[0], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"tile_m": 64}, "64 rows a block"),
        ({"tile_n": 264}, "264 columns"),
        ({"pair": True, "tile_m": 256, "tile_n": 48, "columns": 16}, "48 columns"),
        ({"columns": 128}, "do not leave at once"),
        ({"tile_k": 40}, "multiple of 16"),
        ({"accumulators": 3, "tile_n": 256}, "tensor memory has 512"),
        ({"stages": 1}, "second stage"),
        ({"stages": 12}, "bytes of shared memory"),
        ({"swapped": True, "tile_n": 16, "columns": 16}, ""),
    ],
)
def test_refusals(change, message):
    found = list(refusals(problem_of(), replace(ONE, **change), SM100))
    assert any(message in each for each in found) if message else not found


# Which tiles


@pytest.mark.parametrize("shape", [(1, 4096, 14336), (256, 6144, 4096), (8192, 8192, 8192), (8, 8, 8)])
def test_proposals_are_legal_and_ordered(shape):
    problem = problem_of(*shape)
    found = proposals(problem, SM100)
    assert 8 <= len(found) == len(set(found)) <= MOST_CANDIDATES
    assert not any(reason for c in found for reason in refusals(problem, c, SM100))
    seconds = [predict(problem, c).seconds for c in found]
    assert seconds == sorted(seconds)


def test_predictions_follow_bytes_and_flops():
    few, many = problem_of(1, 8192, 8192), problem_of(8192, 8192, 8192)
    best_few, best_many = (predict(p, proposals(p, SM100)[0]) for p in (few, many))
    assert 134e6 / 8e12 < best_few.seconds < 134e6 / 2e12
    assert 2 * 8192**3 / 2250e12 < best_many.seconds < 2 * 8192**3 / 1200e12


def test_large_products_are_made_by_pairs_and_few_rows_transposed():
    assert proposals(problem_of(8192, 8192, 8192), SM100)[0].pair
    assert proposals(problem_of(16, 4096, 14336), SM100)[0].swapped


def test_many_operands_leave_in_narrower_strips():
    def sums(x, weight, a, b, c, d):
        return x @ weight + a + b + c + d

    inputs = [torch.empty(256, 256, dtype=BF16)] * 2 + [torch.empty(256, 256)] * 4
    assert all(c.columns < 64 for c in plan_of(sums, *inputs).configurations("sm_100a"))


def test_the_head_says_that_nothing_was_measured():
    plan = plan_of(torch.matmul, torch.empty(4096, 4096, dtype=BF16), torch.empty(4096, 4096, dtype=BF16))
    told = plan.why(plan.configurations("sm_100a")[0])
    assert "Predicted for a B200, not measured (no Blackwell GPU has run it):" in told
