"""Products of factors rounded to tf32, where the user or PyTorch's flag asks for it: as exact as that, and no less."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.judge.reference_side.allowances import compared
from cutesmith.judge.reference_side.comparison import compare
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.contraction.proposals import proposals
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.generation.planning import plan_problem
from cutesmith.patterns.graph.attributes import Contraction
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.problems.loading import load_file
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.verdicts import Precision
from tests.patterns.running import load, move, normal

LINEAR = (lambda x, w, b: F.relu(F.linear(x, w, b)), (normal(33, 136), normal(40, 136, seed=1), normal(40, seed=2)))
CONVOLUTION = (lambda x, w: F.conv2d(x, w), (normal(2, 32, 8, 8), normal(40, 32, 1, 1, seed=1)))


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    """To so many significant bits, ties away from zero."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).float()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "arch"),
    [
        (LINEAR, "sm_80"),
        pytest.param(CONVOLUTION, "sm_90a", marks=pytest.mark.slow),  # test_hopper_float32, test_hopper_tf32
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


@pytest.fixture
def allowed(monkeypatch):
    """PyTorch's flag for cuDNN as it is by default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)


def rounds(function, inputs):
    """Whether the product that a function is may round its factors."""
    (product,) = (node for node in trace_function(function, inputs).nodes() if node.op == "contract")
    return Contraction.of(product).tf32


def test_convolutions_follow_pytorch_s_flag(allowed):
    function, inputs = CONVOLUTION
    assert rounds(function, inputs)
    assert not rounds(*LINEAR), "the flag for products is another one"
    assert not rounds(function, [value.bfloat16() for value in inputs])
    depthwise = (normal(1, 8, 9, 9), normal(8, 1, 3, 3, seed=1))
    assert not rounds(lambda x, w: F.conv2d(x, w, groups=8), depthwise), "PyTorch computes those itself"
    torch.backends.cudnn.allow_tf32 = False
    assert not rounds(function, inputs)


@pytest.mark.parametrize(("precision", "expected"), [(Precision.PYTORCH, True), (Precision.FLOAT32, False)])
def test_float32_may_be_demanded(allowed, tmp_path, precision, expected):
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\ndef reference_fn(x, w): return torch.nn.functional.conv2d(x, w)\n"
        "def get_inputs(): return [torch.ones(2, 64, 9, 9), torch.ones(64, 64, 3, 3)]\n"
    )
    with cuda_as_cpu(fake=True, arch="sm_90a"):
        plan = plan_problem(load_file(path), "sm_90a", precision=precision)
    assert plan.problem.tf32 is expected


CONVOLUTIONS = {
    "points": (lambda x, w: F.relu(F.conv2d(x, w)), (normal(1, 24, 9, 10), normal(20, 24, 1, 1, seed=1))),
    "padded": (lambda x, w: F.gelu(F.conv2d(x, w, padding=1)), (normal(2, 8, 9, 10), normal(20, 8, 3, 3, seed=1))),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2), (normal(2, 8, 13, 14), normal(20, 8, 3, 3, seed=1))),
    "dilated": (lambda x, w: F.conv2d(x, w, dilation=2), (normal(2, 8, 13, 14), normal(20, 8, 3, 3, seed=1))),
    "line": (lambda x, w: F.conv1d(x, w), (normal(2, 8, 90), normal(20, 8, 5, seed=1))),
    "volume": (lambda x, w: F.conv3d(x, w), (normal(1, 8, 5, 6, 7), normal(20, 8, 3, 3, 3, seed=1))),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (normal(1, 16, 9, 10), normal(20, 8, 3, 3, seed=1))),
    "turned": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        (normal(1, 8, 9, 10), normal(20, 8, 3, 3, seed=1).transpose(0, 1)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    CONVOLUTIONS,
)
def test_the_judge_takes_tf32_of_the_general_form_and_not_what_is_cut_off(allowed, form, tmp_path):
    function, inputs = CONVOLUTIONS[form]
    plan = match(trace_function(function, inputs))
    # The smallest tile has the same text and takes 1.1 s; that of 128 x 128 takes 6.
    source = plan.render(min(proposals(plan.problem), key=lambda tiles: tiles.tile_m * tiles.tile_n * tiles.tile_k))
    call = "            round_to_tf32(tCr"
    assert source.count(call) == 2
    native, exact = function(*inputs), in_float64(function, inputs)
    stated = [tolerance_for(torch.float32, None, None)]
    found = []
    for text in (source, source.replace(call, "            # (tCr")):
        with emulated_device("sm_80"):
            out = load(text, tmp_path).kernel_fn(*map(move, inputs)).cpu()
        (judged,) = compared(function, None, list(inputs), ([out], [native], [exact]), stated, strict=True)
        found.append(judged.violation is None)
    assert found == [True, False]
