"""What a function must compute: counted off the reference by dtype, or declared; and the floor that follows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from cutesmith.errors import ContractError
from cutesmith.timing.algorithmic_work import _tallied, counting, work_of
from cutesmith.timing.benchmark import BenchmarkOptions, benchmark_kernel
from cutesmith.timing.roofline import Work, floor_of
from cutesmith.timing.stopwatch import Stopwatch


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("function", "inputs", "flops"),
    [
        (lambda a, b: a @ b, (meta(128, 64), meta(64, 32)), {"bfloat16": 2 * 128 * 64 * 32}),
        (F.linear, (meta(8, 20), meta(30, 20), meta(30)), {"bfloat16": 2 * 8 * 20 * 30}),
        (torch.bmm, [meta(4, 8, 16, dtype=torch.float16), meta(4, 16, 2, dtype=torch.float16)], {"float16": 4 * 512}),
        (lambda x, w: F.conv2d(x, w), (meta(1, 3, 10, 10), meta(8, 3, 3, 3)), {"bfloat16": 2 * 8 * 3 * 9 * 64}),
        (lambda x: torch.softmax(x, -1) + 1, (meta(128, 128),), {}),
        (lambda a: a.float() @ a.float().T + (a @ a.T).float(), (meta(16, 16),), {"float32": 8192, "bfloat16": 8192}),
    ],
)
def test_products_are_counted_by_the_dtype_that_they_multiply(function, inputs, flops):
    returned, counted = counting(function, inputs)
    assert counted == flops and isinstance(returned, torch.Tensor)


def test_as_many_as_torch_s_own_counter_finds():
    def block(x, w, kernel):
        heads = F.linear(x, w).view(2, 16, 4, 8).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads)
        return F.conv2d(torch.einsum("bhsd,bhtd->bhst", mixed, heads), kernel) + torch.addmm(w, w, w).sum()

    inputs = torch.randn(2, 16, 32), torch.randn(32, 32), torch.randn(3, 4, 3, 3)
    with FlopCounterMode(display=False) as theirs:
        expected = block(*inputs)
    returned, counted = counting(block, inputs)
    assert counted == {"float32": theirs.get_total_flops()}
    torch.testing.assert_close(returned, expected)


@pytest.mark.parametrize(("rows", "columns", "pairs"), [(4, 4, 10), (4, 6, 10), (6, 4, 18)])
def test_causal_attention_counts_the_scores_that_it_needs(rows, columns, pairs):
    """The pairs (i, j) with j ≤ i, each 4 operations a channel: scores and their product with the values."""
    query, key = meta(2, 3, rows, 8), meta(2, 3, columns, 8)
    operation = torch.ops.aten._scaled_dot_product_flash_attention

    def tallied(**options):
        counts = Counter()
        _tallied(operation, flop_registry[operation], counts)(query, key, key, **options)
        return counts["bfloat16"]

    assert tallied() == tallied(is_causal=False) == 4 * 6 * rows * columns * 8
    assert tallied(is_causal=True) == 4 * 6 * pairs * 8


def test_a_reference_that_cannot_run_under_a_counter_runs_without_one():
    calls = []

    def reference(x):
        calls.append(x)
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("no modes here")
        return x @ x

    returned, counted = counting(reference, [torch.eye(2)])
    assert torch.equal(returned, torch.eye(2)) and counted == {} and len(calls) == 2


def test_the_later_of_bytes_and_operations_is_the_floor():
    rates = {"bfloat16": 1e15, "float32": 5e14}
    assert floor_of(Work(4_000_000, {}), 4e12, {}).kind == "bytes"
    slow = floor_of(Work(4_000_000, {"bfloat16": 10**10, "float32": 10**10}), 4e12, rates)
    assert (slow.kind, slow.us) == ("flops", pytest.approx(30.0))
    assert slow.flops_per_second == pytest.approx(2e10 / 30e-6)
    quick = floor_of(Work(4_000_000_000, {"bfloat16": 10**10}), 4e12, rates)
    assert (quick.kind, quick.us) == ("bytes", pytest.approx(1000.0)) and quick.flops_per_second == pytest.approx(1e15)


def test_a_dtype_without_a_rate_leaves_the_bytes():
    floor = floor_of(Work(4_000_000, {"bfloat16": 10**12, "float8_e4m3fn": 1}), 4e12, {"bfloat16": 1e15})
    assert (floor.kind, floor.us, floor.flops_per_second) == ("bytes", pytest.approx(1.0), None)


INPUTS = [torch.zeros(4, 8, dtype=torch.bfloat16), torch.zeros(8), 3]


@pytest.mark.parametrize(
    ("declared", "counted", "work"),
    [
        ({}, {}, Work(100, {})),
        ({}, {"float16": 7}, Work(100, {"float16": 7})),
        ({}, {"float32": 7, "float8_e4m3fn": 2}, Work(100, {"bfloat16": 7, "float8_e4m3fn": 2})),
        ({}, {"float32": 7, "bfloat16": 2}, Work(100, {"bfloat16": 9})),
        ({"ALGORITHMIC_FLOPS": 5}, {"float16": 7, "float32": 1}, Work(100, {"float16": 5})),
        ({"ALGORITHMIC_FLOPS": 5.0}, {}, Work(100, {"bfloat16": 5})),
        ({"ALGORITHMIC_FLOPS": 0, "ALGORITHMIC_BYTES": 9}, {"float16": 7}, Work(9, {})),
        ({"ALGORITHMIC_BYTES": lambda x, w, n: 2 * x.numel() * n}, {}, Work(192, {})),
    ],
)
def test_what_a_problem_declares_comes_before_what_was_counted(declared, counted, work):
    assert work_of(SimpleNamespace(**declared), INPUTS, 100, counted) == work


@pytest.mark.parametrize("value", [True, "many", -1, float("nan"), float("inf"), lambda x, w, n: None])
def test_a_declaration_that_is_no_number_or_raises_is_told(value):
    with pytest.raises(ContractError, match="ALGORITHMIC_FLOPS is .*, not a number from 0 up"):
        work_of(SimpleNamespace(ALGORITHMIC_FLOPS=value), INPUTS, 100, {})
    with pytest.raises(ContractError, match="ALGORITHMIC_BYTES raised TypeError"):
        work_of(SimpleNamespace(ALGORITHMIC_BYTES=lambda: 1), INPUTS, 100, {})


@pytest.mark.gpu
def test_a_product_is_held_against_the_rate_of_products():
    example = Path(__file__).parents[2] / "examples_index" / "kernels" / "gemm_sm80_bias_gelu.py"
    verdict = benchmark_kernel(example, BenchmarkOptions(rounds=4, compiled=False))
    assert verdict.passed and verdict.floor_kind == "flops", verdict.summary
    assert verdict.algorithmic_flops == 2 * 4096 * 2048 * 1024
    assert 20 < verdict.floor_percent < 110 and verdict.matmul_flops_per_second > 1e14


@pytest.mark.gpu
def test_rates_of_matrix_products_on_the_gpu():
    watch = Stopwatch()
    rates = {dtype: watch.matmul_flops_per_second(dtype) for dtype in (torch.bfloat16, torch.float32, torch.int64)}
    assert rates[torch.bfloat16] > rates[torch.float32] > 1e13 and rates[torch.int64] is None
    assert torch.get_float32_matmul_precision() == "highest"
