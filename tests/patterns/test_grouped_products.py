"""Products whose matrices an index chooses, and of groups of rows that end at values of a tensor, beside float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import emulated, first_kernel, load, move, normal

BF16 = torch.bfloat16


def integers(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0))


CHOSEN = {
    "weights on the right": lambda x, w, e: torch.bmm(x[:, None], w[e])[:, 0].relu(),
    "index_select": lambda x, w, e: torch.bmm(x[:, None], w.index_select(0, e % len(w)))[:, 0],
    "transposed": lambda x, w, e: torch.bmm(x[:, None], w.mT.contiguous()[e].mT)[:, 0],
    "einsum": lambda x, w, e: torch.einsum("tk,tkn->tn", x, w[e]),
    "weights on the left": lambda x, w, e: (w[e].mT @ x[:, :, None])[..., 0],
    "both": lambda x, w, e: (x.unflatten(0, (-1, 2))[e % 5] @ w[e]).flatten(1),
    "einsum of two for each": lambda x, w, e: torch.einsum("tk,tekn->ten", x, w[torch.stack((e, (e + 1) % len(w)), 1)]),
    "einsum of transposed ones": lambda x, w, e: torch.einsum(
        "tk,tenk->ten", x, w.mT.contiguous()[torch.stack((e, (e + 1) % len(w)), 1)]
    ),
    "two for each": lambda x, w, e: (x[:, None, None] @ w[torch.stack((e, (e + 1) % len(w)), 1)]).sum(1)[:, 0],
}


def beside(actual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype
    allowed = 2**-8 if dtype == BF16 else 1e-6
    torch.testing.assert_close(actual.double(), exact, rtol=allowed, atol=2 * allowed * float(exact.abs().max()))


def in_float64(function, *inputs):
    return function(*(each.double() if each.is_floating_point() else each for each in inputs))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_product_reads_the_matrices_that_an_index_chooses_where_they_lie(name):
    """No launch gathers them: what a product reads is as large as the array, which has fewer than there are tokens."""
    x, w, e = normal(10, 64), normal(4, 64, 32, seed=1), integers(4, 10, low=-4)
    graph = trace_function(CHOSEN[name], (x, w, e))
    plan = plan_kernel(graph, "sm_90a")
    sizes = [argument.shape for launch in plan.launches for argument in launch.plan.graph.arguments]
    assert not {(10, 64, 32), (10, 32, 64), (10, 2, 64, 32), (10, 2, 32, 64), (10, 64, 64)} & {*sizes}
    (actual,) = interpret(graph, (x, w, e))
    torch.testing.assert_close(actual.double(), in_float64(CHOSEN[name], x, w, e), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_matrices_are_multiplied_in_any_size(name, dtype, arch, tmp_path):
    sizes = ((10, 16, 8, 4), *([] if name == "both" else [(6, 40, 24, 3), (22, 8, 12, 9)]))
    cases = [
        (normal(t, k, dtype=dtype), normal(w, k, n, dtype=dtype, seed=1), integers(w, t, low=-w))
        for t, k, n, w in sizes
    ]
    plan = plan_kernel(trace_function(CHOSEN[name], cases[0]), arch, free_sizes=True)
    with emulated(arch):
        kernel = load(plan.render(plan.configurations(arch)[0]), tmp_path)
        for inputs in cases:
            actual = kernel.kernel_fn(*map(move, inputs)).cpu()
            beside(actual, in_float64(CHOSEN[name], *inputs), dtype)


def grouped(x, w, ends):
    return F.grouped_mm(x, w, offs=ends)


def by_group(x, w, ends):
    bounds = [0, *ends.tolist()]
    return torch.cat([x[b:e].double() @ each.double() for b, e, each in zip(bounds, bounds[1:], w, strict=False)])


ENDS = {
    "an empty group": (150, [70, 70, 90, 91, 150]),
    "one group": (33, [33]),
    "only the last": (64, [0, 0, 64]),
    "groups of one row": (9, list(range(1, 10))),
    "whole tiles": (256, [64, 128, 256]),
    "a single row": (1, [0, 1]),
}


@pytest.mark.parametrize("name", ENDS)
def test_rows_of_groups_are_multiplied_with_the_matrix_of_their_group(name):
    rows, ends = ENDS[name]
    x, w = normal(rows, 16), normal(len(ends), 16, 8, seed=1)
    inputs = x, w, torch.tensor(ends, dtype=torch.int32)
    (actual,) = interpret(trace_function(grouped, inputs), inputs)
    torch.testing.assert_close(actual.double(), by_group(*inputs), rtol=1e-5, atol=1e-5)


def test_the_other_forms_of_a_grouped_product():
    x, w = normal(3, 8, 16, dtype=BF16), normal(16, 40, dtype=BF16, seed=1)
    ends = torch.tensor([10, 10, 40], dtype=torch.int32)
    (actual,) = interpret(trace_function(grouped, (x, w, ends)), (x, w, ends))
    beside(actual, by_group(w.mT, x.mT, ends).mT, BF16)
    batch = normal(3, 16, 8, dtype=BF16)
    (actual,) = interpret(trace_function(F.grouped_mm, (x, batch)), (x, batch))
    beside(actual, x.double() @ batch.double(), BF16)
    with pytest.raises(UnmatchedError, match="_grouped_mm"):
        trace_function(grouped, (normal(8, 40), w.float(), ends))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_one_kernel_takes_any_rows_and_groups(arch, tmp_path):
    rows, ends = ENDS["an empty group"]
    inputs = normal(rows, 32, dtype=BF16), normal(len(ends), 32, 24, dtype=BF16), torch.tensor(ends, dtype=torch.int32)
    graph = trace_function(grouped, inputs)
    assert graph.holds_for_other_sizes and not graph.held
    plan = plan_kernel(graph, arch, free_sizes=True)
    with emulated(arch):
        kernel = load(plan.render(plan.configurations(arch)[0]), tmp_path)
        for rows, ends in ENDS.values():
            x, w = normal(rows, 16, dtype=BF16), normal(len(ends), 16, 40, dtype=BF16, seed=1)
            inputs = x, w, torch.tensor(ends, dtype=torch.int32)
            beside(kernel.kernel_fn(*map(move, inputs)).cpu(), by_group(*inputs), BF16)


def mixture(x, router, up, down):
    """Two experts of each token: rows sorted by expert, grouped products, added up again."""
    weights, experts = torch.topk(torch.softmax(x @ router, -1), 2)
    order = torch.argsort(experts.flatten(), stable=True)
    ends = torch.cumsum(torch.bincount(experts.flatten(), minlength=router.shape[1]), 0).int()
    hidden = F.silu(F.grouped_mm(x[order // 2], up, offs=ends))
    out = F.grouped_mm(hidden, down, offs=ends) * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add(0, order // 2, out)


def mixture_of_all(x, router, up, down):
    """The same in float64, each expert of all tokens."""
    weights, experts = torch.topk(torch.softmax(x @ router, -1), 2)
    out = torch.stack([F.silu(x @ each) @ other for each, other in zip(up, down, strict=True)], 1)
    return (out.gather(1, experts[..., None].expand(-1, -1, x.shape[1])) * weights[..., None]).sum(1)


@pytest.mark.slow
def test_a_mixture_of_experts(tmp_path):
    inputs = normal(40, 16), normal(16, 4, seed=1), normal(4, 16, 24, seed=2), normal(4, 24, 16, seed=3)
    plan = plan_kernel(trace_function(mixture, inputs), "sm_90a")
    with emulated("sm_90a"):
        actual = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    beside(actual, mixture_of_all(*(each.double() for each in inputs)), torch.float32)


def checked(x, w, ends):
    if ends[-1] != len(x) or (ends.diff() < 0).any():
        raise ValueError("the ends do not divide the rows")
    return grouped(x, w, ends)


@pytest.mark.slow
def test_a_check_of_values_that_only_raises_is_taken_for_granted():
    inputs = normal(8, 16), normal(2, 16, 8), torch.tensor([3, 8], dtype=torch.int32)
    graph = trace_function(checked, inputs)
    assert any("ends[-1] != len(x)" in each for each in graph.assumes)
    (actual,) = interpret(graph, inputs)
    torch.testing.assert_close(actual.double(), by_group(*inputs), rtol=1e-5, atol=1e-5)


def denied(x, w, ends):
    if not (ends[-1] == len(x)):
        raise ValueError("the ends do not divide the rows")
    return grouped(x, w, ends)


@pytest.mark.parametrize(
    "function",
    [
        denied,
        lambda x, w, ends: torch.cat([x[: ends.tolist()[0]] @ w[0], x[ends.tolist()[0] :] @ w[1]]),
        lambda x, w, ends: x[x[:, 0] < ends[0]] @ w[0],
    ],
    ids=["check that denies", "list of ends", "mask"],
)
def test_rows_that_values_count_are_refused_with_a_form_that_is_taken(function):
    with pytest.raises(UnmatchedError, match="grouped_mm"):
        trace_function(function, (normal(8, 16), normal(2, 16, 8), torch.tensor([3, 8], dtype=torch.int32)))
