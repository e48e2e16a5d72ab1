"""The handler of the candidate's process: a candidate whose refusals are told apart from its mistakes.

On the emulated GPU it also says what a call cost, ends one that costs too much, and records the launches of a call at
full size.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from cutesmith.compiling.narrowing import Compiled
from cutesmith.emulator.errors import EmulationError, EndlessLoop, LaunchRefused
from cutesmith.emulator.faults import own_line
from cutesmith.emulator.machine.launch import LaunchReport, takes_other_clusters
from cutesmith.emulator.machine.rings import main_ring
from cutesmith.emulator.positions.conditions import Conditions
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.errors import CandidateError, CutesmithError
from cutesmith.judge.candidate_side.candidate import Candidate
from cutesmith.judge.candidate_side.code_taken import CodeTaken, decisions, launched, opcodes_of
from cutesmith.judge.candidate_side.host_branches import noted
from cutesmith.judge.candidate_side.kernel_file import candidate_code
from cutesmith.judge.candidate_side.recorded_call import record_call
from cutesmith.judge.candidate_side.requests import (
    Decision,
    Executed,
    ExecutedCode,
    FullSize,
    FullSizeCall,
    NotExecuted,
    Opcodes,
    Ran,
    Run,
    Step,
    StepReport,
)
from cutesmith.recording.cubin import source_name
from cutesmith.recording.gpu_size import limited_to, times_told
from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import ExitCode, Mechanism

MOST_STEPS = 100_000_000  # of a limited call (emulator.machine.settings): about ten seconds
MISTAKES = (
    NameError,
    AttributeError,
    TypeError,
    LookupError,
    ArithmeticError,
    ImportError,
    SyntaxError,
    RecursionError,
    MemoryError,
    OSError,
    EOFError,
    BufferError,
    StopIteration,
    SystemError,
    UnicodeError,
)


@dataclass
class Trial(Candidate):
    """A candidate that also answers `FullSize`, `Executed`, `NotExecuted` and `Opcodes`, and `Run` as its fields ask.

    `executed` is the code that calls on the emulated GPU took, `latest` of it that of the last `Run`, `recorded` that
    of the call at full size.
    """

    executed: CodeTaken = CodeTaken()
    latest: CodeTaken = CodeTaken()
    recorded: CodeTaken = CodeTaken()
    digests: dict[int, str] = field(default_factory=dict)  # opcodes of programs, by their identity
    conditions: dict[int, Conditions | None] = field(default_factory=dict)  # of those that were looked at
    told: int = field(default_factory=times_told)  # how many multiprocessors there are, before the kernel ran
    decided: int = 0  # launches whose conditions are among those executed

    def actions(self) -> dict[type[Request[Any]], Callable[[Any], Any]]:
        """Which method answers which request."""
        own: dict[type[Request[Any]], Callable[[Any], Any]]
        own = {FullSize: self.full_size, Opcodes: self.opcodes, NotExecuted: self.not_executed}
        own[Executed] = self.code
        return {**super().actions(), **own}

    def opcodes(self, request: Opcodes) -> Compiled:
        """How often each full opcode stands in the kernels that were executed, and the line where it does first."""
        counts: Counter[str] = Counter()
        lines: dict[str, str] = {}
        for program in () if self.emulated is None else self.emulated.programs:
            for instruction in program.instructions:
                counts[instruction.full_opcode] += 1
                lines.setdefault(instruction.full_opcode, own_line(instruction.location, self.path))
        return Compiled(dict(counts), lines)

    def code(self, request: Executed) -> ExecutedCode:
        """The code that calls took."""
        for report in self.emulated.launches if request.conditions and self.emulated is not None else ():
            self.executed |= CodeTaken(decisions=self._decisions(report, self._opcodes_of(report.program)))
        return self.executed.tell()

    def run(self, request: Run) -> Ran:
        """Run each step; what it cost, or why nothing came of it."""
        usual, before, self.latest = self.kernel_fn, self.launches(), CodeTaken()
        try:
            with self._restricted(request):
                if request.fresh:
                    with candidate_code(self.path):
                        self.kernel_fn = self.loaded_again()
                reply = super().run(request)
        except CandidateError as error:
            if request.limited and isinstance(error.__cause__, EndlessLoop):
                return Ran(changes=self.changes(), stopped=f"more than {MOST_STEPS:,} steps")
            if request.may_decline and error.exit_code == ExitCode.UNAVAILABLE:  # what only these inputs need
                return Ran(changes=self.changes(), stopped=error.message)
            if request.may_decline and declines(error.__cause__, any_mistake=request.may_raise):
                return Ran(changes=self.changes(), declined=error.message)
            crash = error.exit_code == ExitCode.CRASHED and error.mechanism is Mechanism.EXCEPTION
            if crash and not isinstance(error.__cause__, CutesmithError) and declines(error.__cause__):
                error.mechanism = Mechanism.REFUSAL
            raise
        finally:
            if request.multiprocessors:  # what the file keeps by now is of another GPU
                self.kernel_fn = usual
        if self.emulated is None:
            return reply
        launches, steps = self.emulated.launches[before:], len(request.steps)
        if request.some_blocks and len(launches) > steps:
            return Ran(changes=self.changes(), stopped="of several launches some blocks say nothing")
        blocks = tuple(prod(report.launch.grid) for report in launches[: len(launches) // steps])
        instructions = sum(report.instructions for report in launches) // steps
        ring = main_ring(ring for report in launches for ring in report.rings)
        ran = {source_name(report.launch.kernel) for report in launches}
        cluster = max((prod(report.launch.cluster) for report in launches), default=1)
        persistent = times_told() > self.told or any(takes_other_clusters(report.program) for report in launches)
        seen = {"instructions": instructions, "blocks": blocks, "cluster": cluster, "ring": ring}
        taken, kernels = self.latest.tell(), tuple(sorted(ran))
        return replace(reply, **seen, persistent=persistent, kernels=kernels, code=taken)

    @contextlib.contextmanager
    def _restricted(self, request: Run) -> Iterator[None]:
        """Within it, the emulated GPU does as much as the request asks for."""
        if self.emulated is None:
            yield
            return
        usual = self.emulated.settings
        steps = MOST_STEPS if request.limited else usual.step_limit
        sanitize = usual.sanitize and not request.some_blocks  # of large tensors it would take as much memory again
        self.emulated.settings = replace(
            usual,
            step_limit=steps,
            sanitize=sanitize,
            resident_blocks=request.resident_blocks,
            orders=max(usual.orders, request.orders),
        )
        try:
            some = self.emulated.some_blocks() if request.some_blocks else contextlib.nullcontext()
            with some, limited_to(request.multiprocessors):
                yield
        finally:
            self.emulated.settings = usual

    def _step(self, step: Step) -> StepReport:
        """As of a candidate; the code that the call took is kept in mind."""
        before = self.launches()
        with noted() as branches:
            report = super()._step(step)
        done = () if self.emulated is None else self.emulated.launches[before:]
        taken = launched((each.launch, each.resources, self._opcodes_of(each.program)) for each in done)
        self.latest |= CodeTaken(frozenset(branches), taken)
        self.executed |= self.latest
        return report

    def _opcodes_of(self, program: Program) -> str:
        if id(program) not in self.digests:
            self.digests[id(program)] = opcodes_of(program.module, program.function.name)
        return self.digests[id(program)]

    def not_executed(self, request: NotExecuted) -> tuple[str, ...]:
        """What of the recorded code was not executed; launches are looked at until one decided as at full size."""
        if request.beside is not None:
            self.executed |= CodeTaken.told(request.beside)
        known = {decision.opcodes for decision in self.recorded.decisions}
        for report in () if self.emulated is None else self.emulated.launches[self.decided :]:
            if not self.recorded.undecided(self.executed):
                break
            self.decided += 1
            if (opcodes := self._opcodes_of(report.program)) in known:
                self.executed |= CodeTaken(decisions=self._decisions(report, opcodes))
        return self.recorded.beyond(self.executed)

    def _decisions(self, report: LaunchReport, opcodes: str) -> frozenset[Decision]:
        program = report.program
        if id(program) not in self.conditions:
            self.conditions[id(program)] = Conditions.of(program.module, program.function.name)
        found = self.conditions[id(program)]
        if found is None:
            return frozenset()
        return decisions(found, opcodes, report.launch, report.resources, self.emulated.sm, self.path)

    def full_size(self, request: FullSize) -> FullSizeCall:
        """Record the launches of a call on inputs of these layouts; `error` says why a GPU would not do them."""
        try:
            with candidate_code(self.path):
                kernel = self.loaded_again() if request.fresh else self.kernel_fn
                assert kernel is not None, "load comes first"
                call, self.recorded = record_call(self.emulated, kernel, request.inputs, self.path)
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
    if isinstance(error, EmulationError):  # found while the kernel ran: it chose nothing
        return isinstance(error, LaunchRefused)
    if not isinstance(error, Exception) or (isinstance(error, MISTAKES) and not any_mistake) or "CUDA" in str(error):
        return False
    inner = error.__cause__ or error.__context__
    of_the_dsl = any(kind.__module__.split(".")[0] == "cutlass" for kind in type(error).__mro__)
    return not (of_the_dsl and inner is not None and not declines(inner, any_mistake=any_mistake))
