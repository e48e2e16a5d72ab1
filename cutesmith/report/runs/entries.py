"""Every task and kernel as plain data for the page's own script, cut to what a page can hold; nothing of it is HTML."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from cutesmith.evals.scores.estimators import Floats
from cutesmith.evals.scores.outcomes import Outcome, Run, TaskResult, Times
from cutesmith.report.runs.transcripts import excerpt
from cutesmith.report.trimming import cut_middle
from cutesmith.unicode import displayable
from cutesmith.verdicts import CaseOutcome

MOST_SAMPLES, FEWEST_SAMPLES = 60, 7  # of a callable; the numbers are always from all of them
MOST_POINTS = 250_000  # samples on the whole page
LONGEST_SOURCE, LONGEST_TEXT = 40_000, 500
TEXT_BYTES = 3_000_000  # of sources, verdicts and transcripts together
LARGEST_FILE = 16_000_000  # that is opened at all


@dataclass
class Room:
    """What is left of the page for long texts; `left_out` counts those that found no room."""

    bytes: int = TEXT_BYTES
    left_out: int = 0

    def take(self, text: str) -> str | None:
        """The text when there is room for it."""
        weight = len(json.dumps(text))
        if weight > self.bytes:
            self.left_out += 1
            return None
        self.bytes -= weight
        return text


@dataclass(frozen=True, kw_only=True)
class TimesEntry:
    """Median, quartiles and a thinned selection of a callable's samples, in microseconds."""

    median: float | None
    quartiles: list[float | None]
    count: int
    host: float | None
    error: str
    samples: list[float | None]


@dataclass(frozen=True, kw_only=True)
class StageEntry:
    """A stage's verdict in a few words."""

    stage: str
    status: str
    summary: str
    log_tail: str
    seconds: float | None
    details: list[str]


@dataclass(frozen=True, kw_only=True)
class KernelEntry:
    """A kernel of a task: what was said of it, its times and their ratios, and its files as far as there is room."""

    outcome: str
    stage: str
    status: str
    rule: str
    ran_on: str
    worker: str
    maker: str
    summary: str
    sample: int
    times: dict[str, TimesEntry]
    speedups: dict[str, float]
    floor: dict[str, float | str]
    work: list[int | float | None]
    cost: dict[str, float]
    seconds: dict[str, float]
    source: str | None
    verdicts: list[StageEntry] | None
    transcript: list[str] | None
    links: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ResultEntry:
    """What became of a task in a run, the best kernel first."""

    state: str
    kernels: list[KernelEntry]


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """A task, and its result in every run that has one."""

    id: str
    level: int | None
    tags: list[str]
    dtypes: list[str]
    runs: list[ResultEntry | None]


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the page's script reads."""

    runs: list[str]
    baselines: list[str]
    tasks: list[TaskEntry]


@dataclass(frozen=True, kw_only=True)
class PageData:
    """What is embedded, how many samples a callable keeps, what is left out; `names` are the tasks' in their order."""

    content: Content
    names: list[str]
    samples: int
    left_out: int
    thinned: bool


