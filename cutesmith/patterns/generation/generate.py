"""The offline generator: problem → draft → lint → compile → verify → time → the best verified kernel.

No model, no key, no network. Every candidate is a whole kernel file that goes through the same stages as any other.
The first guess is verified early, so that there is something to keep; then all are timed, and the fastest are verified
until one is right: a kernel that was timed but not verified is never kept.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cutesmith.errors import UnavailableError, UnmatchedError
from cutesmith.patterns.generation.candidates import Candidate, by_speed, skipped_row
from cutesmith.patterns.generation.drafting import Cover, Draft, draft_kernels
from cutesmith.patterns.generation.output_folder import OutputFolder, default_folder
from cutesmith.patterns.generation.stages import Stages
from cutesmith.patterns.generation.target import Target, choose_target, describe_environment
from cutesmith.runtime.tuning import Progress as Progress
from cutesmith.runtime.tuning import silent
from cutesmith.runtime.tuning_cache import TuningCache
from cutesmith.verdicts import (
    BenchmarkVerdict,
    ExitCode,
    GenerateVerdict,
    Mechanism,
    Precision,
    Verdict,
    VerifyVerdict,
)

CONFIGURATIONS = 8
VERIFY_ATTEMPTS = 4
OUT_OF_MEMORY = (Mechanism.MEMORY_LIMIT.value, Mechanism.GPU_MEMORY.value)
NOT_EXECUTED = "nothing was executed: this machine has no GPU that runs {arch}"


Render = Callable[[GenerateVerdict, Mapping[str, str], str], str]
"""The page for a verdict, the machine that it was found on, and the kernel's source."""


class StageRunner(Protocol):
    """The checks over candidates: each adds its verdict to the candidate (`stages.Stages` is the real one)."""

    def lint(self, candidates: list[Candidate], report: Callable[[int], None]) -> None: ...
    def compile(self, candidates: list[Candidate], report: Callable[[int], None]) -> None: ...
    def verify(self, candidate: Candidate) -> VerifyVerdict: ...
    def time(self, candidates: list[Candidate]) -> str: ...
    def benchmark(self, path: Path) -> BenchmarkVerdict: ...


def generate_kernel(
    problem: str | Path,
    *,
    arch: str | None = None,
    out: str | Path | None = None,
    on: str = "auto",
    configurations_limit: int = CONFIGURATIONS,
    benchmark: bool = True,
    use_cache: bool = True,
    confine_problem: bool = False,
    precision: Precision = Precision.PYTORCH,
    progress: Progress | None = None,
    render: Render | None = None,
) -> GenerateVerdict:
    """Write a kernel for a problem file into the folder `out` (default `cutesmith-out/NAME`).

    `arch` pins the architecture (default: this machine's GPU, else sm_90a); `on` is "auto", "gpu", "emulator" or
    "compile". Without a GPU the kernel is verified on the emulated one, or `compiled` where that cannot decide.
    Configurations that the architecture would refuse are skipped before they are compiled. The race's times are
    remembered: the same candidates on the same device are ordered by those, unless `use_cache` is off; what is kept
    is verified and benchmarked again. `confine_problem`: the problem is untrusted, so that it is confined where
    times are taken, as it is everywhere else. `precision`: what products of float32 may round their factors to; the
    kernel is judged by that. A function that no pattern takes gives exit code USAGE with the first
    operation in the way. `render` makes `report.html`; there is none without it. Ctrl-C keeps the best verified kernel
    so far.
    Raises ContractError (broken problem file), UnavailableError (`on="gpu"` without a fitting GPU, no TVM-FFI) and
    UsageError.
    """
    started = time.monotonic()
    _require_tvm_ffi()
    target = choose_target(arch, on)
    tell = progress or silent
    tell("draft", 0, 1)
    try:
        draft = draft_kernels(
            problem, target.arch, limit=configurations_limit, precision=precision, timed=target.executes
        )
    except UnmatchedError as refusal:
        return _unmatched(problem, refusal, time.monotonic() - started)
    tell("draft", 1, 1, draft.told)
    first = draft.covers[0]
    if first.unrolled:
        tell("launches", first.launches, first.launches, first.unrolled)
    folder = OutputFolder(default_folder(problem) if out is None else out)
    cache = TuningCache() if use_cache else None
    stages = Stages(Path(problem), target, draft, cache, confine_problem, precision, tell)
    return Generation(Path(problem), target, draft, stages, folder, tell, started, benchmark, render, precision).run()


