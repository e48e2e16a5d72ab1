"""Every task and kernel as plain data for the page's own script, cut to what a page can hold; nothing of it is HTML."""

from __future__ import annotations

import functools
import json
import os
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
class PageData:
    """What the script shows: {"runs", "tasks"} as it is embedded, how many samples a callable keeps, what is left out.

    `names` are the tasks' in the order of `content`.
    """

    content: dict[str, Any]
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
        content = {"runs": [shown(run.name) for run in self.runs], "baselines": baselines, "tasks": tasks}
        return PageData(content=content, names=names, samples=most, left_out=self.room.left_out, thinned=thinned)

    def _task(self, results: Sequence[TaskResult | None], most: int) -> dict[str, Any]:
        first = next(result for result in results if result is not None).task
        return {
            "id": shown(first.id),
            "level": first.level,
            "tags": [shown(tag) for tag in first.tags],
            "dtypes": [shown(dtype) for dtype in first.dtypes],
            "runs": [self._result(run, result, most) if result else None for run, result in zip(self.runs, results)],
        }

    def _result(self, run: Run, result: TaskResult, most: int) -> dict[str, Any]:
        best = result.best()
        ordered = sorted(result.outcomes, key=lambda outcome: (outcome is not best, outcome.attempt.sample))
        return {"state": result.state, "kernels": [self._kernel(run, outcome, most) for outcome in ordered]}

    def _kernel(self, run: Run, outcome: Outcome, most: int) -> dict[str, Any]:
        attempt = outcome.attempt
        speedups = {name: _number(outcome.speedup(name)) for name in run.baselines} if outcome.correct else {}
        speedups = _known(**speedups)
        entry = {
            "outcome": outcome.outcome,
            **{name: shown(getattr(attempt, name)) for name in ("stage", "status", "rule", "ran_on", "worker")},
            "maker": shown(attempt.source),
            "summary": shown(attempt.summary),
            "sample": attempt.sample,
            "times": {shown(name): _times(times, most) for name, times in outcome.times.items()},
            "speedups": speedups,
            "floor": _known(us=attempt.floor_us, kind=shown(attempt.floor_kind), share=_number(outcome.floor_share())),
            "work": [attempt.flops, attempt.bytes],
            "cost": _cost(outcome),
            "seconds": {shown(name): round(seconds, 2) for name, seconds in attempt.seconds.items()},
            **self._files(run.folder, outcome),
        }
        return _known(**entry)

    def _files(self, folder: Path, outcome: Outcome) -> dict[str, Any]:
        attempt = outcome.attempt
        source, verdicts = read_text(folder, attempt.kernel), read_text(folder, attempt.verdicts)
        said = read_text(folder, attempt.transcript)
        return {
            "source": self.room.take(displayable(cut_middle(source, LONGEST_SOURCE))) if source else None,
            "verdicts": list(stages(verdicts)) if verdicts and self.room.bytes > 0 else None,
            "transcript": [shown(line) for line in excerpt(said)] if said and self.room.bytes > 0 else None,
            "links": {
                name: link
                for name, path in (("kernel", attempt.kernel), ("transcript", attempt.transcript))
                if (link := self._link(folder, path))
            },
        }

    def _link(self, folder: Path, path: str) -> str:
        """A relative address of a file of the run, "" when it is none: a path that leads elsewhere is no link."""
        inside = within(folder, path)
        return "./" + quote(os.path.relpath(inside, _resolved(self.beside))) if inside and inside.is_file() else ""


def embedded(content: Mapping[str, Any]) -> str:
    """JSON that can stand inside a <script> element: no "<", ">" or "&" is left in it, and nothing but ASCII."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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


def stages(text: str) -> Iterator[dict[str, Any]]:
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
            yield {**texts, "seconds": verdict.get("seconds"), "details": [shown(line) for line in _details(verdict)]}


def _details(verdict: Mapping[str, Any]) -> Iterator[str]:
    """What a reader asks next: which cases failed, what lint found, what the kernels take."""
    cases = [case for case in verdict.get("cases") or () if isinstance(case, dict)]
    if cases:
        good = "launched, no value was compared" if verdict.get("ran_on") == "compile" else "right"
        yield f"{sum(bool(case.get('passed')) for case in cases)} of {len(cases)} cases {good}"
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


def _times(times: Times, most: int) -> dict[str, Any]:
    """Median, quartiles and a thinned selection of the samples: every so many of the sorted ones, with both ends."""
    samples = times.samples
    places = np.linspace(0.0, 1.0, len(samples))
    quartiles: Floats = np.interp((0.25, 0.75), places, np.sort(samples)) if len(samples) else np.array([])
    entry = {
        "median": _number(times.median_us),
        "quartiles": [_number(value) for value in quartiles.tolist()],
        "count": len(samples),
        "host": _number(times.host_us),
        "error": shown(times.error),
        "samples": [_number(value) for value in thinned(samples, most).tolist()],
    }
    return _known(**entry)


def _known(**fields: Any) -> dict[str, Any]:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}


def thinned(samples: Floats, most: int) -> Floats:
    """At most so many of the samples in the order in which they were taken, least and largest among them."""
    if len(samples) <= most:
        return samples
    places = np.linspace(0, len(samples) - 1, most - 2).round().astype(int)
    kept: Floats = samples[np.unique([*places.tolist(), int(samples.argmin()), int(samples.argmax())])]
    return kept


def _number(value: float | None) -> float | None:
    """Five significant digits for the page; None for what is no number."""
    return float(f"{value:.5g}") if value is not None and np.isfinite(value) else None


def _cost(outcome: Outcome) -> dict[str, Any]:
    cost = outcome.attempt.cost.model_dump()
    return cost if any(cost.values()) else {}
