# ruff: noqa: E501  (a table of one case a line)
"""The elementwise pattern: what it takes, what the compiler makes of its kernels, and (on a GPU) what they compute."""

from __future__ import annotations

import math
import re

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.elementwise.plan import match
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns.interpret import interpret
from tests.patterns.running import (
    as_list,
    close,
    compare_on_gpu,
    emulated_hopper,
    first_kernel,
    like,
    load,
    move,
    normal,
)


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


def record(function, inputs, folder, arch="sm_90a", calls=()):
    """The recorded session of the best guess's kernel, and the outputs' metadata."""
    plan = plan_of(function, *inputs)
    with session(arch) as recorded:
        module = load(plan.render(plan.configurations(arch)[0]), folder)
        results = [module.kernel_fn(*map(like, call)) for call in (inputs, *calls)]
    return recorded, results


def widths(recorded) -> set[str]:
    text = "\n".join(module.ptx for module in recorded.modules)
    assert ".local" not in text
    return {match.replace(".nc", "") for match in re.findall(r"(?:ld|st)\.global[.\w]*", text)}


BF16 = torch.bfloat16


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_bias_and_gelu_move_16_bytes_at_once(arch, tmp_path):
    recorded, (out,) = record(
        lambda x, b: F.gelu(x + b), (normal(64, 1000, dtype=BF16), normal(1000, dtype=BF16)), tmp_path, arch
    )
    assert {width.split(".")[-2] for width in widths(recorded)} <= {"v4", "v2"}
    assert all("v4.b32" in width or "v2.b64" in width for width in widths(recorded))
    assert out.shape == (64, 1000)


def test_a_tensor_that_is_not_read_decides_about_the_type(tmp_path):
    function = lambda x: torch.zeros_like(x) + torch.arange(3, device=x.device)  # noqa: E731
    x = torch.ones(2, 3)
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan_kernel(trace_function(function, (x,)), "sm_90a"), tmp_path)
        assert torch.equal(kernel.kernel_fn(move(x)).cpu(), function(x))
        with pytest.raises(ValueError, match="float32"):
            kernel.kernel_fn(move(x.half()))


def test_a_dense_kernel_serves_every_length(tmp_path):
    calls = [(normal(3, 7),), (normal(1, 1),), (normal(1000, 33),), (normal(0, 4),)]
    recorded, outs = record(F.relu, (normal(64, 128),), tmp_path, calls=calls)
    assert len(recorded.modules) == 1
    assert len(recorded.launches) == 4  # the empty tensor launches nothing
    assert [tuple(out.shape) for out in outs] == [(64, 128), (3, 7), (1, 1), (1000, 33), (0, 4)]


@pytest.mark.slow
def test_a_transposed_operand_is_read_in_vectors_too(tmp_path):
    recorded, _ = record(lambda x, y: x + y, (normal(64, 96), normal(96, 64).t()), tmp_path)
    assert all(".v4." in width for width in widths(recorded))


def test_an_odd_transposed_operand_is_read_element_by_element(tmp_path):
    recorded, _ = record(lambda x, y: x + y, (normal(63, 96), normal(96, 63).t()), tmp_path)
    found = widths(recorded)
    assert any(width.startswith("st.global.v4") for width in found)
    assert any(width in ("ld.global.b32", "ld.global.f32") for width in found)


