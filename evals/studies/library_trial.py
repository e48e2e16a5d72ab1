"""The process in which a library's function stands for a kernel: unlike one it may compute and copy with torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace

from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.kernel_file import synchronize
from cutesmith.judge.candidate_side.requests import FullSize, FullSizeCall, Ran, Run, Step, StepReport
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.verdicts import ExitCode, Mechanism, Violation

REFUSED = (ExitCode.DOES_NOT_COMPILE, ExitCode.CRASHED, ExitCode.UNAVAILABLE)
MODULES = ("cross_entropy", "epilogue.library", "gemm_interface", "rmsnorm", "softmax", "transform.hadamard")


@dataclass
class LibraryTrial(Trial):
    """A trial in which operations of torch are not reported: a library's own operations are among them.

    Whatever sizes or layouts its function refuses, by an assertion or by code that does not compile, are declined. One
    that torch alone can compute may launch nothing.
    """

    def run(self, request: Run) -> Ran:
        """Run each step, or say why the library does not."""
        try:
            ran = super().run(request)
        except CandidateError as error:
            if not (request.may_decline and refuses(error)):
                raise
            synchronize(self.device)  # raises where a kernel failed on the GPU
            return Ran(changes=self.changes(), declined=error.message)
        steps = [replace(s, violations=tuple(v for v in s.violations if not _no_launch(v))) for s in ran.steps]
        return replace(ran, steps=tuple(steps))

    def _step(self, step: Step) -> StepReport:
        return replace(super()._step(step), computed={}, copied={})

    def full_size(self, request: FullSize) -> FullSizeCall:
        """Record the launches of a call at full size; operations of torch are not reported here either."""
        return replace(super().full_size(request), computed={})


def refuses(error: CandidateError) -> bool:
    """Whether the library says, or its compiler, that it has no code for such inputs."""
    return error.exit_code in REFUSED and error.mechanism is not Mechanism.EMULATED_SANITIZER


def _no_launch(violation: Violation) -> bool:
    return violation.mechanism is Mechanism.NO_LAUNCH


def import_library() -> None:
    """QuACK, so that loading a file that imports it changes nothing of the process that the judge watches."""
    from emulator.kernel_cases import triton_or_stand_in

    with triton_or_stand_in():
        for module in MODULES:
            importlib.import_module(f"quack.{module}")


def library() -> HandlerMaker:
    """An entry of a worker."""
    import_library()
    return LibraryTrial
