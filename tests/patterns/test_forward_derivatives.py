"""Derivatives along a direction, by `torch.func.jvp`: what is traced gives what PyTorch gives, of Inf and NaN too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jvp

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import check_product, normal

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by PyTorch's own derivatives

CASES = {
    "tanh": (lambda x, t: jvp(torch.tanh, (x,), (t,)), [(4, 8), (4, 8)]),
    "softmax": (lambda x, t, w: jvp(lambda y: torch.softmax(y @ w, -1), (x,), (t,)), [(4, 8), (4, 8), (8, 6)]),
    "norm": (lambda x, t, w: jvp(lambda y, v: F.layer_norm(y, (8,), v), (x, w), (t, 2 * w)), [(4, 8), (4, 8), (8,)]),
    "gradient": (lambda x, t: jvp(grad(lambda y: (y.exp() * y).sum()), (x,), (t,))[1], [(6,), (6,)]),
    "constant": (lambda x, t, w: jvp(lambda y: torch.where(y > 0, y * w, w), (x,), (t,)), [(4, 8), (4, 8), (8,)]),
    "pooling": (lambda x, t: jvp(lambda y: F.max_pool2d(y, 3, 2, 1), (x,), (t,)), [(2, 8, 8), (2, 8, 8)]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
def test_the_graph_computes_what_pytorch_does(name, special):
    """What no direction leads through has zeros that stay so: PyTorch's take part in no product with Inf."""
    function, shapes = CASES[name]
    inputs = [normal(*shape, seed=seed).double() for seed, shape in enumerate(shapes)]
    for each in inputs if special else ():
        each.view(-1)[0], each.view(-1)[-1] = torch.inf, torch.nan
    results = function(*inputs)
    for ours, theirs in zip(
        interpret(trace_function(function, inputs), inputs), torch.utils._pytree.tree_leaves(results)
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.slow
def test_a_kernel_gives_a_norm_and_its_derivative(tmp_path):
    function, inputs = CASES["norm"][0], [normal(4, 8), normal(4, 8, seed=1), normal(8, seed=2)]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert plan.pattern == "rows"
    check_product(plan, plan.configurations("sm_90a")[0], function, inputs, tmp_path)