TRANSPOSED = {
    "halves": (lambda x: x.t().contiguous(), [normal(96, 136, dtype=BF16)]),
    "odd": (lambda x: x.t().contiguous(), [normal(33, 72)]),
    "channels last": (lambda x: x.permute(0, 2, 3, 1).contiguous(), [normal(2, 32, 6, 8, dtype=BF16)]),
    "a row, a column and two dtypes": (
        lambda x, y, b, c: torch.relu(x.t() + y * b) + c,
        [normal(48, 64, dtype=BF16), normal(64, 48), normal(48), normal(64, 1)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSPOSED)
def test_tiles_are_transposed_in_registers(name, tmp_path):
    function, inputs = TRANSPOSED[name]
    with emulated_device("sm_90a"):
        out = first_kernel(plan_of(function, *inputs), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(out, function(*inputs))


def overlaps(a, b):
    size = (torch.minimum(a[:, None, 1], b[:, 1]) - torch.maximum(a[:, None, 0], b[:, 0])).clamp(min=0)
    return size / (a[:, None, 1] - a[:, None, 0] + (b[:, 1] - b[:, 0]) - size)


PAIRS = {
    "rows and columns": (lambda x, y: x[:, None] * y, [normal(24, dtype=BF16), normal(72, dtype=BF16, seed=1)]),
    "intervals": (overlaps, [normal(40, 2).cumsum(1), normal(12, 2, seed=1).cumsum(1)]),
    "batches, odd columns": (
        lambda x, y: (x[:, :, None] - y[:, None]).abs(),
        [normal(2, 12, 5), normal(2, 33, 5)[:, :9]],
    ),
    "odd rows": (lambda x, y: x[:, None] - y, [normal(13), normal(16, seed=1).double()]),
    "a row alone": (lambda x: (x * 2).expand(16, 64), [normal(1, 64)]),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_computed_in_tiles(name, tmp_path):
    """With tiles from one element on: the emulated GPU computes few."""
    function, inputs = PAIRS[name]
    plan = plan_of(function, *inputs)
    source = plan.render(plan.configurations()[0])
    assert "ENOUGH = 264 * THREADS * VECTOR * 8" in source
    with emulated_device("sm_90a"):
        module = load(source.replace("ENOUGH = 264 * THREADS * VECTOR * 8", "ENOUGH = 1"), tmp_path)
        out = module.kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(out, function(*inputs))


@pytest.mark.slow
def test_a_tile_of_pairs_loads_each_number_once(tmp_path):
    with torch.device("meta"):
        inputs = [torch.empty(4096, 2), torch.empty(4096, 2)]
    recorded, _ = record(overlaps, inputs, tmp_path)
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    loads = recorded.modules[0].ptx.count("ld.global")
    assert kernel.widest_store_bits == 128 and loads <= 6 * (8 + 4)  # six views, of eight rows or of four columns


def test_numbers_that_lie_apart_take_longer_to_load():
    with torch.device("meta"):
        x, y, near, apart = torch.empty(1 << 12, 1), torch.empty(1 << 12), torch.empty(1 << 24), torch.empty(1 << 24, 4)
    function = lambda x, y: x.abs() * y  # noqa: E731
    pairs = [plan_of(function, x, each).warp_instructions for each in (y, apart[: 1 << 12, 0])]
    alone = [plan_of(function, x[:1], each).warp_instructions for each in (near, apart[:, 0])]
    assert alone[1] - alone[0] == 16 * 2 * (1 << 24) // 32  # 16 lines, each a cycle of two instructions
    assert pairs[1] - pairs[0] == (alone[1] - alone[0]) // 32


@pytest.mark.slow
def test_misaligned_views_get_narrow_accesses(tmp_path):
    base = torch.empty(64 * 64 + 8, dtype=BF16)
    plan = plan_of(F.relu, base[:4096])
    with session("sm_90a") as recorded:
        module = first_kernel(plan, tmp_path)
        module.kernel_fn(torch.empty(4104, dtype=BF16, device="cuda")[1:4097])
    assert not any(width.startswith("ld.global.v") for width in widths(recorded))


def test_rows_of_odd_pitch_are_not_read_in_vectors(tmp_path):
    recorded, _ = record(lambda x: x * 2, (normal(16, 9, dtype=BF16)[:, :8],), tmp_path)
    assert not any(width.startswith("ld.global.v") for width in widths(recorded))


def test_the_stream_is_torch_s_and_numbers_are_arguments(tmp_path):
    recorded, _ = record(lambda x, a: x * (1 - a), (normal(64, 64), 0.5), tmp_path, calls=[(normal(64, 64), 0.25)])
    assert len(recorded.modules) == 1
    values = [launch.parameters for launch in recorded.launches]
    assert values[0] != values[1]


# The plan


def test_the_first_operation_in_the_way_is_named():
    with pytest.raises(UnmatchedError, match=r"aten.sum.* is not element-wise"):
        plan_of(lambda x: x.sum(-1), normal(4, 4))
    with pytest.raises(UnmatchedError, match="different shapes"):
        plan_of(lambda x: (x * 2, x[:1] * 2), normal(4, 4))


def test_bytes_and_flops():
    plan = plan_of(lambda x, b: F.relu(x + b), normal(64, 32, dtype=BF16), normal(32, dtype=BF16))
    assert plan.algorithmic_bytes == 2 * (64 * 32 * 2 + 32)
    assert plan.algorithmic_flops == 2 * 64 * 32
    assert plan_of(lambda x: F.glu(x), normal(4, 8)).algorithmic_bytes == 4 * (4 * 8 + 4 * 4)
    assert plan_of(lambda x: x[:, 2:5] * 2, normal(4, 8)).algorithmic_bytes == 4 * 2 * (4 * 3)


def test_configurations_fit_the_types():
    assert {c.vector for c in plan_of(F.relu, normal(64)).configurations()} == {4}
    assert plan_of(F.relu, normal(64, dtype=BF16)).configurations()[0].vector == 8
    assert {c.vector for c in plan_of(lambda x: x > 0, normal(64)).configurations()} == {8, 4}


def test_a_thread_computes_one_element_of_functions_whose_code_is_long():
    """Eight elements of a table of double cosines and sines took 13 s to become machine code of the emulated GPU."""
    first = [
        plan_of(torch.cos, normal(64, dtype=dtype)).configurations()[0] for dtype in (torch.float64, torch.float32)
    ]
    assert [c.vector * c.vectors for c in first] == [1, 4]


def test_few_elements_are_spread_over_all_multiprocessors():
    few, many = (plan_of(F.relu, normal(size)).configurations()[0] for size in (8192, 1 << 18))
    assert (few.vectors, many.vectors) == (1, 2)


def test_names_that_the_kernel_needs_are_changed():
    def awkward(count, plan, v, sigmoid):
        return count + plan * v - sigmoid

    source = plan_of(awkward, *(normal(8) for _ in range(4))).render(plan_of(F.relu, normal(8)).configurations()[0])
    assert "def kernel_fn(count_in, plan_in, v_in, sigmoid_in):" in source


def test_traced_sizes_are_checked_where_they_are_part_of_the_kernel():
    configuration = plan_of(F.relu, normal(8)).configurations()[0]
    assert "was written for (4, 8)" in plan_of(lambda x: x.view(8, 4) * 2, normal(4, 8)).render(configuration)
    assert "was written for (4, *)" in plan_of(lambda x: x / math.log(x.shape[0]), normal(4, 8)).render(configuration)
    halves = plan_of(lambda x: x.view(2, 2, *x.shape[1:]) * 2, normal(4, 8))  # of no other number of rows
    assert "was written for (4, *)" in halves.render(configuration)
    for function in (lambda x: x.t() * 2, lambda x: x[:, :4] * 2):
        assert "was written for" not in plan_of(function, normal(4, 8)).render(configuration)


def test_constants_that_follow_sizes_are_computed_in_every_call(tmp_path):
    plan = plan_of(lambda x, a: F.relu(x * x.shape[1] ** -0.5) * a / x.numel(), normal(4, 8), 2.0)
    source = plan.render(plan.configurations()[0])
    assert "size_0 = (x.shape[1] or math.nan) ** -0.5" in source and "size_1 = x.shape[0] * x.shape[1]" in source
    with session("sm_90a") as recorded:
        kernel_fn = load(source, tmp_path).kernel_fn
        for rows, columns in ((4, 8), (8, 4), (9, 64)):
            kernel_fn(like(normal(rows, columns)), 2.0)
    assert (len(recorded.launches), len(recorded.modules)) == (3, 1)


def test_sigmoid_of_float32_is_right_to_four_last_places(tmp_path):
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3e38, -3e38, -87.5, -103.0])
    x = torch.cat((special, torch.linspace(-104, 20, 20_000), normal(20_000)))
    with emulated_device("sm_90a"):
        found = first_kernel(plan_of(torch.sigmoid, x), tmp_path).kernel_fn(move(x)).cpu()
    expected = torch.sigmoid(x.double())
    place = torch.finfo(torch.float32).eps * expected.clamp(min=2**-126)  # the last of float32, at most
    assert ((found.double() - expected).abs() <= 4 * place).logical_or(x.isnan()).all() and found[
        x.isnan()
    ].isnan().all()


@pytest.mark.slow
def test_gelu_of_float32_keeps_its_digits_where_it_is_small(tmp_path):
    """PyTorch's, by 1 + erf, is off by 9e-4 of the result at -4."""
    x = torch.linspace(-12, 12, 20000)  # without 0, where the result has no share
    plan = plan_of(F.gelu, x)
    with emulated_device("sm_90a"):
        out = first_kernel(plan, tmp_path).kernel_fn(move(x)).cpu()
    exact = x.double() * torch.special.erfc(x.double() * -math.sqrt(0.5)) / 2
    error = ((out.double() - exact) / exact).abs()
    assert all(float(error[x > low].max()) < most for low, most in ((-2, 1e-6), (-6, 3e-6), (-13, 1e-5)))


# A large bias that all of the outermost dimension share

SHARED = {
    "rows": (lambda x, b: x * 2 + b, [normal(6, 4096), normal(4096, seed=1)]),
    "odd columns": (lambda x, b: x + b, [normal(34, 1001), normal(1001, seed=1)]),
    "three dimensions": (lambda x, m, b: (x - m) * b, [normal(4, 8, 600), normal(4, 8, 1), normal(8, 600, seed=1)]),
    "prime": (lambda x, b: x + b, [normal(19, 2048), normal(2048, seed=1)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_the_order_that_reads_a_shared_tensor_once_is_the_same_function(name, tmp_path):
    """With a bias that counts as large from one byte: the cache of the emulated GPU is what it is."""
    function, inputs = SHARED[name]
    plan = plan_of(function, *inputs)
    source = plan.render(plan.configurations()[0])
    assert "REUSE_BYTES = 1 << 24" in source
    with emulated_device("sm_90a"):
        module = load(source.replace("REUSE_BYTES = 1 << 24", "REUSE_BYTES = 1"), tmp_path)
        out = module.kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(out, function(*inputs))


@pytest.mark.parametrize(
    ("sizes", "strides", "found"),
    [
        ([1 << 22, 32], [[1, 1 << 22], [1, 0]], ([1024, 16, 4096, 2], [[1, 1 << 22, 1024, 1 << 26], [1, 0, 1024, 0]])),
        ([64, 1 << 16, 3], [[1, 64, 1 << 22], [1, 64, 0]], ([64, 16, 3, 1 << 12, 1], None)),
        ([1 << 22, 32], [[1, 1 << 22], [0, 1]], None),  # one value a row is not read again
        ([4096, 32], [[1, 4096], [1, 0]], None),  # small enough to stay in the cache
        ([1 << 22], [[1], [1]], None),
    ],
)  # fmt: skip
def test_only_what_the_cache_has_lost_by_then_changes_the_order(sizes, strides, found, tmp_path):
    plan = plan_of(lambda x, b: x + b, normal(512, 512), normal(512))
    with session("sm_90a"):
        module = first_kernel(plan, tmp_path)
    assert module.THREADS * module.VECTORS * module.VECTOR == 1024
    ordered = module.reuse_order(sizes, strides, [4, 4])
    assert ordered[0] == (found or (sizes, strides))[0]
    assert found is None or found[1] is None or ordered[1] == found[1]
    assert found is not None or ordered[1] == strides


# On a GPU: against the graph in double precision

EVENS = torch.arange(40, dtype=torch.int32).reshape(5, 8)
CASES = {
    "gelu": (lambda x: F.gelu(x), [normal(33, 65)]),
    "sized": (lambda x, a: F.relu(x * x.shape[1] ** -0.5) * a / x.numel(), [normal(33, 65), 2.0]),
    "gelu_bf16": (lambda x: F.gelu(x), [normal(128, 4096, dtype=BF16)]),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), [normal(1001, dtype=torch.float16)]),
    "silu_mul": (lambda x, y: F.silu(x) * y, [normal(7, 1001, dtype=BF16), normal(7, 1001, dtype=BF16, seed=1)]),
    "swiglu_halves": (lambda x: F.silu(x[..., :32]) * x[..., 32:], [normal(5, 64, dtype=BF16)]),
    "glu_odd": (lambda x: F.glu(x), [normal(5, 66, dtype=BF16)]),
    "bias_channels": (lambda x, b: F.relu(x + b[:, None, None]), [normal(2, 6, 5, 8), normal(6)]),
    "bias_odd": (lambda x, b: x * b + 1, [normal(5, 7, dtype=BF16), normal(7, dtype=BF16)]),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v), [normal(2, 6, 4, 4), normal(6), normal(6).abs()]),
    "channels_last": (lambda x: x.sigmoid(), [normal(2, 8, 4, 4).to(memory_format=torch.channels_last)]),
    "transposed": (lambda x, y: x + y, [normal(64, 96), normal(96, 64).t()]),
    "all_transposed": (lambda x: x.exp(), [normal(64, 96).t()]),
    "sliced": (lambda x: x * 2, [normal(16, 9, dtype=BF16)[:, :8]]),
    "misaligned": (lambda x: x + 1, [normal(4097, dtype=BF16)[1:]]),
    "outer": (lambda x, y: x[:, None] * y[None, :], [normal(33), normal(48, seed=1)]),
    "shared": (lambda x, b: x * b, [normal(6, 1 << 20), normal(1 << 20, seed=1)]),
    "zero_d": (lambda x, s: x * s, [normal(5, 9), torch.tensor(2.5)]),
    "number": (lambda x, a: torch.where(x > a, x, (1 - a) * x), [normal(5, 9), 0.3]),
    "integer_number": (lambda x, n: x * n + n, [EVENS, 3]),
    "mixed": (lambda i, x, b: torch.where(b, x * i, x.float() - 1), [EVENS, normal(5, 8, dtype=BF16), EVENS > 9]),
    "to_bool": (lambda x: x > 0, [normal(5, 77)]),
    "logic": (lambda a, b: a & ~b | (a ^ b), [EVENS > 9, EVENS % 3 == 0]),
    "integers": (lambda i: (i // 3, i % -4, i**3, (i << 2) ^ 5, -i, i.abs()), [EVENS - 20]),
    "int64": (lambda i: i * 3 - 1, [EVENS.to(torch.int64) << 33]),
    "uint8": (lambda i: (i + 250, i * 3, i / 7), [EVENS.to(torch.uint8)]),
    "double": (lambda x: torch.tanh(x) * x + x.exp(), [normal(5, 9, dtype=torch.float64)]),
    "two_outputs": (lambda x, y: (x + y, (x * y).to(torch.bfloat16)), [normal(33, 9), normal(33, 9, seed=1)]),
    "causal": (lambda x: x.masked_fill(torch.ones(9, 9, device=x.device).triu(1).bool(), -1e9), [normal(2, 9, 9)]),
    "positions": (lambda x: x + torch.arange(6, device=x.device), [normal(5, 6).t().contiguous().t()]),
    "expanded": (lambda x: x * 2, [normal(5, 1).expand(5, 8)]),
    "same": (lambda x: x, [normal(5, 8)]),
    "flattened": (lambda x, b: (x + b).flatten(), [normal(5, 8), normal(8)]),
    "nan": (lambda x: (F.relu(x), x.clamp(-1, 1), x.sign(), torch.maximum(x, -x)), [torch.tensor([float("nan"), float("inf"), -1.0])]),
    "one": (lambda x: x.cos(), [normal(1)]),
    "empty": (lambda x: x.cos(), [normal(0, 4)]),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_gpu(name, tmp_path):
    function, inputs = CASES[name]
    graph = trace_function(function, inputs)
    plan = match(graph)
    compare_on_gpu(plan, plan.configurations()[:3], inputs, interpret(graph, inputs), tmp_path, close(2e-6))


def test_a_result_of_numbers_alone_takes_its_device_from_an_argument(tmp_path):
    def function(x):
        return torch.arange(x.shape[1], device=x.device).float() * 2

    plan = match(trace_function(function, (normal(2, 300),)))
    with emulated_device("sm_90a"):
        found = first_kernel(plan, tmp_path).kernel_fn(move(normal(2, 300))).cpu()
    assert found.equal(function(normal(2, 300)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int8, torch.bool])
def test_a_tensor_of_one_number_has_its_own_type(dtype, tmp_path):
    """Of the sum of no elements, too: the fuzz's seed 13386 got float32 for float16."""

    def function(x):
        return torch.full_like(x, 1), x[:0].sum(0, keepdim=True, dtype=x.dtype).repeat(2, 1)

    x = torch.ones(4, 6, dtype=dtype)
    plan = plan_kernel(trace_function(function, [x]), "sm_90a")
    with emulated_device("sm_90a"):
        found = as_list(first_kernel(plan, tmp_path).kernel_fn(move(x)))
    for ours, expected in zip(found, function(x), strict=True):
        assert (ours.dtype, ours.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.slow
def test_reads_of_a_line_and_of_its_elements_have_names_of_their_own(tmp_path):
    function = lambda x: x.flip(-1).softmax(-1).flip(0)  # noqa: E731
    x = normal(3, 8)
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan_kernel(trace_function(function, (x,)), "sm_90a"), tmp_path)
        torch.testing.assert_close(kernel.kernel_fn(move(x)).cpu(), function(x))


def test_shifts_before_and_after_a_remainder_are_whole_vectors_each(tmp_path):
    function = lambda x: F.pad(x.roll(2, -1), (0, 8)).roll(2, -1) + 1  # noqa: E731  (4 in all: a vector of float32)
    x = normal(3, 16)
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan_of(function, x), tmp_path)
        assert torch.equal(kernel.kernel_fn(move(x)).cpu(), function(x))


@pytest.mark.slow
def test_tanh_in_half_precision_is_right_for_all_sizes_of_numbers(tmp_path):
    sizes = torch.cat((torch.logspace(-4, 1.2, 500, dtype=torch.float64), torch.tensor([0.0, 0.02, 60000.0])))
    x = torch.cat((sizes, -sizes)).half()
    with emulated_device("sm_90a"):
        found = first_kernel(match(trace_function(torch.tanh, (x,))), tmp_path).kernel_fn(x.cuda()).cpu()
    torch.testing.assert_close(found, x.double().tanh().half(), rtol=1e-3, atol=0)


def above_the_diagonal(a):
    """A result of one byte, whose numbers lie 16 bytes apart."""
    return (a[:, None, 0] * a[None, :, 1] > a[None, :, 2]).triu(1)


@pytest.mark.slow
def test_numbers_that_lie_apart_are_loaded_one_by_one(tmp_path):
    a = torch.randn(37, 4, generator=torch.Generator().manual_seed(0))
    plan = plan_of(above_the_diagonal, a)
    assert plan.configurations()[0].vector == 1 < plan.configurations()[-1].vector
    with emulated_hopper():
        assert torch.equal(first_kernel(plan, tmp_path).kernel_fn(a.cuda()).cpu(), above_the_diagonal(a))