@dataclass
class Gathering:
    """Runs on their way onto a page that will lie in the folder `beside`."""

    runs: Sequence[Run]
    beside: Path
    room: Room = field(default_factory=Room)

    def page_data(self) -> PageData:
        """Everything; the sources of kernels that matter find room first: every task's best before its others."""
        callables = sum(len(outcome.times) for run in self.runs for outcome in run.outcomes)
        most = int(np.clip(MOST_POINTS // max(callables, 1), FEWEST_SAMPLES, MOST_SAMPLES))
        names = sorted({task.task.id for run in self.runs for task in run.tasks})
        found = [{task.task.id: task for task in run.tasks} for run in self.runs]
        tasks = [self._task([tasks.get(name) for tasks in found], most) for name in names]
        thinned = any(len(t.samples) > most for run in self.runs for o in run.outcomes for t in o.times.values())
        baselines = list(dict.fromkeys(name for run in self.runs for name in run.baselines))
        content = Content(runs=[shown(run.name) for run in self.runs], baselines=baselines, tasks=tasks)
        return PageData(content=content, names=names, samples=most, left_out=self.room.left_out, thinned=thinned)

    def _task(self, results: Sequence[TaskResult | None], most: int) -> TaskEntry:
        task = next(result for result in results if result is not None).task
        entries: list[ResultEntry | None] = []
        for run, result in zip(self.runs, results):
            if result is None:
                entries.append(None)
                continue
            best = result.best()
            ordered = sorted(result.outcomes, key=lambda outcome: (outcome is not best, outcome.attempt.sample))
            kernels = [self._kernel(run, outcome, most) for outcome in ordered]
            entries.append(ResultEntry(state=result.state, kernels=kernels))
        tags, dtypes = [shown(tag) for tag in task.tags], [shown(dtype) for dtype in task.dtypes]
        return TaskEntry(id=shown(task.id), level=task.level, tags=tags, dtypes=dtypes, runs=entries)

    def _kernel(self, run: Run, outcome: Outcome, most: int) -> KernelEntry:
        attempt, folder = outcome.attempt, run.folder
        speedups = {name: _number(outcome.speedup(name)) for name in run.baselines} if outcome.correct else {}
        floor = {"us": attempt.floor_us, "kind": shown(attempt.floor_kind), "share": _number(outcome.floor_share())}
        cost = attempt.cost.model_dump()
        source, verdicts = read_text(folder, attempt.kernel), read_text(folder, attempt.verdicts)
        said = read_text(folder, attempt.transcript)
        links = {"kernel": self._link(folder, attempt.kernel), "transcript": self._link(folder, attempt.transcript)}
        return KernelEntry(
            outcome=outcome.outcome,
            stage=shown(attempt.stage),
            status=shown(attempt.status),
            rule=shown(attempt.rule),
            ran_on=shown(attempt.ran_on),
            worker=shown(attempt.worker),
            maker=shown(attempt.source),
            summary=shown(attempt.summary),
            sample=attempt.sample,
            times={shown(name): _times(times, most) for name, times in outcome.times.items()},
            speedups={name: value for name, value in speedups.items() if value is not None},
            floor={name: value for name, value in floor.items() if value not in (None, "")},
            work=[attempt.flops, attempt.bytes],
            cost=cost if any(cost.values()) else {},
            seconds={shown(name): round(seconds, 2) for name, seconds in attempt.seconds.items()},
            source=self.room.take(displayable(cut_middle(source, LONGEST_SOURCE))) if source else None,
            verdicts=list(stages(verdicts)) if verdicts and self.room.bytes > 0 else None,
            transcript=[shown(line) for line in excerpt(said)] if said and self.room.bytes > 0 else None,
            links={name: link for name, link in links.items() if link},
        )

    def _link(self, folder: Path, path: str) -> str:
        """A relative address of a file of the run, "" for a path that leads elsewhere or to nothing."""
        inside = within(folder, path)
        return "./" + quote(os.path.relpath(inside, _resolved(self.beside))) if inside and inside.is_file() else ""


def embedded(content: Content) -> str:
    """JSON that can stand inside a <script> element: no "<", ">" or "&" is left in it, and nothing but ASCII."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, default=_fields)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _fields(entry: object) -> Mapping[str, object]:
    """An entry as JSON: all fields, but of kernels and times only those that say something."""
    sparse = isinstance(entry, (KernelEntry, TimesEntry))
    return {name: value for name, value in vars(entry).items() if not sparse or value not in (None, "", {}, [])}


def shown(text: str) -> str:
    """A short text for the page: within LONGEST_TEXT, controls made visible."""
    return displayable(cut_middle(text, LONGEST_TEXT))


_resolved = functools.lru_cache(maxsize=8)(Path.resolve)


def within(folder: Path, path: str) -> Path | None:
    """The file below the folder, links followed; None for one that lies elsewhere or cannot be named."""
    try:
        root = _resolved(folder)
        whole = (root / path).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return whole if path and whole.is_relative_to(root) else None


def read_text(folder: Path, path: str) -> str:
    """A file of the run as text, "" where there is none of bearable size; what is not UTF-8 is replaced."""
    inside = within(folder, path)
    try:
        if inside is None or not inside.is_file() or inside.stat().st_size > LARGEST_FILE:
            return ""
        return inside.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""  # taken away meanwhile: the page says nothing of it, as if it had never been there


def stages(text: str) -> Iterator[StageEntry]:
    """The stages' verdicts in a few words each, from an object by stage or a list; nothing for what is neither."""
    try:
        known = json.loads(text)
    except ValueError:
        return
    if isinstance(known, dict) and isinstance(known.get("verdicts"), dict):
        known = known["verdicts"]  # a run keeps the seconds and the worker beside them
    verdicts = list(known.values()) if isinstance(known, dict) else known if isinstance(known, list) else []
    for verdict in verdicts:
        if isinstance(verdict, dict):
            texts = {name: shown(str(verdict.get(name) or "")) for name in ("stage", "status", "summary", "log_tail")}
            details = [shown(line) for line in _details(verdict)]
            yield StageEntry(**texts, seconds=verdict.get("seconds"), details=details)


def _details(verdict: Mapping[str, Any]) -> Iterator[str]:
    """What a reader asks next: which cases failed, what lint found, what the kernels take."""
    cases = [case for case in verdict.get("cases") or () if isinstance(case, dict)]
    if cases:
        good, counted = "right", {CaseOutcome.PASSED.value}
        if verdict.get("ran_on") == "compile":
            good, counted = "launched, no value was compared", counted | {CaseOutcome.RECORDED.value}
        passed = [str(case.get("outcome") or CaseOutcome.PASSED.value) for case in cases if case.get("passed")]
        others = Counter(outcome for outcome in passed if outcome not in counted)
        more = "".join(f", {count} {outcome}" for outcome, count in others.items())
        yield f"{sum(outcome in counted for outcome in passed)} of {len(cases)} cases {good}{more}"
    yield from (f"{case.get('name')}: {case.get('problem')}" for case in cases[:40] if not case.get("passed"))
    for finding in list(verdict.get("findings") or ())[:8]:
        if isinstance(finding, dict):
            yield f"line {finding.get('line')}: {finding.get('rule')}: {finding.get('message')}"
    for arch in list(verdict.get("archs") or ())[:4]:
        for kernel in list(arch.get("kernels") or ())[:4] if isinstance(arch, dict) else ():
            yield (
                f"{kernel.get('arch')}: {kernel.get('registers')} registers, occupancy "
                f"{kernel.get('occupancy_percent')} %, limited by {kernel.get('occupancy_limit')}"
            )


def _times(times: Times, most: int) -> TimesEntry:
    """The selection: every so many of the sorted samples, with both ends."""
    samples = times.samples
    places = np.linspace(0.0, 1.0, len(samples))
    quartiles: Floats = np.interp((0.25, 0.75), places, np.sort(samples)) if len(samples) else np.array([])
    return TimesEntry(
        median=_number(times.median_us),
        quartiles=[_number(value) for value in quartiles.tolist()],
        count=len(samples),
        host=_number(times.host_us),
        error=shown(times.error),
        samples=[_number(value) for value in thinned(samples, most).tolist()],
    )


def thinned(samples: Floats, most: int) -> Floats:
    """At most so many of the samples in the order in which they were taken, least and largest among them."""
    if len(samples) <= most:
        return samples
    places = np.linspace(0, len(samples) - 1, most - 2).round().astype(int)
    kept: Floats = samples[np.unique([*places.tolist(), int(samples.argmin()), int(samples.argmax())])]
    return kept


def _number(value: float | None) -> float | None:
    """Five significant digits for the page; None for what is not finite."""
    return float(f"{value:.5g}") if value is not None and np.isfinite(value) else None
