"""What a run is to do (`Plan`), attempts on their way (`Work`, `Turns`), and what it came to so far (`Tally`)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cutesmith.errors import CutesmithError
from cutesmith.evals.engines.jobs import ON_A_GPU, LibraryFile
from cutesmith.evals.keys import sha256
from cutesmith.evals.records import Attempt, Machine, Suite, Task
from cutesmith.evals.running.folder import Unit
from cutesmith.evals.running.sources import Source
from cutesmith.evals.settings import JudgeSettings, MakerSettings
from cutesmith.evals.stage_verdicts import GenerationVerdict, JudgedKernel, StageVerdict
from cutesmith.evals.suites import tolerance_of


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run. `tolerance` "" is each task's own; `seconds` after which the run ends.

    `reduced`: each task is judged at smaller sizes, which are looked for when its turn comes.
    `gone`: ids of tasks that the run was begun with and that its suite no longer has.
    """

    suite: Suite
    source: Source
    maker: MakerSettings
    judge: JudgeSettings
    machine: Machine
    samples: int = 1
    tolerance: str = ""
    seconds: float = float("inf")
    reduced: bool = False
    gpus: int = 0
    gone: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """How many attempts there are, those of tasks that are gone among them."""
        return (len(self.suite.tasks) + len(self.gone)) * self.samples

    def judging(self, task: Task) -> JudgeSettings:
        """The settings with the task's tolerance, or with that of the whole run."""
        return self.judge.tolerating(tolerance_of(task, self.tolerance))

    def libraries(self, task: Task) -> tuple[LibraryFile, ...]:
        """The files of the task's library baselines, where they are timed."""
        timed = task.libraries if self.judge.times and self.judge.library_baselines else ()
        return tuple(LibraryFile(name=one.path.name, data=one.data, function=one.function) for one in timed)

    def units(self) -> Iterator[tuple[Task, int]]:
        """Every sample of every task; each task once before any comes again."""
        return ((task, sample) for sample in range(self.samples) for task in self.suite.tasks)

    def gone_units(self) -> Iterator[Unit]:
        """Every sample of the tasks that are gone: they count, and cannot be judged."""
        return ((task, sample) for sample in range(self.samples) for task in self.gone)


@dataclass
class Work:
    """An attempt on its way."""

    task: Task
    sample: int
    problem: bytes = b""
    reduced: bool = False  # `problem` is the copy at smaller sizes
    kernel: bytes = b""
    key: str = ""
    verdicts: dict[str, StageVerdict] = field(default_factory=dict)
    generation: GenerationVerdict | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    worker: str = ""
    tries: Counter[str] = field(default_factory=Counter)

    @property
    def unit(self) -> Unit:
        return self.task.id, self.sample

    @property
    def id(self) -> str:
        return f"{self.task.id}#{self.sample}"

    @property
    def known(self) -> JudgedKernel:
        """What is known of its kernel so far."""
        return JudgedKernel(verdicts=self.verdicts, seconds=self.seconds, worker=self.worker, task=self.task.id)

    def took(self, name: str, seconds: float) -> None:
        self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 3)


@dataclass
class Tally:
    """What a run came to so far.

    `open`: attempts that were begun and could not be judged, with the reason. `cut_off`: those that the time limit
    ended. `lost_gpus`: why each GPU was given up.
    """

    total: int
    done: int = 0
    solved: int = 0
    cached: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    open: dict[str, str] = field(default_factory=dict)
    cut_off: tuple[str, ...] = ()
    lost_gpus: dict[str, str] = field(default_factory=dict)
    out_of_time: bool = False
    interrupted: bool = False

    def count(self, attempt: Attempt) -> None:
        """One more line of results.jsonl."""
        self.done += 1
        self.solved += attempt.correct
        self.cached += attempt.cached
        self.statuses[attempt.status] += 1

    @property
    def complete(self) -> bool:
        """Whether every attempt has its line."""
        return self.done >= self.total


class TaskFileError(CutesmithError):
    """A task's file went away or changed since the suite was read."""


def read_task_file(task: Task) -> bytes:
    """The task's file as the suite was read; raises TaskFileError."""
    try:
        data = task.path.read_bytes()
    except OSError as error:
        raise TaskFileError(f"the task's file {task.path.name} cannot be read: {error.strerror}") from error
    if task.sha256 and sha256(data) != task.sha256:
        raise TaskFileError(f"the task's file {task.path.name} was changed since the suite was read")
    return data


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
