"""The file's own input sets: drawn, run and judged, with new contents behind old pointers and old ones behind new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutesmith.compiling.narrowing import described, least_significand, narrow_instructions, unexplained
from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.requests import Opcodes, Ran, Run, StepReport
from cutesmith.judge.reference_side.requests import Types
from cutesmith.judge.rounds import LARGE_POISON, NAN_POISON, Round, behaviour, explained, same_bytes, shapes_of
from cutesmith.judge.transfer.requests import Scalar, Value
from cutesmith.verdicts import CaseOutcome, CaseReport, Mechanism, OutputError, Rule, Violation

NOTHING_DECIDED = "PyTorch's own result has no element that could be judged"
SPARE_BITS = 4  # that roundings of a sum may cost of a type's; a factor that was rounded to a narrower type costs more
FEW_ELEMENTS, NEAR_UNITS = 8, 16  # of a result that may be that of other contents by chance; units in the last place
NATIVE_SLACK = 2.0  # times PyTorch's own error, as in reference_side.comparison, which imports torch


def replay(turn: Round, name: str, index: int) -> CaseReport:
    """A, then B behind the same pointers, then A behind new ones: all three must be right.

    A kernel may refuse them where they are smaller than what the file draws: then they were not executed.
    """
    first, second = (turn.draw(key, index=index) for key in ("a", "b"))
    case = CaseReport(name=name, inputs=first.summary, whole=first.whole, shapes=shapes_of(first))
    turn.shrunk |= {index: first.summary} if first.stand_for else {}
    layouts_agree = list(map(_layout, first.inputs)) == list(map(_layout, second.inputs))
    steps = (
        turn.step(0, first, reuse=False, poison=NAN_POISON),
        turn.step(1, second, reuse=layouts_agree, poison=LARGE_POISON),
        turn.step(2, first, reuse=False, poison=LARGE_POISON),
    )
    try:
        reply = turn.run(name, first, Run(steps, stub=index < 0))
    except CandidateError as error:
        if error.mechanism is not Mechanism.REFUSAL or not (first.ran_as or first.stand_for):
            raise
        full, smaller = first.ran_as or (first.stand_for, first.summary.removesuffix(f" for {first.stand_for}"))
        why = f"at full size {full} (in its place the kernel declines {smaller}: {error.message})"
        return replace(case, outcome=CaseOutcome.NOT_EXECUTED, remark=why)
    if index < 0:
        turn.base, turn.base_elements = reply, first.elements
        turn.note_sizes(first.ran_as)
    try:
        judged = _judged(turn, case, reply)
        return _precise(turn, judged, reply.steps[0]) if index < 0 and judged.passed else judged
    finally:
        turn.clean()


def _precise(turn: Round, case: CaseReport, report: StepReport) -> CaseReport:
    """A right result of instructions narrower than any type of the problem is said to be one (rule O9).

    It fails where it is right only by a tolerance that the kernel's own file sets. Where the error is that of the
    problem's own types, as with sums of products of a number's parts, the remark says so.
    """
    compiled = turn.candidate.call(Opcodes(), timeout=turn.options.timeout)
    known = bool(compiled.counts)
    if known and not narrow_instructions(compiled.counts):
        return case
    problem = turn.ask(Types(turn.name + "a", always=known))
    own_tolerance = problem.own_tolerance and turn.options.rtol is None and turn.options.atol is None
    if not known and own_tolerance and turn.recompiled is not None:
        compiled = turn.recompiled()  # a GPU does not say what it runs, and this takes seconds
    if not (narrow := unexplained(narrow_instructions(compiled.counts), problem.types)):
        return case
    text = f"computes in {described(narrow, compiled)}, less than any type of the problem has"
    if own_tolerance and (wrong := turn.judge("a", report, default=True).violation):
        text = f"{text}; only this file's own TOLERANCE lets it pass: {wrong.text}"
        return case.violated(Violation(Rule.O9, Mechanism.NARROW_INSTRUCTIONS, text, reject=False))
    if keeps_precision(case.outputs, least_significand(problem.types)):
        errors = ", ".join(f"{output.rms:.2g}" for output in case.outputs)
        text = f"uses {described(narrow, compiled)}, as exact as the problem's types: root mean square error {errors}"
    return replace(case, remark="; ".join(filter(None, (case.remark, text))))


def _judged(turn: Round, case: CaseReport, reply: Ran) -> CaseReport:
    case = replace(case, outcome=CaseOutcome.NOT_DECIDED, remark=NOTHING_DECIDED)  # until a call is
    for step, report in enumerate(reply.steps):
        if found := behaviour(report, reply.changes, own=True):
            return case.violated(found)
        judged = turn.judge("aba"[step], report)
        if judged.decided:
            outputs = case.outputs or judged.outputs
            case = replace(case, outcome=CaseOutcome.PASSED, remark="", outputs=outputs)
        if not (wrong := explained(judged, report)):
            continue
        # A wrong result that is, bit for bit, that of the call before, on other contents, was not computed.
        before = reply.steps[step - 1] if step and not wrong.reject and not _may_be_chance(judged.outputs) else None
        if before is not None and same_bytes(report.outputs, before.outputs, turn.sums):
            text = ("new contents behind the same pointers", "the first contents behind new pointers")[step - 1]
            stale = f"with {text} it returns the result of the call before, an old result: {wrong.text}"
            wrong = Violation(Rule.R1, Mechanism.REPLAYED, stale)
        return replace(case, outputs=judged.outputs).violated(wrong)
    if same_bytes(reply.steps[0].outputs, reply.steps[2].outputs, turn.sums):
        return case
    # Two right results that differ in their bits are reported, not refused: atomics may reorder sums.
    if case.outcome is CaseOutcome.NOT_DECIDED:
        return case
    return replace(case, remark="not reproducible: two calls on equal inputs differ, within tolerance")


def _may_be_chance(outputs: Sequence[OutputError]) -> bool:
    """Whether numbers so few, and so nearly right, may be equal for other contents, as two means in bfloat16 are."""
    few = all(output.elements <= FEW_ELEMENTS and output.max_ulp <= NEAR_UNITS for output in outputs)
    return few and bool(outputs)


def begin(turn: Round, name: str) -> None:
    """One call on `get_inputs()`, which another round judges; the calls after it find what it leaves."""
    drawn = turn.draw("a", index=-1)
    turn.base_elements = drawn.elements
    try:
        turn.base = turn.run(name, drawn, Run((turn.step(0, drawn, reuse=False, poison=NAN_POISON),)))
    except CandidateError as error:
        if error.mechanism is not Mechanism.REFUSAL:
            raise
        turn.refusal = error


def keeps_precision(outputs: Sequence[OutputError], bits: int) -> bool:
    """Whether every output was measured to be as exact as a type of so many bits, or as PyTorch's own result."""
    return bool(outputs) and all(
        output.rms is not None
        and output.rms_native is not None
        and output.rms <= max(2.0 ** (SPARE_BITS - bits), NATIVE_SLACK * output.rms_native)
        for output in outputs
    )


def _layout(value: Value) -> object:
    """What must be equal for new contents to go behind the same pointer."""
    if isinstance(value, Scalar):
        return value.type
    return value.dtype, value.shape, value.stride, value.misaligned_bytes
