"""The last line of a verification names the case that decided, and does not say again what is wrong with it."""

from pathlib import Path

import pytest

from cutesmith.commands.verify import table
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import verify_kernel
from cutesmith.verdicts import CaseOutcome, CaseReport, ExitCode, Mechanism, Rule, VerifyVerdict, Violation


def test_each_failure_is_told_once():
    slip = Violation(None, Mechanism.FLOAT64_REFERENCE, "0 / 0", reject=False)
    wrong = CaseReport(name="zeros", inputs="").violated(slip)
    cheat = CaseReport(name="offsets", inputs="")
    cheat = cheat.violated(Violation(Rule.W1, Mechanism.DISPATCH_MODE, "torch computes"))
    summary = "relu.py: offsets: torch computes (and 1 other cases)"
    verdict = VerifyVerdict(
        exit_code=ExitCode.REJECTED, summary=summary, path="/kernels/relu.py", ran_on="gpu", cases=(wrong, cheat)
    )
    lines = list(table(verdict))
    assert lines[-1] == "rejected: relu.py: offsets (and 1 other cases) (0.0 s)"
    assert sum("torch computes" in line for line in lines) == sum("0 / 0" in line for line in lines) == 1


def test_a_verdict_without_a_failed_case_says_all():
    verdict = VerifyVerdict(exit_code=ExitCode.TIMED_OUT, summary="relu.py: too slow", path="relu.py", ran_on="gpu")
    assert list(table(verdict))[-1].startswith("timed_out: relu.py: too slow")


@pytest.mark.slow
def test_a_case_whose_launches_were_only_recorded_is_not_ok():
    kernel = Path(__file__).resolve().parents[2] / "examples_index" / "kernels" / "relu_minimal.py"
    verdict = verify_kernel(kernel, VerifyOptions(), on="compile")
    assert verdict.status == "compiled"
    assert {case.outcome for case in verdict.cases} == {CaseOutcome.RECORDED}
    lines = list(table(verdict))
    assert not any(line.startswith("ok") for line in lines)
    assert lines[0].endswith("recorded: 1 launch, no value was compared")
    assert "4 recorded cases" in lines[-1]
