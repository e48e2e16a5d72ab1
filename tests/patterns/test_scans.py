"""Scans on the emulated GPU, against float64: every operation, both layouts, both ends, what is fused around them."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.scans.configuration import ScansConfiguration
from cutesmith.patterns.scans.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, exactly, interpret_chain, load, move, normal, traced

BF16, F64, SLOW = torch.bfloat16, torch.float64, pytest.mark.slow
LONG, ODD, CUBE = normal(2, 1100), normal(3, 131), normal(2, 37, 40)
FACTORS = 1 + CUBE[0] / 20
RATES = torch.sigmoid(normal(2, 37, 40, seed=1))


def extremes() -> torch.Tensor:
    """Ties, NaN twice in a row, and a row of -inf."""
    x = torch.randint(-3, 3, (3, 90), generator=torch.Generator().manual_seed(0)).float()
    x[1, 40], x[1, 70], x[0] = math.nan, math.nan, -math.inf
    return x


def infinities() -> torch.Tensor:
    x = 3 * normal(3, 200)
    x[0, :5], x[1, 3], x[2, 150] = -math.inf, math.inf, math.nan
    return x


INTS = torch.randint(-9, 9, (4, 50), generator=torch.Generator().manual_seed(0))


def before_first(x, dim):
    """KernelBench's exclusive sum: nothing, then the sum of all but the last."""
    first = torch.zeros_like(x.select(dim, 0).unsqueeze(dim))
    return torch.cat((first, torch.cumsum(x.narrow(dim, 0, x.size(dim) - 1), dim)), dim)


def doubled(factor, term, dim=1):
    """h[t] = factor[t] * h[t - 1] + term[t] in rounds that double the window which each element looks back over."""
    shift, length = 1, term.shape[dim]
    while shift < length:
        rest = length - shift
        earlier = term.narrow(dim, 0, rest) * factor.narrow(dim, shift, rest)
        term = torch.cat((term.narrow(dim, 0, shift), term.narrow(dim, shift, rest) + earlier), dim)
        both = factor.narrow(dim, shift, rest) * factor.narrow(dim, 0, rest)
        factor = torch.cat((factor.narrow(dim, 0, shift), both), dim)
        shift *= 2
    return term


def step_by_step(factor, term, dim=1):
    """The same by its definition."""
    states = [term.select(dim, 0)]
    for at in range(1, term.shape[dim]):
        states.append(factor.select(dim, at) * states[-1] + term.select(dim, at))
    return torch.stack(states, dim)


CASES = {
    "recurrence": (lambda a, b: doubled(torch.sigmoid(a), b * b) * 2 + a, (CUBE, CUBE + 1)),
    "recurrence from the end": (lambda a, b: doubled(a.flip(1), b.flip(1), 1).flip(1), (1 - ODD.abs() / 4, ODD)),
    "several tiles": (lambda x: x.cumsum(1), (LONG,)),
    "bf16 of odd length": (lambda x: x.cumsum(-1), (ODD.bfloat16(),)),
    "extremes of truths": (lambda x: tuple((x > 0.5).cummax(-1)), (normal(5, 12),)),
    "places of extremes": (lambda x: tuple(x.cummax(-1)), (extremes(),)),
    "log sum exp": (lambda x: x.logcumsumexp(-1), (infinities(),)),
    "reversed and another operand": (lambda x: x.flip(1).cumsum(1).flip(1) + x, (ODD,)),
    "nothing that is read": (lambda x: torch.full_like(x, 0.5).cumsum(1) * x, (ODD,)),
    "masked": (lambda x, mask: torch.cumsum(x * mask, 1), (ODD, ODD > 0.3)),
}
SLOW_CASES = {
    "columns": (lambda x: x.cumsum(1) * 2, (CUBE,)),
    "exclusive": (lambda x: before_first(x, 1), (ODD,)),
    "int8 down": (lambda x: x.cumsum(0), (INTS.to(torch.int8),)),
    "product": (lambda x: x.cumprod(-1), (1 + LONG / 100,)),
    "short lines": (lambda x: x.cumsum(-1), (normal(70, 7),)),
    "one element": (lambda x: x.cumsum(-1), (normal(5, 1),)),
    "no element": (lambda x: x.cumsum(-1), (normal(5, 0),)),
    "float64": (lambda x: x.cumprod(-1), ((1 + LONG / 100).double(),)),
    "int64 places": (lambda x: tuple(x.cummin(0)), (INTS,)),
    "places alone": (lambda x: x.cummax(-1).indices, (extremes(),)),
    "wraps": (lambda x: x.cumsum(-1, dtype=torch.uint8), (INTS.to(torch.uint8),)),
    "truths": (lambda x: (x > 0).cumsum(-1), (ODD,)),
    "log sum exp of float64 down": (lambda x: x.logcumsumexp(0), (normal(50, 3, dtype=F64),)),
    "reversed down": (lambda x: x.flip(0).cumprod(0).flip(0), (FACTORS,)),
    "one longer": (lambda x: torch.cat((torch.ones_like(x[:1]), x.cumprod(0)), 0), (FACTORS,)),
    "one longer from the end": (
        lambda x: torch.cat((x.flip(1).cumsum(1).flip(1), torch.zeros_like(x[:, :1])), 1),
        (ODD,),
    ),
    "mean so far": (lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device), (ODD,)),
    "coordinate of a line": (lambda x: (x * torch.arange(x.shape[0], device=x.device)[:, None]).cumsum(1), (ODD,)),
    "several outputs": (lambda x, w, s: (torch.relu(x.cumsum(1) - x) * w, x.cumsum(1) > s), (ODD, ODD[0], 0.25)),
    "transposed": (lambda x: x.transpose(1, 2).cumsum(-1), (CUBE,)),
    "every second": (lambda x: x[:, ::2].cumsum(-1), (LONG,)),
}


