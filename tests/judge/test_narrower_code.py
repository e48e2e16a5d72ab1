"""Code that computes in less than any type of its problem is said to, and fails by a tolerance of its own (O9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import Judge
from cutesmith.verdicts import ExitCode
from tests.judge.in_process import LocalJudge

ADVERSARIAL = Path(__file__).parents[2] / "evals" / "adversarial"


class OwnInputsOnly(LocalJudge):
    """The judge without derived cases, which other tests show."""

    def _load(self, *args):
        return replace(super()._load(*args), derived=())


def verdict_of(path, **options):
    return OwnInputsOnly(path=path, problem=path, options=VerifyOptions(seeds=1, **options)).verdict("emulator")


def test_a_tolerance_of_its_own_lets_no_narrow_code_pass():
    verdict = verdict_of(ADVERSARIAL / "o9_own_tolerance.py")
    assert (verdict.exit_code, verdict.rule) == (ExitCode.WRONG_RESULT, "O9"), verdict.summary
    assert "1 x cvt.rn.f16.f32, first at o9_own_tolerance.py:27" in verdict.summary
    assert "only this file's own TOLERANCE lets it pass" in verdict.summary


def test_a_tolerance_that_was_asked_for_does_and_the_case_says_so():
    verdict = verdict_of(ADVERSARIAL / "o9_own_tolerance.py", rtol=1e-2, atol=1e-2)
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.cases[0].explanation.endswith("less than any type of the problem has")


@pytest.mark.parametrize("name", ("o9_honest_half_asked_for", "o9_honest_last_store"))
def test_what_the_types_explain_is_not_mentioned(name):
    verdict = verdict_of(ADVERSARIAL / f"{name}.py")
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.cases[0].explanation == ""


def test_where_a_gpu_runs_the_kernel_it_is_compiled_once_more_to_see(tmp_path):
    path = ADVERSARIAL / "o9_own_tolerance.py"
    compiled = Judge(path=path, problem=path, options=VerifyOptions())._compiled(tmp_path, "sm_90a")
    assert compiled.counts["cvt.rn.f16.f32"] == 1
