"""The two ways to time: one kernel beside its baselines, or several candidates of one problem in a race."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cutesmith.errors import CandidateError, CutesmithError
from cutesmith.judge.problem_process import untrusted
from cutesmith.judge.rounds import exchange
from cutesmith.problems.contract import problem_of
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.worker import Worker
from cutesmith.timing.contender import Contender
from cutesmith.timing.contest import QUICK_ROUNDS, ROUNDS, BenchmarkOptions, Contest
from cutesmith.verdicts import BenchmarkVerdict, Timing

__all__ = ["QUICK_ROUNDS", "ROUNDS", "BenchmarkOptions", "benchmark_kernel", "time_candidates"]


def benchmark_kernel(
    path: str | Path,
    options: BenchmarkOptions | None = None,
    *,
    problem: str | Path | None = None,
    confine_problem: bool = False,
) -> BenchmarkVerdict:
    """Time a kernel file on `get_inputs()`, interleaved with eager PyTorch, torch.compile and `file.py:function`s.

    Times are device microseconds with a cold L2 cache, of rounds of 3 to 20 launches each. A problem in the
    kernel's own file is confined as the kernel is, any other only with `confine_problem`. What the candidate does wrong
    ends in a verdict; so does a machine with no GPU (exit 7).
    """
    path = Path(path)
    begin = time.monotonic()
    problem = problem_of(path, problem)
    contest = Contest(
        problem=problem, options=options or BenchmarkOptions(), why=untrusted(path, problem, asked=confine_problem)
    )
    return replace(contest.verdict(path), seconds=round(time.monotonic() - begin, 3))


def time_candidates(
    paths: Sequence[str | Path],
    problem: str | Path,
    *,
    arch: str | None = None,
    confine_problem: bool = False,
) -> list[Timing]:
    """Time several kernel files of one problem, interleaved on the same inputs; a Timing each, in their order.

    One that fails has `error` set and no samples; nothing is judged here. Raises UnavailableError without a GPU and
    ContractError when the problem cannot be used.
    """
    options = BenchmarkOptions(compiled=False, rounds=QUICK_ROUNDS, timeout=120.0, arch=arch)
    files = [Path(path) for path in paths]
    found = [untrusted(file, problem_of(file, problem), asked=confine_problem) for file in files]
    why = next((why for why in found if why is not None), None)
    return Race(problem=Path(problem), options=options, why=why).race(files)


class Race(Contest):
    """A contest of candidates alone: no baseline, no judgement of outputs."""

    def race(self, files: Sequence[Path]) -> list[Timing]:
        """Time several candidates in one process; one that takes the process down is left out of the next attempt."""
        arch = self._arch()
        failed: dict[int, str] = {}
        while True:
            with exchange() as folder, self._workers(folder, arch) as (reference, candidate):
                try:
                    contenders = self._race(folder, reference, candidate, files, failed)
                except _Fallen as fallen:
                    failed[fallen.index] = fallen.message
                    continue
            entered = [
                contenders.get(i) or Contender(str(path), candidate, error=failed.get(i) or "not timed")
                for i, path in enumerate(files)
            ]
            return [contender.timing(self.work.bytes) for contender in entered]

    def _race(
        self, folder: Path, reference: Worker, candidate: Worker, files: Sequence[Path], failed: dict[int, str]
    ) -> dict[int, Contender]:
        contenders: dict[int, Contender] = {}
        self._start(folder, reference, candidate)
        for index, path in enumerate(files):
            if index in failed:
                continue
            try:
                contenders[index] = self._enter(candidate, str(path), path)
            except CandidateError as error:
                if not candidate.alive or error.context_lost:
                    raise _Fallen(index, error.message) from error
                failed[index] = error.message
            except CutesmithError as error:
                failed[index] = str(error)
        with gpu_lock(exclusive=True):
            for index in list(contenders):
                self._guarded(index, partial(contenders[index].warm_up, self.options.timeout))
            order = random.Random(secrets.randbits(64))
            for _ in range(self.options.rounds):
                for index in order.sample(sorted(contenders), len(contenders)):
                    contender = contenders[index]
                    request = contender.round_request(order.randrange(1, 1 << 20))
                    self._guarded(index, partial(self._round, contender, request))
        return contenders

    def _guarded(self, index: int, action: Callable[[], object]) -> None:
        try:
            action()
        except CandidateError as error:
            raise _Fallen(index, error.message) from error


class _Fallen(Exception):
    """A candidate took the process down with it."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index, self.message = index, message
