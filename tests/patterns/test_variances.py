"""Variances and deviations of rows: what they are lowered to, and what kernels of several give."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.graph.attributes import NONE, Constant
from cutesmith.patterns.graph.nodes import Node, with_nodes
from cutesmith.patterns.rows.analysis import analyse
from cutesmith.patterns.rows.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, emulated_hopper, first_kernel, move, normal

VARIANCES = {
    "var0": lambda x: x.var(-1, correction=0),
    "var1": lambda x: x.var(-1),
    "std0": lambda x: x.std(-1, correction=0),
    "std1": lambda x: x.std((-2, -1)),
    "shared": lambda x: (x.var(-1) + x.mean(-1), x.mean(-1), x.std(-1)),
    "mean_var": lambda x: torch.var_mean(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_variances_are_lowered_to_what_pytorch_computes(name):
    x = normal(3, 5, 17, dtype=torch.float64) * 3 + 100
    graph = trace_function(VARIANCES[name], [x])
    analysis = analyse(graph)

    def divided(node: Node) -> Node:
        """`degrees`, which the interpreter does not know, as a division."""
        if node.op != "degrees":
            return node
        divisor = Constant(max(analysis.columns - node.attrs.correction, 0))
        return replace(node, op="div", inputs=(*node.inputs, Node("constant", (), (), "float64", divisor)), attrs=NONE)

    lowered = with_nodes(replace(graph, outputs=analysis.outputs), divided)
    operations = [node.op for node in lowered.nodes()]
    assert "var" not in operations and operations.count("mean") == 1  # shared by all that ask for it
    for ours, theirs in zip(interpret(lowered, [x]), as_list(VARIANCES[name](x)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_each_variance_of_a_row_has_its_own_correction(dtype, tmp_path):
    """One sum of squares serves all; a root is rounded once."""
    function = lambda x: (x.var(-1, correction=0), x.std(-1), x.var(-1, correction=2))  # noqa: E731
    x = normal(4, 10, dtype=dtype)
    with emulated_hopper():
        found = first_kernel(match(trace_function(function, [x])), tmp_path).kernel_fn(move(x))
    for ours, exact in zip(found, function(x.double()), strict=True):
        torch.testing.assert_close(ours.cpu(), exact.to(dtype), rtol=1e-6 if dtype == torch.float32 else 1e-3, atol=0)
