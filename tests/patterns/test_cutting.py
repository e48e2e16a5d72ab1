"""Graphs cut into launches: which ones, what they share, what they compute, and what is named in a refusal."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, Result
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.graph.attributes import View
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, exactly, interpret_chain, load, move, normal


def perceptron(x, *weights):
    for weight in weights:
        x = torch.relu(x @ weight)
    return x


def swiglu(x, gate, up, down):
    return (F.silu(x @ gate) * (x @ up)) @ down


def block(x, scale, first, second):
    return x + F.gelu(F.layer_norm(x, (16,), scale) @ first) @ second


def attention(x, weight, bias):
    def heads(part):
        return part.view(2, 5, 3, 4).transpose(1, 2)

    q, k, v = map(heads, F.linear(x, weight, bias).chunk(3, -1))
    return (torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v).transpose(1, 2).reshape(2, 5, 12)


def sobel(x):
    taps = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]], device=x.device)[None, None].to(x.dtype)
    return (F.conv2d(x, taps, padding=1) ** 2 + F.conv2d(x, taps.mT, padding=1) ** 2).sqrt()


def blurred(x):
    taps = torch.exp(-((torch.arange(3, device=x.device).to(x.dtype) - 1) ** 2))
    return F.conv1d(x, (taps / taps.sum()).expand(x.shape[1], 1, 3), groups=x.shape[1])


def means_of_a_box(x):
    return F.conv2d(x, x.new_ones(3, 1, 3, 3) / 9, groups=3)


def recurrent(kind, x, state, *weights):
    settings = (weights, True, 1, 0.0, False, False, False)  # biases, layers, dropout, training, both ways, batch first
    return kind(x, state, *settings)


def scanned_and_pooled(x):
    several = x.expand(2, *x.shape)
    return several.cumsum(-1), F.max_pool2d(several, 2)


def weights_of(gates, width=3, hidden=4):
    return [normal(gates * hidden, n, seed=n) for n in (width, hidden)] + [normal(gates * hidden) for _ in range(2)]


CASES = {
    "perceptron": (perceptron, (normal(8, 16), normal(16, 16), normal(16, 16), normal(16, 16))),
    "prologue": (lambda x: torch.relu(x) @ x.t(), (normal(9, 12),)),
    "softmax": (lambda x, w: torch.softmax(x @ w, -1), (normal(8, 16), normal(16, 264))),
    "swiglu": (swiglu, (normal(8, 16), normal(16, 24), normal(16, 24), normal(24, 16))),
    "block": (block, (normal(8, 16), normal(16), normal(16, 32), normal(32, 16))),
    "attention": (attention, (normal(2, 5, 12), normal(36, 12), normal(36))),
    "transposed": (lambda x, y: (x @ y).t(), (normal(3, 5), normal(5, 6))),
    "transposed_and_dense": (lambda x, y: (x @ y).t().contiguous(), (normal(3, 5), normal(5, 6))),
    "an_input_transposed_and_dense": (lambda x, y: (x @ y, x.t().contiguous()), (normal(3, 5), normal(5, 6))),
    "two_shapes": (lambda x: (x * 2, x[:3].exp()), (normal(6, 8),)),
    "number": (lambda x, w, s: torch.softmax((x @ w) * s, -1), (normal(8, 16), normal(16, 264), 0.5)),
    "sized": (lambda x, w: torch.softmax((x @ w) * w.shape[0] ** -0.5, -1), (normal(8, 16), normal(16, 264))),
    "gru": (partial(recurrent, torch.gru), (normal(2, 2, 3), normal(1, 2, 4), *weights_of(3))),
    "rnn": (partial(recurrent, torch.rnn_tanh), (normal(2, 2, 3), normal(1, 2, 4), *weights_of(1))),
    "expanded": (scanned_and_pooled, (normal(3, 6, 8),)),
    "taps_of_numbers": (sobel, (normal(2, 1, 5, 6),)),
    "taps_of_one_number": (means_of_a_box, (normal(2, 3, 5, 6),)),
    "taps_that_are_computed": (blurred, (normal(2, 3, 9),)),
    "nothing_before": (lambda x: x.new_zeros(3, 2) @ x, (normal(2, 3),)),
    "three_factors": (F.bilinear, (normal(6, 5), normal(6, 7), normal(4, 5, 7), normal(4))),
    "both_needed": (lambda x, w: (x @ w, F.gelu(x @ w).sum(0)), (normal(8, 16), normal(16, 24))),
}


def plan_of(function, inputs):
    return whole_or_cut(trace_function(function, inputs))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "rnn")) for n in CASES])  # as "gru"
def test_the_launches_compute_the_function(name):
    function, inputs = CASES[name]
    plan = plan_of(function, inputs)
    assert isinstance(plan, ChainPlan)
    for ours, theirs in zip(interpret_chain(plan, inputs), exactly(function, inputs), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_file_computes_the_function(name, tmp_path):
    function, inputs = CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_80")
    with emulated_device("sm_80"):
        kernel_fn = load(plan.render(plan.configurations("sm_80")[0]), tmp_path).kernel_fn
        outs = [out.cpu() for out in as_list(kernel_fn(*map(move, inputs)))]
    for ours, theirs in zip(outs, exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert [ours.stride() for ours in outs] == [theirs.stride() for theirs in as_list(function(*inputs))]


def launches(name):
    return [(launch.plan.pattern, launch.plan.graph.outputs[-1].op) for launch in plan_of(*CASES[name]).launches]


def test_what_follows_a_product_is_its_epilogue():
    assert launches("block") == [("rows", "mul"), ("contraction", "mul"), ("contraction", "add")]
    assert launches("swiglu") == [("contraction", "contract"), ("contraction", "mul"), ("contraction", "contract")]


@pytest.mark.slow
def test_attention_takes_three_launches():
    """The softmax is part of the scores' product, whose rows are short."""
    assert launches("attention") == [("contraction", "add"), ("contraction", "div"), ("contraction", "reshape")]


