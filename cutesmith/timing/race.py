"""Several candidates of one problem timed against each other in one process, on the same inputs."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutesmith.errors import CandidateError, CutesmithError
from cutesmith.judge.rounds import exchange
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.worker import Worker
from cutesmith.timing.contender import Contender
from cutesmith.timing.contest import Contest
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
                    contenders = self._race(folder, reference, candidate, files, failed)
                except _Fallen as fallen:
                    failed[fallen.index] = fallen.message
                    continue
            return [
                contenders[i].timing(self.work.bytes) if i in contenders else _failed_timing(path, failed.get(i, ""))
                for i, path in enumerate(files)
            ]

    def _race(
        self, folder: Path, reference: Worker, candidate: Worker, files: Sequence[Path], failed: dict[int, str]
    ) -> dict[int, Contender]:
        contenders: dict[int, Contender] = {}
        self._start(folder, reference, candidate)
        for index, path in enumerate(files):
            if index not in failed:
                self._try_to_enter(contenders, failed, candidate, index, path)
        with gpu_lock(exclusive=True):
            for index in list(contenders):
                self._guarded(candidate, index, lambda index=index: contenders[index].warm_up(self.options.timeout))
            order = random.Random(secrets.randbits(64))
            for _ in range(self.options.rounds):
                for index in order.sample(sorted(contenders), len(contenders)):
                    contender = contenders[index]
                    request = contender.round_request(order.randrange(1, 1 << 20))
                    self._guarded(candidate, index, lambda e=contender, r=request: self._round(e, r))
        return contenders

    def _try_to_enter(
        self, contenders: dict[int, Contender], failed: dict[int, str], candidate: Worker, index: int, path: Path
    ) -> None:
        try:
            contenders[index] = self._enter(candidate, str(path), path)
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
