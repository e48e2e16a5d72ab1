"""Whose kernels a call's device time goes to: the candidate's own, or others' (rule W2). On a GPU, with `--sanitize`.

The profiler's trace of a process of its own names every kernel that ran; the candidate's are those that its file
compiles to. Memory that is set to one value is torch's business. A foreign kernel under the name of an own one is not
met here: held-back launches meet it (`candidate.Candidate`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.requests import Profile
from cutesmith.judge.entries import device_time
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.verdicts import CaseOutcome, CaseReport, Mechanism, Rule, Violation

MOST_FOREIGN = 0.05  # of the device time: more is a decoy
MOST_NAMED = 3
_FILLS = ("Memset", "FillFunctor")

Events = Sequence[tuple[str, float]]  # name and microseconds of everything that ran on the device


def check(path: Path, problem: Path, arch: str, *, timeout: float, confined: bool = False) -> CaseReport:
    """A case that fails where other kernels take more than `MOST_FOREIGN`; "not run" where no one can tell.

    `confined`: the problem is, though it has a file of its own.
    """
    case = CaseReport(name="device time", inputs="get_inputs()")
    compiled = compile_kernel(path, (arch,), problem=problem if problem != path else None, timeout=timeout)
    own = {kernel.name for report in compiled.archs for kernel in report.kernels}
    limits = Limits(call_seconds=timeout, memory_bytes=fair_memory(32 * GIB), file_bytes=GIB)
    environment = {"CUTE_DSL_ARCH": arch}
    try:
        with Worker(device_time, preload=(import_dsl,), limits=limits, gpu=True, environment=environment) as worker:
            events = worker.call(Profile(str(path.resolve()), str(problem.resolve()), confined), timeout=timeout)
        return judged(case, events, own)
    except CandidateError as error:
        return replace(case, outcome=CaseOutcome.NOT_RUN, remark=error.message[:300])


def judged(case: CaseReport, events: Events, own: Iterable[str]) -> CaseReport:
    """What the events say; `own` are the names of the candidate's kernels."""
    names = frozenset(own)
    counted = [(name, time) for name, time in events if name in names or not any(fill in name for fill in _FILLS)]
    total = sum(time for _, time in counted)
    if not any(name in names for name, _ in counted) or total <= 0:
        text = "the profiler names no kernel that the file compiles to"
        return replace(case, outcome=CaseOutcome.NOT_RUN, remark=text)
    foreign: dict[str, float] = defaultdict(float)
    for name, time in counted:
        if name not in names:
            foreign[name] += time / total
    if not foreign:
        return case
    largest = sorted(foreign.items(), key=lambda item: -item[1])[:MOST_NAMED]
    named = ", ".join(f"{name[:80]} ({part:.0%})" for name, part in largest)
    share = sum(foreign.values())
    text = f"{share:.0%} of the device time goes to kernels that are not the file's own: {named}"
    if share > MOST_FOREIGN:
        return case.violated(Violation(Rule.W2, Mechanism.DEVICE_TIME, text))
    return replace(case, remark=text)
