"""The checks, as the generator calls them: over several candidates at once where that is faster."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from cutesmith.checks.benchmark import benchmark_kernel, time_candidates
from cutesmith.checks.compilation import compile_kernel
from cutesmith.checks.lint import lint_file
from cutesmith.checks.verification import verify_kernel
from cutesmith.patterns.candidates import Candidate
from cutesmith.patterns.drafting import Draft
from cutesmith.patterns.target import Target
from cutesmith.verdicts import BenchmarkVerdict, VerifyVerdict

Report = Callable[[int], None]
COMPILE_WORKERS = 4


@dataclass(frozen=True)
class Stages:
    """Lint, compile, verify, time and benchmark for one target; each adds its verdict to the candidate."""

    target: Target
    draft: Draft

    def lint(self, candidates: list[Candidate], report: Report) -> None:
        """Static checks; no candidate is run."""
        for done, candidate in enumerate(candidates, start=1):
            candidate.verdicts.append(lint_file(candidate.path))
            report(done)

    def compile(self, candidates: list[Candidate], report: Report) -> None:
        """Compile all for the target's architecture, several workers at a time."""
        workers = max(1, min(COMPILE_WORKERS, os.cpu_count() or 1, len(candidates)))
        with ThreadPoolExecutor(workers) as pool:
            pending = {pool.submit(compile_kernel, c.path, archs=(self.target.arch,)): c for c in candidates}
            try:
                for done, future in enumerate(as_completed(pending), start=1):
                    pending[future].verdicts.append(future.result())
                    report(done)
            except BaseException:  # Ctrl-C: start no more
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def verify(self, candidate: Candidate) -> VerifyVerdict:
        """Execute it against the reference."""
        verdict = verify_kernel(candidate.path, on="gpu")
        candidate.verdicts.append(verdict)
        return verdict

    def time(self, candidates: list[Candidate]) -> None:
        """Interleaved device times of all candidates on the same inputs."""
        timings = time_candidates([candidate.path for candidate in candidates])
        for candidate, timing in zip(candidates, timings, strict=True):
            candidate.timing = timing

    def benchmark(self, path: Path) -> BenchmarkVerdict:
        """The chosen kernel beside its baselines and the floor."""
        return benchmark_kernel(
            path, algorithmic_bytes=self.draft.algorithmic_bytes, algorithmic_flops=self.draft.algorithmic_flops
        )
