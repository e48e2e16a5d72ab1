"""Totals in two launches: which functions are taken, what each half computes, and the file that holds both."""

from __future__ import annotations

import ast
import cmath
import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.totals import WORTHWHILE, match
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.writing.sections import join_sections, statements_in
from cutesmith.recording.open_session import session
from tests.patterns.row_cases import BF16, targets
from tests.patterns.running import (
    as_list,
    close,
    compare_on_gpu,
    emulated_hopper,
    exactly,
    first_kernel,
    interpret_chain,
    like,
    move,
    normal,
    recorded_launches,
)

LOGITS, OTHER, TARGET = normal(40, 64), normal(40, 64, seed=1), targets(40, 64)
LARGE = normal(128, WORTHWHILE // 128)

CASES = {
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), [LOGITS, TARGET]),
    "smoothed": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), [LOGITS, TARGET]),
    "sum_of_losses": (lambda x, t: F.cross_entropy(x, t, reduction="sum"), [LOGITS.to(BF16), TARGET]),
    "kl": (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), [LOGITS, OTHER]),
    "cosine": (lambda x, y: (1 - F.cosine_similarity(x, y)).mean(), [LOGITS, OTHER]),
    "triplet": (lambda x, y: F.triplet_margin_loss(x, y, x * y), [LOGITS, OTHER]),
    "mean_square": (lambda x: F.mse_loss(x, x * 0.5), [LARGE]),
    "norm": (lambda x: torch.linalg.norm(x), [LARGE]),
    "several": (lambda x, s: (x.sum() * s, x.amax() - x.amin(), x.mean()), [LARGE.view(4, 32, -1), 0.5]),
    "any": (lambda x: ((x > 4).any(), (x < 9).all(), (x > 0).sum()), [LARGE]),
    "half": (lambda x: x.mean(), [LARGE.to(torch.float16)]),
    "empty": (lambda x, t: F.cross_entropy(x, t, reduction="sum"), [normal(0, 64), TARGET[:0]]),
}


def plan_of(name):
    function, inputs = CASES[name]
    return match(trace_function(function, inputs))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in CASES if name != "empty"])
def test_the_halves_together_are_the_function(name):
    function, inputs = CASES[name]
    plan = plan_of(name)
    for ours, theirs in zip(interpret_chain(plan, inputs), as_list(function(*inputs)), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        tolerance = 1e-2 if theirs.dtype in (BF16, torch.float16) else 1e-5
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def contrast(x, labels):
    """CLIP's loss: images among texts, and texts among images."""
    return F.cross_entropy(x, labels) + F.cross_entropy(x.t(), labels)


@pytest.mark.slow
def test_large_rows_and_columns_are_visited_by_launches_of_their_own(tmp_path):
    with torch.device("meta"):
        given = [torch.empty(2048, 2048), torch.empty(2048, dtype=torch.int64)]
    plan = plan_kernel(trace_function(contrast, given), "sm_90a")
    assert {each.plan.pattern for each in plan.launches[::2][:2]} == {"rows", "columns"}
    inputs = [normal(48, 48), torch.arange(48) * 5 % 48]
    with emulated_hopper():
        (ours,) = as_list(first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)))
    close(1e-5)(ours.cpu(), *exactly(contrast, inputs))


def test_the_largest_of_sums_without_elements_is_0(tmp_path):
    """Rows without elements have sums; only a maximum of none is refused."""
    x = torch.empty(31, 0, dtype=BF16)
    plan = plan_kernel(trace_function(lambda x: x.abs().sum(-1).amax(), [x]), "sm_90a")
    with emulated_hopper():
        assert first_kernel(plan, tmp_path).kernel_fn(move(x)).item() == 0


def clipped(*tensors):
    """Tensors whose norm together is at most 1."""
    total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in tensors]))
    scale = (1 / (total + 1e-6)).clamp(max=1.0)
    return tuple(each * scale for each in tensors)


@pytest.mark.slow
def test_a_norm_over_many_tensors_joins_no_norms():
    """Two launches find all norms, and two scale matrices and vectors; the norms were stacked and reduced before."""
    shapes = [(2048, 2048), (2048,)] * 4
    plan = plan_kernel(trace_function(clipped, [torch.empty(shape, device="meta") for shape in shapes]), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["rows", "rows", "elementwise", "elementwise"]


@pytest.mark.slow
def test_a_norm_over_several_tensors(tmp_path):
    inputs = [normal(256, 256), normal(256, seed=1), normal(256, 256, seed=2)]
    plan = plan_kernel(trace_function(clipped, inputs), "sm_90a")
    with emulated_hopper():
        found = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs))
    for ours, exact in zip(found, exactly(clipped, inputs), strict=True):
        close(1e-6)(ours.cpu(), exact)


def test_values_of_rows_are_not_rounded_to_16_bits():
    for name in ("half", "sum_of_losses"):
        plan = plan_of(name)
        assert {node.dtype for node in plan.launches[0].plan.graph.outputs} == {"float32"}
        assert plan.graph.outputs[0].dtype in ("float16", "bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smoothed", "several", "any", "empty"])
def test_two_kernels_in_one_file(name, tmp_path):
    assert recorded_launches(plan_of(name), *CASES[name], tmp_path) == (1 if name == "empty" else 2)


@pytest.mark.slow
def test_other_shapes_compile_the_second_kernel_anew_at_most(tmp_path):
    plan = plan_of("smoothed")
    with session("sm_90a") as recorded:
        kernel_fn = first_kernel(plan, tmp_path).kernel_fn
        for rows, columns in ((40, 64), (40, 65), (7, 64)):
            kernel_fn(like(normal(rows, columns)), like(targets(rows, columns)))
    assert (len(recorded.launches), len(recorded.modules)) == (6, 4)
    assert "0.1 / (x.shape[1] or math.nan)" in plan.render(plan.configurations()[0])


