"""The folder of a run: `run.json`, `results.jsonl`, `gpu_holds.jsonl`, `kernels/TASK/SAMPLE/`, `verdicts/KEY.json`,
with --reduced `problems/TASK.py`.

One process at a time works in it. Every file appears whole or not at all, and an attempt is done once its line is on
the disk; what stands in kernels/ and verdicts/ before that is taken up again after a kill.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from cutesmith.append_log import AppendLog, LogWriteError
from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError
from cutesmith.evals.reading import RESULTS, RUN, PlannedTask, reason
from cutesmith.evals.records import Attempt, GpuHold, Machine, Record
from cutesmith.evals.running.sources import folder_name
from cutesmith.evals.settings import JudgeSettings, MakerSettings
from cutesmith.evals.stage_verdicts import Generation, JudgedKernel
from cutesmith.verdicts import strict_json

HOLDS, KERNELS, VERDICTS, PROBLEMS = "gpu_holds.jsonl", "kernels", "verdicts", "problems"
KERNEL, GENERATION = "kernel.py", "generation.json"
Kind = TypeVar("Kind", bound=Record)
SCHEMA = 1
FIXED = ("suite", "agent", "samples", "settings")
"""What must be the same when a run is resumed: its results stand side by side."""
Unit = tuple[str, int]
"""A task's id and the number of the sample: what has one line in results.jsonl."""


class Window(Record):
    """From when to when a process worked on the run (seconds since the epoch); `end` None while it does."""

    begin: float
    end: float | None = None


class RunSettings(Record):
    """How kernels are made and judged."""

    judge: JudgeSettings
    maker: MakerSettings
    tolerance: str = ""


class RunDescription(Record):
    """All of `run.json`; `summary` is the fields of an EvalVerdict."""

    schema_version: int = SCHEMA
    suite: str
    agent: str
    samples: int
    settings: RunSettings
    machine: Machine
    command: tuple[str, ...]
    gpus: int
    tasks: tuple[PlannedTask, ...]
    started: str
    windows: tuple[Window, ...] = ()
    finished: str | None = None
    summary: Any = None

    def difference(self, other: RunDescription) -> str:
        """What differs of what may not, in words: its name, and both values; "" where nothing does."""
        before, after = (one.model_dump(mode="json", include=set(FIXED)) for one in (self, other))
        return _difference(before, after) if before != after else ""


def _difference(before: Any, after: Any) -> str:
    """The first thing that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in after:
            if before.get(name) != after[name]:
                return f"{name}: {_difference(before.get(name), after[name])}"
    return f"{before!r:.80}, not {after!r:.80}"


class RunFolder:
    """A run's files. Use as a context manager: raises UsageError when another process works in the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._resume = f"cutesmith eval run --resume --out {path}"
        self._results = AppendLog(self.path / RESULTS, resume=self._resume)
        self._holds = AppendLog(self.path / HOLDS, resume=self._resume)
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> RunFolder:  # noqa: PYI034 - typing.Self needs Python 3.11
        with contextlib.ExitStack() as opened, self._disk_errors("Make room, or give another --out."):
            for folder in (self.path, self.path / KERNELS, self.path / VERDICTS):
                folder.mkdir(parents=True, exist_ok=True)
            opened.enter_context(self._results)
            opened.enter_context(self._holds)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def description(self) -> RunDescription | None:
        """What `run.json` holds, None without one; raises UsageError when it does not describe a run."""
        try:
            return RunDescription.model_validate_json((self.path / RUN).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.path / RUN} cannot be read: {error}", hint="Give another --out.") from error
        except ValidationError as error:
            wrong = f"{self.path / RUN} cannot be read: {reason(error)}"
            raise UsageError(wrong, hint="Give another --out.") from error

    def describe(self, about: RunDescription) -> None:
        """Write `run.json`."""
        self._write(self.path / RUN, about)

    def finish(self, attempt: Attempt) -> None:
        """Append the attempt: from here on it is done. Raises LogWriteError when the disk or the folder is no more."""
        self._results.append(attempt.model_dump_json(exclude_defaults=True))
        if not (self.path / RESULTS).exists():  # the line went into a file that has no name any more
            raise LogWriteError(f"{self.path / RESULTS} was taken away while the run wrote it", hint="Begin it again.")

    def hold(self, hold: GpuHold) -> None:
        """Note when a GPU was held."""
        self._holds.append(hold.model_dump_json())

    def holds(self) -> Iterator[GpuHold]:
        """Every hold that was noted; damaged lines are passed over, as they only say how busy a GPU was."""
        with (self.path / HOLDS).open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValidationError):
                    yield GpuHold.model_validate_json(line)

    def kernel_folder(self, unit: Unit) -> Path:
        """Where the kernel of a sample and all that its making left are."""
        return self.path / KERNELS / folder_name(unit[0]) / str(unit[1])

    def keep_kernel(self, unit: Unit, data: bytes) -> Path:
        """Write a sample's kernel, if it is not there yet."""
        path = self.kernel_folder(unit) / KERNEL
        with self._disk_errors():
            if not path.is_file() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, data)
        return path

    def keep_problem(self, task: str, data: bytes) -> None:
        """Write a task's copy at smaller sizes."""
        path = self._problem(task)
        with self._disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)

    def problem(self, task: str) -> bytes | None:
        """The same, None where it is yet to be made: what an earlier part of the run found is taken as it is."""
        return self._problem(task).read_bytes() if self._problem(task).is_file() else None

    def _problem(self, task: str) -> Path:
        return self.path / PROBLEMS / f"{task}.py"

    def keep_generation(self, unit: Unit, about: Generation) -> None:
        """What the making of a kernel came to; a kernel was kept before."""
        self._write(self.kernel_folder(unit) / GENERATION, about)

    def generation(self, unit: Unit) -> Generation | None:
        """The same, None where the kernel is yet to be made."""
        return _kept(self.kernel_folder(unit) / GENERATION, Generation)

    def keep_verdicts(self, key: str, about: JudgedKernel) -> None:
        """What the stages said so far of one kernel."""
        self._write(self.path / self.verdicts_path(key), about)

    def verdicts(self, key: str) -> JudgedKernel | None:
        """The same, None where nothing was said yet."""
        return _kept(self.path / self.verdicts_path(key), JudgedKernel)

    @staticmethod
    def verdicts_path(key: str) -> str:
        """Relative to the run's folder."""
        return f"{VERDICTS}/{key}.json"

    def _write(self, path: Path, about: Record) -> None:
        with self._disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (strict_json(about.plain(), indent=1) + "\n").encode())

    @contextlib.contextmanager
    def _disk_errors(self, hint: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            wrong = f"{self.path} cannot be written: {error.strerror}"
            raise LogWriteError(wrong, hint=hint or f"Make room, then go on with {self._resume}") from error


def _kept(path: Path, kind: type[Kind]) -> Kind | None:
    """A record of ours; None where there is no file, or where it was damaged: then it is made again."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
