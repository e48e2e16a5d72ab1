"""Products of factors rounded to tf32, where the user asks for it: as exact as that, and judged by that."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.judge.reference_side.comparison import compare, tolerance_for
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.generation.planning import plan_problem
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.problems.loading import load_file
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.verdicts import Precision
from tests.patterns.running import load, move, normal

LINEAR = (lambda x, w, b: F.relu(F.linear(x, w, b)), (normal(33, 136), normal(40, 136, seed=1), normal(40, seed=2)))
CONVOLUTION = (
    lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    (normal(1, 5, 9, 9), normal(8, 5, 3, 3, seed=1)),
)


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    """To so many significant bits, ties away from zero."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).float()


@pytest.mark.parametrize(
    ("case", "arch"),
    [
        (LINEAR, "sm_80"),
        (CONVOLUTION, "sm_90a"),
        pytest.param(LINEAR, "sm_90a", marks=pytest.mark.slow),
        pytest.param(CONVOLUTION, "sm_80", marks=pytest.mark.slow),
    ],
    ids=["linear-sm_80", "convolution-sm_90a", "linear-sm_90a", "convolution-sm_80"],
)
def test_a_product_is_as_exact_as_tf32(case, arch, tmp_path):
    function, inputs = case
    graph = trace_function(function, inputs)
    errors = []
    for each in (graph, with_tf32(graph)):
        with emulated_device(arch):
            plan = plan_kernel(each, arch)
            module = load(plan.render(plan.configurations(arch)[0]), tmp_path)
            out = module.kernel_fn(*map(move, inputs)).cpu()
        expected = function(*(value.double() for value in inputs))
        errors.append(float((out - expected).square().mean().sqrt() / expected.square().mean().sqrt()))
    assert errors[0] < 1e-6 and errors[0] < errors[1] < 2**-10


def test_a_graph_without_products_of_float32_stays_as_it_is(tmp_path):
    graph = trace_function(torch.matmul, [normal(4, 4, dtype=torch.bfloat16)] * 2)
    assert with_tf32(graph) is graph
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\ndef reference_fn(x): return torch.relu(x)\ndef get_inputs(): return [torch.ones(4)]\n"
    )
    with cuda_as_cpu(fake=True, arch="sm_90a"), pytest.raises(UnmatchedError, match="--precision tf32 changes nothing"):
        plan_problem(load_file(path), "sm_90a", precision=Precision.TF32)


@pytest.mark.parametrize(("bits", "right"), [(11, True), (8, False)])
def test_the_tolerance_tells_tf32_from_bfloat16(bits, right):
    x, w = normal(128, 512), normal(512, 128, seed=1)
    exact, native = x.double() @ w.double(), x @ w
    ours = (rounded(x, bits).double() @ rounded(w, bits).double()).float()
    (asked, plain) = (
        compare(0, ours, native, exact, tolerance_for(torch.float32, None, None, tf32=tf32)) for tf32 in (True, False)
    )
    assert (asked.violation is None) is right and plain.violation is not None