def check(function, inputs, folder, every=False):
    plan = match(traced(function, inputs))
    for configuration in plan.configurations()[: None if every else 1]:
        with emulated_device("sm_90a"):
            kernel = load(plan.render(configuration), folder)
            outs = [out.cpu() for out in as_list(kernel.kernel_fn(*map(move, inputs)))]
        for ours, theirs in zip(outs, exactly(function, inputs), strict=True):
            close(2e-6, of_largest=True)(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    check(*CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    check(*SLOW_CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["several tiles", "columns", "places of extremes"])
def test_every_configuration_is_right(name, tmp_path):
    check(*(CASES | SLOW_CASES)[name], tmp_path, every=True)


FEW_LINES = normal(2, 9001)  # many tiles each, and the last one is short


def long_extremes() -> torch.Tensor:
    """Ties over tiles, a NaN in the middle, and a row of -inf that ends with one number."""
    x = (FEW_LINES / 2).round()
    x[0, 4000], x[1, :8000] = math.nan, -math.inf
    return x


ROUNDS = {
    "sum": (lambda x, w: torch.relu(x.cumsum(1)) * w, (FEW_LINES, FEW_LINES[0])),
    "log sum exp from the end": (lambda x: x.flip(1).logcumsumexp(1).flip(1), (FEW_LINES,)),
    "exclusive": (lambda x: before_first(x, 1), (FEW_LINES.bfloat16(),)),
    "one longer": (lambda x: torch.cat((torch.ones_like(x[:, :1]), x.cumprod(1)), 1), (1 + FEW_LINES / 1000,)),
    "one longer than whole tiles": (
        lambda x: torch.cat((torch.ones_like(x[:, :1]), x.cumprod(1)), 1),
        (1 + LONG[:, :512] / 99,),
    ),
    "one tile": (lambda x: x.cumsum(1), (normal(3, 40),)),
    "float64": (lambda x: x.cumsum(1), (FEW_LINES.double(),)),
    "int64": (lambda x: x.cumsum(1), ((FEW_LINES * 2**40).long(),)),
    "int8 that wraps": (lambda x: x.cumsum(1, dtype=torch.int8), ((FEW_LINES * 9).to(torch.int8),)),
    "places": (lambda x: tuple(x.cummax(1)), (long_extremes(),)),
    "places of float64": (lambda x: tuple(x.cummin(1)), (long_extremes().double(),)),
    "places of int64": (lambda x: tuple(x.cummin(1)), ((FEW_LINES * 2**33).long(),)),
    "log sum exp of float64": (lambda x: x.logcumsumexp(1), (3 * FEW_LINES.double(),)),
}
SHAPES = {
    "places": (2, 2),
    "log sum exp from the end": (8, 1),
}  # elements of a vector, vectors of a thread


def in_rounds(warps: int, vector: int, vectors: int, bulk: bool = True) -> ScansConfiguration:
    """Small tiles, so that the blocks of a whole GPU have some each."""
    return ScansConfiguration(32, warps, 1, vector, vectors, stages=5, lead=2, resident=1, bulk=bulk)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ROUNDS)
def test_tiles_in_rounds_give_what_the_line_does(name, arch, tmp_path):
    function, inputs = ROUNDS[name]
    configuration = in_rounds(2, *SHAPES.get(name, (4, 1)), bulk=arch != "sm_80")
    with emulated_device(arch):
        kernel_fn = load(match(traced(function, inputs)).render(configuration), tmp_path).kernel_fn
        for values in (inputs, tuple(x.flip(-1) for x in inputs)):
            ours = as_list(kernel_fn(*map(move, values)))
            for one, expected in zip(ours, exactly(function, values), strict=True):
                close(2e-2 if expected.dtype == BF16 else 4e-6, of_largest=True)(one.cpu(), expected)


MANY_ROUNDS = {
    "one line": (lambda x: x.cumsum(1), normal(1, 40_000)),
    "lines that end within a round": (lambda x: x.cumsum(1), normal(3, 16_004)),
    "from the end": (lambda x: x.flip(1).cumsum(1).flip(1), normal(2, 20_000)),
    "places": (lambda x: tuple(x.cummax(1)), (normal(2, 20_000) / 2).round()),
    "a mask beside": (lambda x: (x * (x > 0)).cumsum(1) - x, normal(2, 20_000)),
    "not aligned": (lambda x: x.cumsum(1), normal(2, 20_001)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lines that end within a round", *(pytest.param(n, marks=SLOW) for n in MANY_ROUNDS)])
def test_rounds_follow_each_other_and_stages_are_filled_again(name, tmp_path):
    """132 blocks have some ten tiles of 32 elements each, in five stages."""
    function, x = MANY_ROUNDS[name]
    with emulated_device("sm_90a"):
        kernel_fn = load(match(trace_function(function, (x,))).render(in_rounds(1, 4, 1)), tmp_path).kernel_fn
        first, second = (as_list(kernel_fn(move(x))) for _ in range(2))
    for one, other, expected in zip(first, second, exactly(function, (x,)), strict=True):
        assert torch.equal(one.cpu(), other.cpu())  # the order of a sum does not depend on which block comes first
        close(4e-6, of_largest=True)(one.cpu(), expected)


@pytest.mark.slow
def test_what_is_not_finite_reaches_all_that_follows_it(tmp_path):
    x = FEW_LINES.clone()
    x[0, 3000], x[1, 100], x[1, 8000] = math.nan, math.inf, -math.inf
    plan = match(trace_function(lambda x: x.cumsum(1), (x,)))
    with emulated_device("sm_90a"):
        ours = load(plan.render(in_rounds(2, 4, 1)), tmp_path).kernel_fn(move(x)).cpu()
    close(4e-6, of_largest=True)(ours, x.double().cumsum(1).float())


@SLOW
def test_log_sum_exps_keep_what_is_small_and_what_is_not_finite(tmp_path):
    """A prefix is as exact as if nothing larger followed it; whole tiles, whose elements need no check."""
    x = 3 * normal(4, 1024)
    x[0] = torch.linspace(-3e38, 3e38, 1024)
    x[1, :8], x[1, 8:] = -200.0, 100.0
    x[2, :7], x[2, 512] = -math.inf, math.inf
    x[3, 300] = math.nan
    function = lambda x: x.logcumsumexp(1)  # noqa: E731
    plan = match(trace_function(function, (x,)))
    for vector, vectors in ((4, 4), (8, 2)):
        with emulated_device("sm_90a"):
            ours = load(plan.render(in_rounds(2, vector, vectors)), tmp_path).kernel_fn(move(x)).cpu()
        torch.testing.assert_close(ours, x.double().logcumsumexp(1).float(), rtol=1e-6, atol=1e-6, equal_nan=True)


def test_tiles_of_few_long_lines_are_at_work_in_rounds():
    def first(*shape, dtype=torch.float32):
        x = torch.empty(shape, dtype=dtype, device="meta")
        return match(trace_function(lambda x: x.cumsum(-1), (x,))).configurations()[0].stages

    assert first(1, 1 << 26) and first(4, 1 << 24, dtype=BF16) and first(4, 1 << 24, dtype=torch.int64)
    assert first(100, 1 << 20) and not first(4096, 1 << 16) and not first(4, 4096) and not first(64, 1 << 14)


@pytest.mark.parametrize("name", [*CASES, *SLOW_CASES])
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = (CASES | SLOW_CASES)[name]
    for ours, theirs in zip(interpret(traced(function, inputs), list(inputs)), exactly(function, inputs), strict=True):
        close(1e-6, of_largest=True)(ours.to(theirs.dtype), theirs)


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    def function(x):
        return torch.cat((torch.zeros_like(x[:, :1]), x.cumsum(1)), 1)

    plan = match(trace_function(function, (ODD,)))
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        for shape in ((1, 1), (2, 257), (3, 128)):
            x = normal(*shape)
            close(2e-6, of_largest=True)(kernel_fn(move(x)).cpu(), function(x.double()).float())


@pytest.mark.slow
def test_one_recurrence_serves_other_lengths(tmp_path):
    plan = match(trace_function(doubled, (RATES, CUBE)))
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        for shape in ((2, 1, 5), (1, 700, 3), (3, 64, 40)):
            a, b = torch.sigmoid(normal(*shape, seed=1)), normal(*shape)
            ours = kernel_fn(move(a), move(b)).cpu()
            close(2e-6, of_largest=True)(ours, step_by_step(a.double(), b.double()).float())


@pytest.mark.slow
def test_a_recurrence_takes_no_factor_of_the_first_element(tmp_path):
    a, b = torch.sigmoid(CUBE), CUBE.clone()
    a[:, 0], a[1, 20, 3], b[0, 5, 7] = math.nan, math.inf, math.nan
    plan = match(trace_function(doubled, (a, b)))
    with emulated_device("sm_90a"):
        ours = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(move(a), move(b)).cpu()
    close(2e-6)(ours, step_by_step(a.double(), b.double()).float())


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2])
def test_products_that_overflow_do_not_reach_a_state_that_a_loop_keeps_finite(dim, tmp_path):
    a, b = torch.full((2, 40, 40), 1e6), torch.full((2, 40, 40), 1e-30)
    a.narrow(dim, 9, 6).fill_(1e-25)  # the state does not grow beyond the range; eight factors before it do
    a[0, 30, 30], b[1, 20, 20] = 0.0, math.inf
    plan = match(trace_function(lambda a, b: doubled(a, b, dim), (a, b)))
    with emulated_device("sm_90a"):
        ours = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(move(a), move(b)).cpu()
    close(2e-6)(ours, step_by_step(a, b, dim))


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.cat((b[:, :1], b[:, 1:] + b[:, :-1] * a[:, 1:]), 1),  # one round alone
        lambda a, b: doubled(a[:, :4], torch.tanh(doubled(a, b))[:, 5:9]),
    ],
)
def test_what_looks_like_a_recurrence_is_computed_as_it_stands(function):
    graph = trace_function(function, (RATES, CUBE))
    for ours, theirs in zip(interpret(graph, [RATES, CUBE]), exactly(function, (RATES, CUBE)), strict=True):
        close(1e-6, of_largest=True)(ours.to(theirs.dtype), theirs)