def test_alike_launches_share_one_kernel():
    plan = plan_of(*CASES["perceptron"])
    assert [launch.name for launch in plan.launches] == ["product"] * 3
    source = plan.render(plan.configurations()[0])
    assert source.count("def contraction_kernel(") == 1 and source.count("def product(") == 1


def test_a_value_is_freed_once_no_launch_needs_it():
    plan = plan_of(*CASES["block"])
    source = plan.render(plan.configurations()[0])
    lines = [line.strip() for line in source[source.rindex("def kernel_fn") :].split("\n")]
    assert lines[lines.index("product_1_out = product_1(rows_out, first)") + 1] == "del rows_out"
    assert not any("product_1_out" in line for line in lines if line.startswith("del"))  # the last launch reads it


def test_a_view_of_a_result_is_no_launch():
    plan = plan_of(*CASES["transposed"])
    assert plan.results == (Result(2, (View("{0}.t()"),)),) and len(plan.launches) == 1


def test_the_slowest_launch_is_tuned():
    plan = plan_of(lambda x, w: torch.softmax(x @ w, -1), (normal(64, 4096), normal(4096, 64)))
    assert plan.tuned_plan.pattern == "contraction"


def test_a_fused_epilogue_is_predicted_to_be_faster():
    x, w = (torch.empty(4096, 4096, device="meta"),) * 2
    fused, product = (plan_of(f, (x, w)) for f in (lambda x, w: torch.relu(x @ w), torch.matmul))
    relu = plan_of(torch.relu, (x,))
    assert H200.seconds(fused) < H200.seconds(product) + H200.seconds(relu)


def test_every_operation_in_the_way_is_named():
    def function(x, w):
        y = torch.linalg.matrix_exp(F.conv2d(x, w))
        return torch.histc(torch.relu(y) * w.sum())

    with pytest.raises(UnmatchedError) as caught:
        trace_function(function, (normal(1, 3, 8, 8), normal(4, 3, 3, 3)))
    lines = caught.value.message.split("\n")
    assert [line.split(" ")[0] for line in lines] == ["aten.linalg_matrix_exp", "aten.histc"]
    assert all("test_cutting.py:" in line for line in lines)


# Random compositions


def _work(step, v, x, square, vector):
    match step:
        case "gelu":
            return F.gelu(v)
        case "bias":
            return v + vector
        case "norm":
            return F.layer_norm(v, (16,))
        case "softmax":
            return torch.softmax(v, -1)
        case "residual":
            return v + x
        case "gate":
            return v * torch.sigmoid(v @ square)
        case "scale":
            return v * 0.5
        case _:
            return v - v.mean(-1, keepdim=True)