def test_bytes_are_those_of_the_whole_function():
    assert plan_of("mean_square").algorithmic_bytes == 4 * (WORTHWHILE + 1)


# What is left to one launch, and what is refused

REFUSED = {
    "small": (lambda x: x.sum(), normal(8, 8), "no total of a large tensor"),
    "vector": (lambda x: x.sum(), normal(WORTHWHILE), "no reduction in the graph"),
    "rows": (lambda x: x.softmax(-1), LARGE, "no total"),
    "element after total": (lambda x: x / x.sum(), LARGE, "is used beside a total"),
    "longer elsewhere": (lambda x: x.exp().sum((0, 2)), LARGE.view(128, 1, -1), "no total"),
    "nested": (lambda x: (x - x.mean()).square().mean(), LARGE, "another total"),
    "beside": (lambda x: (x.sum(), x[0]), LARGE, "is used beside a total"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name):
    function, x, message = REFUSED[name]
    with pytest.raises(UnmatchedError, match=message):
        match(trace_function(function, [x]))


@pytest.mark.parametrize(("rows", "pattern"), [(8, "rows"), (WORTHWHILE // 8, "totals")])
def test_a_large_tensor_takes_two_launches(rows, pattern):
    assert plan_kernel(trace_function(lambda x: x.sum(), [normal(rows, 8)]), "sm_90a").pattern == pattern


# Sections

FIRST = """
import math

SIZE = 4
STATE = {}

def helper(x):
    return x + SIZE

def kernel(x):
    return helper(x) + 1

def kernel_fn(x):
    STATE[x] = kernel(x)
    return STATE[x]
"""


def test_a_statement_is_looked_at_once_for_all_sections_that_have_it():
    """Candidates differ in one launch: 40 sections of 6500 lines took 1.7 s of CPU time for each of them."""
    first, second, third = (FIRST.replace("+ 1", f"+ {number}") for number in (101, 102, 103))
    alone = join_sections({"one": first})
    before = statements_in.cache_info().misses
    joined = [join_sections({"one": first, "two": other}) for other in (second, third, second)]
    assert statements_in.cache_info().misses - before == 2
    assert alone != joined[0] == joined[2] != joined[1]


def test_sections_share_what_both_define():
    joined = join_sections({"one": FIRST, "two": FIRST.replace("+ 1", "+ 2")})
    names = [node.name for node in ast.parse(joined).body if isinstance(node, ast.FunctionDef)]
    assert names == ["helper", "kernel", "one", "two_kernel", "two"]
    scope: dict = {}
    exec(joined, scope)  # text of this test
    assert (scope["one"](1), scope["two"](1)) == (6, 7)
    assert (scope["STATE"], scope["TWO_STATE"]) == ({1: 6}, {1: 7})


def test_what_reads_something_different_is_different():
    joined = join_sections({"one": FIRST, "two": FIRST.replace("SIZE = 4", "SIZE = 5")})
    scope: dict = {"math": math}
    exec(joined, scope)
    assert (scope["one"](1), scope["two"](1)) == (6, 7)
    assert joined.count("import math") == 1


def test_what_means_the_same_as_a_renamed_definition_is_shared_too():
    second, third = FIRST.replace("SIZE = 4", "SIZE = 5"), FIRST.replace("SIZE = 4", "SIZE = 5").replace("+ 1", "+ 2")
    joined = join_sections({"one": FIRST, "two": second, "three": third})
    names = [node.name for node in ast.parse(joined).body if isinstance(node, ast.FunctionDef)]
    assert names == ["helper", "kernel", "one", "two_helper", "two_kernel", "two", "three_kernel", "three"]
    scope: dict = {}
    exec(joined, scope)
    assert [scope[name](1) for name in ("one", "two", "three")] == [6, 7, 8]


def test_functions_that_call_one_another_are_not_shared():
    first = """
STEP = 1

def even(x):
    return x <= 0 or odd(x - STEP)

def odd(x):
    return x > 0 and even(x - 1)

def kernel_fn(x):
    return odd(x)
"""
    joined = join_sections({"one": first, "two": first.replace("STEP = 1", "STEP = 2")})
    scope: dict = {}
    exec(joined, scope)
    assert (scope["one"](4), scope["two"](4)) == (False, True)
    assert joined.count("def ") == 6


def test_a_name_that_is_free_is_kept_and_imports_are_taken_name_by_name():
    first = "from math import cos, sin\n\ndef kernel_fn(x):\n    return cos(x) + sin(x)\n"
    second = "from math import exp, sin\nfrom cmath import cos\n\ndef grown(x):\n    return exp(x) + sin(x)\n\n"
    second += "def kernel_fn(x):\n    return grown(x) + cos(x)\n"
    joined = join_sections({"one": first, "two": second})
    assert "from math import exp\n" in joined and "from cmath import cos as two_cos\n" in joined
    assert "def grown(x)" in joined and joined.count("sin") == joined.count("sin(x)") + 1
    scope: dict = {}
    exec(joined, scope)
    assert scope["one"](0.5) == math.cos(0.5) + math.sin(0.5)
    assert scope["two"](0.5) == math.exp(0.5) + math.sin(0.5) + cmath.cos(0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_gpu(name, tmp_path):
    function, inputs = CASES[name]
    plan = plan_of(name)
    compare_on_gpu(plan, plan.configurations()[:2], inputs, exactly(function, inputs), tmp_path, close(1e-5))