def test_what_is_flipped_twice_is_itself_and_other_flips_are_launches():
    graph = trace_function(lambda x: x.flip(0, 1).flip(1, 0).cumsum(1), (ODD,))
    assert all(node.op != "take" for node in graph.nodes())
    plan = plan_kernel(trace_function(lambda x: x.flip(0).cumsum(1).flip(0), (ODD,)), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["elementwise", "scans", "elementwise"]


def test_the_exclusive_sum_of_one_element_is_zero():
    x = normal(1, 3)
    function = lambda x: torch.cat((torch.zeros_like(x[:1]), x[:-1])).cumsum(0)  # noqa: E731
    (zero,) = interpret_chain(plan_kernel(trace_function(function, (x,)), "sm_90a"), (x,))
    assert torch.equal(zero, torch.zeros_like(zero)) and zero.shape == x.shape


def test_scans_of_scans_are_launches_of_their_own():
    plan = plan_kernel(trace_function(lambda x: torch.softmax(x, 1).cumsum(0).cumsum(1), (ODD,)), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["rows", "scans", "scans"]


def test_stages_of_rounds_fit_the_shared_memory_of_every_architecture():
    row = torch.empty(64 << 20, device="meta")
    for name in ("cumsum", "logcumsumexp", "cummax"):
        plan = match(trace_function(lambda x, f=name: getattr(x, f)(0), (row,)))
        for arch in ("sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"):
            sm = parse_arch(arch).sm
            first = plan.configurations(arch)[0]
            assert first.bulk == sm.tma and first.stages >= first.lead + 2
            assert first.resident * first.stages * first.tile * 4 < sm.smem_per_sm


def test_a_row_of_more_than_four_billion_is_drafted():
    plan = plan_kernel(
        trace_function(lambda x: x.cumsum(0), [torch.empty(2**32 + 3, dtype=BF16, device="meta")]), "sm_90a"
    )
    assert "Int64" in plan.render(plan.configurations("sm_90a")[0])
