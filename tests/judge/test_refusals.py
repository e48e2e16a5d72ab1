"""Which errors of a kernel are a refusal of inputs, and which a mistake."""

from __future__ import annotations

import pytest

from cutesmith.emulator.errors import LaunchRefused
from cutesmith.emulator.faults import FaultKind, Finding, KernelFault
from cutesmith.judge.candidate_side.trial import declines

pytestmark = pytest.mark.timeout(300)


class Unsupported(Exception):
    """A kernel's own."""


class DslError(Exception):
    """As the DSL raises it."""

    __module__ = "cutlass.base_dsl.common"


def wrapped(inner):
    error = DslError("tracing failed")
    error.__cause__ = inner
    return error


REFUSALS = (ValueError("37 columns"), NotImplementedError(), AssertionError("odd"), Unsupported(), DslError("no"))
MISTAKES = (NameError("x"), UnboundLocalError("x"), AttributeError("x"), TypeError("x"), IndexError(), KeyError("x"))
OTHERS = (ZeroDivisionError(), RecursionError(), SystemExit(), RuntimeError("CUDA error: 700"), wrapped(NameError("x")))


OUTSIDE = Finding(FaultKind.OUT_OF_BOUNDS, "reads beyond input 0", None, (0, 0, 0), (0, 0, 0))


def test_refusals_are_told_from_mistakes():
    for error in (
        *REFUSALS,
        RuntimeError("view size"),
        LaunchRefused("grid x is 0"),
        wrapped(ValueError("37 columns")),
    ):
        assert declines(error), error
    for error in (*MISTAKES, *OTHERS, KernelFault(OUTSIDE, (OUTSIDE,)), None):
        assert not declines(error), error
    try:
        try:
            {}["columns"]
        except KeyError as missing:
            raise ValueError("columns that no tile fits") from missing
    except ValueError as refusal:
        assert declines(refusal)
