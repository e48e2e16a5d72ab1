"""Several candidates of one problem timed against each other in one process, on the same inputs."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

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
            if index not in failed:
                self._try_to_enter(contenders, failed, candidate, index, path)
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
