"""Who is on a GPU, and who must be there with no other beside it, since its memory was too small for both."""

from __future__ import annotations

from collections import deque

from cutesmith.evals.engines.jobs import ON_A_GPU
from cutesmith.evals.running.plan import Work


class Turns:
    """The run's jobs on GPUs. Those that wait to be alone come next, one at a time, before any other begins."""

    def __init__(self) -> None:
        self._there: set[str] = set()
        self._waiting: deque[tuple[Work, str]] = deque()
        self._alone = ""

    def open_to(self, stage: str) -> bool:
        """Whether a job of this stage may begin beside those that are there."""
        return stage not in ON_A_GPU or not (self._waiting or self._alone)

    def enter(self, work: Work, stage: str) -> None:
        """A job begins."""
        if stage in ON_A_GPU:
            self._there.add(work.id)

    def leave(self, work: Work) -> None:
        """Its job is done, or lost."""
        self._there.discard(work.id)
        if self._alone == work.id:
            self._alone = ""

    def wait(self, work: Work, stage: str) -> None:
        """This one is to be alone."""
        self._waiting.append((work, stage))

    @property
    def next_stage(self) -> str:
        """The stage of the first that waits to be alone, "" where none does."""
        return self._waiting[0][1] if self._waiting else ""

    @property
    def free(self) -> bool:
        """Whether the first that waits would be alone."""
        return not self._there

    def alone(self) -> Work:
        """The first that waits: from here on no other begins until it leaves."""
        work, _ = self._waiting.popleft()
        self._alone = work.id
        return work
