"""An engine that answers at once, as its caller's function says: for the controller's own benchmark and tests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from cutesmith.evals.engines.jobs import Job, Report, StageResult

Answer = Callable[[Job], Report]


def report(job: Job, worker: str = "instant", **result: object) -> Report:
    """The report of a job that took no time."""
    now, came = time.time(), StageResult.model_validate(result)
    return Report(id=job.id, stage=job.stage, result=came, worker=worker, begin=now, end=now)


class InstantEngine:
    """An `Engine` whose jobs are done when they are asked for; `most` is how many were ever in flight."""

    def __init__(self, answer: Answer, *, slots: int = 4) -> None:
        self._answer, self._slots = answer, slots
        self._waiting: deque[Job] = deque()
        self.most, self.closed = 0, False

    def capacity(self, stage: str) -> int:
        """The same for every stage."""
        return self._slots

    def room(self, stage: str) -> int:
        """What is left of the slots, all stages together."""
        return max(0, self._slots - len(self._waiting))

    def submit(self, job: Job) -> None:
        """Keep it for `completed`."""
        assert self.room(job.stage), "submitted without room"
        self._waiting.append(job)
        self.most = max(self.most, len(self._waiting))

    def completed(self, seconds: float) -> list[Report]:
        """The oldest job's report, if there is a job."""
        return [self._answer(self._waiting.popleft())] if self._waiting else []

    def close(self) -> None:
        """Forget what waits."""
        self.closed = True
        self._waiting.clear()
