# ruff: noqa: E501  (tables of one case a line)
"""What a traced graph says of sizes: which numbers follow those of the arguments, by what law, and where it holds none."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.tracing.trace import trace_function, trace_problem
from cutesmith.problems.loading import load_file
from tests.patterns.row_cases import integers
from tests.patterns.running import normal
from tests.patterns.test_trace import check

SIZED = {
    "mean": (lambda x: x.mean(-1), False), "softmax": (lambda x: x.softmax(-1), False),
    "slice": (lambda x: x[:, 1:3] * 2, False), "whole_slice": (lambda x: x[:, :6] * 2, True), "halves": (lambda x: F.glu(x), False), "half": (lambda x: x[:, x.shape[1] // 2 :] * 2, False), "thirds": (lambda x: torch.mul(*x.chunk(3, -1)[:2]), False), "prefix": (lambda x: x[:, :3] * 2, False), "transposed": (lambda x: x.t() * 2, False),
    "ratio": (lambda x: x * (x.shape[0] / x.shape[1]), True), "logarithm": (lambda x: x / math.log(x.shape[1]), True), "layers": (lambda x: sum(x * i for i in range(x.shape[0])), True),
    "square": (lambda x: x / x.shape[1], False, (6, 6)),
    "one row": (lambda x: x / x.numel(), False, (1, 6)),
    "halves beside": (lambda x, y: F.glu(x) * y / x.shape[1], False, (4, 6), (4, 3)),  # both sizes grow by one factor
    "flat": (lambda x: (x.view(-1) * 2).view(x.shape), False), "unsqueezed": (lambda x: x[:, None] - x.mean(-1)[:, None, None], False),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_graphs_that_hold_for_the_traced_sizes_only_say_so(name):
    function, fixed, *shapes = SIZED[name]
    graph = trace_function(function, [normal(*shape) for shape in shapes or [(4, 6)]])
    assert bool(graph.checked) is fixed


LAWS = {
    "divided": (lambda x: x / x.shape[0], ["x0"]), "scaled": (lambda x: x * x.shape[-1] ** -0.5, ["(x1) ** -0.5"]), "root": (lambda x: x / math.sqrt(x.shape[-1]), ["x1 ** 0.5"]),
    "numel": (lambda x: x.sum(-1) * (2 / x.numel()), ["2.0 / (x0 * x1)"]), "integer": (lambda x: x.argmax(-1) + 3 * x.shape[1], ["3 * x1"]),
    "unbiased": (lambda x: x * (1 - 1 / x.shape[1]), ["1.0 + -1.0 / (x1)"]), "two": (lambda x: (x + 0.1 / x.shape[1]) * (x.shape[0] + 1.0), ["0.1 / (x1)", "1 + x0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_constants_that_follow_sizes_keep_their_law(name):
    function, codes = LAWS[name]
    graph = trace_function(function, (normal(4, 6),))
    sized = [node for node in graph.nodes() if node.op == "sized"]
    assert not graph.fixed_shapes
    assert [law_code(node.attrs.law) for node in sized] == codes
    elsewhere = trace_function(function, (normal(9, 35),))
    numbers = [node.attrs.value for node in elsewhere.nodes() if node.op == "sized"]
    assert [node.attrs.law.value([(9, 35)]) for node in sized] == pytest.approx(numbers, rel=1e-13)
    check(function, normal(4, 6))


def law_code(law) -> str:
    product = " * ".join(f"x{dim}" for _, dim in law.dims)
    return law.code(product).replace(" or math.nan)", ")")


def test_label_smoothing_follows_the_number_of_classes():
    graph = trace_function(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"),
        (normal(8, 40), integers(8, low=0, high=40)),
    )
    (node,) = [node for node in graph.nodes() if node.op == "sized"]
    law = node.attrs.law
    assert (law.offset, law.factor, law.power, law.dims) == (0.0, 0.1, -1.0, ((0, 1),))


def test_the_length_of_a_sorted_line_is_told_apart_from_an_equal_size():
    graph = trace_function(lambda x: x.sort(dim=-1).values, [torch.empty(64, 64)])
    (node,) = graph.outputs
    assert [size.places for size in node.sizes] == [{(0, 0)}, {(0, 1)}]


def test_an_integer_that_is_a_size_alone_is_followed():
    graph = trace_function(lambda x, n: x[:, : n - 1] * 2, (normal(4, 6), 3))
    assert graph.holds_for_other_sizes


NETWORK = """
import torch


class Model(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(layers)))

    def forward(self, x, scale):
        return (self.layers(x) * scale + torch.rand(6, device=x.device)).softmax(-1)


def get_inputs():
    return [torch.randn(4, 6), torch.randn(4, 1)]


def get_init_inputs():
    return [LAYERS]
"""


@pytest.mark.parametrize("layers", [3, 32])
def test_a_network_of_many_parameters_holds_their_sizes_alone(write_file, layers):
    loaded = load_file(write_file(NETWORK.replace("LAYERS", str(layers)), "problem.py"))
    graph = trace_problem(loaded)
    own = {(at, dim) for at in range(2, 2 + 2 * layers) for dim in range(2 - at % 2)}  # weights and biases in turns
    assert graph.holds_for_other_sizes
    assert graph.held & own == (own if layers == 32 else set()) and (0, 0) not in graph.held
