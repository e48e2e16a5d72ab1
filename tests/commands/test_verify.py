"""`cutesmith verify`: what people read of a verdict's cases."""

from __future__ import annotations

from cutesmith.commands.verify import table
from cutesmith.verdicts import CaseOutcome, CaseReport, Excuse, ExitCode, OutputError, VerifyVerdict

STATED = {"rtol": 0.011, "atol": 0.017, "mismatches": 0, "elements": 4}
ERROR = OutputError(output=0, dtype="bfloat16", shape=(4,), max_abs=1.73, max_rel=1.0, max_ulp=256.0, **STATED)


def lines_of(**case: object) -> list[str]:
    case = CaseReport(name="derived: x", inputs="bfloat16[4]", **case)
    verdict = VerifyVerdict(exit_code=ExitCode.PASSED, summary="", path="kernel.py", ran_on="emulator", cases=(case,))
    return list(table(verdict, verbose=True))


def allowed_of(**excuse: object) -> str:
    error = OutputError(**{**vars(ERROR), **excuse})
    return lines_of(outputs=(error,))[1].partition("allowed: ")[2]


def test_an_error_beyond_the_stated_tolerance_stands_beside_what_was_allowed_and_why():
    assert allowed_of() == "0.017 + 0.011 of each value"
    nearby = allowed_of(excuse=Excuse.NEARBY, excused_error=1.73, excused_allowed=6.9)
    widened = "0.017 + 0.011 of each value, widened to"
    assert nearby == f"{widened} 6.9 for an error of 1.73: PyTorch's own error on inputs near these"
    lost = allowed_of(excuse=Excuse.NO_DIGIT, excused_error=1.73, excused_allowed="inf")
    assert lost == f"{widened} any number for an error of 1.73: no digit of PyTorch's own result is right"


def test_a_case_in_which_nothing_was_decided_is_not_ok():
    line = lines_of(outcome=CaseOutcome.NOT_DECIDED, remark="output 0: 4 elements are not decided")[0]
    assert line == "---- derived: x  [bfloat16[4]]  not decided: output 0: 4 elements are not decided"
