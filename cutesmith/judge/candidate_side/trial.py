"""The handler of the candidate's process: a candidate whose refusals are told apart from its mistakes.

On the emulated GPU it also says what a call cost, ends one that costs too much, and records the launches of a call at
full size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from cutesmith.compiling.narrowing import Compiled
from cutesmith.emulator.errors import EmulationError, EndlessLoop, LaunchRefused
from cutesmith.emulator.faults import own_line
from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.candidate import Candidate, candidate_code, load_kernel
from cutesmith.judge.candidate_side.recorded_call import record_call
from cutesmith.judge.candidate_side.requests import FullSize, FullSizeCall, Opcodes, Ran, Run
from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import ExitCode

MOST_STEPS = 100_000_000  # of a limited call (emulator.machine.settings): about ten seconds
MISTAKES = (
    (NameError, AttributeError, TypeError, LookupError, ArithmeticError, ImportError, SyntaxError, RecursionError)
    + (MemoryError, OSError, EOFError, BufferError, StopIteration, SystemError, UnicodeError)
    + (EmulationError,)  # found while the kernel ran
)


class Trial(Candidate):
    """A candidate that also answers `FullSize` and `Opcodes`, and `Run` as its fields ask."""

    def actions(self) -> dict[type[Request[Any]], Callable[[Any], Any]]:
        """Which method answers which request."""
        return {**super().actions(), FullSize: self.full_size, Opcodes: self.opcodes}

    def opcodes(self, request: Opcodes) -> Compiled:
        """How often each full opcode stands in the kernels that were executed, and the line where it does first."""
        counts: Counter[str] = Counter()
        lines: dict[str, str] = {}
        for program in () if self.emulated is None else self.emulated.programs:
            for instruction in program.instructions:
                counts[instruction.full_opcode] += 1
                lines.setdefault(instruction.full_opcode, own_line(instruction.location, self.path))
        return Compiled(dict(counts), lines)

    def run(self, request: Run) -> Ran:
        """Run each step; what it cost, or why nothing came of it."""
        if request.fresh:
            with candidate_code(self.path):
                self.kernel_fn = load_kernel(self.path)
        before = self.launches()
        usual: Any = self.emulated.settings if request.limited else None
        try:
            if request.limited:
                self.emulated.settings = replace(usual, step_limit=MOST_STEPS)
            reply = super().run(request)
        except CandidateError as error:
            if request.limited and isinstance(error.__cause__, EndlessLoop):
                return Ran(changes=self.changes(), stopped=f"more than {MOST_STEPS:,} steps")
            if request.may_decline and error.exit_code == ExitCode.UNAVAILABLE:  # what only these inputs need
                return Ran(changes=self.changes(), stopped=error.message)
            if request.may_decline and declines(error.__cause__, any_mistake=request.may_raise):
                return Ran(changes=self.changes(), declined=error.message)
            raise
        finally:
            if request.limited:
                self.emulated.settings = usual
        if self.emulated is None:
            return reply
        launches, steps = self.emulated.launches[before:], len(request.steps)
        blocks = tuple(prod(report.launch.grid) for report in launches[: len(launches) // steps])
        return replace(reply, instructions=sum(report.instructions for report in launches) // steps, blocks=blocks)

    def full_size(self, request: FullSize) -> FullSizeCall:
        """Record the launches of a call on inputs of these layouts; `error` says why a GPU would not do them."""
        try:
            with candidate_code(self.path):
                kernel = load_kernel(self.path) if request.fresh else self.kernel_fn
                assert kernel is not None, "load comes first"
                call = record_call(self.emulated, kernel, request.inputs, self.path)
        except CandidateError as error:
            if error.exit_code in (ExitCode.UNAVAILABLE, ExitCode.INTERNAL):
                call = FullSizeCall(untried=error.message)
            else:  # what the hardware refuses does not compile into a launch that runs, as `cutesmith compile` has it
                refused = isinstance(error.__cause__, LaunchRefused)
                code = ExitCode.DOES_NOT_COMPILE if refused else error.exit_code
                call = FullSizeCall(error=error.message, exit_code=code)
        return replace(call, changes=self.changes())


def declines(error: BaseException | None, *, any_mistake: bool = False) -> bool:
    """Whether raising this is a refusal, which a kernel chose or the DSL's checks of its arguments or launch made.

    Whatever says "these inputs are not for me" counts: ValueError, NotImplementedError, an assertion, the kernel's own
    exceptions, the RuntimeErrors of torch. What Python raises by itself where code is wrong does not, nor does it once
    the DSL has wrapped it, nor an error of CUDA, which is of a launch that went ahead. With `any_mistake` a missing key
    or index counts too, such as of a table of the scalars that a kernel knows.
    """
    if isinstance(error, LaunchRefused):
        return True
    if not isinstance(error, Exception) or (isinstance(error, MISTAKES) and not any_mistake) or "CUDA" in str(error):
        return False
    inner = error.__cause__ or error.__context__
    of_the_dsl = any(kind.__module__.split(".")[0] == "cutlass" for kind in type(error).__mro__)
    return not (of_the_dsl and inner is not None and not declines(inner, any_mistake=any_mistake))
