"""Several candidates of one problem timed against each other in one process, on the same inputs."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutesmith.checks.isolation.worker import Worker
from cutesmith.checks.judging.rounds import exchange
from cutesmith.checks.timing.contest import Contest
from cutesmith.checks.timing.entrant import Entrant
from cutesmith.checks.timing.gpu_lock import gpu_lock
from cutesmith.errors import CandidateError, CutesmithError
from cutesmith.verdicts import Timing


class Race(Contest):
    """A contest of candidates alone: no baseline, no judgement of outputs."""

    def race(self, files: Sequence[Path]) -> list[Timing]:
        """Time several candidates in one process; one that takes the process down is left out of the next attempt."""
        arch = self._arch()
        failed: dict[int, str] = {}
        while True:
            with exchange() as folder, self._workers(folder, arch) as (reference, candidate):
                try:
                    entrants = self._race(folder, reference, candidate, files, failed)
                except _Fallen as fallen:
                    failed[fallen.index] = fallen.message
                    continue
            return [
                entrants[i].timing(self.work.bytes) if i in entrants else _failed_timing(path, failed.get(i, ""))
                for i, path in enumerate(files)
            ]

    def _race(
        self, folder: Path, reference: Worker, candidate: Worker, files: Sequence[Path], failed: dict[int, str]
    ) -> dict[int, Entrant]:
        entrants: dict[int, Entrant] = {}
        self._start(folder, reference, candidate)
        for index, path in enumerate(files):
            if index not in failed:
                self._try_to_enter(entrants, failed, candidate, index, path)
        with gpu_lock(exclusive=True):
            for index in list(entrants):
                self._guarded(candidate, index, lambda index=index: entrants[index].warm_up(self.options.timeout))
            order = random.Random(secrets.randbits(64))
            for _ in range(self.options.rounds):
                for index in order.sample(sorted(entrants), len(entrants)):
                    entrant = entrants[index]
                    request = entrant.round_request(order.randrange(1, 1 << 20))
                    self._guarded(candidate, index, lambda e=entrant, r=request: self._round(e, r))
        return entrants

    def _try_to_enter(
        self, entrants: dict[int, Entrant], failed: dict[int, str], candidate: Worker, index: int, path: Path
    ) -> None:
        try:
            entrants[index] = self._enter(candidate, str(path), path)
        except CandidateError as error:
            if not candidate.alive or "CUDA error" in error.message:  # the context is lost with it
                raise _Fallen(index, error.message) from error
            failed[index] = error.message
        except CutesmithError as error:
            failed[index] = str(error)

    def _guarded(self, candidate: Worker, index: int, action: Any) -> None:
        try:
            action()
        except CandidateError as error:
            raise _Fallen(index, error.message) from error


class _Fallen(Exception):
    """A candidate took the process down with it."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index, self.message = index, message


def _failed_timing(path: Path, error: str) -> Timing:
    return Timing(name=str(path), samples_us=(), median_us=0.0, q1_us=0.0, q3_us=0.0, error=error or "not timed")
