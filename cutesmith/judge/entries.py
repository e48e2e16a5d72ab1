"""What the worker processes of a verification run: the candidate's side, the reference's, and the profiler's.

Each imports its side and returns what makes the handler (`messages.Entry`). The judge itself imports neither torch
nor the DSL.
"""

from __future__ import annotations

from functools import partial

from cutesmith.sandbox.messages import HandlerMaker


def candidate() -> HandlerMaker:
    """The process that holds a candidate."""
    from cutesmith.judge.candidate_side.trial import Trial

    return Trial


def reference() -> HandlerMaker:
    """The process of a trusted problem, which serves one judging after another."""
    from cutesmith.judge.reference_side.reference import Reference
    from cutesmith.judge.reference_side.renewable import Renewable

    return partial(Renewable, Reference)


def confined_reference() -> HandlerMaker:
    """The process of an untrusted problem."""
    from cutesmith.judge.reference_side.confined_problem import ConfinedProblem
    from cutesmith.judge.reference_side.reference import Reference

    return partial(ConfinedProblem, Reference)


def device_time() -> HandlerMaker:
    """The process in which PyTorch's profiler watches a candidate."""
    from cutesmith.judge.one_process import DeviceTime

    return DeviceTime
