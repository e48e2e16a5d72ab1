"""The run: attempts go through their stages on an engine, and each is written once it is judged.

Nothing grows with the number of results but their keys: what is in flight is bounded, everything else is on the disk.
What says nothing of a kernel (a GPU that is gone, a model that does not answer) leaves the attempt open for --resume.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutesmith.devices import lacked_room
from cutesmith.evals.engines.jobs import BENCHMARK, CHECK, DRAFT, SESSION, STAGES, VERIFY, Engine, Job, Report
from cutesmith.evals.engines.stages import carried, uncarried
from cutesmith.evals.records import Attempt, Task
from cutesmith.evals.running import outcomes
from cutesmith.evals.running.cache import Cache
from cutesmith.evals.running.folder import KERNEL, RunFolder, Unit
from cutesmith.evals.running.gpu_time import GpuTime
from cutesmith.evals.running.keys import failure_key, judged_key, sha256
from cutesmith.evals.running.plan import Plan, Tally, TaskFileError, Work, read_task_file
from cutesmith.evals.running.screen import Screen
from cutesmith.evals.running.sources import NoKernelError, find_kernel
from cutesmith.evals.running.turns import Turns
from cutesmith.evals.settings import JudgeSettings
from cutesmith.unicode import encodable
from cutesmith.verdicts import ExitCode

TRIES = 3  # of a stage whose process was lost, or that found the GPU's memory full
PATIENCE = 0.5  # seconds between two looks at the clock
MADE = "generate"  # the stage that an attempt without a kernel ended in
OWN = "compiler"  # of an attempt's seconds: what the compiler itself took, within the check
STAGE_SHOWN = {CHECK: "compile", VERIFY: VERIFY, BENCHMARK: BENCHMARK}
TRANSCRIPT = "transcript.jsonl"


class Pipeline:
    """One process's share of a run; `run` returns when all is done, out of time, or nobody is left to judge."""

    def __init__(self, plan: Plan, folder: RunFolder, engine: Engine, cache: Cache, screen: Screen) -> None:
        self.plan, self.folder, self.engine, self.cache, self.screen = plan, folder, engine, cache, screen
        self.tally, self.gpu_time = Tally(plan.total), GpuTime()
        self._finished: set[Unit] = set()
        self._keys: set[bytes] = set()
        self._flight: dict[str, Work] = {}
        self._ready: dict[str, deque[Work]] = {stage: deque() for stage in STAGES}
        self._turns = Turns()
        self._leaders: dict[str, str] = {}
        self._followers: dict[str, list[Work]] = defaultdict(list)

    def take_up(self) -> None:
        """Count what earlier processes finished; what they left of tasks that are gone stays open."""
        known = {*((task.id, sample) for task, sample in self.plan.units()), *self.plan.gone_units()}
        for attempt in self.folder.attempts():
            unit = (attempt.task, attempt.sample)
            if unit in known and unit not in self._finished:
                self._finished.add(unit)
                self._keys.add(_packed(attempt.key))
                self.tally.count(attempt)
        for task, sample in self.plan.gone_units():
            if (task, sample) not in self._finished:
                self.tally.open[f"{task}#{sample}"] = "the suite no longer has this task"
        for hold in self.folder.holds():
            self.gpu_time.add(hold)

    def run(self) -> Tally:
        """Judge everything that is not finished, until somebody calls `interrupt`; what is finished stays."""
        units, deadline = iter(self.plan.units()), time.monotonic() + self.plan.seconds
        try:
            while not self.tally.interrupted and (self._feed(units, deadline) or self._flight):
                self._submit()
                for report in self.engine.completed(PATIENCE) if self._flight else ():
                    self._take(replace(report, lost=encodable(report.lost), result=encodable(report.result)))
                self.screen.tick(self.tally, len(self._flight), self.gpu_time)
        except KeyboardInterrupt:
            self.tally.interrupted = True
        return self.tally

    def interrupt(self) -> None:
        """End before the next step: what is counted then is what was written. A signal handler may call it."""
        self.tally.interrupted = True

    def _feed(self, units: Iterator[tuple[Task, int]], deadline: float) -> bool:
        """Begin attempts while there is room; whether there may be more to begin."""
        while len(self._flight) < self._limit():
            if time.monotonic() > deadline:
                self.tally.out_of_time = not self.tally.complete
                return False
            if not self.engine.capacity(VERIFY):
                return False
            unit = next(units, None)
            if unit is None:
                return False
            if (unit[0].id, unit[1]) not in self._finished:
                self._begin(Work(*unit))
        return True

    def _limit(self) -> int:
        """Attempts on their way: enough for all who work now, who may become more or fewer."""
        return 2 + 2 * sum(self.engine.capacity(stage) for stage in (DRAFT, CHECK, VERIFY))

    def _submit(self) -> None:
        """Hand over what the engine has room for; what is nearest to its end comes first."""
        for stage in reversed(STAGES):
            ready = self._ready[stage]
            while ready and not self.engine.capacity(stage):
                self._leave_open(ready.popleft(), "nobody is left who could go on")
            while ready and self.engine.room(stage) and self._turns.open_to(stage):
                self._hand_over(ready.popleft(), stage)
        if (stage := self._turns.next_stage) and not self.engine.capacity(stage):
            work, _ = self._turns.alone()
            self._turns.leave(work)
            self._leave_open(work, "nobody is left who could go on")
        elif stage and self._turns.nobody_there and self.engine.room(stage):
            self._hand_over(*self._turns.alone())

    def _hand_over(self, work: Work, stage: str) -> None:
        self._turns.enter(work, stage)
        self.engine.submit(self._job(work, stage))

    # From a task to a kernel

    def _begin(self, work: Work) -> None:
        self._flight[work.id] = work
        try:
            work.problem = read_task_file(work.task)
            if not self.plan.source.stage:
                self._found(work, find_kernel(Path(self.plan.source.place), *work.unit))
            else:
                self._make(work)
        except NoKernelError as error:
            self._without_kernel(work, error.status, ExitCode.USAGE, error.message)
        except TaskFileError as error:
            self._without_kernel(work, "no task", ExitCode.UNAVAILABLE, error.message)  # no word on a kernel

    def _make(self, work: Work) -> None:
        """Take the kernel that was made before, or have it made; the offline generator's samples are all alike."""
        alike = self.plan.source.stage == DRAFT
        for unit in dict.fromkeys((work.unit, (work.task.id, 0) if alike else work.unit)):
            known = self.folder.generation(unit)
            if known is not None:
                self._made_before(work, unit, known)
                return
        if self._leads(work, f"make {work.task.id}" if alike else f"make {work.id}"):
            self._ready[self.plan.source.stage].append(work)

    def _made_before(self, work: Work, unit: Unit, known: dict[str, Any]) -> None:
        path = self.folder.kernel_folder(unit) / KERNEL
        self._made(work, known, path.read_bytes() if path.is_file() else None)

    def _made(self, work: Work, known: dict[str, Any], kernel: bytes | None) -> None:
        work.generation = known["verdict"]
        if kernel is not None:
            self._found(work, kernel)
            return
        fields = outcomes.nothing_made(known["verdict"])
        self._without_kernel(work, **fields)

    def _found(self, work: Work, kernel: bytes) -> None:
        """Judge it, or take what is known of the same kernel."""
        work.kernel = kernel
        self.folder.keep_kernel(work.unit, kernel)
        judged, libraries = self.plan.judging(work.task), self.plan.libraries(work.task)
        work.key = judged_key(self.plan.machine, judged, work.problem, kernel, libraries)
        known = self.folder.verdicts(work.key)
        if known is None and (entry := self.cache.find(work.key)) is not None:
            self.folder.keep_verdicts(work.key, entry.verdicts)
            self._finish(work, outcomes.settled(entry.attempt, work.task, **self._whose(work)), entry.verdicts)
            return
        if self._leads(work, work.key):
            self._go_on(work, known or {})

    def _go_on(self, work: Work, known: dict[str, Any]) -> None:
        work.verdicts = dict(known.get("verdicts") or {})
        work.seconds = {**known.get("seconds", {}), **work.seconds}
        work.worker = str(known.get("worker") or work.worker)
        stage = outcomes.next_stage(work.verdicts, self.plan.judge)
        if stage:
            self._ready[stage].append(work)
        else:
            self._judged(work)

    # Waiting for one that is alike

    def _leads(self, work: Work, what: str) -> bool:
        """Whether this is the one that does it; another that wants the same waits for it."""
        leader = self._leaders.setdefault(what, work.id)
        if leader != work.id:
            self._followers[what].append(work)
        return leader == work.id

    def _release(self, work: Work) -> None:
        """What waited for this one begins again: it finds the result, or leads itself."""
        for what in [what for what, leader in self._leaders.items() if leader == work.id]:
            del self._leaders[what]
            for follower in self._followers.pop(what, ()):
                self._begin(Work(follower.task, follower.sample))

    # Jobs and reports

    def _job(self, work: Work, stage: str) -> Job:
        settings = self.plan.judging(work.task)
        payload: dict[str, Any] = {"task": carried(work.task.path.name, work.problem), "settings": settings.to_dict()}
        if stage == DRAFT:
            payload["maker"] = self.plan.maker.to_dict()
        elif stage == SESSION:
            payload["agent"] = self.plan.source.agent(work.task.id)
            payload["options"] = self.plan.maker.session_options()
            payload["folder"] = str(self.folder.kernel_folder(work.unit))
        else:
            payload["kernel"] = carried(KERNEL, work.kernel)
        if stage == BENCHMARK:
            payload["libraries"] = self.plan.libraries(work.task)
        return Job(id=work.id, stage=stage, payload=payload, seconds=_patience(stage, settings))

    def _take(self, report: Report) -> None:
        work = self._flight[report.id]
        self._turns.leave(work)
        self._note_holds(work, report)
        if report.lost:
            self._lost(work, report)
        elif report.stage in (DRAFT, SESSION):
            self._take_kernel(work, report)
        else:
            self._take_verdicts(work, report)

    def _note_holds(self, work: Work, report: Report) -> None:
        holds = report.result.get("holds") or ()
        queued = sum(hold["begin"] - hold["asked"] for hold in holds)
        work.took(report.stage, report.end - report.begin - queued)
        if holds:
            work.took("queued", queued)
        for hold in holds:
            fields = {"gpu": report.result.get("gpu") or report.worker, "job": report.id, "stage": report.stage, **hold}
            self.folder.hold(fields)
            self.gpu_time.add(fields)

    def _lost(self, work: Work, report: Report) -> None:
        """Another try; who lost its judge's process again and again gets a verdict of ours, not of the kernel."""
        work.tries[report.stage] += 1
        if report.result:
            self._note_lost_gpu(str(report.result.get("gpu") or report.worker), report.lost)
        gpu_is_gone = bool(report.result) or not self.engine.capacity(report.stage)
        if gpu_is_gone and (work.tries[report.stage] > 2 * TRIES or not self.engine.capacity(report.stage)):
            self._leave_open(work, report.lost)
        elif gpu_is_gone or work.tries[report.stage] < TRIES:
            self._ready[report.stage].append(work)
        else:
            self._without_verdict(work, report)

    def _note_lost_gpu(self, gpu: str, why: str) -> None:
        if gpu not in self.tally.lost_gpus:
            self.tally.lost_gpus[gpu] = why
            self.screen.lost_gpu(gpu, why)

    def _take_kernel(self, work: Work, report: Report) -> None:
        verdict = report.result["verdict"]
        carried_kernel = report.result.get("kernel")
        if self._waits_for_memory(work, report, verdict):
            return
        if outcomes.says_nothing(verdict, self.plan.source.kind):
            self._leave_open(work, str(verdict["summary"]))
            return
        kernel = uncarried(carried_kernel) if carried_kernel else None
        if kernel is not None:
            self.folder.keep_kernel(work.unit, kernel)
        known = {"verdict": verdict, "seconds": report.end - report.begin}
        self.folder.keep_generation(work.unit, known)
        self._made(work, known, kernel)

    def _take_verdicts(self, work: Work, report: Report) -> None:
        verdicts = report.result["verdicts"]
        verdict = verdicts.get(report.stage, {})
        if self._waits_for_memory(work, report, verdict):
            return
        if self._no_word(verdict) and work.tries[report.stage] < TRIES - 1:
            work.tries[report.stage] += 1
            self._ready[report.stage].append(work)
            return
        if self._no_word(verdict):
            self._leave_open(work, str(verdict["summary"]))
            return
        work.verdicts.update(verdicts)
        for arch in verdicts.get("compile", {}).get("archs") or ():
            work.took(OWN, arch["compile_seconds"])
        work.worker = report.worker if report.stage != CHECK else work.worker
        known = {"verdicts": work.verdicts, "seconds": work.seconds, "worker": work.worker, "task": work.task.id}
        self.folder.keep_verdicts(work.key, known)
        self._go_on(work, known)

    def _waits_for_memory(self, work: Work, report: Report, verdict: dict[str, Any]) -> bool:
        """Judge again with nobody beside it what found no memory; what says nothing of the kernel then stays open."""
        too_little = outcomes.too_little_memory(verdict)
        if not (too_little or self._memory_was_full(verdict)):
            return False
        if not work.tries[f"{report.stage} alone"]:
            work.tries[f"{report.stage} alone"] += 1
            self._turns.wait(work, report.stage)
            self.screen.waits(work.id, report.stage)
            return True
        too_little = too_little or outcomes.too_little_on_the_gpu(verdict, str(report.result.get("gpu_taken") or ""))
        if too_little:
            self._leave_open(work, too_little)
        return bool(too_little)

    def _no_word(self, verdict: dict[str, Any]) -> bool:
        """Whether the GPU answers and yet was not to be had, such as when others hold it for very long."""
        return self.plan.judge.on == "gpu" and verdict.get("exit_code") == ExitCode.UNAVAILABLE

    def _memory_was_full(self, verdict: dict[str, Any]) -> bool:
        """Whether neighbours on the GPU may have taken its memory from the judge, the kernel or a baseline."""
        failed = verdict.get("exit_code") in (ExitCode.CRASHED, ExitCode.USAGE, ExitCode.UNAVAILABLE)
        said = [str(verdict.get("summary"))] if failed else []
        said += [str(timing.get("error")) for timing in verdict.get("timings") or ()]
        return self.plan.judge.on == "gpu" and any(map(lacked_room, said))

    # The end of an attempt

    def _judged(self, work: Work) -> None:
        again = _packed(work.key) in self._keys
        fields = {"machine": self.plan.machine, "worker": work.worker, "cached": again}
        self._finish(work, self._attempt(work, **outcomes.judged(work.verdicts), **fields), self._entry(work))

    def _entry(self, work: Work) -> dict[str, Any]:
        return {"verdicts": work.verdicts, "seconds": work.seconds, "worker": work.worker, "task": work.task.id}

    def _without_kernel(self, work: Work, status: str, code: ExitCode, summary: str) -> None:
        work.key = work.key or failure_key(work.task.id, self._source(work), work.sample, self.plan.maker.to_dict())
        fields = outcomes.no_kernel(MADE, status, code, summary)
        self._finish(work, self._attempt(work, **fields), None)

    def _without_verdict(self, work: Work, report: Report) -> None:
        summary = f"the judge's process was lost {TRIES} times: {report.lost}"
        fields = outcomes.no_kernel(STAGE_SHOWN.get(report.stage, MADE), "internal", ExitCode.INTERNAL, summary)
        work.key = work.key or failure_key(work.task.id, self._source(work), work.sample, self.plan.maker.to_dict())
        self._finish(work, self._attempt(work, **fields, worker=report.worker), None)

    def _attempt(self, work: Work, **fields: Any) -> Attempt:
        verdicts = RunFolder.verdicts_path(work.key) if work.verdicts else ""
        about: dict[str, Any] = {"verdicts": verdicts, "finished": outcomes.now(), "seconds": work.seconds}
        return Attempt(key=work.key, **{**about, **outcomes.about_task(work.task), **self._whose(work), **fields})

    def _whose(self, work: Work) -> dict[str, Any]:
        """The fields that say which attempt of which run it is."""
        place = self.folder.kernel_folder(work.unit).relative_to(self.folder.path)
        talked = (self.folder.path / place / TRANSCRIPT).is_file()
        return {
            "suite": self.plan.suite.name,
            "source": self._source(work),
            "sample": work.sample,
            "kernel": str(place / KERNEL) if work.kernel else "",
            "kernel_sha256": sha256(work.kernel) if work.kernel else "",
            "transcript": str(place / TRANSCRIPT) if talked else "",
            "cost": outcomes.cost_of(work.generation),
        }

    def _source(self, work: Work) -> str:
        model = work.generation.get("model")
        return f"{self.plan.source.kind}:{model}" if model else self.plan.source.name

    def _finish(self, work: Work, attempt: Attempt, entry: dict[str, Any] | None) -> None:
        """The line first: from there on it is done."""
        self.folder.finish(attempt)
        if entry is not None:
            self.cache.keep(attempt, entry)
        self._finished.add(work.unit)
        self._keys.add(_packed(attempt.key))
        self.tally.count(attempt)
        self.tally.open.pop(work.id, None)
        self.screen.finished(attempt, self.tally)
        self._end(work)

    def _leave_open(self, work: Work, why: str) -> None:
        self.tally.open[work.id] = why
        self.screen.left_open(work.id, why)
        self._end(work)

    def _end(self, work: Work) -> None:
        self._flight.pop(work.id, None)
        self._release(work)


def _packed(key: str) -> bytes:
    """A key in half the memory; one that somebody edited need not be a number."""
    try:
        return bytes.fromhex(key)
    except ValueError:
        return key.encode()


def _patience(stage: str, settings: JudgeSettings) -> float:
    """Seconds after which a stage's process hangs: every stage keeps limits of its own, far below."""
    calls = {CHECK: 4, VERIFY: 30, BENCHMARK: 10, DRAFT: 60, SESSION: 720}[stage]
    return 600.0 + calls * max(settings.timeout, settings.benchmark_timeout if stage == BENCHMARK else 0.0)
