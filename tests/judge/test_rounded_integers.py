"""Integers that come of rounding may be off by a step where PyTorch is too, here or next to here; others may not."""

from __future__ import annotations

import pytest
import torch

from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Judge, Load
from cutesmith.judge.transfer.tensors import write_tensor

ROUNDED = "(x * (1 / 3)).round().to(torch.int32)"  # a third is no float32: near halves PyTorch rounds otherwise
PLACES = "x.argmax(-1)"


@pytest.fixture
def judged(tmp_path):
    """A function: what is said of outputs of `reference_fn` that were changed in some places."""

    def judge(formula, values, change, places):
        problem = tmp_path / "problem.py"
        problem.write_text(
            f"import torch\ndef reference_fn(x): return {formula}\ndef get_inputs(): return [torch.ones(2, 2)]\n"
        )
        reference = Reference()
        reference.load(Load("cpu", str(problem), 1))
        reference.drawn["a"] = [values]
        output = reference.loaded.reference_fn(values)
        output.view(-1)[:places] += change
        return reference.judge(Judge("a", (write_tensor(output, tmp_path / "y"),), False)).violation

    return judge


def test_a_step_is_forgiven_where_pytorch_is_right_by_luck(judged):
    torch.manual_seed(0)
    values = torch.randint(-(2**22), 2**22, (256, 256)).float() * 3  # thirds of these are integers, never near a half
    assert judged(ROUNDED, values, 1, 1) is None


def test_two_steps_and_many_elements_are_not(judged):
    torch.manual_seed(0)
    values = torch.randint(-(2**22), 2**22, (256, 256)).float() * 3
    assert "1 of 65536 elements differ" in judged(ROUNDED, values, 2, 1).text
    assert "60000 of 65536 elements differ" in judged(ROUNDED, values, 1, 60000).text


def test_positions_are_no_roundings(judged):
    torch.manual_seed(0)
    assert "1 of 256 elements differ" in judged(PLACES, torch.randn(256, 256), 1, 1).text
