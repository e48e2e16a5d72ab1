"""Scatters on the emulated GPU, against float64: repeated indices, empty segments, both ends, what lies outside."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.scatters.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, exactly, load, move, normal

pytestmark = pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")


def ints(most: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Repeated indices below `most`, the first and the last one among them."""
    drawn = torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed))
    drawn.view(-1)[0], drawn.view(-1)[-1] = most - 1, 0
    return drawn


X, INDEX, BASE = normal(40, 24), ints(7, 40), normal(9, 24)
TABLE, IDS, OFFSETS = normal(30, 20), ints(30, 50), torch.tensor([0, 0, 7, 20, 20, 49, 50])
PLACES = torch.stack([torch.randperm(11, generator=torch.Generator().manual_seed(n))[:7] for n in range(5)])


def with_nan() -> torch.Tensor:
    x = X.clone()
    x[3, 4], x[5, 6], x[7, 8] = math.nan, math.inf, -math.inf
    return x


def bags(mode: str, **settings):
    return lambda table, ids, offsets: F.embedding_bag(ids, table, offsets, mode=mode, **settings)


def segments(reduce: str, initial: float | None = None):
    return lambda x, offsets: torch.segment_reduce(x, reduce, offsets=offsets, initial=initial)


def most_likely(x):
    """Those above nine tenths of all, in their own order, as samplers choose; and the places of the sorted ones."""
    ordered, places = x.sort(-1, descending=True)
    rare = ordered.softmax(-1).cumsum(-1) > 0.9
    masked = x.masked_fill(torch.zeros_like(rare).scatter(-1, places, rare), -math.inf)
    return masked, torch.zeros_like(x).scatter(-1, places, ordered * 2)


