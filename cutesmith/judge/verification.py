"""Whether `kernel_fn` computes `reference_fn`: the parent of two processes, and the one that decides.

The reference worker draws inputs from a secret seed, the candidate worker runs the stripped file on them, and only then
the reference is computed and the outputs judged. The parent holds the seed and the verdict. With no GPU the emulated
one runs the kernel (`ran_on="emulator"`), or everything but the values is checked (`ran_on="compile"`); neither is
called plainly verified.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.compiling.narrowing import Compiled, opcodes_in
from cutesmith.devices import DEFAULT_ARCH, current_device, parse_arch
from cutesmith.emulator.requirements import import_emulator, require_emulator
from cutesmith.errors import CandidateError, CutesmithError, UnavailableError, UsageError, told_of
from cutesmith.judge import device_time, sanitizer
from cutesmith.judge.candidate_side import requests as of_candidate
from cutesmith.judge.candidate_side.host_branches import never_taken
from cutesmith.judge.cheats import find_cheats
from cutesmith.judge.conclusion import Conclusion, set_name
from cutesmith.judge.derived import run_derived
from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.entries import candidate as candidate_entry
from cutesmith.judge.full_size import FullSize
from cutesmith.judge.kept_references import serving
from cutesmith.judge.problem_process import reference_call, reference_process, reference_reply, untrusted
from cutesmith.judge.reference_side import requests as of_reference
from cutesmith.judge.ring_cases import RingCases
from cutesmith.judge.rounds import SMALLER, START_SECONDS, Round, VerifyOptions, behaviour, exchange, loading, new_seed
from cutesmith.judge.same_failures import told_once
from cutesmith.judge.transfer.requests import Start
from cutesmith.lint.call_graph import host_functions
from cutesmith.lint.source import Source
from cutesmith.problems import contract
from cutesmith.sandbox.failures import mechanism_of
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.messages import Entry
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker, phases
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
MOST_LINES = 4  # of host code that no case ran, that are named
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
    """One verification: two workers, the cases they went through, and the verdict."""

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
    kinds: tuple[InputKind, ...] = ()
    confinement: dict[str, bool] = field(default_factory=dict)
    problem_confinement: dict[str, bool] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)  # those that were started, by what they do
    entry: Entry = candidate_entry  # of the kernel's process

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
            name, hint = self.path.name, error.hint or (SMALLER if error.exit_code == ExitCode.TIMED_OUT else "")
            text = told_of(name, error.message)
            told = f"{text}\n{hint}" if hint else text
            return self._ended(error.exit_code, told, error, error.log_tail)
        except CutesmithError as error:
            return self._ended(error.exit_code, str(error), Violation(None, mechanism_of(error), error.message))

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
        with exchange() as folder, self._workers(folder, "fake", arch) as (reference, candidate):
            plan = self._load(reference, candidate, "fake", arch)
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

    def _execute(self, device: str, arch: str) -> VerifyVerdict:
        """All cases with values."""
        with exchange() as folder, self._workers(folder, device, arch) as (reference, candidate):
            plan = self._load(reference, candidate, device, arch)
            again = (lambda: self._compiled(folder, arch)) if device == "cuda" else None
            turn = Round(folder, reference, candidate, self.options, recompiled=again)
            self._all_cases(turn, plan)
            self.tf32_convolutions = turn.tf32_convolutions
            verdict = self._conclude(candidate.log_tail)
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

    def _all_cases(self, turn: Round, plan: of_reference.Loaded) -> None:
        """The file's own input sets, then the derived ones; cheating ends it, and where no result could be judged."""
        self.shrunk = turn.shrunk
        for index in range(-1, plan.sets):
            self.cases += self._own_set(turn, index)
            if self._settled():
                return
        if all(case.outcome is CaseOutcome.NOT_DECIDED for case in self.cases):
            return  # derived inputs would say nothing of the problem's own
        whole = None if plan.long_sizes is None else FullSize(turn, plan.shapes, plan.long_sizes, plan.elements)
        if whole:
            self.cases.append(whole.launches())
            if not (self.cases[-1].passed and turn.base.steps):  # a call that fails at full size fails the kernel
                return
            self.cases += whole.fewer_blocks_at_once()
        rings = RingCases(turn, resizable=plan.resizable, fresh=not plan.shapes)
        turn.shorter = rings.shorter() if plan.shapes and self.ran_on == "emulator" else ()
        for case in self._derived_cases(turn, plan):
            with self._sharing():
                report = run_derived(turn, case)
            self.cases += [] if report is None else [report]
            if self._settled() or not turn.reference.alive:
                return
        if self.ran_on == "emulator" and all(case.passed for case in self.cases):
            self.cases += rings.cases()
        if whole and all(case.passed for case in self.cases):
            self.cases += whole.longer()
        if whole and all(case.passed for case in self.cases):
            self.cases += whole.not_executed()
        if self.ran_on == "emulator":
            self.idle = self._idle(turn)
        if turn.ran_as:  # such as "16384x8192 as 32x8192, 16384x32"
            self.reduced = f"{turn.ran_as[0]} as {', '.join(turn.ran_as[1:])}"

    def _idle(self, turn: Round) -> tuple[str, ...]:
        """Code of the file that no case ran, a clause each: the verdict says nothing of it."""
        ran, source = turn.candidate.call(of_candidate.Executed(), timeout=self.options.timeout), Source.read(self.path)
        kernels = [function.name for function, kind in source.traced.items() if kind == "kernel"]
        missed = [name for name in kernels if not any(name in whole for whole in ran.kernels)]  # a prefix may be set
        lines = [str(line) for line in never_taken(host_functions(source), set(ran.branches))]
        more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
        at = f"line{'s' * (len(lines) > 1)} {', '.join(lines[:MOST_LINES])}{more}"
        return (
            *([f"launched {', '.join(missed)}"] if missed else []),
            *([f"took the branch of host code at {at}"] if lines else []),
        )

    def _derived_cases(self, turn: Round, plan: of_reference.Loaded) -> Iterator[DerivedCase]:
        """Those of the plan, one after another; then what was drawn for each input is known."""
        planned = reference_call(turn.reference, of_reference.Plan(plan.shapes, quick=self.options.quick))
        yield from planned.cases
        self.kinds = tuple(_without(turn, kind) for kind in planned.kinds)

    def _sanitized(self, verdict: VerifyVerdict, arch: str) -> VerifyVerdict:
        """memcheck and racecheck of compute-sanitizer, then the shares of device time, in processes of their own."""
        timeout, confined = self.options.timeout, self.options.confine_problem
        self.cases += sanitizer.check(self.path, self.problem, timeout=4 * timeout, confined=confined)
        self.cases.append(device_time.check(self.path, self.problem, arch, timeout=timeout, confined=confined))
        return self._conclude(verdict.log_tail)

    def _own_set(self, turn: Round, index: int) -> list[CaseReport]:
        """Several draws of one input set, in one buffer and in new ones (rule R1), twice for determinism."""
        reports = []
        for pair in range(max(1, (self.options.seeds + 1) // 2)):
            with self._sharing():
                reports.append(turn.replay(f"{set_name(index)}, draws {2 * pair + 1} and {2 * pair + 2}", index))
            if reports[-1].outcome is not CaseOutcome.PASSED:
                break
        return reports

    def _sharing(self) -> contextlib.AbstractContextManager[None]:
        """The GPU beside others for one step: one that waits to time a kernel waits for a case, not for all of them."""
        return gpu_lock("cuda" if self.ran_on == "gpu" else self.ran_on, exclusive=False)

    def _settled(self) -> bool:
        return any(case.rule and case.outcome is CaseOutcome.REJECTED for case in self.cases[-1:])

    @contextlib.contextmanager
    def _workers(self, folder: Path, device: str, arch: str) -> Iterator[tuple[Worker, Worker]]:
        gpu = device == "cuda"
        memory, trusted_memory, file_bytes = (32 * GIB, 96 * GIB, 32 * GIB) if gpu else (16 * GIB, 16 * GIB, 4 * GIB)
        patience = max(300.0, self.options.timeout)
        limits = Limits(wall_seconds=self.options.timeout, memory_bytes=fair_memory(memory), file_bytes=file_bytes)
        # Tensors of the emulated GPU are small: threads that share them cost more than they give.
        environment = {"CUTE_DSL_ARCH": arch, **({} if gpu else {"OMP_NUM_THREADS": "1"})}
        trusted = reference_process(
            why=untrusted(self.path, self.problem, asked=self.options.confine_problem),
            limits=replace(limits, wall_seconds=patience, memory_bytes=fair_memory(trusted_memory), processes=512),
            scratch=folder / "reference",
            gpu=gpu,
            environment=environment,
        )
        tried = Worker(
            self.entry,
            preload=(self.options.preload if gpu else import_emulator,),
            limits=limits,
            scratch=folder / "candidate",
            gpu=gpu,
            environment=environment,
        )
        with serving(trusted) as reference, tried.starting() as candidate:
            reference.beside, candidate.beside = (candidate,), (reference,)
            self.workers = {"reference": reference, "kernel": candidate}
            yield reference, candidate

    def _load(self, reference: Worker, candidate: Worker, device: str, arch: str) -> of_reference.Loaded:
        """Load both sides at once; the reference's complaint comes first, as it is about the contract.

        The problem is loaded while the candidate's process still imports its libraries.
        """
        timeout = self.options.timeout
        start = Start(device, arch, self.options.largest_file, self.options.orders)
        with self._sharing():
            reference_call(reference, start)
            planned = reference.send(of_reference.Load(device, str(self.problem.resolve()), new_seed(), arch))
            candidate.call(start, timeout=START_SECONDS)
            tried = candidate.send(of_candidate.Load(str(self.path.resolve())))
            with loading("the file" if self.own_problem else self.problem.name, timeout):
                plan = reference_reply(planned, timeout=timeout)
            with loading("the file", timeout):
                loaded = tried.reply(timeout=timeout)
        self.confinement, self.problem_confinement = loaded.confinement, plan.confinement or {}
        self.shapes = plan.shapes
        for change in loaded.changes:
            raise CandidateError.rejecting(change)
        return plan

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
            own_problem=self.own_problem,
            tf32_convolutions=self.tf32_convolutions,
        )
        return self._ended(*conclusion.reached(), tail)

    def _declined(self) -> int:
        return sum(case.outcome is CaseOutcome.DECLINED for case in self.cases)

    def _ended(
        self, code: ExitCode, summary: str, found: Violation | CandidateError | None = None, log_tail: str = ""
    ) -> VerifyVerdict:
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
            kinds=self.kinds,
            rule=str(found.rule or "") if found else "",
            mechanism=found.mechanism.value if found else "",
            fault=found.fault if found else None,
            tf32_convolutions=self.tf32_convolutions,
            own_problem=self.own_problem,
            confinement=self.confinement,
            problem_confinement=self.problem_confinement,
            phases=phases(**self.workers),
            log_tail=log_tail[-20000:],
        )


def _without(turn: Round, kind: InputKind) -> InputKind:
    """The kind with those of its draws apart that the reference or the kernel did not take."""
    refused = {name: turn.refused[name] for name in kind.drawn if name in turn.refused}
    declined = tuple(name for name in kind.drawn if name in turn.declined)
    drawn = tuple(name for name in kind.drawn if name not in refused and name not in declined)
    return replace(kind, drawn=drawn, left_out={**kind.left_out, **refused}, declined=declined)