def _require_tvm_ffi() -> None:
    if importlib.util.find_spec("tvm_ffi") is None:
        wrong = "generated kernels take torch tensors through TVM-FFI, which is not installed"
        raise UnavailableError(f"{wrong}: pip install apache-tvm-ffi")


def _unmatched(problem: str | Path, refusal: UnmatchedError, seconds: float) -> GenerateVerdict:
    return GenerateVerdict(
        exit_code=ExitCode.USAGE,
        summary=f"{refusal.message}\n{refusal.hint}".strip(),
        problem=str(problem),
        unmatched=refusal.operation or refusal.message,
        seconds=seconds,
    )


def _without_memory(failed: Verdict) -> Verdict:
    """The failure; where memory ran out it is the machine's, as a drafted kernel holds its tensors alone."""
    if getattr(failed, "mechanism", "") not in OUT_OF_MEMORY:
        return failed
    told = f"this machine has too little memory for it: {failed.summary.splitlines()[0]}"
    return replace(failed, exit_code=ExitCode.UNAVAILABLE, summary=told)


def _way_of(failed: Verdict | None) -> Hashable:
    """In which case and how a candidate fails; None where nothing was found wrong with a case."""
    cases = failed.cases if isinstance(failed, VerifyVerdict) else ()
    wrong = next((case for case in cases if not case.passed), None)
    return (wrong.name, wrong.outcome) if wrong else None


