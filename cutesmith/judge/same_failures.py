"""Which cases of a verification failed in the same way: one of them explains it, and the others name that one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from cutesmith.verdicts import CaseReport, Mechanism

OF_ORDINARY_VALUES = (Mechanism.FLOAT64_REFERENCE, Mechanism.POISON)
OF_DERIVED_VALUES = (Mechanism.DERIVED_INPUTS, Mechanism.POISON)
MUCH_MORE = 2.0  # times the share of wrong elements: another fault adds to the first


def told_once(cases: Iterable[CaseReport]) -> tuple[CaseReport, ...]:
    """The cases; one that failed as another before it did has the name of that one in `same_as`.

    It is the same fault where a finding is of the same kind on the same lines, or where the text is the same. Where
    ordinary inputs give wrong results, derived ones of the same shapes, or other parts of the same whole inputs, add
    nothing where the same outputs are wrong, and not in many more elements.
    """
    by_fault: dict[Hashable, CaseReport] = {}
    by_values: dict[Hashable, CaseReport] = {}
    told = []
    for case in cases:
        if (wrong := case.violation) is not None:
            fault = (case.outcome, wrong.rule, wrong.sign or wrong.text)
            outputs = tuple(output.output for output in case.outputs if output.mismatches)
            values = (case.outcome, case.whole or case.shapes, outputs)
            ordinary = by_values.get(values) if wrong.mechanism in OF_DERIVED_VALUES else None
            if ordinary and _share(case) > MUCH_MORE * _share(ordinary):
                ordinary = None
            earlier = by_fault.get(fault) or ordinary
            case = replace(case, same_as=earlier.name if earlier else "")
            if not earlier:
                by_fault[fault] = case
                if wrong.mechanism in OF_ORDINARY_VALUES:
                    by_values.setdefault(values, case)
        told.append(case)
    return tuple(told)


def _share(case: CaseReport) -> float:
    """Which part of its elements is wrong."""
    return sum(output.mismatches for output in case.outputs) / max(1, sum(output.elements for output in case.outputs))
