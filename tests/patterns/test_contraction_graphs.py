"""Products in the traced graph: what they compute, where views become stored values, what an epilogue is made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.contraction.analysis import analyse
from cutesmith.patterns.graph.attributes import Contraction, Stored
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, normal


def heads(x):
    return x.view(2, 5, 3, 4).transpose(1, 2)


def attention(x, weight, bias):
    q, k, v = (heads(part) for part in F.linear(x, weight, bias).chunk(3, -1))
    return (torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v).transpose(1, 2).reshape(2, 5, 12)


CASES = {
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (normal(4, 5, 6), normal(7, 6), normal(7))),
    "attention": (attention, (normal(2, 5, 12), normal(36, 12), normal(36))),
    "einsum": (lambda x, y: torch.einsum("bhd,hde->bhe", x, y), (normal(2, 3, 4), normal(3, 4, 5))),
    "mv": (torch.mv, (normal(2, 3), normal(3))),
    "dot": (torch.dot, (normal(3), normal(3))),
    "shared_matrix": (torch.matmul, (normal(2, 3, 4, 5), normal(5, 6))),
    "shared_heads": (torch.matmul, (normal(2, 3, 4, 5), normal(2, 1, 5, 6))),
    "transposed": (lambda x, y: (x @ y).t().relu(), (normal(3, 5), normal(5, 6))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (normal(6), normal(3, 5), normal(5, 6))),
    "baddbmm": (torch.baddbmm, (normal(2, 3, 6), normal(2, 3, 5), normal(2, 5, 6))),
    "addmv": (torch.addmv, (normal(3), normal(3, 5), normal(5))),
    "by_one_number": (lambda x, y: x @ torch.full_like(y, 0.1), (normal(2, 3, 5), normal(5, 4))),
    "of_one_number": (lambda x, y: torch.zeros_like(x).exp() @ y, (normal(2, 3, 5), normal(2, 5, 4))),
    "empty_sum": (torch.matmul, (normal(3, 0), normal(0, 4))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_the_function(name):
    function, inputs = CASES[name]
    (ours,) = interpret(trace_function(function, inputs), inputs, precision=torch.float32)
    torch.testing.assert_close(ours, *as_list(function(*inputs)), rtol=1e-4, atol=1e-5)


def nodes(name, op):
    function, inputs = CASES[name]
    return [node for node in trace_function(function, inputs).nodes() if node.op == op]


def test_parts_of_a_projection_are_views_of_one_stored_value():
    parts = nodes("attention", "stored")
    assert len({node.inputs[0] for node in parts if node.shape[-3:] != (5, 3, 4)}) == 1
    assert {Stored.of(node).offset for node in parts} == {0, 12, 24}


def test_heads_are_multiplied_without_a_copy():
    scores, mixed = nodes("attention", "contract")[1:]
    assert [side.op for side in scores.inputs] == ["stored", "stored"]
    assert scores.shape == (2, 3, 5, 5) and mixed.shape == (2, 3, 5, 4)


def test_a_factor_may_be_one_row_that_is_repeated():
    def function(x, y):
        return y @ x.sum(1).half().expand(2, x.shape[0])

    inputs = normal(4, 64, dtype=torch.float16), normal(17, 2, seed=1, dtype=torch.float16)
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert [each.plan.pattern for each in plan.launches].count("contraction") == 1


def test_flops_are_two_for_each_product():
    function, inputs = CASES["shared_matrix"]
    assert trace_function(function, inputs).flops == 2 * (2 * 3 * 4) * 5 * 6


@pytest.fixture
def tf32_allowed():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def test_tf32_follows_pytorch_s_flag(tf32_allowed):
    assert Contraction.of(nodes("mv", "contract")[0]).tf32


def test_without_the_flag_float32_is_not_rounded():
    assert not Contraction.of(nodes("mv", "contract")[0]).tf32


# The analysis of one launch


def problem(function, *inputs):
    return analyse(trace_function(function, inputs), frozenset({"a"}))


def test_an_epilogue_is_a_function_of_the_sum_and_of_what_it_reads():
    def function(x, weight, bias, scale):
        return torch.relu(F.linear(x, weight, bias)) * scale + x

    found = problem(function, normal(6, 5), normal(5, 5), normal(5), 2.0)
    assert (found.m, found.n, found.k, found.batch) == (6, 5, 5, ())
    assert [(o.code.name, o.strides, o.varies) for o in found.epilogue.operands] == [
        ("bias", (0, 1), (False, True)),
        ("x", (5, 1), (True, True)),
    ]
    assert [number.name for number in found.epilogue.numbers] == ["scale"]
    assert found.epilogue.source().startswith("@cute.jit\ndef epilogue(acc: Float32, bias_mn: Float32, x_mn: Float32")


def test_layouts_and_vectors_of_the_operands():
    found = problem(torch.matmul, normal(6, 16, dtype=torch.bfloat16), normal(8, 16, dtype=torch.bfloat16).t())
    assert (found.a.contiguous, found.a.vector()) == (-1, 8)
    assert (found.b.contiguous, found.b.vector()) == (-2, 8)
    odd = problem(torch.matmul, normal(6, 18, dtype=torch.bfloat16)[:, :15], normal(15, 8, dtype=torch.bfloat16))
    assert odd.a.vector() == 1


def test_what_is_not_pointwise_is_named():
    with pytest.raises(UnmatchedError, match="amax"):
        problem(lambda x, y: (x @ y).amax(-1), normal(3, 5), normal(5, 6))


def test_an_argument_gives_way_to_a_name_of_the_template():
    assert problem(lambda a, b: a @ b, normal(3, 5), normal(5, 6)).arguments == ("a_in", "b")


def test_factors_that_were_16_bits_before_a_cast_are_multiplied_as_they_are():
    x, w = normal(3, 5, dtype=torch.bfloat16), normal(5, 6, dtype=torch.bfloat16)
    graph = trace_function(lambda x, w: x.float() @ w.float(), (x, w))
    (product,) = (node for node in graph.nodes() if node.op == "contract")
    assert [side.op for side in product.inputs] == ["input", "input"] and product.dtype == "float32"


@pytest.mark.parametrize("name", ["linear", "addmm", "addmv"])
def test_a_product_that_something_is_added_to_is_not_rounded_before(name):
    function, inputs = CASES[name]
    graph = trace_function(function, [value.bfloat16() for value in inputs])
    assert [node.dtype for node in graph.nodes() if node.op == "contract"] == ["float32"]
    assert [node.dtype for node in graph.outputs] == ["bfloat16"]


def test_a_factor_of_one_number_is_computed_before_the_product():
    def function(x, table, places, y):
        divided = torch.take_along_dim(x.flatten(1), places, 0)
        return (divided / divided.to(torch.bool)) @ y, x @ table

    inputs = [normal(1, 1), normal(1, 17), torch.zeros(1, 1, dtype=torch.int64), normal(1, 4)]
    assert isinstance(plan_kernel(trace_function(function, inputs), "sm_90a"), ChainPlan)


def test_factors_without_columns_are_not_seen_in_other_batches():
    def function(x, y, w, b):
        scores = F.linear(torch.einsum("bmk,bkn->bnm", x, y), w, b)
        return scores.softmax(0).max(0).values

    inputs = [normal(32, 17, 7), normal(32, 7, 0), normal(3, 17), normal(3)]
    assert isinstance(plan_kernel(trace_function(function, inputs), "sm_90a"), ChainPlan)


def test_a_product_without_elements_is_reduced():
    """Its leading dimensions are not those of a batch that was regrouped, though any have as many elements."""
    x, w = torch.ones(4, 0, 2), torch.ones(1, 2)
    graph = trace_function(lambda x, w: torch.count_nonzero((x @ w.t()).exp2(), 1), (x, w))
    (count,) = interpret(graph, (x, w))
    assert count.shape == (4, 1) and not count.any()
