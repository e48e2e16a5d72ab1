"""What the worker processes of a benchmark run: the timed candidates, and the problem with its baselines.

Each imports its side and returns what makes the handler (`messages.Entry`).
"""

from __future__ import annotations

from functools import partial

from cutesmith.recording.dsl_import import import_dsl
from cutesmith.sandbox.messages import HandlerMaker


def import_for_gpu() -> None:
    """Import whatever a process imports in which a kernel meets a GPU, so that none differs from another (rule H3)."""
    import_dsl()
    import encodings.utf_8_sig  # noqa: F401

    import cutesmith.judge.candidate_side.trial
    import cutesmith.judge.entries
    import cutesmith.timing.timed  # noqa: F401


def candidates() -> HandlerMaker:
    """The confined process of timed candidates."""
    from cutesmith.timing.timed import TimedCandidates

    return TimedCandidates


def baselines() -> HandlerMaker:
    """The process of a trusted problem and its baselines, one such problem after another."""
    from cutesmith.judge.reference_side.renewable import Renewable
    from cutesmith.timing.timed import TimedBaselines

    return partial(Renewable, TimedBaselines)


def compiling_baselines() -> HandlerMaker:
    """The same with torch.compile among the baselines."""
    import torch._inductor.compile_fx  # noqa: F401 - 500 to 1400 modules, 0.5 to 2.3 s of CPU time in every worker

    return baselines()


def confined_baselines() -> HandlerMaker:
    """The same for an untrusted problem: confined, and without torch.compile."""
    from cutesmith.judge.reference_side.confined_problem import ConfinedProblem
    from cutesmith.timing.timed import TimedBaselines

    return partial(ConfinedProblem, TimedBaselines)


def confined_compiling_baselines() -> HandlerMaker:
    """The same with the compilers that torch.compile starts."""
    import torch._inductor.compile_fx  # noqa: F401 - as for `compiling_baselines`

    from cutesmith.timing.timed import ConfinedCompilingBaselines

    return ConfinedCompilingBaselines
