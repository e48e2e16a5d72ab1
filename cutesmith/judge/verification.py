"""Whether `kernel_fn` computes `reference_fn`: the parent of the processes, and the one that decides.

The reference worker draws inputs from a secret seed, the candidate worker runs the stripped file on them, and only then
the reference is computed and the outputs judged. The parent holds the seed and the verdict. With no GPU the emulated
one runs the kernel (`ran_on="emulator"`), or everything but the values is checked (`ran_on="compile"`); neither is
called plainly verified.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.compiling.narrowing import Compiled, opcodes_in
from cutesmith.devices import DEFAULT_ARCH, current_device, parse_arch
from cutesmith.emulator.requirements import require_emulator
from cutesmith.errors import CandidateError, CutesmithError, UnavailableError, UsageError, told_of
from cutesmith.judge import device_time, sanitizer
from cutesmith.judge.candidate_side import requests as of_candidate
from cutesmith.judge.cheats import find_cheats
from cutesmith.judge.conclusion import Conclusion, options_that_do_not_count, set_name
from cutesmith.judge.course import Course
from cutesmith.judge.entries import candidate as candidate_entry
from cutesmith.judge.processes import Processes
from cutesmith.judge.reference_side import requests as of_reference
from cutesmith.judge.rounds import SMALLER, Round, VerifyOptions, behaviour, exchange
from cutesmith.judge.same_failures import told_once
from cutesmith.problems import contract
from cutesmith.sandbox.failures import mechanism_of
from cutesmith.sandbox.messages import Entry
from cutesmith.sandbox.worker import Worker, phases
from cutesmith.verdicts import (
    CaseOutcome,
    CaseReport,
    ExitCode,
    InputKind,
    Mechanism,
    Rule,
    VerifyVerdict,
    Violation,
)

MODES = ("auto", "gpu", "emulator", "compile", "cpu")
NO_GPU_AT_ALL = "this machine has no NVIDIA GPU; use --on emulator"
NOT_EXECUTED = "compiled and checked, but nothing was executed: this machine has no NVIDIA GPU, and"


def verify_kernel(
    path: str | Path,
    options: VerifyOptions | None = None,
    *,
    problem: str | Path | None = None,
    on: str = "auto",
) -> VerifyVerdict:
    """Verify a kernel file against its own reference, or against that of a separate problem file.

    `on`: "gpu" executes; "emulator" executes on the emulated GPU, with fewer rows where there are many (the cases say
    which shapes ran; status `verified on the emulated GPU`); "compile" checks all but the values (status `compiled`);
    "auto" takes the GPU, else the emulator, and compiles what that cannot execute and says so (exit 7). "cpu" runs
    `kernel_fn` on CPU tensors: a function that can do that is not a CuTe kernel, so this serves the judge's own tests
    (no static checks). What the candidate does wrong ends in a verdict; raises UsageError for an unknown `on` or
    architecture.
    """
    if on not in MODES:
        raise UsageError(f"--on {on} is unknown", hint=f"Choose one of {', '.join(MODES)}.")
    begin = time.monotonic()
    path = Path(path)
    judge = Judge(path=path, problem=contract.problem_of(path, problem), options=options or VerifyOptions())
    return replace(judge.verdict(on), seconds=round(time.monotonic() - begin, 3))


@dataclass
class Judge:
    """One verification: its workers, the cases they went through, and the verdict."""

    path: Path
    problem: Path
    options: VerifyOptions
    ran_on: str = "compile"
    device_name: str = ""
    cases: list[CaseReport] = field(default_factory=list)
    reduced: str = ""
    shrunk: dict[int, str] = field(default_factory=dict)  # as of `Round`
    shapes: bool = True  # whether the problem promises other sizes
    tf32_convolutions: bool = False  # as of `Round`
    idle: tuple[str, ...] = ()  # what of the file no case ran
    own_layouts: Mapping[str, str] = field(default_factory=dict)  # as of `Course`
    left: tuple[str, ...] = ()  # the same
    kinds: tuple[InputKind, ...] = ()
    entry: Entry = candidate_entry  # of the kernel's process
    processes: Processes | None = None  # the last that were started
    course: ClassVar[type[Course]] = Course
    of_processes: ClassVar[type[Processes]] = Processes

    @property
    def own_problem(self) -> bool:
        """Whether the kernel's file says itself what it computes."""
        return self.problem == self.path

    def verdict(self, on: str) -> VerifyVerdict:
        """Static checks, then the workers; every failure becomes a verdict."""
        try:
            contract.inspect_kernel(self.path, with_problem=not self.own_problem)
            if not self.own_problem:
                contract.inspect(self.problem)
            for cheat in [] if on == "cpu" else self.cheats():
                return self._ended(ExitCode.REJECTED, cheat.text, cheat)
            return self._run(on)
        except CandidateError as error:
            return self._ended(error.exit_code, self._told_of(error), error, error.log_tail)
        except CutesmithError as error:
            return self._ended(error.exit_code, str(error), Violation(None, mechanism_of(error), error.message))

    def _told_of(self, error: CandidateError) -> str:
        late = error.exit_code == ExitCode.TIMED_OUT
        lines = [told_of(self.path.name, error.message), error.hint or (SMALLER if late else "")]
        lines += [options_that_do_not_count(self.path)] if late and not self.own_problem else []
        return "\n".join(filter(None, lines))

    def cheats(self) -> list[Violation]:
        """What the file's text shows that a kernel may not do."""
        return find_cheats(contract.problem_source(self.path), self.path)

    def _run(self, on: str) -> VerifyVerdict:
        if on == "cpu":
            self.ran_on = "cpu"
            return self._execute("cpu", DEFAULT_ARCH)
        device = current_device() if on in ("auto", "gpu") else None
        if device is None:
            return self._without_gpu(on)
        try:
            arch = device.fitting_arch(self.options.arch)
        except UnavailableError as error:  # no check found it
            return self._ended(error.exit_code, error.message)
        self.ran_on, self.device_name = "gpu", device.name
        return self._execute("cuda", arch)

    def _without_gpu(self, on: str) -> VerifyVerdict:
        """On the emulated GPU; "auto" compiles what that cannot execute, and says so."""
        arch = str(parse_arch(self.options.arch or DEFAULT_ARCH))
        if on == "gpu":
            return self._ended(ExitCode.UNAVAILABLE, NO_GPU_AT_ALL)
        if on == "compile":
            return self._compile(arch)
        try:
            require_emulator()
            self.ran_on, self.device_name = "emulator", f"the emulated GPU ({arch})"
            return self._execute("emulator", arch)
        except CandidateError as error:
            if on == "emulator" or error.exit_code != ExitCode.UNAVAILABLE:
                raise
            self.cases.clear()
            self.ran_on, self.device_name = "compile", ""
            verdict = self._compile(arch)
            why = f"{self.path.name}: {NOT_EXECUTED} {error.message}"
            return replace(verdict, exit_code=ExitCode.UNAVAILABLE, summary=why) if verdict.passed else verdict

    def _compile(self, arch: str) -> VerifyVerdict:
        """Every check but the values, on recorded launches."""
        processes = self._started("fake", arch)
        with exchange() as folder, processes.started(folder) as (reference, candidate):
            plan = processes.load()
            for index in range(-1, plan.sets):
                self.cases.append(self._record(reference, candidate, index))
        return self._conclude()

    def _record(self, reference: Worker, candidate: Worker, index: int) -> CaseReport:
        drawn = reference.call(of_reference.Layout(index))
        report = candidate.call(of_candidate.Record(drawn.inputs), timeout=self.options.timeout)
        case = CaseReport(name=set_name(index), inputs=drawn.summary)
        wrong = behaviour(report, report.changes, own=True)
        empty = bool(report.outputs) and all(0 in output.shape for output in report.outputs)
        if not wrong and not report.launches and not empty:
            wrong = Violation(Rule.W1, Mechanism.NO_LAUNCH, "kernel_fn launched no CuTe kernel")
        if not wrong and drawn.outputs is not None:
            from cutesmith.judge.reference_side.structure import structure_violation

            wrong = structure_violation(report.outputs, report.is_tuple, drawn.outputs, drawn.is_tuple)
        if wrong:
            return case.violated(wrong)
        launches = len(report.launches)
        text = f"{launches} launch{'es' * (launches != 1)}, no value was compared" if launches else "nothing to launch"
        return replace(case, outcome=CaseOutcome.RECORDED, remark=text)

    def _execute(self, device: str, arch: str, most: int = 2) -> VerifyVerdict:
        """All cases with values, by so many processes of the kernel at most."""
        most = 1 if device == "cuda" else max(1, min(most, self.options.processes))
        processes = self._started(device, arch)
        with contextlib.ExitStack() as exits:
            folders = [exits.enter_context(exchange()) for _ in range(most)]
            reference, candidate = exits.enter_context(processes.started(folders[0]))
            plan = processes.load(folders[1:])
            self.shapes = plan.shapes
            again = (lambda: self._compiled(folders[0], arch)) if device == "cuda" else None
            first, second = Round(folders[0], reference, candidate, self.options, recompiled=again), None
            if most > 1 and (plan.sets or plan.long_sizes):
                second = first.another(folders[1], exits.enter_context(processes.second(folders[1])), "second ")
            course = self.course(self.path, self.ran_on, plan, first, second, processes.load_second)
            try:
                for case in course.cases():
                    self.cases.append(case)
            except CutesmithError:
                if not course.lost:
                    raise
            else:
                return self._executed(course, device, arch)
        # A derived draw ended the reference's process while the second needed it: that says nothing of the kernel.
        self.cases.clear()
        return self._execute(device, arch, 1)

    def _started(self, device: str, arch: str) -> Processes:
        self.processes = self.of_processes(self.path, self.problem, self.options, device, arch, self.entry)
        return self.processes

    def _executed(self, course: Course, device: str, arch: str) -> VerifyVerdict:
        rounds = [turn for turn in (course.first, course.second) if turn is not None]
        self.shrunk = dict(sorted(course.first.shrunk.items()))
        self.reduced, self.idle, self.kinds = course.reduced, course.idle, course.kinds
        self.own_layouts, self.left = course.own_layouts, course.left
        self.tf32_convolutions = any(turn.tf32_convolutions for turn in rounds)
        verdict = self._conclude("\n".join(filter(None, (turn.candidate.log_tail for turn in rounds))))
        if verdict.passed and self.options.sanitize and device == "cuda":
            return self._sanitized(verdict, arch)
        return verdict

    def _compiled(self, folder: Path, arch: str) -> Compiled:
        """Opcodes of the kernel, compiled once more in a process of its own."""
        separate = None if self.own_problem else self.problem
        kept = folder / "compiled"
        compile_kernel(self.path, (arch,), problem=separate, timeout=self.options.timeout, keep_dir=kept)
        texts = [path.read_text() for path in kept.glob("*.ptx")] if kept.is_dir() else []
        return Compiled(Counter(opcode for text in texts for opcode in opcodes_in(text)), {})

    def _sanitized(self, verdict: VerifyVerdict, arch: str) -> VerifyVerdict:
        """memcheck and racecheck of compute-sanitizer, then the shares of device time, in processes of their own."""
        timeout, confined = self.options.timeout, self.options.confine_problem
        self.cases += sanitizer.check(self.path, self.problem, timeout=4 * timeout, confined=confined)
        self.cases.append(device_time.check(self.path, self.problem, arch, timeout=timeout, confined=confined))
        return self._conclude(verdict.log_tail)

    def _conclude(self, tail: str = "") -> VerifyVerdict:
        conclusion = Conclusion(
            path=self.path,
            cases=self.cases,
            ran_on=self.ran_on,
            device_name=self.device_name,
            reduced=self.reduced,
            shrunk=self.shrunk,
            shapes=self.shapes,
            kinds=self.kinds,
            idle=self.idle,
            own_layouts=self.own_layouts,
            left=self.left,
            own_problem=self.own_problem,
            tf32_convolutions=self.tf32_convolutions,
        )
        reached = conclusion.reached()
        ended = self._ended(reached.exit_code, reached.summary, reached.violation, tail)
        return replace(ended, decided_by=reached.case, note=reached.note)

    def _declined(self) -> int:
        return sum(case.outcome is CaseOutcome.DECLINED for case in self.cases)

    def _ended(
        self, code: ExitCode, summary: str, found: Violation | CandidateError | None = None, log_tail: str = ""
    ) -> VerifyVerdict:
        ran = self.processes
        return VerifyVerdict(
            exit_code=code,
            summary=summary,
            path=str(self.path),
            ran_on=self.ran_on,
            device=self.device_name,
            cases=told_once(self.cases),
            declined=self._declined(),
            reduced=self.reduced,
            values="quick" if self.options.quick else "full",
            left=self.left,
            kinds=self.kinds,
            rule=str(found.rule or "") if found else "",
            mechanism=found.mechanism.value if found else "",
            fault=found.fault if found else None,
            tf32_convolutions=self.tf32_convolutions,
            own_problem=self.own_problem,
            confinement=ran.confinement if ran else {},
            problem_confinement=ran.problem_confinement if ran else {},
            phases=phases(**ran.workers) if ran else {},
            log_tail=log_tail[-20000:],
        )
