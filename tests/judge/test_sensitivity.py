"""A sum that is small by luck is as inexact as its terms are large: float32 passes there, less does not."""

from __future__ import annotations

import pytest
import torch

from cutesmith.judge.reference_side.comparison import tolerance_for
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Judge, Load, Tolerances
from cutesmith.judge.reference_side.sensitivity import depends_on_luck, movements
from cutesmith.judge.transfer.tensors import write_tensor

COLUMNS = 1 << 17


@pytest.fixture
def judged(tmp_path):
    """A function: what is said of `outputs` as the sums of rows of `values`."""
    problem = tmp_path / "problem.py"
    problem.write_text(
        "import torch\ndef reference_fn(x): return x.sum(-1)\ndef get_inputs(): return [torch.ones(2, 2)]\n"
    )
    reference = Reference()
    reference.load(Load("cpu", str(problem), 1))

    def judge(values, outputs, **tolerance):
        reference.drawn["a"] = [values]
        return reference.judge(Judge("a", (write_tensor(outputs, tmp_path / "y"),), False, Tolerances(**tolerance)))

    return judge


def unlucky(rows):
    """Rows of normal numbers that come to about 0.01."""
    torch.manual_seed(3)
    values = torch.randn(rows, COLUMNS)
    values[:, -1] -= (values.double().sum(-1) - 0.01).float()
    return values


def in_float32(values):
    """Each of 512 threads adds its own, then they are added: every order of float32 additions is as good."""
    partial = torch.zeros(values.shape[0], 512)
    for part in values.view(values.shape[0], -1, 512).unbind(1):
        partial += part
    return partial.sum(-1)


def test_a_float32_sum_that_is_small_by_luck_passes_and_says_why(judged):
    values = unlucky(1)
    relative = (in_float32(values) - values.double().sum(-1)).abs() / values.double().sum(-1).abs()
    assert relative > 1.2e-4, "out of tolerance, were it not for its terms"
    verdict = judged(values, in_float32(values))
    assert verdict.violation is None and "roundings of the inputs to float32 move it" in verdict.note


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrower_sums_do_not(judged, dtype):
    values = unlucky(1)
    assert judged(values, values.to(dtype).float().sum(-1)).violation
    assert judged(values, values.double().sum(-1).float() + 2e-3).violation


def test_of_many_outputs_the_magnitude_is_known(judged):
    values = unlucky(16)
    assert judged(values, in_float32(values)).violation
    assert not depends_on_luck(values.sum(-1), values.double().sum(-1), tolerance_for(torch.float32, None, None))


def test_tolerances_of_the_user_are_the_user_s(judged):
    values = unlucky(1)
    assert judged(values, in_float32(values), rtol=1e-5, atol=0.0).violation


@pytest.mark.parametrize("jumps", [lambda x: x.floor().sum(-1), lambda x: (x == 3).double().sum(-1)])
def test_a_result_that_jumps_where_rounding_decides_moves_nowhere(jumps):
    values = torch.full((1, 64), 3.0)
    assert movements(jumps, [values], [jumps(values.double())]) == [0.0]


def test_a_function_that_refuses_what_is_rounded_excuses_nothing():
    def reference(shares):
        assert (shares.sum(-1) == 1).all(), "no shares"
        return (shares * torch.arange(4.0).to(shares.dtype)).sum(-1)

    values = torch.full((1, 4), 0.25)
    assert movements(reference, [values], [reference(values.double())]) == [0.0]


def test_a_result_moves_as_much_as_its_terms_were_rounded():
    values = unlucky(1)
    exact = values.double().sum(-1)
    (moved,) = movements(lambda x: x.sum(-1), [values], [exact])
    one_rounding = 2.0**-24 * float(values.double().square().sum().sqrt()) / 3**0.5
    assert 0.2 * one_rounding < moved < 4 * one_rounding
    assert movements(lambda x: x.argmax(-1), [values], [exact.long()]) == [0.0]
