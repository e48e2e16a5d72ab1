"""A result of an earlier call is told apart from one that is a little outside the tolerance."""

import pytest

from cutesmith.verdicts import ExitCode
from tests.judge.in_process import verdict_here

TURNS = """
import torch

TURN = [0]

def reference_fn(x):
    return x.clone()

def get_inputs():
    TURN[0] += 1
    return [torch.full(({elements},), {values}[TURN[0] % 2], dtype=torch.{dtype})]
"""


def verdict_of(tmp_path, kernel, *, elements=1, values="(1.0, 1.0234375)", dtype="bfloat16"):
    """The verdict on a kernel whose inputs come in turn."""
    path = tmp_path / "kernel.py"
    problem = TURNS.format(elements=elements, values=values, dtype=dtype)
    body = "".join(f"    {line}\n" for line in kernel.splitlines())
    path.write_text(f"{problem}\nKEPT = {{}}\n\ndef kernel_fn(x):\n    y = torch.empty_like(x)\n{body}    return y\n")
    return verdict_here(path, on="cpu")


@pytest.mark.slow
def test_a_number_that_is_nearly_right_for_other_inputs_too_is_not_an_old_result(tmp_path):
    verdict = verdict_of(tmp_path, "y.view(torch.int16).numpy()[...] = 0x3F80  # 1")
    assert verdict.exit_code == ExitCode.WRONG_RESULT, verdict.summary
    assert "old result" not in verdict.summary
    assert "worst at [0]: 1.0 instead of 1.0234375, off by 0.0234 where 0.0" in verdict.summary


@pytest.mark.parametrize(("elements", "dtype"), [(1, "float32"), (64, "bfloat16")])
def test_the_result_of_the_call_before_is_an_old_one(tmp_path, elements, dtype):
    keep = "y.view(torch.uint8).numpy()[...] = KEPT.setdefault(0, x.view(torch.uint8).numpy().copy())"
    verdict = verdict_of(tmp_path, keep, elements=elements, dtype=dtype)
    assert (verdict.exit_code, verdict.rule) == (ExitCode.REJECTED, "R1"), verdict.summary
    assert "it returns the result of the call before, an old result" in verdict.summary
