"""Whether `kernel_fn` computes `reference_fn`: the parent of two processes, and the one that decides.

The reference worker draws inputs from a secret seed, the candidate worker runs the stripped file on them, and only then
the reference is computed and the outputs judged. The parent holds the seed and the verdict. With no GPU everything but
the values is checked (`ran_on="compile"`), and that is never called verified.
"""

from __future__ import annotations

import contextlib
import filecmp
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cutesmith import contract
from cutesmith.checks import sanitizer
from cutesmith.checks.cheats import find_cheats
from cutesmith.checks.gpu_lock import gpu_lock
from cutesmith.checks.isolation import GIB, Limits, Worker
from cutesmith.devices import DEFAULT_ARCH, Device, current_device, parse_arch
from cutesmith.errors import CandidateError, ContractError, CutesmithError, UsageError
from cutesmith.verdicts import CaseReport, ExitCode, OutputError, VerifyVerdict

NAN_POISON, LARGE_POISON = 0xFF, 0x5A  # see checks.tensors, which imports torch: the parent does not need it
MODES = ("auto", "gpu", "compile", "cpu")
LAYOUT_CASES = ("strided rows", "misaligned", "transposed memory")
NO_GPU = "compiled and checked, but nothing was executed: this machine has no NVIDIA GPU to verify the values on"


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How to verify: tolerances (None: the file's, else those of the dtype), input draws a set, seconds a call."""

    rtol: float | None = None
    atol: float | None = None
    arch: str | None = None
    seeds: int = 2
    timeout: float = 120.0
    sanitize: bool = False


def verify_kernel(
    path: str | Path,
    *,
    problem: str | Path | None = None,
    on: str = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    arch: str | None = None,
    seeds: int = 2,
    sanitize: bool = False,
    timeout: float = 120.0,
) -> VerifyVerdict:
    """Verify a kernel file against its own reference, or against that of a separate problem file.

    `on`: "gpu" executes, "compile" checks all but the values (exit 0, status `compiled`), "auto" takes the GPU and
    otherwise compiles and says so (exit 7). "cpu" runs `kernel_fn` on CPU tensors: a function that can do that is no
    CuTe kernel, so this serves the judge's own tests (no static checks). `seeds` is the number of draws of each set.
    What the candidate does wrong ends in a verdict; raises UsageError for an unknown `on` or architecture.
    """
    options = VerifyOptions(rtol=rtol, atol=atol, arch=arch, seeds=seeds, timeout=timeout, sanitize=sanitize)
    if on not in MODES:
        raise UsageError(f"--on {on} is unknown", hint=f"Choose one of {', '.join(MODES)}.")
    begin = time.monotonic()
    path = Path(path)
    judge = Judge(path=path, problem=Path(problem) if problem is not None else path, options=options)
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
    confinement: dict[str, bool] = field(default_factory=dict)

    def verdict(self, on: str) -> VerifyVerdict:
        """Static checks, then the workers; every failure becomes a verdict."""
        try:
            contract.inspect(self.path, with_problem=self.problem != self.path)
            if self.problem != self.path:
                contract.inspect(self.problem)
            if on != "cpu" and (rejection := self._static()):
                return rejection
            return self._run(on)
        except CandidateError as error:
            return self._ended(error.exit_code, f"{self.path.name}: {error.message}", error.rule, error.log_tail)
        except CutesmithError as error:
            return self._ended(error.exit_code, str(error))

    def _static(self) -> VerifyVerdict | None:
        findings = find_cheats(contract.problem_source(self.path), self.path)
        if not findings:
            return None
        first = findings[0]
        return self._ended(
            ExitCode.REJECTED, f"{self.path.name}:{first.line}: {first.message}; {first.fix}", first.rule
        )

    def _run(self, on: str) -> VerifyVerdict:
        if on == "cpu":
            self.ran_on = "cpu"
            return self._execute("cpu", DEFAULT_ARCH)
        device = current_device() if on != "compile" else None
        if device is None:
            return self._ended(ExitCode.UNAVAILABLE, NO_GPU_AT_ALL) if on == "gpu" else self._compile(on)
        arch = self.options.arch or fitting_arch(device)
        if device.sm is not None and not parse_arch(arch).runs_on(device.sm):
            return self._ended(ExitCode.UNAVAILABLE, f"{arch} does not run on this machine's {device.name}")
        self.ran_on, self.device_name = "gpu", device.name
        return self._execute("cuda", arch)

    def _compile(self, on: str) -> VerifyVerdict:
        """Every check but the values, on recorded launches."""
        arch = str(parse_arch(self.options.arch or DEFAULT_ARCH))
        with exchange() as folder, self._workers(folder, "fake", arch) as (reference, candidate):
            plan = self._load(reference, candidate, "fake", arch)
            for index in range(-1, plan["sets"]):
                self.cases.append(self._record(reference, candidate, index))
        verdict = self._conclude()
        if not verdict.passed or on == "compile":
            return verdict
        return replace(verdict, exit_code=ExitCode.UNAVAILABLE, summary=f"{self.path.name}: {NO_GPU}")

    def _record(self, reference: Worker, candidate: Worker, index: int) -> CaseReport:
        drawn = reference.call({"do": "layout", "set": index})
        reply = candidate.call({"do": "record", "inputs": drawn["inputs"]}, timeout=self.options.timeout)
        report = reply["steps"][0]
        case = CaseReport(name=_set_name(index), inputs=drawn["summary"], passed=True)
        if problem := _behaviour(report, reply["changes"], own=True):
            return _failed(case, problem)
        if not report["launches"] and not _all_empty(report["outputs"]):
            return _failed(case, ("W1", "kernel_fn launched no CuTe kernel", True))
        if drawn["outputs"] is not None:
            from cutesmith.checks.reference import structure_problem

            wrong = structure_problem(report["outputs"], report["tuple"], drawn["outputs"], drawn["tuple"])
            case = _failed(case, ("O13", wrong, False)) if wrong else case
        return case

    def _execute(self, device: str, arch: str) -> VerifyVerdict:
        """All cases with values."""
        with exchange() as folder, self._workers(folder, device, arch) as (reference, candidate):
            plan = self._load(reference, candidate, device, arch)
            with gpu_lock(exclusive=False) if device == "cuda" else contextlib.nullcontext():
                self._all_cases(Round(folder, reference, candidate, self.options), plan)
            verdict = self._conclude(candidate)
        if verdict.passed and self.options.sanitize and device == "cuda":
            return self._sanitized(verdict)
        return verdict

    def _all_cases(self, turn: Round, plan: dict[str, Any]) -> None:
        """The file's own input sets, then the derived ones; cheating ends it."""
        for index in range(-1, plan["sets"]):
            self.cases += self._own_set(turn, index)
            if self._settled():
                return
        for name in plan["derived"]:
            report = turn.derived(name)
            self.cases += [] if report is None else [report]
            if self._settled() or not turn.reference.alive:
                return

    def _sanitized(self, verdict: VerifyVerdict) -> VerifyVerdict:
        """memcheck and racecheck of compute-sanitizer, in a process of their own."""
        for report in sanitizer.check(self.path, self.problem, timeout=4 * self.options.timeout):
            self.cases.append(report)
        return self._conclude(log_tail=verdict.log_tail)

    def _own_set(self, turn: Round, index: int) -> list[CaseReport]:
        """Several draws of one input set, in one buffer and in new ones (rule R1), twice for determinism."""
        reports = []
        for pair in range(max(1, (self.options.seeds + 1) // 2)):
            reports.append(turn.replay(f"{_set_name(index)}, draws {2 * pair + 1} and {2 * pair + 2}", index))
            if not reports[-1].passed:
                break
        return reports

    def _settled(self) -> bool:
        return any(case.rule and not case.passed and case.problem.startswith(REJECTED) for case in self.cases[-1:])

    @contextlib.contextmanager
    def _workers(self, folder: Path, device: str, arch: str) -> Iterator[tuple[Worker, Worker]]:
        gpu = device == "cuda"
        memory = (96 if gpu else 16) * GIB
        limits = Limits(wall_seconds=self.options.timeout, memory_bytes=memory, file_bytes=32 * GIB if gpu else 4 * GIB)
        environment = {"CUTE_DSL_ARCH": arch}
        trusted = Worker(
            "cutesmith.checks.reference:handler",
            limits=replace(limits, wall_seconds=max(300.0, self.options.timeout), processes=512),
            scratch=folder / "reference",
            gpu=gpu,
            environment=environment,
            subject="the reference",
        )
        tried = Worker(
            "cutesmith.checks.candidate:handler",
            limits=limits,
            scratch=folder / "candidate",
            gpu=gpu,
            environment=environment,
        )
        with trusted as reference, tried as candidate:
            yield reference, candidate

    def _load(self, reference: Worker, candidate: Worker, device: str, arch: str) -> dict[str, Any]:
        """Load both sides at once; the reference's complaint comes first, as it is about the contract."""
        common = {"do": "load", "device": device, "arch": arch}
        reference.send({**common, "path": str(self.problem.resolve()), "seed": new_seed()})
        candidate.send({**common, "path": str(self.path.resolve())})
        plan = trusted_reply(reference)
        loaded = candidate.receive()
        self.confinement = loaded["confinement"]
        for rule, text in loaded["changes"]:
            raise CandidateError(text, ExitCode.REJECTED, rule=rule)
        return plan

    def _conclude(self, candidate: Worker | None = None, *, log_tail: str = "") -> VerifyVerdict:
        tail = candidate.log_tail if candidate is not None else log_tail
        wrong = [case for case in self.cases if not case.passed]
        if not wrong:
            count = sum(not case.problem.startswith("declined") for case in self.cases)
            done = "compiled" if self.ran_on == "compile" else f"verified on {self.device_name or self.ran_on}"
            return self._ended(ExitCode.PASSED, f"{self.path.name}: {done}, {count} cases", log_tail=tail)
        worst = next((case for case in wrong if case.problem.startswith(REJECTED)), wrong[0])
        code = ExitCode.REJECTED if worst.problem.startswith(REJECTED) else ExitCode.WRONG_RESULT
        if worst.problem.startswith(FAULT):
            code = ExitCode.CRASHED
        more = f" (and {len(wrong) - 1} other cases)" if len(wrong) > 1 else ""
        return self._ended(code, f"{self.path.name}: {worst.name}: {worst.problem}{more}", worst.rule, tail)

    def _ended(self, code: ExitCode, summary: str, rule: str = "", log_tail: str = "") -> VerifyVerdict:
        return VerifyVerdict(
            exit_code=code,
            summary=summary,
            path=str(self.path),
            ran_on=self.ran_on,
            device=self.device_name,
            cases=tuple(self.cases),
            rule=rule,
            confinement=self.confinement,
            log_tail=log_tail[-20000:],
        )


NO_GPU_AT_ALL = "this machine has no NVIDIA GPU; use --on compile to check everything but the values"
REJECTED = "rejected: "
FAULT = "sanitizer: "


@dataclass(frozen=True)
class Round:
    """The two workers and the folder through which one case goes."""

    folder: Path
    reference: Worker
    candidate: Worker
    options: VerifyOptions

    def replay(self, name: str, index: int) -> CaseReport:
        """A, then B behind the same pointers, then A behind new ones: all three must be right."""
        drawn = {key: self._draw(key, {"set": index}) for key in ("a", "b")}
        case = CaseReport(name=name, inputs=drawn["a"]["summary"], passed=True)
        same = [d["inputs"] for d in drawn.values()]
        layouts_agree = [_layout(d) for d in same[0]] == [_layout(d) for d in same[1]]
        steps = [
            self._step(0, drawn["a"], reuse=False, poison=NAN_POISON),
            self._step(1, drawn["b"], reuse=layouts_agree, poison=LARGE_POISON),
            self._step(2, drawn["a"], reuse=False, poison=LARGE_POISON),
        ]
        reply = self._run(steps)
        try:
            return self._judge_replay(case, reply)
        finally:
            self._clean()

    def _judge_replay(self, case: CaseReport, reply: dict[str, Any]) -> CaseReport:
        for step, report in enumerate(reply["steps"]):
            if problem := _behaviour(report, reply["changes"], own=True):
                return _failed(case, problem)
            verdict = _never_written(self._judge("aba"[step], report), report)
            case = replace(case, outputs=case.outputs or _outputs(verdict))
            if verdict["problem"] and step > 0 and not verdict["reject"]:
                text = ("new contents behind the same pointers", "the same contents behind new pointers")[step - 1]
                if self._replayed(step, reply["steps"]):
                    stale = f"with {text} it returns an old result: {verdict['problem']}"
                    return _failed(replace(case, outputs=_outputs(verdict)), ("R1", stale, True))
            if verdict["problem"]:
                wrong = (verdict["rule"], verdict["problem"], verdict["reject"])
                return _failed(replace(case, outputs=_outputs(verdict)), wrong)
        return self._deterministic(case, reply["steps"])

    def _replayed(self, step: int, reports: Sequence[dict[str, Any]]) -> bool:
        """Whether a wrong result is, bit for bit, that of an earlier call."""
        files = [[Path(output["file"]) for output in report["outputs"]] for report in reports]
        return any(_same_files(files[step], files[earlier]) for earlier in range(step))

    def _deterministic(self, case: CaseReport, reports: Sequence[dict[str, Any]]) -> CaseReport:
        """Two right results that differ in their bits are reported, not refused: atomics may reorder sums."""
        first, _, last = ([Path(output["file"]) for output in report["outputs"]] for report in reports)
        if _same_files(first, last):
            return case
        return replace(case, problem="not reproducible: two calls on equal inputs differ, within tolerance")

    def derived(self, name: str) -> CaseReport | None:
        """One derived case; None when the reference refuses such inputs. A kernel may refuse layouts and shapes too."""
        try:
            drawn = self._draw("d", {"set": -1, "derive": name})
        except CutesmithError:  # the reference process died on it: nothing more can be derived
            return None if self.reference.alive else _skip(name)
        if not drawn["accepted"]:
            return None
        case = CaseReport(name=f"derived: {name}", inputs=drawn["summary"], passed=True)
        poisons = (NAN_POISON, LARGE_POISON)
        steps = [self._step(i, drawn, reuse=False, poison=poison) for i, poison in enumerate(poisons)]
        try:
            reply = self._run(steps)
        except CandidateError as error:
            if self.candidate.alive and _may_decline(name) and "CUDA" not in error.message:
                return replace(case, problem=f"declined: {error.message[:300]}")
            raise
        for report in reply["steps"]:
            if problem := _behaviour(report, reply["changes"], own=False):
                return _failed(case, problem)
            verdict = _never_written(self._judge("d", report), report)
            case = replace(case, outputs=case.outputs or _outputs(verdict))
            if verdict["problem"]:
                wrong = (verdict["rule"], verdict["problem"], verdict["reject"] and not name.startswith("NaN"))
                return _failed(replace(case, outputs=_outputs(verdict)), wrong)
        self._clean()
        return case

    def _draw(self, key: str, what: dict[str, Any]) -> dict[str, Any]:
        request = {"do": "draw", "key": key, "seed": new_seed(), "folder": str(self.folder / "inputs" / key), **what}
        return trusted_call(self.reference, request)

    def _step(self, number: int, drawn: dict[str, Any], *, reuse: bool, poison: int) -> dict[str, Any]:
        outputs = self.folder / "candidate" / "outputs" / str(number)
        return {"inputs": drawn["inputs"], "reuse": reuse, "poison": poison, "outputs": str(outputs)}

    def _run(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        return self.candidate.call({"do": "run", "steps": steps}, timeout=self.options.timeout)

    def _judge(self, key: str, report: dict[str, Any]) -> dict[str, Any]:
        request = {"do": "judge", "key": key, "outputs": report["outputs"], "tuple": report["tuple"]}
        tolerances = {"rtol": self.options.rtol, "atol": self.options.atol}
        return trusted_call(self.reference, {**request, **tolerances})

    def _clean(self) -> None:
        for name in ("inputs", "candidate/outputs"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


def _behaviour(report: dict[str, Any], changes: Sequence[Sequence[str]], *, own: bool) -> tuple[str, str, bool] | None:
    """What the candidate did that no result excuses: (rule, sentence, whether it is cheating)."""
    for rule, text in changes:
        return rule, text, True
    computed = sorted(report["computed"])
    if computed:
        return "W1", f"kernel_fn computes with torch ({', '.join(computed[:5])}) instead of a CuTe kernel", True
    if report["copied"] and own:
        return "W1", f"kernel_fn copies tensors with torch ({', '.join(report['copied'])}): read strides instead", True
    for problem in report["problems"]:
        return problem["rule"], problem["text"], problem["reject"]
    return None


def _never_written(verdict: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """A wrong result with elements that nobody wrote (rule O1) says so."""
    if not verdict["outputs"] or not verdict["problem"] or not report["unwritten"]:
        return verdict
    text = f"{report['unwritten']} output elements were never written; {verdict['problem']}"
    return {**verdict, "problem": text, "rule": "O1"}


def _failed(case: CaseReport, problem: tuple[str, str, bool]) -> CaseReport:
    rule, text, reject = problem
    return replace(case, passed=False, rule=rule, problem=f"{REJECTED}{text}" if reject else text)


def _skip(name: str) -> CaseReport:
    return CaseReport(name=f"derived: {name}", inputs="", passed=True, problem="declined: the reference process ended")


def _may_decline(name: str) -> bool:
    """Shapes and layouts that nobody promised to take may be refused aloud; values may not."""
    return name in LAYOUT_CASES or name.startswith(("odd", "empty", "size 1"))


def _outputs(verdict: dict[str, Any]) -> tuple[OutputError, ...]:
    made = []
    for output in verdict["outputs"]:
        tuples = {name: tuple(output[name]) for name in ("shape", "worst_index")}
        made.append(OutputError(**{**output, **tuples}))
    return tuple(made)


def _layout(description: dict[str, Any]) -> Any:
    return [description.get(key) for key in ("type", "dtype", "shape", "stride", "misaligned_bytes")]


def _same_files(first: Sequence[Path], second: Sequence[Path]) -> bool:
    """Whether files hold the same bytes; an empty tensor has none."""
    if len(first) != len(second):
        return False
    present = [(a, b) for a, b in zip(first, second) if a.exists() or b.exists()]
    return all(a.exists() and b.exists() and filecmp.cmp(a, b, shallow=False) for a, b in present)


def _all_empty(outputs: Sequence[dict[str, Any]]) -> bool:
    return bool(outputs) and all(0 in output["shape"] for output in outputs)


def _set_name(index: int) -> str:
    return "get_inputs()" if index < 0 else f"get_input_sets()[{index}]"


def new_seed() -> int:
    """A seed that nobody can guess; it never enters the candidate's process."""
    return secrets.randbits(48)


def fitting_arch(device: Device) -> str:
    """The architecture to compile for on this GPU."""
    return device.sm.default_arch if device.sm is not None else f"sm_{10 * device.capability[0] + device.capability[1]}"


def trusted_call(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """A reply of the trusted side; what goes wrong there is a broken contract, not the candidate's fault."""
    worker.send(request)
    return trusted_reply(worker)


def trusted_reply(worker: Worker) -> dict[str, Any]:
    """As `trusted_call`, for a request that was sent before."""
    try:
        return worker.receive()
    except CandidateError as error:
        if error.exit_code in (ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.TIMED_OUT):
            raise
        raise ContractError(f"the problem cannot be used: {error.message}", hint=error.log_tail[-2000:]) from error


@contextlib.contextmanager
def exchange() -> Iterator[Path]:
    """A folder for tensors between processes: in memory where there is room, on disk otherwise; removed at the end."""
    shared = Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > 4 * GIB
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=shared if roomy else None) as folder:
        (Path(folder) / "candidate").mkdir()
        yield Path(folder)