def composition(seed):
    """A function of products, row reductions and pointwise work on (…, 16) tensors, and its inputs."""
    draw = random.Random(seed)
    shape = draw.choice([(8, 16), (2, 5, 16), (1, 16), (3, 1, 16)])
    steps = [
        draw.choice("linear gelu bias norm softmax residual gate scale mean transpose".split())
        for _ in range(draw.randint(2, 9))
    ]
    x, square, vector = normal(*shape, seed=seed), normal(16, 16, seed=seed + 1) / 4, normal(16, seed=seed + 2)

    def function(x, square, vector):
        value = x
        for step in steps:
            if step == "linear":
                value = F.linear(value, square, vector)
            elif step == "transpose":
                value = (value.transpose(-1, -2).contiguous().transpose(-1, -2)) * 2
            else:
                value = _work(step, value, x, square, vector)
        return value

    return function, (x, square, vector), steps


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(40))
def test_random_compositions_are_cut_right(seed):
    function, inputs, steps = composition(seed)
    plan = plan_of(function, inputs)
    if isinstance(plan, ChainPlan):
        (ours,) = interpret_chain(plan, inputs)
        torch.testing.assert_close(
            ours, *exactly(function, inputs), rtol=1e-3, atol=1e-4, msg=lambda m: f"{steps}: {m}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_compositions_are_computed_right(seed, tmp_path):
    function, inputs, steps = composition(seed)
    plan = plan_kernel(trace_function(function, inputs), "sm_80")
    with emulated_device("sm_80"):
        out = load(plan.render(plan.configurations("sm_80")[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(out, *exactly(function, inputs), rtol=1e-3, atol=1e-4, msg=lambda m: f"{steps}: {m}")


# Other ways to say a product


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def patterns(function, *inputs):
    plan = plan_of(function, inputs)
    return [launch.plan.pattern for launch in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]


def test_a_product_with_a_vector_is_a_row_reduction_with_its_epilogue():
    assert patterns(lambda a, x, c: torch.relu(a @ x + c), empty(2048, 4096), empty(4096, 1), empty(2048, 1)) == [
        "rows"
    ]
    assert patterns(F.linear, empty(1, 4096), empty(8192, 4096), empty(8192)) == ["rows"]
    assert patterns(torch.matmul, empty(4096, 4096), empty(4096, 4096)) == ["contraction"]


def gated(x, gate, up, residual):
    return F.silu(F.linear(x, gate)) * F.linear(x, up) + residual


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(1,), (1, 1), ()])
def test_all_work_on_one_row_is_in_the_launch_of_its_sums(rows, tmp_path):
    x, residual = normal(*rows, 200, dtype=torch.bfloat16), normal(*rows, 72, dtype=torch.bfloat16, seed=3)
    weights = [normal(72, 200, dtype=torch.bfloat16, seed=seed) for seed in (1, 2)]
    assert patterns(gated, empty(*rows, 4096), *[empty(8192, 4096)] * 2, empty(*rows, 8192)) == ["rows"]
    plan = plan_of(gated, (x, *weights, residual))
    with emulated_device("sm_90a"):
        module = load(plan.render(plan.configurations()[0]), tmp_path)
        out = module.kernel_fn(*map(move, (x, *weights, residual))).cpu()
    (expected,) = exactly(gated, (x, *weights, residual))
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


def test_a_vector_beside_a_matrix_that_is_not_contiguous_along_k_stays_a_product():
    assert patterns(torch.matmul, empty(1, 64), empty(64, 48)) == ["contraction"]


def test_a_small_result_of_long_sums_is_cut_along_k():
    plan = plan_of(torch.matmul, (empty(256, 1 << 19), empty(1 << 19, 256)))
    product = plan.launches[0].plan.graph.outputs[0]
    assert product.op == "contract" and product.shape == (16, 256, 256) and product.dtype == "float32"
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "elementwise"]


@pytest.mark.parametrize("function", [torch.matmul, lambda a, b: torch.tanh(a @ b)])
def test_sums_in_parts_are_the_same_sums(function):
    inputs = normal(20, 4096), normal(4096, 20, seed=1)
    plan = plan_of(function, inputs)
    assert isinstance(plan, ChainPlan)
    (ours,) = interpret_chain(plan, inputs)
    torch.testing.assert_close(ours, *exactly(function, inputs), rtol=1e-5, atol=1e-4)


def test_values_of_rows_that_are_laid_along_columns_are_another_launch():
    """Sums of 264 rows, then a mean over those 264: one row kernel would take each sum for a row of its own."""
    inputs = normal(1, 16), normal(264, 16, seed=1)
    plan = plan_of(lambda x, w: F.layer_norm(x @ w.t(), (264,)), inputs)
    reductions = [sum(node.is_reduction for node in launch.plan.graph.nodes()) for launch in plan.launches]
    assert isinstance(plan, ChainPlan) and len(reductions) == 2 and 0 not in reductions[1:]


def test_a_sum_of_one_value_a_row_is_not_a_sum_over_its_columns():
    def function(x):
        return x.sum(1, keepdim=True).logsumexp(1, keepdim=True)

    plan = plan_of(function, (normal(6, 8),))
    assert isinstance(plan, ChainPlan) and len(plan.launches) == 2
    (ours,) = interpret_chain(plan, (normal(6, 8),))
    torch.testing.assert_close(ours, *exactly(function, (normal(6, 8),)))


def balanced(scores):
    """Four rounds of Sinkhorn's balancing, in logarithms."""
    for _ in range(4):
        scores = scores - torch.logsumexp(scores, dim=-1, keepdim=True)
        scores = scores - torch.logsumexp(scores, dim=-2, keepdim=True)
    return scores


@pytest.mark.slow
def test_each_step_of_an_iteration_reads_the_one_before_it():
    inputs = (normal(2, 5, 9),)
    plan = whole_or_cut(trace_function(balanced, inputs))
    assert [launch.plan.pattern for launch in plan.launches] == ["rows", "columns"] * 4
    assert all(len(launch.sources) == 1 for launch in plan.launches)
    (ours,) = interpret_chain(plan, inputs)
    torch.testing.assert_close(ours, balanced(inputs[0].double()), rtol=1e-6, atol=1e-6, check_dtype=False)


def potentials(scores):
    """The same by sums of rows and of columns: each step reads the scores too."""
    rows = columns = torch.zeros((), dtype=scores.dtype)
    for _ in range(3):
        rows = -torch.logsumexp(scores + columns, dim=-1, keepdim=True)
        columns = -torch.logsumexp(scores + rows, dim=-2, keepdim=True)
    return scores + rows + columns


@pytest.mark.slow
def test_no_value_is_stored_by_two_launches():
    inputs = (normal(2, 5, 9),)
    plan = whole_or_cut(trace_function(potentials, inputs))
    made = {(launch.plan.graph.outputs[0].op, launch.sources) for launch in plan.launches}
    assert len(made) == len(plan.launches)
    (ours,) = interpret_chain(plan, inputs)
    torch.testing.assert_close(ours, potentials(inputs[0].double()), rtol=1e-6, atol=1e-6, check_dtype=False)


def test_a_network_of_comparisons_and_a_walk_over_indices_take_longer_than_their_bytes():
    x, ids = torch.empty(131072, 128, device="meta"), torch.empty(524288, dtype=torch.int64, device="meta")
    best = plan_kernel(trace_function(lambda x: torch.topk(x, 8, dim=-1).values, (x,)), "sm_90a")
    rows = torch.empty(524288, 128, device="meta")
    added = plan_kernel(
        trace_function(lambda x, ids: x.new_zeros(16384, 128).index_add(0, ids, x), (rows, ids)), "sm_90a"
    )
    for plan in (best, added):
        assert H200.seconds(plan) > 1.5 * plan.algorithmic_bytes / H200.bytes_per_second


def test_a_function_whose_results_are_all_its_input_is_refused():
    with pytest.raises(UnmatchedError, match="nothing is computed"):
        plan_kernel(trace_function(lambda x: (x.squeeze(), torch.minimum(x, x)), [normal(17, 1)]), "sm_90a")


@pytest.mark.slow
def test_what_is_stored_rounded_is_read_by_all(tmp_path):
    def nothing(x, y):
        total = (x + y).logsumexp((0,), keepdim=True)
        return torch.log_softmax(total, 0) / x

    values = normal(7, 64, dtype=torch.bfloat16), normal(64, dtype=torch.bfloat16, seed=1)
    plan = plan_kernel(trace_function(nothing, values), "sm_90a")
    assert [launch.name for launch in plan.launches] == ["columns", "rows", "pointwise"]
    with emulated_device("sm_90a"):
        (found,) = as_list(load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(*map(move, values)))
    assert not found.any()


def test_values_between_launches_count_where_they_are_written_and_where_they_are_read():
    def both(x, first, second):
        hidden = torch.relu(x @ first)
        return hidden, hidden @ second, hidden.sum(-1)

    inputs = normal(8, 16), normal(16, 16), normal(16, 16)
    plan = plan_kernel(trace_function(perceptron, inputs), "sm_80")
    assert isinstance(plan, ChainPlan) and len(plan.launches) == 2
    assert plan.passed_bytes == 2 * 8 * 16 * 4
    plan = plan_kernel(trace_function(both, inputs), "sm_80")
    readers = sum(place >= 3 for launch in plan.launches for place in launch.takes)
    assert readers >= 1 and plan.passed_bytes == readers * 8 * 16 * 4  # what is returned is written anyhow
