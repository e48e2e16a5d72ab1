"""Cases that no one wrote down: drawn, run and judged, and an input named that does not reach the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import CutesmithError
from cutesmith.judge.candidate_side.requests import Ran, Run, StepReport
from cutesmith.judge.draws.derived_case import AS_DRAWN, DerivedCase
from cutesmith.judge.reference_side.requests import Drawn
from cutesmith.judge.rounds import (
    DERIVED,
    LARGE_POISON,
    NAN_POISON,
    OTHER_DERIVED,
    Round,
    behaviour,
    explained,
    new_seed,
    same_bytes,
)
from cutesmith.verdicts import CaseOutcome, CaseReport, Mechanism

KEYS = (DERIVED, OTHER_DERIVED)
POISONS = (NAN_POISON, LARGE_POISON)


@dataclass(frozen=True)
class Draw:
    """The inputs of one step: the name of their draw, their key on the reference's side, and their files."""

    name: str
    key: str
    inputs: Drawn


def run_derived(turn: Round, case: DerivedCase) -> CaseReport | None:
    """One derived case, two of its draws a run; None when the reference refuses them all."""
    report, left_out = None, list[str]()
    for begin in range(0, len(case.draws), len(KEYS)):
        try:
            drawn = _draws(turn, case.draws[begin : begin + len(KEYS)], left_out)
        except CutesmithError:  # the reference process died on it: nothing more can be derived
            gone = CaseReport(name=f"derived: {case.name}", inputs="", outcome=CaseOutcome.NOT_RUN)
            return report if turn.reference.alive else replace(gone, remark="the reference process ended")
        if drawn:
            report = _run(turn, case, drawn)
            if not report.passed:
                return _with_unread_input(turn, case, report)
    if report is not None and left_out and len(case.draws) > 1:
        report = replace(report, remark="; ".join(filter(None, (report.remark, f"not drawn: {', '.join(left_out)}"))))
    return report


def _draws(turn: Round, names: Sequence[str], left_out: list[str]) -> list[Draw]:
    """Those draws that the reference takes; the others are added to `left_out`."""
    drawn: list[Draw] = []
    for name in names:
        key = KEYS[len(drawn)]
        inputs = turn.draw(key, derive=name, begins=not drawn)
        if inputs.accepted:
            drawn.append(Draw(name, key, inputs))
        else:
            left_out.append(name)
    return drawn


def _run(turn: Round, case: DerivedCase, drawn: Sequence[Draw]) -> CaseReport:
    """A single draw runs twice, as what was never written shows by another poison."""
    report = CaseReport(name=f"derived: {case.name}", inputs=drawn[0].inputs.summary)
    twice = drawn if len(drawn) > 1 else (*drawn, *drawn)
    steps = tuple(
        turn.step(i, draw.inputs, reuse=False, poison=poison) for i, (draw, poison) in enumerate(zip(twice, POISONS))
    )
    reply = turn.run(report.name, drawn[0].inputs, Run(steps, may_decline=case.may_decline))
    return judge_derived(turn, report, reply, case, draws=twice)


def judge_derived(
    turn: Round, report: CaseReport, reply: Ran, case: DerivedCase, *, draws: Sequence[Draw], note: str = ""
) -> CaseReport:
    """What came of a case; `note` is a remark on it."""
    try:
        if why := reply.declined or reply.stopped:
            outcome = CaseOutcome.DECLINED if reply.declined else CaseOutcome.NOT_RUN
            done = replace(report, outcome=outcome, remark=why[:300])
            return report.violated(reply.changes[0]) if reply.changes else done
        for draw, step in zip(draws, reply.steps):
            report = _judged(turn, report, reply, step, case, draw, note)
            if not report.passed:
                break
        return report
    finally:
        turn.clean()


def _judged(
    turn: Round, report: CaseReport, reply: Ran, step: StepReport, case: DerivedCase, draw: Draw, note: str
) -> CaseReport:
    if found := behaviour(step, reply.changes, own=False):
        return report.violated(found)
    judged = turn.judge(draw.key, step, strict=case.strict)
    remark = "; ".join(dict.fromkeys(filter(None, (report.remark, note, judged.note))))
    report = replace(report, outputs=report.outputs or judged.outputs, remark=remark)
    if (wrong := explained(judged, step)) is None:
        return report
    by_value = wrong.mechanism is Mechanism.FLOAT64_REFERENCE
    text = wrong.text if draw.name == case.name else f"{draw.name}: {wrong.text}"
    mechanism = Mechanism.DERIVED_INPUTS if by_value else wrong.mechanism
    rule = wrong.rule or case.rule if by_value else wrong.rule
    wrong = replace(wrong, rule=rule, mechanism=mechanism, text=text, reject=wrong.reject and not case.forgiving)
    return replace(report, inputs=draw.inputs.summary, outputs=judged.outputs).violated(wrong)


def _with_unread_input(turn: Round, case: DerivedCase, report: CaseReport) -> CaseReport:
    """The failed case; its text begins with the input that does not reach the result, if there is one."""
    if report.outcome is not CaseOutcome.WRONG_RESULT or report.violation is None:
        return report
    for name, draw in case.alone.items():
        seed = new_seed()
        one = turn.draw(DERIVED, derive=AS_DRAWN, seed=seed)
        other = turn.draw(OTHER_DERIVED, derive=draw, seed=seed, begins=False)
        if not (one.accepted and other.accepted):
            continue
        steps = tuple(turn.step(i, drawn, reuse=False, poison=NAN_POISON) for i, drawn in enumerate((one, other)))
        reply = turn.run(report.name, other, Run(steps, may_decline=True))
        judged = [turn.judge(key, step, strict=case.strict) for key, step in zip(KEYS, reply.steps)]
        same = len(judged) == len(KEYS) and same_bytes(reply.steps[0].outputs, reply.steps[1].outputs, turn.sums)
        if same and judged[1].violation:
            text = f"`{name}` does not reach the result: {report.violation.text}"
            return report.violated(replace(report.violation, mechanism=Mechanism.UNREAD_INPUT, text=text))
    return report
