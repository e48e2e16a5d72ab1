"""The checks, as the generator calls them: over several candidates at once where that is faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cutesmith.checks.benchmark import benchmark_kernel, time_candidates
from cutesmith.checks.compilation import compile_siblings
from cutesmith.checks.lint import lint_file
from cutesmith.checks.verification import verify_kernel
from cutesmith.patterns.candidates import Candidate
from cutesmith.patterns.drafting import Draft
from cutesmith.patterns.target import Target
from cutesmith.verdicts import BenchmarkVerdict, ExitCode, VerifyVerdict

Report = Callable[[int], None]
SEEDS = 2


@dataclass(frozen=True)
class Stages:
    """Lint, compile, verify, time and benchmark for one target; each adds its verdict to the candidate."""

    problem: Path
    target: Target
    draft: Draft

    def lint(self, candidates: list[Candidate], report: Report) -> None:
        """Static checks; no candidate is run."""
        for done, candidate in enumerate(candidates, start=1):
            candidate.verdicts.append(lint_file(candidate.path))
            report(done)

    def compile(self, candidates: list[Candidate], report: Report) -> None:
        """Compile all for the target's architecture, in one worker: starting one costs more than a compilation."""
        verdicts = compile_siblings([candidate.path for candidate in candidates], self.target.arch)
        for done, (candidate, verdict) in enumerate(zip(candidates, verdicts, strict=True), start=1):
            candidate.verdicts.append(verdict)
            report(done)

    def verify(self, candidate: Candidate) -> VerifyVerdict:
        """Execute it against the reference; where nothing can be executed, check everything but the values."""
        verdict = self._verify(candidate.path, self.target.place)
        if self.target.emulated and verdict.exit_code == ExitCode.UNAVAILABLE:  # it lacks an instruction
            verdict = self._verify(candidate.path, "compile")
        candidate.verdicts.append(verdict)
        return verdict

    def _verify(self, path: Path, place: str) -> VerifyVerdict:
        return verify_kernel(path, on=place, arch=self.target.arch, seeds=SEEDS)

    def time(self, candidates: list[Candidate]) -> None:
        """Interleaved device times of all candidates on the same inputs."""
        paths = [candidate.path for candidate in candidates]
        timings = time_candidates(paths, self.problem, arch=self.target.arch)
        for candidate, timing in zip(candidates, timings, strict=True):
            candidate.timing = timing

    def benchmark(self, path: Path) -> BenchmarkVerdict:
        """The chosen kernel beside its baselines and the floor; what the graph says of the work fills the gaps."""
        verdict = benchmark_kernel(path, arch=self.target.arch)
        return replace(
            verdict,
            algorithmic_bytes=verdict.algorithmic_bytes or self.draft.algorithmic_bytes,
            algorithmic_flops=verdict.algorithmic_flops or self.draft.algorithmic_flops,
        )
