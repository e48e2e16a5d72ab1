"""What a run reads and writes: tasks, and one `Attempt` a kernel, a line of `results.jsonl` each.

Attempts come back from files that were cut, edited or written by another version, hence pydantic:
`Attempt.model_validate_json` raises `pydantic.ValidationError` for anything else, and ignores unknown fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
KERNEL = "kernel"  # the candidate's own name among the timings
EAGER, COMPILED, LIBRARY = "eager", "torch.compile", "library"  # baselines; "library": the fastest that is known


@dataclass(frozen=True, kw_only=True)
class Library:
    """A function of a file that computes a whole task by somebody's library: a baseline. `data` is the file's bytes."""

    path: Path
    function: str
    data: bytes

    @property
    def name(self) -> str:
        """File and function, such as "quack.py:softmax"."""
        return f"{self.path.name}:{self.function}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem of a suite: where its file is and what is known of it without running it.

    `id` is unique within its suite ("level1/softmax"). `archs` are what the task makes sense for, empty for any.
    `libraries` are baselines beside eager and torch.compile.
    """

    id: str
    path: Path
    sha256: str
    level: int = 0
    tags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    tolerance: str = "strict"  # or "kernelbench": the suite's own
    libraries: tuple[Library, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tasks under one name, in order of their ids."""

    name: str
    tasks: tuple[Task, ...]


class Record(BaseModel):
    """Frozen; a field that this version does not know is ignored; NaN and infinity are refused: JSON has neither."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    def plain(self) -> object:
        """JSON data of the fields that were given."""
        return self.model_dump(mode="json", exclude_unset=True)


class GpuHold(Record):
    """One use of a GPU (HOST:INDEX) by a stage of a job: seconds since the epoch; `asked`: since when it waited."""

    gpu: str
    job: str = ""
    stage: str = ""
    exclusive: bool
    asked: float = 0.0
    begin: float
    end: float


class Machine(Record):
    """Where it ran: names and versions, empty where there is none."""

    device: str = ""
    driver: str = ""
    dsl: str = ""
    torch: str = ""
    cutesmith: str = ""


class Timing(Record):
    """Device time of one callable in microseconds, all samples; `error` when it could not be timed."""

    samples_us: tuple[float, ...] = ()
    median_us: float | None = None
    host_us: float | None = None
    error: str = ""


class Cost(Record):
    """What a model took for one attempt; nothing for the offline generator and for kernels that somebody else made."""

    dollars: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    turns: int = 0


class Judgement(Record):
    """What the stages' verdicts on one kernel come to.

    `stage` is the last that gave a verdict (generate, lint, compile, verify, benchmark), `exit_code`, `status`, `rule`
    and `summary` are that verdict's, but a kernel whose benchmark alone could not run keeps `correct`.
    """

    stage: str
    exit_code: int
    status: str
    rule: str = ""  # row of the table of exploits when the kernel was rejected
    summary: str = ""
    correct: bool  # verified on a GPU or on the emulated one; `ran_on` says which
    ran_on: str = ""  # "gpu", "emulator", "compile", "" when it never came so far
    timings: dict[str, Timing] = Field(default_factory=dict)  # KERNEL and the baselines
    floor_us: float | None = None
    floor_kind: str = ""  # "bytes" or "flops"
    flops: int | None = None
    bytes: int | None = None


class Attempt(Judgement):
    """One kernel for one task, as the judge left it.

    `seconds` holds wall-clock time by stage, and "queued" for a GPU that was taken. Paths are relative to the run's
    folder.
    """

    schema_version: int = SCHEMA
    key: str  # of everything that the outcome depends on; equal keys need no second run
    suite: str
    task: str
    level: int = 0
    tags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    source: str  # "draft", "claude:MODEL", "dir:NAME"
    sample: int = Field(default=0, ge=0)
    problem_sha256: str = ""  # of the copy at smaller sizes that was judged; "": the task's own file
    kernel_sha256: str = ""
    kernel: str = ""  # path of the judged file
    verdicts: str = ""  # path of the stages' whole verdicts
    transcript: str = ""  # path of the session's transcript, where a model wrote the kernel
    machine: Machine = Machine()
    cost: Cost = Cost()
    seconds: dict[str, float] = Field(default_factory=dict)
    worker: str = ""  # which worker judged it, such as "gpu0" or a node's name
    finished: str = ""  # UTC, ISO 8601
    cached: bool = False  # of an earlier attempt with the same key, whose seconds, cost and samples these are