CASES = {
    "index_add": (lambda b, i, x: torch.relu(b.index_add(0, i, x * x, alpha=0.5)) + 1, (BASE, INDEX, X)),
    "scatter_add of lines": (
        lambda b, i, x: b.scatter_add(1, i, x),
        (normal(5, 11), ints(11, 5, 70), normal(5, 70)),
    ),
    "histogram": (
        lambda k: torch.zeros(3, 16, dtype=torch.int32, device=k.device).scatter_add(1, k & 15, (k * 0 + 1).int()),
        (ints(1000, 3, 300),),
    ),
    "extremes with NaN": (
        lambda b, i, x: b.scatter_reduce(0, i[:, None].expand_as(x), x, "amax"),
        (BASE, INDEX, with_nan()),
    ),
    "means without self": (
        lambda b, i, x: b.scatter_reduce(0, i[:, None].expand_as(x), x, "mean", include_self=False),
        (BASE, INDEX, X),
    ),
    "bags": (bags("sum"), (TABLE, IDS, OFFSETS)),
    "most likely": (most_likely, (normal(3, 70),)),
}
SLOW_CASES = {
    "scatter_add down": (lambda b, i, x: b.scatter_add(0, i, x), (normal(11, 6), ints(11, 70, 6), normal(70, 6))),
    "a part of the source": (lambda b, i, x: b.scatter_add(0, i, x), (BASE, ints(9, 12, 24), normal(15, 30))),
    "products": (lambda b, i, x: b.scatter_reduce(0, i[:, None].expand_as(x), x, "prod"), (BASE, INDEX, 1 + X / 9)),
    "least of integers": (lambda b, i, x: b.index_reduce(0, i, x, "amin"), (ints(99, 9), INDEX, ints(99, 40, seed=1))),
    "largest in their places": (
        lambda x: torch.zeros_like(x).scatter(-1, x.topk(5).indices, x.topk(5).values),
        (normal(4, 50),),
    ),
    "places along another dimension": (lambda x: x.scatter(0, x.argsort(1).t(), x * 2), (normal(9, 9),)),
    "sums of two widths": (
        lambda b, i, x: (b.index_add(0, i, x), b[:, :3].index_add(0, i, x[:, 1:4])),
        (BASE, INDEX, X),
    ),
    "means of integers": (
        lambda b, i, x: b.index_reduce(0, i, x, "mean"),
        (ints(99, 9), INDEX, ints(99, 40, seed=1) - 50),
    ),
    "int8 wraps": (lambda b, i, x: b.index_add(0, i, x), (ints(99, 9).char(), INDEX, ints(99, 40, seed=1).char())),
    "bf16": (lambda b, i, x: b.index_add(0, i, x), (BASE.bfloat16(), INDEX, X.bfloat16())),
    "float64 last dimension": (
        lambda b, i, x: b.index_add(-1, i, x),
        (normal(4, 9, dtype=torch.float64), INDEX, X.double()[:4, :1].expand(4, 40)),
    ),
    "scatter": (lambda b, i, x: b.scatter(1, i, x), (normal(5, 11), PLACES, normal(5, 7))),
    "scatter of a number": (lambda b, i: b.scatter(1, i, 2.5), (normal(5, 11), PLACES)),
    "scatter of truths": (lambda b, i: torch.zeros_like(b).bool().scatter(1, i, b[:, :7] > 0), (normal(5, 11), PLACES)),
    "index_copy": (lambda b, i, x: b.index_copy(0, i, x), (BASE, torch.tensor([8, 0, 3]), X[:3])),
    "index_fill": (lambda b, i: b.index_fill(0, i, -1.0), (BASE, torch.tensor([8, 0, 3, 3]))),
    "index_put": (
        lambda b, i, j, x: b.index_put((i, j), x),
        (BASE, torch.tensor([-1, 0, 3]), torch.tensor([5, -24, 2]), normal(3)),
    ),
    "index_put that adds": (
        lambda b, i, j, x: b.index_put((i, j), x, accumulate=True),
        (normal(5, 6), ints(5, 50) - 5, ints(6, 50, seed=1), normal(50)),
    ),
    "index_put of several places of each line": (
        lambda b, i, x: b.index_put((torch.arange(len(b), device=b.device)[:, None], i), x, accumulate=True),
        (normal(3, 5, 4), ints(5, 3, 8) - 3, normal(3, 8, 4)),
    ),
    "index_put beside a coordinate": (
        lambda b, i, x: b.index_put((i, torch.arange(b.shape[1], device=b.device)[:, None]), x),
        (normal(7, 4, 5), torch.tensor([[6, 2, -6]]).expand(4, 3), normal(4, 3, 5)),
    ),
    "in place on what is made": (
        lambda i, x: torch.zeros(9, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, i, x),
        (INDEX, X),
    ),
    "base and source are one": (lambda i, x: x.index_add(0, i, x), (ints(40, 40), X)),
    "transposed": (lambda b, i, x: b.t().index_add(1, i, x.t()), (BASE, INDEX, X)),
    "means of bags": (bags("mean"), (TABLE, IDS, OFFSETS)),
    "largest of bags": (bags("max"), (TABLE, IDS, OFFSETS)),
    "bags without one row": (bags("sum", padding_idx=int(IDS[3])), (TABLE, IDS, OFFSETS)),
    "bags with the last border": (bags("sum", include_last_offset=True), (TABLE, IDS, OFFSETS)),
    "bags of one length": (lambda table, ids: F.embedding_bag(ids, table), (TABLE, IDS.view(10, 5))),
    "weighted bags": (
        lambda t, i, o, w: F.embedding_bag(i, t, o, mode="sum", per_sample_weights=w),
        (TABLE, IDS, OFFSETS, normal(50)),
    ),
    "segment sums": (segments("sum"), (normal(50, 3), OFFSETS)),
    "segment means": (segments("mean", 0.5), (normal(50, 3), OFFSETS)),
    "segment lengths": (
        lambda x, lengths: torch.segment_reduce(x, "max", lengths=lengths),
        (normal(50), torch.tensor([3, 0, 7, 20, 20])),
    ),
    "histc": (lambda x: torch.histc(x, 20, -1.0, 2.0), (normal(700),)),
    "one element": (lambda b, i, x: b.index_add(0, i, x), (BASE[:1], INDEX[:2] * 0, X[:2])),
    "no index": (lambda b, i, x: b.index_add(0, i, x), (BASE, INDEX[:0], X[:0])),
    "no place": (lambda b, i, x: b.index_add(0, i, x), (BASE[:0], INDEX[:0], X[:0])),
    "many places": (lambda b, i, x: b.index_add(0, i, x), (normal(9000, 3), ints(9000, 3000), normal(3000, 3))),
    "backward of an embedding": (
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 30, 2, False),
        (normal(50, 20), IDS),
    ),
    "backward of an embedding by frequency": (
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 30, 2, True),
        (normal(50, 20), IDS),
    ),
}


def on_emulator(function, inputs, others, folder):
    """What a kernel that is written for `inputs` returns for them and for `others`."""
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), folder).kernel_fn
        return [[out.cpu() for out in as_list(kernel_fn(*map(move, given)))] for given in (inputs, *others)]


