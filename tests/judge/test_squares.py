"""Values whose squares leave their type: which results are decided there, and what an honest kernel may return."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.judge.candidate_side.requests import Ran, StepReport
from cutesmith.judge.derived import Draw, judge_derived
from cutesmith.judge.draws.cases import Drawing
from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.draws.kinds import kinds_of
from cutesmith.judge.draws.values import squares_above, squares_below
from cutesmith.judge.draws.watching import watch
from cutesmith.judge.reference_side.allowances import compared
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.requests import Drawn
from cutesmith.judge.reference_side.squares import beyond_squares
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.judge.rounds import DERIVED, Round, VerifyOptions
from cutesmith.judge.transfer.tensors import write_tensor
from cutesmith.verdicts import CaseOutcome, CaseReport
from tests.judge.in_process import LocalWorker, reference_of, said_of

SEEDED = torch.Generator().manual_seed(3)
ROWS = torch.randn(4, 64, generator=SEEDED)
DRAWS = {"above": squares_above, "below": squares_below}

DECIDED = {  # the reference, and the draws where PyTorch's algorithm is right in any type
    "hypot": (lambda x: torch.hypot(x, x.flip(0)), ("above", "below")),
    "softplus": (F.softplus, ("above", "below")),
    "asinh": (torch.asinh, ("above", "below")),
    "mean": (lambda x: x.mean(-1), ("above", "below")),
    "norm": (lambda x: x.norm(dim=-1), ()),
    "std": (lambda x: x.std(-1), ()),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), ("below",)),
    "cosine similarity": (lambda x: F.cosine_similarity(x, x.flip(0)), ("below",)),
    "rms norm and a residual": (lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) + x, ("below",)),
    "x over squares": (lambda x: x / (1 + x * x), ("below",)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("function", "decided"), DECIDED.values(), ids=DECIDED)
def test_results_are_decided_where_pytorch_survives_a_square_out_of_range(function, decided, draw, dtype):
    values = [DRAWS[draw](ROWS.to(dtype), None)]
    (lost,) = beyond_squares(function, values, [in_float64(function, values)])
    assert lost is None if draw in decided else bool(lost.all())


def normed(image, weight):
    return F.instance_norm(F.conv2d(image, weight))


@pytest.mark.parametrize(("function", "decided"), [(normed, False), (F.conv2d, True)])
def test_sums_whose_squares_leave_float32_count_where_those_of_the_inputs_do_not(function, decided):
    small = torch.rand(8, 16, 3, 3, generator=SEEDED) / 12
    values = [torch.rand(2, 16, 6, 6, generator=SEEDED), squares_above(small, None)]
    assert values[1].square().isfinite().all() and F.conv2d(*values).square().isinf().all()
    (lost,) = beyond_squares(function, values, [in_float64(function, values)])
    assert lost is None if decided else bool(lost.all())


def test_what_a_gpu_makes_of_such_a_norm_holds_no_kernel_to_it():
    """PyTorch's own was not 0 everywhere on an H200."""
    values = [torch.rand(2, 16, 6, 6, generator=SEEDED), squares_above(torch.rand(8, 16, 3, 3) / 12, None)]
    native = torch.zeros(2, 8, 4, 4).index_fill(1, torch.tensor([3, 5]), torch.nan)
    sides = [torch.zeros(2, 8, 4, 4)], [native], [in_float64(normed, values)]
    stated = [replace(tolerance_for(torch.float32, None, None), derived=True)]
    (result,) = compared(normed, lambda _: sides[1:], values, sides, stated, strict=False)
    assert result.violation is None and not result.decided


def test_inputs_of_ordinary_size_are_compared_everywhere():
    values = [torch.cat([ROWS, torch.zeros(1, 64), torch.full((1, 64), torch.inf)])]
    assert beyond_squares(lambda x: x.std(-1), values, [values[0].double().std(-1)]) == [None]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_squares_of_what_is_drawn_leave_its_type(draw, dtype):
    values = DRAWS[draw](ROWS.to(dtype), None)
    assert values.isfinite().all() and bool(values.any())
    squares = values * values
    assert (squares.isinf() if draw == "above" else squares == 0).float().mean() > 0.75


def by_squares(x):
    return (x * x + x.flip(0) * x.flip(0)).sqrt()


@pytest.mark.parametrize("change", DRAWS.values(), ids=DRAWS)
def test_a_hypot_by_squares_is_wrong_and_a_norm_that_overflows_is_not(tmp_path, change):
    values = change(ROWS, None)

    def violation(formula, output):
        return said_of(reference_of(tmp_path, formula), tmp_path, values, output, derived=True, strict=False).violation

    hypot, norm = "torch.hypot(x, x.flip(0))", "x.norm(dim=-1)"
    assert violation(hypot, by_squares(values))
    assert violation(hypot, torch.hypot(values, values.flip(0))) is None
    for output in (values.square().sum(-1).sqrt(), values.double().norm(dim=-1).float()):
        assert violation(norm, output) is None
    assert violation("x * 2", values * 3)


@pytest.mark.parametrize(
    ("formula", "outcome"), [("x.norm(dim=-1)", CaseOutcome.NOT_DECIDED), ("torch.hypot(x, x)", CaseOutcome.PASSED)]
)
def test_a_case_whose_every_result_is_lost_is_not_decided_and_one_that_was_compared_passes(tmp_path, formula, outcome):
    reference, values = reference_of(tmp_path, formula), squares_above(ROWS, None)
    reference.drawn[DERIVED] = [values]
    output = write_tensor(reference.loaded.reference_fn(values), tmp_path / "y")
    step = StepReport(is_tuple=False, computed={}, copied={}, violations=(), outputs=(output,))
    turn = Round(tmp_path, LocalWorker(reference), LocalWorker(None), VerifyOptions())
    (tmp_path / "inputs").mkdir()
    draws = [Draw("squares above", DERIVED, Drawn(accepted=True))]
    report = CaseReport(name="derived: squares above", inputs="")
    done = judge_derived(turn, report, Ran((step,)), DerivedCase("squares above", ("squares above",)), draws=draws)
    assert done.outcome is outcome and done.passed
    assert bool(done.outputs) is (outcome is CaseOutcome.PASSED)
    assert ("are not decided" in done.remark) is (outcome is CaseOutcome.NOT_DECIDED)


@pytest.mark.parametrize(
    ("reference", "drawn"), [(torch.asinh, True), (lambda x: x.softmax(-1), False), (lambda x: (x - 1).exp(), False)]
)
def test_references_with_exponentials_get_no_such_values(reference, drawn):
    cases = Drawing(kinds_of(reference, [ROWS]), watch(reference, [ROWS])).cases(quick=False)
    assert ("squares out of range" in [case.name for case in cases]) == drawn
