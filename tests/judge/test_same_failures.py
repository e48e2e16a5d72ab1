"""Cases that fail in the same way: the first explains it, and each other one names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutesmith.commands.verify import table
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.same_failures import told_once
from cutesmith.judge.verification import verify_kernel
from cutesmith.verdicts import CaseOutcome, CaseReport, FaultKind, Mechanism, OutputError, Rule, Violation

PLANTED = Path(__file__).resolve().parents[2] / "evals" / "planted_faults"


def race(name, text, sign):
    violation = Violation(Rule.O8, Mechanism.EMULATED_SANITIZER, text, False, FaultKind.RACE, sign)
    return CaseReport(name=name, inputs="f[8]").violated(violation)


def wrong(name, mechanism, rule=None, size=8, output=0, text="", whole="", mismatches=3):
    numbers = {"max_abs": 1.0, "max_rel": 1.0, "max_ulp": 1.0, "mismatches": mismatches, "elements": 8}
    error = OutputError(output=output, dtype="float32", shape=(8,), **numbers)
    case = CaseReport(name=name, inputs=f"f[{size}]", outputs=(error,), whole=whole, shapes=((size,),))
    return case.violated(Violation(rule, mechanism, text or f"wrong in {name}", reject=False))


def same(*cases):
    return [case.same_as for case in told_once(cases)]


def test_a_finding_on_the_same_lines_is_told_once_however_often_it_was_met():
    first, second = race("a", "race, 496 times", "race k.py:18"), race("b", "race, 301 times", "race k.py:18")
    assert same(first, CaseReport(name="right", inputs=""), second) == ["", "", "a"]
    assert same(first, race("c", "race, 496 times elsewhere", "race k.py:30")) == ["", ""]


def test_derived_values_add_nothing_to_a_kernel_that_is_wrong_on_ordinary_ones():
    ordinary = wrong("get_inputs()", Mechanism.FLOAT64_REFERENCE)
    derived = [wrong(name, Mechanism.DERIVED_INPUTS, Rule.V1) for name in ("zeros", "offsets")]
    assert same(ordinary, *derived) == ["", "get_inputs()", "get_inputs()"]
    assert same(*derived) == ["", ""], "each may have a reason of its own"
    ordinary = wrong("get_inputs()", Mechanism.FLOAT64_REFERENCE, size=256, whole="f[4096]")
    parts = [wrong(str(size), Mechanism.DERIVED_INPUTS, size=size, whole="f[4096]") for size in (128, 64)]
    assert same(ordinary, *parts) == ["", "get_inputs()", "get_inputs()"], "other parts of the same inputs"


def test_elements_that_are_never_written_are_told_once():
    ordinary, *derived = (wrong(name, Mechanism.POISON, Rule.O1) for name in ("get_inputs()", "zeros", "transposed"))
    assert same(ordinary, *derived) == ["", "get_inputs()", "get_inputs()"]


@pytest.mark.parametrize(
    "other",
    [
        wrong("other shapes", Mechanism.DERIVED_INPUTS, size=7),
        wrong("nearly all is wrong", Mechanism.DERIVED_INPUTS, mismatches=7),
        wrong("another output", Mechanism.DERIVED_INPUTS, output=1),
        wrong("an input is not read", Mechanism.UNREAD_INPUT),
        wrong("another ordinary case", Mechanism.FLOAT64_REFERENCE),
    ],
    ids=lambda case: case.name,
)
def test_what_says_more_is_told(other):
    assert same(wrong("get_inputs()", Mechanism.FLOAT64_REFERENCE), other) == ["", ""]


@pytest.mark.slow
def test_a_race_in_every_case_is_one_explanation_that_names_them():
    verdict = verify_kernel(PLANTED / "race_transpose.py", VerifyOptions(quick=True), on="emulator")
    failed = [case for case in verdict.cases if case.outcome is CaseOutcome.FAULT]
    lines = list(table(verdict))
    assert verdict.status.startswith("race")
    assert len(failed) > 1
    assert sum("nothing orders the two" in line for line in lines) == 1
    (told,) = [line for line in lines if "the same in" in line]
    assert all(case.name in told for case in failed[1:])
    assert [case.to_dict()["same_as"] for case in failed] == ["", *[failed[0].name] * (len(failed) - 1)]
