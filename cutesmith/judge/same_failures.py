"""Which cases of a verification failed in the same way: one of them explains it, and the others name that one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from cutesmith.verdicts import CaseReport, Mechanism


def told_once(cases: Iterable[CaseReport]) -> tuple[CaseReport, ...]:
    """The cases; one that failed as another before it did has the name of that one in `same_as`.

    It is the same fault where a finding is of the same kind on the same lines, or where the text is the same. Where
    ordinary inputs give wrong results, derived ones of the same shapes, or other parts of the same whole inputs, that
    are wrong in the same outputs add nothing.
    """
    first: dict[Hashable, str] = {}
    told = []
    for case in cases:
        if (wrong := case.violation) is not None:
            fault = (case.outcome, wrong.rule, wrong.sign or wrong.text)
            values = (
                case.outcome,
                case.whole or case.inputs,
                tuple(output.output for output in case.outputs if output.mismatches),
            )
            earlier = first.get(fault) or (first.get(values) if wrong.mechanism is Mechanism.DERIVED_INPUTS else None)
            case = replace(case, same_as=earlier or "")
            if not earlier:
                ordinary = wrong.mechanism is Mechanism.FLOAT64_REFERENCE
                first |= {key: case.name for key in ((fault, values) if ordinary else (fault,)) if key not in first}
        told.append(case)
    return tuple(told)
