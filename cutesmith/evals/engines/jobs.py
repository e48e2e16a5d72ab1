"""The seam between a run and whoever executes its stages: jobs and reports are plain data that JSON can carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

DRAFT, SESSION, CHECK, VERIFY, BENCHMARK = "draft", "session", "check", "verify", "benchmark"
STAGES = (DRAFT, SESSION, CHECK, VERIFY, BENCHMARK)
"""In the order in which a kernel meets them. `session` works in a folder of the run, hence on the controller's machine;
of the others everything that they need is in the payload, so that they run anywhere."""
ON_A_GPU = (DRAFT, VERIFY, BENCHMARK)
"""What needs a GPU of its machine, where there is one; `check` never does."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One stage of one attempt. `payload` is `stages.run_stage`'s; `seconds` is the wall time after which it hangs."""

    id: str
    stage: str
    payload: dict[str, Any]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of a job: the stage's result, or why there is none (`lost`: its process died, hung, its node went).

    `begin` and `end` are seconds since the epoch; `worker` is who did it, such as "gpu0".
    """

    id: str
    stage: str
    result: dict[str, Any] = field(default_factory=dict)
    lost: str = ""
    worker: str = ""
    begin: float = 0.0
    end: float = 0.0


class Engine(Protocol):
    """Executes jobs, in any order, each once; a job whose worker vanished is reported as lost, never dropped.

    Back-pressure: `submit` is called only after `room` said that there is some.
    """

    def capacity(self, stage: str) -> int:
        """How many jobs of this stage can run at a time; 0 when nobody is left who could."""

    def room(self, stage: str) -> int:
        """How many more jobs of this stage it takes now: a few more than can run, so that none has to wait for us."""

    def submit(self, job: Job) -> None:
        """Take a job; returns at once."""

    def completed(self, seconds: float) -> list[Report]:
        """Reports since the last call; waits up to so many seconds for the first."""

    def close(self) -> None:
        """End everything that still runs; its jobs are not reported."""
