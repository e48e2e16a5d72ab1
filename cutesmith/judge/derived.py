"""Cases that no one wrote down: drawn, run and judged, and an input named that does not reach the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

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
    shapes_of,
)
from cutesmith.judge.transfer.requests import TensorFile
from cutesmith.verdicts import CaseOutcome, CaseReport, Mechanism

KEYS = (DERIVED, OTHER_DERIVED)
POISONS = (NAN_POISON, LARGE_POISON)


@dataclass(frozen=True)
class Draw:
    """The inputs of one step: the name of their draw, their key on the reference's side, and their files.

    `own_sizes` as of the request for them.
    """

    name: str
    key: str
    inputs: Drawn
    own_sizes: bool = False


def run_derived(turn: Round, case: DerivedCase) -> CaseReport | None:
    """One derived case, two of its draws a run; None when the reference refuses them all."""
    reports: list[CaseReport] = []
    for begin in range(0, len(case.draws), len(KEYS)):
        names = case.draws[begin : begin + len(KEYS)]
        try:
            drawn, refused = _draws(turn, names)
            turn.refused |= refused
        except CutesmithError as error:
            turn.refused |= {name: f"it could not be drawn: {error}" for name in names if name not in turn.refused}
            if turn.reference.alive:
                continue
            gone = CaseReport(name=f"derived: {case.name}", inputs="", outcome=CaseOutcome.NOT_RUN)
            reports.append(replace(gone, remark="the reference process ended"))  # nothing more can be derived
            break
        for report in _run_all(turn, case, drawn):
            reports.append(report)
            if not report.passed:
                return _with_unread_input(turn, case, report)
    done = [report for report in reports if report.outcome is CaseOutcome.PASSED]
    declined = [name for name in case.draws if name in turn.declined]
    if not done or not declined:
        return next(iter(done or reports), None)
    told = f"declined: {', '.join(declined)}"
    return replace(done[0], remark="; ".join(filter(None, (done[0].remark, told))))


def _run_all(turn: Round, case: DerivedCase, drawn: Sequence[Draw]) -> Iterator[CaseReport]:
    """The draws in one run, or each in its own where the kernel refuses one, as a refusal ends a run.

    Sizes that change only to be quick are the first that may be refused: then they are those of `get_inputs()`.
    """
    if not drawn:
        return
    report = _run(turn, case, drawn)
    if report.outcome is not CaseOutcome.DECLINED:
        yield report
        return
    names, own_sizes = [draw.name for draw in drawn], drawn[0].own_sizes
    shorter = len(drawn) == 1 and drawn[0].inputs.shorter
    if shorter or (case.resizes_too and not own_sizes):
        again, refused = _draws(turn, names, own_sizes=True, quick=not shorter)
        if not refused:
            yield from _run_all(turn, case, again)
            return
        why = next(iter(refused.values()))
        report = replace(report, remark=f"{report.remark}; at the sizes of get_inputs(): {why}")
    if len(drawn) == 1:
        turn.declined[names[0]] = report.remark
        yield report
        return
    for name in names:  # large inputs were handed over once
        yield from _run_all(turn, case, _draws(turn, [name], own_sizes=own_sizes)[0])


def _draws(
    turn: Round, names: Sequence[str], *, own_sizes: bool = False, quick: bool = True
) -> tuple[list[Draw], dict[str, str]]:
    """Those draws that the reference takes, and why it refuses the others; `quick`: a size may be the shorter one."""
    drawn, refused = list[Draw](), dict[str, str]()
    seed = new_seed()
    for name in names:
        key = KEYS[len(drawn)]
        resized = turn.shorter if quick else ()
        inputs = turn.draw(key, derive=name, begins=not drawn, seed=seed, resized=resized, own_sizes=own_sizes)
        if inputs.accepted:
            drawn.append(Draw(name, key, inputs, own_sizes))
        else:
            refused[name] = inputs.why
    return drawn, refused


def _run(turn: Round, case: DerivedCase, drawn: Sequence[Draw]) -> CaseReport:
    """A draw without another runs twice, as what was never written shows by another poison."""
    first = drawn[0].inputs
    report = CaseReport(name=f"derived: {case.name}", inputs=first.summary, whole=first.whole)
    single = len(drawn) == 1 and not (case.may_decline and len(case.draws) > 1)
    again = drawn if single else drawn[:1] if case.back and len(drawn) > 1 else ()
    calls = (*drawn, *again)
    steps = tuple(
        turn.step(i, draw.inputs, reuse=False, poison=poison)
        for i, (draw, poison) in enumerate(zip(calls, cycle(POISONS)))
    )
    request = Run(steps, may_decline=case.may_decline, may_raise=case.may_raise)
    reply = turn.run_named(report.name, first, request, [draw.inputs for draw in calls])
    if first.shorter and not case.may_decline and _decides_more(reply, turn.base):
        turn.shorter = ()
    return judge_derived(turn, report, reply, case, draws=calls)


def _decides_more(short: Ran, base: Ran) -> bool:
    """Whether the size that is shorter in the first decides more than the trips of a ring, or not even those."""
    if short.ring and not short.ring.wrapped:
        return True
    if short.code is None or base.code is None:
        return False
    here, there = ({(one, one.constants) for one in code.launches} for code in (short.code, base.code))
    return here != there or not {*base.code.branches}.issuperset(short.code.branches)


def judge_derived(
    turn: Round,
    report: CaseReport,
    reply: Ran,
    case: DerivedCase,
    *,
    draws: Sequence[Draw],
    note: str = "",
    unwritten: int | None = None,
) -> CaseReport:
    """What came of a case; `note` is a remark on it, `unwritten` as of `Judge`."""
    try:
        if why := reply.declined or reply.stopped:
            outcome = CaseOutcome.DECLINED if reply.declined else CaseOutcome.NOT_RUN
            done = replace(report, outcome=outcome, remark=why[:300])
            return report.violated(reply.changes[0]) if reply.changes else done
        report = replace(report, outcome=CaseOutcome.NOT_DECIDED)  # until a draw is
        for number, (draw, step) in enumerate(zip(draws, reply.steps)):
            report = _judged(turn, report, reply, step, case, draw, note, unwritten)
            if not report.passed:
                return _kept(turn, report, case, [each.outputs for each in reply.steps[: number + 1]])
        return report
    finally:
        turn.clean()


def _kept(turn: Round, report: CaseReport, case: DerivedCase, outputs: Sequence[Sequence[TensorFile]]) -> CaseReport:
    """The failed case, by the rule for results that were kept, if the last of these outputs is one of the others."""
    *earlier, last = outputs
    wrong = report.violation
    if case.kept is None or wrong is None or not any(same_bytes(last, other, turn.sums) for other in earlier):
        return report
    return report.violated(replace(wrong, rule=case.kept, text=f"an earlier result again: {wrong.text}"))


def _judged(
    turn: Round,
    report: CaseReport,
    reply: Ran,
    step: StepReport,
    case: DerivedCase,
    draw: Draw,
    note: str,
    unwritten: int | None,
) -> CaseReport:
    if found := behaviour(step, reply.changes, own=False):
        return report.violated(found)
    judged = turn.judge(draw.key, step, strict=case.strict, unwritten=unwritten)
    remark = "; ".join(dict.fromkeys(filter(None, (report.remark, note, judged.note))))
    report = replace(report, remark=remark)
    if judged.decided:
        report = replace(report, outcome=CaseOutcome.PASSED, outputs=report.outputs or judged.outputs)
    seen = step if unwritten is None else replace(step, unwritten=0)  # of some blocks, most elements are never written
    if (wrong := explained(judged, seen)) is None:
        return report
    by_value = wrong.mechanism is Mechanism.FLOAT64_REFERENCE
    drawn = f"{draw.name} ({draw.inputs.changed})" if draw.inputs.changed else draw.name
    text = wrong.text if drawn == case.name else f"{drawn}: {wrong.text}"
    mechanism = Mechanism.DERIVED_INPUTS if by_value else wrong.mechanism
    rule = wrong.rule or case.rule if by_value else wrong.rule
    sign = wrong.sign or ("" if by_value else wrong.text)  # the same layout of an output is one failure for all draws
    wrong = replace(
        wrong, rule=rule, mechanism=mechanism, text=text, sign=sign, reject=wrong.reject and not case.forgiving
    )
    inputs, whole, shapes = draw.inputs.summary, draw.inputs.whole, shapes_of(draw.inputs)
    shown = replace(report, inputs=inputs, whole=whole, shapes=shapes, outputs=judged.outputs)
    return shown.violated(wrong)


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
        reply = turn.run_named(report.name, other, Run(steps, may_decline=True, may_raise=True))
        judged = [turn.judge(key, step, strict=case.strict) for key, step in zip(KEYS, reply.steps)]
        same = len(judged) == len(KEYS) and same_bytes(reply.steps[0].outputs, reply.steps[1].outputs, turn.sums)
        if same and judged[1].violation:
            text = f"`{name}` does not reach the result: {report.violation.text}"
            return report.violated(replace(report.violation, mechanism=Mechanism.UNREAD_INPUT, text=text))
    return report
