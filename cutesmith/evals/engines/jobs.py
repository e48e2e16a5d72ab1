"""The seam between a run and the engine that executes its stages: jobs and reports, which pass pipes as JSON."""

from __future__ import annotations

import base64
from typing import Annotated, Final, Literal, Protocol

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter

from cutesmith.evals.records import Record
from cutesmith.evals.settings import JudgeSettings, MakerSettings
from cutesmith.evals.stage_verdicts import GenerationVerdict, StageVerdict
from cutesmith.sandbox.gpu_lock import Hold

REDUCE: Final = "reduce"
DRAFT: Final = "draft"
SESSION: Final = "session"
CHECK: Final = "check"
VERIFY: Final = "verify"
BENCHMARK: Final = "benchmark"
STAGES = (REDUCE, DRAFT, SESSION, CHECK, VERIFY, BENCHMARK)
"""In the order in which a task and its kernel meet them. `session` works in a folder of the run, hence on the
controller's machine; of the others everything that they need is in the job, so that they run anywhere."""
ON_A_GPU = (DRAFT, VERIFY, BENCHMARK)
"""What needs a GPU of its machine, where there is one; `reduce` and `check` never do."""
Bytes = Annotated[
    bytes,
    BeforeValidator(lambda data: base64.b64decode(data) if isinstance(data, str) else data),
    PlainSerializer(lambda data: base64.b64encode(data).decode(), when_used="json"),
]


class File(Record):
    """A file as it travels."""

    name: str
    data: Bytes


class LibraryFile(File):
    """A file whose function is a baseline."""

    function: str


class Job(Record):
    """One stage of one attempt. `seconds` is the wall time after which it counts as hung."""

    id: str
    stage: str
    seconds: float
    task: File
    settings: JudgeSettings


class ReduceJob(Job):
    """Find the smaller sizes that a task takes."""

    stage: Literal["reduce"] = REDUCE


class DraftJob(Job):
    """The offline generator makes a kernel."""

    stage: Literal["draft"] = DRAFT
    maker: MakerSettings


class SessionJob(Job):
    """A session with a model (`agent`, `options` of `cutesmith generate`) makes a kernel in a folder of the run."""

    stage: Literal["session"] = SESSION
    agent: str
    options: tuple[str, ...] = ()
    folder: str


class CheckJob(Job):
    """Lint and compile a kernel."""

    stage: Literal["check"] = CHECK
    kernel: File


class VerifyJob(Job):
    """Verify a kernel."""

    stage: Literal["verify"] = VERIFY
    kernel: File


class BenchmarkJob(Job):
    """Time a kernel beside its baselines."""

    stage: Literal["benchmark"] = BENCHMARK
    kernel: File
    libraries: tuple[LibraryFile, ...] = ()


JOB: TypeAdapter[Job] = TypeAdapter(
    Annotated[ReduceJob | DraftJob | SessionJob | CheckJob | VerifyJob | BenchmarkJob, Field(discriminator="stage")]
)
"""Reads any of them."""


class StageResult(Record):
    """What a stage came to: verdicts by their names, or what became of making a kernel (`generation`, `kernel`).

    `problem`: the task's file at smaller sizes, of `reduce`; without it `verdicts` say why there is none.
    `gpu_lost`: why the device and not the kernel is to blame; `gpu_taken`: what others hold of its memory. `gpu` is
    HOST:INDEX, `holds` are when it was held.
    """

    verdicts: dict[str, StageVerdict] = Field(default_factory=dict)
    generation: GenerationVerdict | None = None
    kernel: File | None = None
    problem: File | None = None
    gpu: str = ""
    gpu_lost: str = ""
    gpu_taken: str = ""
    holds: tuple[Hold, ...] = ()


class Report(Record):
    """What became of a job: the stage's result, or why there is none (`lost`: its process died, hung, its node went).

    With both, the GPU is lost. `begin` and `end` are seconds since the epoch; `worker` is who did it, such as "gpu0".
    """

    id: str
    stage: str
    result: StageResult | None = None
    lost: str = ""
    worker: str = ""
    begin: float = 0.0
    end: float = 0.0

    @property
    def gpu_is_lost(self) -> bool:
        """Whether the stage ran and its GPU does not answer."""
        return bool(self.lost) and self.result is not None


class Engine(Protocol):
    """Executes jobs, in any order, each once; a job whose worker vanished is reported as lost, never dropped.

    Back-pressure: `submit` is called only after `room` said that there is some.
    """

    def capacity(self, stage: str) -> int:
        """How many jobs of this stage can run at a time; 0 when nothing is left that could."""

    def room(self, stage: str) -> int:
        """How many more jobs of this stage it takes now: a few more than can run, so that none has to wait for us."""

    def submit(self, job: Job) -> None:
        """Take a job; returns at once."""

    def completed(self, seconds: float) -> list[Report]:
        """Reports since the last call; waits up to so many seconds for the first."""

    def close(self) -> None:
        """End everything that still runs; its jobs are not reported."""