def compare(function, inputs, found):
    for ours, theirs in zip(found, exactly(function, inputs), strict=True):
        close(2e-6, of_largest=True)(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    compare(*CASES[name], *on_emulator(*CASES[name], (), tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    compare(*SLOW_CASES[name], *on_emulator(*SLOW_CASES[name], (), tmp_path))


@pytest.mark.slow
def test_every_configuration_is_right(tmp_path):
    function, inputs = CASES["index_add"]
    plan = match(trace_function(function, inputs))
    for configuration in plan.configurations():
        with emulated_device("sm_90a"):
            out = load(plan.render(configuration), tmp_path).kernel_fn(*map(move, inputs)).cpu()
        compare(function, inputs, [out])


@pytest.mark.parametrize("name", [*CASES, *SLOW_CASES])
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = (CASES | SLOW_CASES)[name]
    found = interpret(trace_function(function, inputs), list(inputs))
    for ours, theirs in zip(found, exactly(function, inputs), strict=True):
        close(1e-6, of_largest=True)(ours.to(theirs.dtype), theirs)


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    def function(base, index, x):
        return base.index_add(0, index, torch.tanh(x))

    others = [(normal(n, k), ints(n, m), normal(m, k)) for n, m, k in ((1, 5, 1), (300, 2, 3), (2, 1500, 130))]
    for given, found in zip(others, on_emulator(function, (BASE, INDEX, X), others, tmp_path)[1:], strict=True):
        compare(function, given, found)


@pytest.mark.slow
def test_the_sum_of_floats_is_the_same_in_every_run(tmp_path):
    x = 10 ** (3 * normal(600, 4))
    first, second = on_emulator(
        lambda b, i, x: b.index_add(0, i, x),
        (normal(3, 4), ints(3, 600), x),
        [(normal(3, 4), ints(3, 600), x)],
        tmp_path,
    )
    assert torch.equal(first[0], second[0])


@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_lines(right, tmp_path):
    lines = torch.randint(0, 9, (3, 20), generator=torch.Generator().manual_seed(0)).sort(-1).values.float()
    lines[1, -2:] = math.nan
    values = torch.tensor([-1.0, 0.0, 3.0, 3.5, 9.0, math.nan, math.inf]).expand(3, 7).contiguous()
    (found,) = on_emulator(lambda a, b: torch.searchsorted(a, b, right=right), (lines, values), (), tmp_path)
    assert torch.equal(found[0], torch.searchsorted(lines, values, right=right))


@pytest.mark.parametrize(
    ("function", "inputs", "error"),
    [
        (lambda b, i, x: b.index_add(0, i, x), (BASE, INDEX, X[:30]), RuntimeError),
        (lambda b, i, x: b.scatter_add(0, i, x), (BASE, ints(9, 50, 24), X), RuntimeError),
        (lambda b, i, x: b.scatter_add(0, i, x), (BASE, INDEX, X), RuntimeError),
        (lambda b, i, x: b.index_add(2, i, x), (BASE, INDEX, X), IndexError),
    ],
)
def test_shapes_that_pytorch_refuses_are_refused(function, inputs, error):
    with pytest.raises(error):
        function(*inputs)
    with pytest.raises(UnmatchedError):
        trace_function(function, inputs)


@pytest.mark.slow
def test_an_index_outside_changes_nothing(tmp_path):
    """PyTorch ends the program on a GPU; the kernel writes nowhere else."""
    index = INDEX.clone()
    index[3], index[4] = 9, -1
    inside = (index >= 0) & (index < 9)
    (found,) = on_emulator(lambda b, i, x: b.index_add(0, i, x), (BASE, index, X), (), tmp_path)
    compare(lambda b, i, x: b.index_add(0, i, x), (BASE, index[inside], X[inside]), found)


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda x: torch.bincount(x), (INDEX,), "shape depends on values"),
        (lambda x: torch.histc(x, 5), (X,), "depend on values"),
        (lambda a, b, s: torch.searchsorted(a, b, sorter=s), (X, X, X.argsort()), "an order that is given"),
    ],
)
def test_what_is_refused_says_why(function, inputs, reason):
    with pytest.raises(UnmatchedError, match=reason):
        trace_function(function, inputs)


def test_places_of_a_sort_need_no_order():
    function, inputs = CASES["most likely"]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    scatters = [launch.plan for launch in plan.launches if launch.plan.pattern == "scatters"]
    assert scatters and all(each.problem.is_alone and each.problem.is_orderless for each in scatters)
    assert not any(node.op == "gt" and node.inputs[0].op == "scatter" for node in plan.graph.nodes())