@dataclass
class Generation:
    """One run over the candidates of a draft; `best` is what `kernel.py` holds."""

    problem: Path
    target: Target
    draft: Draft
    stages: StageRunner
    folder: OutputFolder
    tell: Progress
    started: float
    wants_benchmark: bool
    render: Render | None = None
    precision: Precision = Precision.PYTORCH
    candidates: list[Candidate] = field(default_factory=list)
    best: Candidate | None = None
    benchmark: BenchmarkVerdict | None = None
    remark: str = ""
    seconds: list[float] = field(default_factory=list)  # of each verification
    given_up: set[Cover] = field(default_factory=set)  # of which two candidates fail in the same way

    def __post_init__(self) -> None:
        for number, drafted in enumerate(self.draft.kernels, start=1):
            path, cover = self.folder.write_candidate(number, drafted.source), self.draft.covers[drafted.cover]
            self.candidates.append(
                Candidate(number, drafted.configuration, drafted.tiling, path, drafted.source, cover)
            )

    def run(self) -> GenerateVerdict:
        """Walk the stages and finish; Ctrl-C ends early when there is something to keep."""
        try:
            self.walk()
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.remark = "interrupted; this is the best so far"
        return self.finish()

    def walk(self) -> None:
        """All the stages, each over the candidates that the one before left."""
        linted = self._sieve("lint", self.candidates, self.stages.lint)
        if not self.target.executes:
            self._settle(self._compiled_in_turn(linted))
            return
        compiled = self._sieve("compile", linted, self.stages.compile)
        if not compiled:
            return
        self._verify(compiled[0])
        self._time(compiled)
        self._settle(by_speed(compiled))
        if self.best is not None and self.wants_benchmark:
            self._benchmark(self.best)

    def _compiled_in_turn(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those that compile, as the pattern guessed; those that are doubtful follow when no other is left.

        Where nothing can be timed the first that holds is kept: of eight products the others took 52 s of CPU time.
        """
        doubtful = list[Candidate]()
        for candidate in candidates:
            if candidate.cover in self.given_up or not self._sieve("compile", [candidate], self.stages.compile):
                continue
            if candidate.is_doubtful:
                doubtful.append(candidate)
            else:
                yield candidate
        yield from doubtful

    def _settle(self, candidates: Iterable[Candidate]) -> None:
        """Verify in this order until one holds; without a GPU that is everything but the values.

        Of a cover of which two fail in the same way no other is verified: the fault is in what all of them share, and
        others cost as long again.
        """
        ways = [(each.cover, _way_of(each.verdict(VerifyVerdict))) for each in self.candidates]
        alive = (each for each in candidates if each.failed is None and each.cover not in self.given_up)
        for attempts, candidate in enumerate(itertools.islice(alive, VERIFY_ATTEMPTS), start=1):
            left = min(VERIFY_ATTEMPTS - attempts, len(self._waiting()) - 1)
            if candidate.verified or self._verify(candidate, left=left):
                return
            way = (candidate.cover, _way_of(candidate.verdict(VerifyVerdict)))
            if way[1] is not None and way in ways:
                self.given_up.add(candidate.cover)
                others = sum(each.cover == candidate.cover for each in self._waiting())
                self.remark = f"candidates fail in the same way; {others} more not verified" if others else ""
            ways.append(way)

    def _waiting(self) -> list[Candidate]:
        """The candidates that nothing was found against, and that are not verified."""
        return [each for each in self.candidates if each.failed is None and not each.verified]

    def _sieve(
        self,
        stage: str,
        candidates: list[Candidate],
        check: Callable[[list[Candidate], Callable[[int], None]], None],
    ) -> list[Candidate]:
        """Run one stage over the candidates; those that it has nothing against."""
        self.tell(stage, 0, len(candidates))
        check(candidates, lambda done: self.tell(stage, done, len(candidates)))
        return [candidate for candidate in candidates if candidate.failed is None]

    def _verify(self, candidate: Candidate, left: int = 0) -> bool:
        how = {
            "gpu": "all cases of {} on the GPU",
            "emulator": f"all cases of {{}} on the emulated GPU, {self._expected(left)}",
            "compile": "the launches of {}, recorded and not executed",
        }[self.target.place]
        self.tell("verify", 0, 1, how.format(f"candidate {candidate.number}"))
        begin = time.monotonic()
        verdict = self.stages.verify(candidate)
        self.seconds.append(time.monotonic() - begin)
        failed = f"candidate {candidate.number}: {verdict.status}"  # the last line says how
        self.tell("verify", 1, 1, verdict.summary if verdict.passed else failed)
        if verdict.passed and self._beats_best(candidate):
            self._keep(candidate)
        return verdict.passed

    def _expected(self, left: int) -> str:
        """How long verifying takes: as long as the last one; before the first a wide range, as seen in use."""
        each = f"{self.seconds[-1]:.0f} s as the last" if self.seconds else "20 s to several minutes"
        return f"{each}; if it fails, at most {left} more" if left else each

    def _beats_best(self, candidate: Candidate) -> bool:
        if self.best is None or self.best.median_us is None:
            return True
        return candidate.median_us is not None and candidate.median_us < self.best.median_us

    def _time(self, candidates: list[Candidate]) -> None:
        alive = [candidate for candidate in candidates if candidate.failed is None]
        if len(alive) < 2:
            return
        self.tell("time", 0, len(alive))
        date = self.stages.time(alive)
        if date:
            self.remark = f"configurations ordered by times from cache of {date}"
        self.tell("time", len(alive), len(alive), self.remark)

    def _keep(self, candidate: Candidate) -> None:
        """Make it the kernel, with one checkpoint for each stage that held."""
        for other in self.candidates:
            other.chosen = other is candidate
        self.best = candidate
        for verdict in candidate.verdicts:
            self.folder.keep(candidate.source, verdict)

    def _benchmark(self, candidate: Candidate) -> None:
        self.tell("benchmark", 0, 1)
        self.benchmark = self.stages.benchmark(self.folder.kernel)
        self.tell("benchmark", 1, 1, self.benchmark.summary)
        if self.benchmark.passed:
            self.folder.keep(candidate.source, self.benchmark)

    def finish(self) -> GenerateVerdict:
        """The verdict; `result.json` and `report.html` are written."""
        verdict = self._verdict()
        environment = describe_environment(self.target)
        self.folder.write_result({**verdict.to_dict(), "environment": environment})
        if self.render is not None:
            self.folder.write_report(self.render(verdict, environment, self.best.source if self.best else ""))
        return verdict

    def _verdict(self) -> GenerateVerdict:
        blocked = self._blocked()
        stages: list[Verdict] = list(self.best.verdicts) if self.best else []
        if self.benchmark is not None:
            stages.append(self.benchmark)
        return GenerateVerdict(
            exit_code=blocked.exit_code if blocked else ExitCode.PASSED,
            summary=self._summary(blocked),
            seconds=time.monotonic() - self.started,
            problem=str(self.problem),
            kernel=str(self.folder.kernel) if self.best else "",
            pattern=self._cover.pattern,
            configuration=self.best.configuration.to_dict() if self.best else {},
            tried=(*(candidate.to_dict() for candidate in self.candidates), *self._skipped()),
            stages=tuple(stage.to_dict() for stage in stages),
            state=self._state(),
        )

    def _skipped(self) -> list[dict[str, Any]]:
        """A row for each configuration that was refused before it became a candidate."""
        first = len(self.candidates) + 1
        rows = enumerate(self.draft.skipped, start=first)
        return [skipped_row(number, skipped, self.draft.covers[skipped.cover]) for number, skipped in rows]

    @property
    def _cover(self) -> Cover:
        """That of the best kernel, or of the best guess."""
        return self.best.cover if self.best else self.draft.covers[0]

    def _state(self) -> str:
        """The status of the best kernel's verify verdict, "" without one."""
        verdict = self.best.verdict(VerifyVerdict) if self.best else None
        return verdict.status if verdict is not None else ""

    def _blocked(self) -> Verdict | None:
        """Why there is no kernel: the first candidate's failure, that is, the best guess's; or why it is rejected."""
        if self.best is not None:
            cheating = self.benchmark is not None and self.benchmark.exit_code == ExitCode.REJECTED
            return self.benchmark if cheating else None
        failures = [candidate.failed for candidate in self.candidates if candidate.failed is not None]
        return _without_memory(failures[0]) if failures else None

    def _summary(self, blocked: Verdict | None) -> str:
        name = self.problem.name
        if blocked is not None:
            told = f"{name}: no kernel held: {blocked.stage} of the best guess says: {blocked.summary}"
            return "; ".join(filter(None, (told, *self._other_failures(), self.remark)))
        assert self.best is not None
        parts = [f"{name}: {self._state()} for {self.target.arch}"]
        if not self.target.executes:
            parts.append(self.target.why_not or NOT_EXECUTED.format(arch=self.target.arch))
        if self.benchmark is not None:
            parts.append(self.benchmark.summary)
        elif self.best.median_us is not None:
            parts.append(f"{self.best.median_us:.1f} µs")
        untried = len(self._waiting())
        if self.best.unverified:
            parts.append(f"the emulated GPU decided nothing: {self.best.unverified}")
        elif self.target.emulated and untried:
            parts.append(f"the most promising configuration is verified, {untried} more are drafted only")
        rounded = "factors of float32 rounded to tf32, as asked" if self.precision is Precision.TF32 else ""
        unrolled = self._cover.unrolled and f"{self._cover.unrolled}; steps could be one kernel that loops itself"
        return "; ".join([*parts, *filter(None, (self._raced(), rounded, self._passed(), unrolled, self.remark))])

    def _raced(self) -> str:
        """The covers that were tried, the kept one first, with what was predicted and what the best of each took."""
        if len(self.draft.covers) == 1:
            return ""
        kept, *others = map(self._raced_cover, dict.fromkeys((self._cover, *self.draft.covers)))
        return f"kept of {1 + len(others)} covers: {kept}; beside it: {'; '.join(others)}"

    def _raced_cover(self, cover: Cover) -> str:
        times = [each.median_us for each in self.candidates if each.cover == cover and each.median_us is not None]
        return f"{cover.told}, {min(times):.3g} taken" if times else cover.told

    def _other_failures(self) -> Iterator[str]:
        """A clause for each way in which a candidate fails and none before it does."""
        seen = set[Hashable]()
        for number, failed in ((c.number, c.failed) for c in self.candidates if self.best is None):
            way = failed and (_way_of(failed) or (failed.stage, failed.status))
            if failed is not None and way not in seen:
                if seen:
                    yield f"{failed.stage} of candidate {number}: {failed.summary}"
                seen.add(way)

    def _passed(self) -> str:
        """What its launches write and read for each other, where that is a tenth of the function's own bytes."""
        passed, own = self._cover.passed_bytes, self.draft.algorithmic_bytes
        if 10 * passed < own or not passed:
            return ""
        told = f"its launches write and read {passed / 1e6:.3g} MB for each other"
        return f"{told}, beside {own / 1e6:.3g} MB of inputs and outputs: a fused kernel would not"
