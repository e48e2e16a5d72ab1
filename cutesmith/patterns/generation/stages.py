"""The checks, as the generator calls them: over several candidates at once where that is faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cutesmith.compiling.compilation import compile_siblings
from cutesmith.judge.reference_side.requests import Tolerances
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import verify_kernel
from cutesmith.lint import lint_file
from cutesmith.patterns.generation.candidates import Candidate
from cutesmith.patterns.generation.compiled_kernel import verify_compiled
from cutesmith.patterns.generation.drafting import Draft
from cutesmith.patterns.generation.remembered_race import RememberedRace
from cutesmith.patterns.generation.target import Target
from cutesmith.runtime.tuning import Progress, silent, usual_jobs
from cutesmith.runtime.tuning_cache import TuningCache
from cutesmith.timing.benchmark import BenchmarkOptions, benchmark_kernel, time_candidates
from cutesmith.timing.entries import import_for_gpu
from cutesmith.verdicts import BenchmarkVerdict, ExitCode, Precision, VerifyVerdict

Report = Callable[[int], None]
SEEDS = 2


@dataclass(frozen=True)
class Stages:
    """Lint, compile, verify, time and benchmark for one target; each adds its verdict to the candidate.

    `cache` remembers races; without it each race is run and forgotten. `precision`: what results are judged by.
    `tell` hears how many kernels of a file of many are compiled. `confine_problem`: the problem is untrusted.
    Verification takes it from the kernel's own file and confines it in any case.
    """

    problem: Path
    target: Target
    draft: Draft
    cache: TuningCache | None = None
    confine_problem: bool = False
    precision: Precision = Precision.PYTORCH
    tell: Progress = silent

    def lint(self, candidates: list[Candidate], report: Report) -> None:
        """Static checks; no candidate is run."""
        for done, candidate in enumerate(candidates, start=1):
            candidate.verdicts.append(lint_file(candidate.path))
            report(done)

    def compile(self, candidates: list[Candidate], report: Report) -> None:
        """Compile all for the target's architecture, four a worker: starting one costs as much as some compilations.

        Where nothing is executed, also what the problem's further input sets need: no later stage compiles that.
        """
        paths, variants = [candidate.path for candidate in candidates], self.target.place == "compile"
        jobs = usual_jobs(len(paths))
        verdicts = compile_siblings(paths, self.target.arch, jobs=jobs, variants=variants, progress=self.tell)
        for done, (candidate, verdict) in enumerate(zip(candidates, verdicts, strict=True), start=1):
            candidate.verdicts.append(verdict)
            report(done)

    def verify(self, candidate: Candidate) -> VerifyVerdict:
        """Execute it against the reference; where nothing can be executed, check everything but the values."""
        if self.target.place == "compile" and candidate.compiled:
            verdict = verify_compiled(candidate.path, candidate.source, self._options)
        else:
            verdict = self._verify(candidate.path, self.target.place)
        if self.target.emulated and verdict.exit_code == ExitCode.UNAVAILABLE:
            candidate.unverified = verdict.summary
            verdict = self._verify(candidate.path, "compile")
        candidate.verdicts.append(verdict)
        return verdict

    def _verify(self, path: Path, place: str) -> VerifyVerdict:
        return verify_kernel(path, self._options, on=place)

    @property
    def _options(self) -> VerifyOptions:
        return VerifyOptions(arch=self.target.arch, seeds=SEEDS, precision=self.precision, preload=import_for_gpu)

    def time(self, candidates: list[Candidate]) -> str:
        """Interleaved device times of all candidates on the same inputs; the day when they are from an earlier race."""
        paths = [candidate.path for candidate in candidates]
        race = RememberedRace(self.problem, self.target, [candidate.source for candidate in candidates], self.cache)
        arch, confined = self.target.arch, self.confine_problem
        timings = race.timings(lambda: time_candidates(paths, self.problem, arch=arch, confine_problem=confined))
        for candidate, timing in zip(candidates, timings, strict=True):
            candidate.timing, candidate.timed_on = timing, race.date
        return race.date

    def benchmark(self, path: Path) -> BenchmarkVerdict:
        """The chosen kernel beside its baselines and the floor; what the graph says of the work fills the gaps."""
        options = BenchmarkOptions(arch=self.target.arch, tolerances=Tolerances(precision=self.precision))
        verdict = benchmark_kernel(path, options, problem=self.problem, confine_problem=self.confine_problem)
        return replace(
            verdict,
            algorithmic_bytes=verdict.algorithmic_bytes or self.draft.algorithmic_bytes,
            algorithmic_flops=verdict.algorithmic_flops or self.draft.algorithmic_flops,
        )
