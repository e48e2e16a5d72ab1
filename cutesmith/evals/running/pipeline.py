"""The run: attempts go through their stages on an engine, and each is written once it is judged.

Nothing grows with the number of results but their keys: what is in flight is bounded, everything else is on the disk.
What says nothing of a kernel (a GPU that is gone, a model that does not answer) leaves the attempt open for --resume.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

from cutesmith.evals.engines.jobs import (
    BENCHMARK,
    CHECK,
    DRAFT,
    REDUCE,
    SESSION,
    STAGES,
    VERIFY,
    Engine,
    Report,
    StageResult,
)
from cutesmith.evals.keys import failure_key, judged_key, sha256
from cutesmith.evals.reading import DamagedLine, read_attempts
from cutesmith.evals.records import Attempt, GpuHold, Judgement, Machine, Task
from cutesmith.evals.running import outcomes
from cutesmith.evals.running.cache import Cache
from cutesmith.evals.running.folder import KERNEL, RunFolder, Unit
from cutesmith.evals.running.gpu_time import GpuTime
from cutesmith.evals.running.outcomes import MADE
from cutesmith.evals.running.plan import Plan, Tally, TaskFileError, Turns, Work, read_task_file
from cutesmith.evals.running.screen import Screen
from cutesmith.evals.running.sources import NoKernelError, find_kernel
from cutesmith.evals.running.stage_jobs import stage_job
from cutesmith.evals.stage_verdicts import Generation, JudgedKernel, StageVerdict
from cutesmith.verdicts import ExitCode, Mechanism

TRIES = 3  # of a stage whose process was lost, or that found the GPU's memory full
PATIENCE = 0.5  # seconds between two looks at the clock
OWN = "compiler"  # of an attempt's seconds: what the compiler itself took, within the check
STAGE_SHOWN = {CHECK: "compile", VERIFY: VERIFY, BENCHMARK: BENCHMARK}
TRANSCRIPT = "transcript.jsonl"
NO_PROCESS = "no process is left that could go on"


class Pipeline:
    """One process's share of a run; `run` returns when all is done, out of time, or no judge is left."""

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

    def take_up(self) -> list[DamagedLine]:
        """Count what earlier processes finished; returns the other lines.

        What they left of tasks that are gone stays open.
        """
        damaged: list[DamagedLine] = []
        known = {*((task.id, sample) for task, sample in self.plan.units()), *self.plan.gone_units()}
        for attempt in read_attempts(self.folder.path, damaged):
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
        return damaged

    def run(self) -> Tally:
        """Judge what is not finished, until `interrupt` is called or time is up; closing the engine ends the rest."""
        units, deadline = iter(self.plan.units()), time.monotonic() + self.plan.seconds
        try:
            while not self.tally.interrupted and self._left(deadline) and (self._feed(units) or self._flight):
                self._submit()
                for report in self.engine.completed(PATIENCE) if self._flight else ():
                    self._take(report)
                self.screen.tick(self.tally, len(self._flight), self.gpu_time)
        except KeyboardInterrupt:
            self.tally.interrupted = True
        return self.tally

    def interrupt(self) -> None:
        """End before the next step: what is counted then is what was written. A signal handler may call it."""
        self.tally.interrupted = True

    def _left(self, deadline: float) -> bool:
        """Whether there is time left; where there is not, what is on its way is cut off."""
        if time.monotonic() <= deadline:
            return True
        self.tally.out_of_time, self.tally.cut_off = not self.tally.complete, tuple(self._flight)
        return False

    def _feed(self, units: Iterator[tuple[Task, int]]) -> bool:
        """Begin attempts while there is room; whether there may be more to begin."""
        workers = sum(self.engine.capacity(stage) for stage in (DRAFT, CHECK, VERIFY))
        while len(self._flight) < 2 + 2 * workers:  # enough for all who work now, who may become more or fewer
            if not self.engine.capacity(VERIFY):
                return False
            unit = next(units, None)
            if unit is None:
                return False
            if (unit[0].id, unit[1]) not in self._finished:
                self._begin(Work(*unit))
        return True

    def _submit(self) -> None:
        """Hand over what the engine has room for; what is nearest to its end comes first."""
        for stage in reversed(STAGES):
            ready = self._ready[stage]
            while ready and not self.engine.capacity(stage):
                self._leave_open(ready.popleft(), NO_PROCESS)
            while ready and self.engine.room(stage) and self._turns.open_to(stage):
                self._hand_over(ready.popleft(), stage)
        if (stage := self._turns.next_stage) and not self.engine.capacity(stage):
            work = self._turns.alone()
            self._turns.leave(work)
            self._leave_open(work, NO_PROCESS)
        elif stage and self._turns.free and self.engine.room(stage):
            self._hand_over(self._turns.alone(), stage)

    def _hand_over(self, work: Work, stage: str) -> None:
        self._turns.enter(work, stage)
        self.engine.submit(stage_job(self.plan, self.folder, work, stage))

    # From a task to a kernel

    def _begin(self, work: Work) -> None:
        self._flight[work.id] = work
        try:
            work.problem = read_task_file(work.task)
            if self.plan.reduced and not self._reduced(work):
                return
            if not self.plan.source.stage:
                self._found(work, find_kernel(Path(self.plan.source.place), *work.unit))
            else:
                self._make(work)
        except NoKernelError as error:
            self._without_kernel(work, outcomes.not_judged(MADE, error.status, ExitCode.USAGE, error.message))
        except TaskFileError as error:  # it says nothing of a kernel
            self._without_kernel(work, outcomes.not_judged(MADE, "no task", ExitCode.UNAVAILABLE, error.message))

    def _reduced(self, work: Work) -> bool:
        """Take the task's copy at smaller sizes, or have it made; whether it is there."""
        known = self.folder.problem(work.task.id)
        if known is None and self._leads(work, f"reduce {work.task.id}"):
            self._ready[REDUCE].append(work)
        work.problem, work.reduced = known or work.problem, known is not None
        return work.reduced

    def _make(self, work: Work) -> None:
        """Take the kernel that was made before, or have it made; all samples of the offline generator are equal."""
        same = self.plan.source.stage == DRAFT
        for unit in dict.fromkeys((work.unit, (work.task.id, 0) if same else work.unit)):
            known = self.folder.generation(unit)
            if known is not None:
                path = self.folder.kernel_folder(unit) / KERNEL
                self._made(work, known, path.read_bytes() if path.is_file() else None)
                return
        if self._leads(work, f"make {work.task.id}" if same else f"make {work.id}"):
            self._ready[self.plan.source.stage].append(work)

    def _made(self, work: Work, known: Generation, kernel: bytes | None) -> None:
        work.generation = known.verdict
        if kernel is not None:
            self._found(work, kernel)
        else:
            self._without_kernel(work, outcomes.nothing_made(known.verdict))

    def _found(self, work: Work, kernel: bytes) -> None:
        """Judge it, or take what is known of the same kernel."""
        work.kernel = kernel
        self.folder.keep_kernel(work.unit, kernel)
        judged, libraries = self.plan.judging(work.task), self.plan.libraries(work.task)
        work.key = judged_key(self.plan.machine, judged, work.problem, kernel, libraries)
        known = self.folder.verdicts(work.key)
        if known is None and (entry := self.cache.find(work.key)) is not None:
            self.folder.keep_verdicts(work.key, entry.verdicts)
            work.verdicts, work.seconds = entry.verdicts.verdicts, entry.attempt.seconds
            work.worker = entry.attempt.worker
            self._finish(work, self._attempt(work, entry.attempt, machine=entry.attempt.machine, cached=True))
            return
        if self._leads(work, work.key):
            self._go_on(work, known or JudgedKernel())

    def _go_on(self, work: Work, known: JudgedKernel) -> None:
        work.verdicts = dict(known.verdicts)
        work.seconds = {**known.seconds, **work.seconds}
        work.worker = known.worker or work.worker
        stage = outcomes.next_stage(work.verdicts, self.plan.judge)
        if stage:
            self._ready[stage].append(work)
        else:
            again = _packed(work.key) in self._keys
            judgement = outcomes.judged(work.verdicts)
            self._finish(work, self._attempt(work, judgement, machine=self.plan.machine, cached=again))

    # Waiting for another that does the same

    def _leads(self, work: Work, what: str) -> bool:
        """Whether this is the one that does it; another that wants the same waits for it."""
        leader = self._leaders.setdefault(what, work.id)
        if leader != work.id:
            self._followers[what].append(work)
        return leader == work.id

    # Reports

    def _take(self, report: Report) -> None:
        work = self._flight[report.id]
        self._turns.leave(work)
        result = report.result or StageResult()
        self._note_holds(work, report, result)
        if report.lost:
            self._lost(work, report)
        elif report.stage == REDUCE:
            self._take_problem(work, result)
        elif report.stage in (DRAFT, SESSION):
            self._take_kernel(work, report, result)
        else:
            self._take_verdicts(work, report, result)

    def _note_holds(self, work: Work, report: Report, result: StageResult) -> None:
        queued = sum(hold.begin - hold.asked for hold in result.holds)
        work.took(report.stage, report.end - report.begin - queued)
        if result.holds:
            work.took("queued", queued)
        gpu = result.gpu or report.worker
        for hold in result.holds:
            noted = GpuHold(gpu=gpu, job=report.id, stage=report.stage, **vars(hold))
            self.folder.hold(noted)
            self.gpu_time.add(noted)

    def _lost(self, work: Work, report: Report) -> None:
        """Another try; an attempt that loses its judge's process each time ends as an internal error."""
        work.tries[report.stage] += 1
        gpu = report.result.gpu or report.worker if report.result else ""
        if report.result and gpu not in self.tally.lost_gpus:
            self.tally.lost_gpus[gpu] = report.lost
            self.screen.lost_gpu(gpu, report.lost)
        gpu_is_gone = report.gpu_is_lost or not self.engine.capacity(report.stage)
        if gpu_is_gone and (work.tries[report.stage] > 2 * TRIES or not self.engine.capacity(report.stage)):
            self._leave_open(work, report.lost)
        elif gpu_is_gone or work.tries[report.stage] < TRIES:
            self._ready[report.stage].append(work)
        else:
            summary = f"the judge's process was lost {TRIES} times: {report.lost}"
            stage, work.worker = STAGE_SHOWN.get(report.stage, MADE), report.worker
            self._without_kernel(work, outcomes.not_judged(stage, "internal", ExitCode.INTERNAL, summary))

    def _take_problem(self, work: Work, result: StageResult) -> None:
        if result.problem is None:
            self._leave_open(work, result.verdicts[REDUCE].summary)
            return
        self.folder.keep_problem(work.task.id, result.problem.data)
        self._release(work)
        self._begin(work)

    def _take_kernel(self, work: Work, report: Report, result: StageResult) -> None:
        verdict = result.generation
        assert verdict is not None, "a stage that makes kernels says what became of it"
        if self._waits_for_memory(work, report, result, verdict):
            return
        if outcomes.says_nothing(verdict, self.plan.source.kind):
            self._leave_open(work, verdict.summary)
            return
        kernel = result.kernel.data if result.kernel else None
        if kernel is not None:
            self.folder.keep_kernel(work.unit, kernel)
        known = Generation(verdict=verdict, seconds=report.end - report.begin)
        self.folder.keep_generation(work.unit, known)
        self._made(work, known, kernel)

    def _take_verdicts(self, work: Work, report: Report, result: StageResult) -> None:
        verdict = result.verdicts.get(report.stage)
        if verdict is not None and self._waits_for_memory(work, report, result, verdict):
            return
        if verdict is not None and self.plan.judge.on == "gpu" and outcomes.lacked_the_gpu(verdict):
            # The GPU answers and yet was not to be had, such as when others hold it for very long.
            work.tries[report.stage] += 1
            if work.tries[report.stage] < TRIES:
                self._ready[report.stage].append(work)
            else:
                self._leave_open(work, verdict.summary)
            return
        work.verdicts.update(result.verdicts)
        for arch in result.verdicts["compile"].archs if "compile" in result.verdicts else ():
            work.took(OWN, arch.compile_seconds)
        work.worker = report.worker if report.stage != CHECK else work.worker
        self.folder.keep_verdicts(work.key, work.known)
        self._go_on(work, work.known)

    def _waits_for_memory(self, work: Work, report: Report, result: StageResult, verdict: StageVerdict) -> bool:
        """Judge again alone what found no memory; what says nothing of the kernel then stays open."""
        too_little = outcomes.too_little_memory(verdict)
        if not (too_little or self._memory_was_full(verdict)):
            return False
        if not work.tries[f"{report.stage} alone"]:
            work.tries[f"{report.stage} alone"] += 1
            self._turns.wait(work, report.stage)
            self.screen.waits(work.id, report.stage)
            return True
        too_little = too_little or outcomes.too_little_on_the_gpu(verdict, result.gpu_taken)
        if too_little:
            self._leave_open(work, too_little)
        return bool(too_little)

    def _memory_was_full(self, verdict: StageVerdict) -> bool:
        """Whether neighbours on the GPU may have taken its memory from the judge, the kernel or a baseline."""
        failed = verdict.exit_code in (ExitCode.CRASHED, ExitCode.USAGE, ExitCode.UNAVAILABLE)
        limits = [verdict.mechanism] if failed else []
        limits += [timing.mechanism for timing in verdict.timings]
        return self.plan.judge.on == "gpu" and Mechanism.GPU_MEMORY.value in limits

    # The end of an attempt

    def _without_kernel(self, work: Work, judgement: Judgement) -> None:
        work.key = work.key or failure_key(work.task.id, self._source(work), work.sample, self.plan.maker)
        self._finish(work, self._attempt(work, judgement, machine=Machine()), keep=False)

    def _attempt(self, work: Work, judgement: Judgement, *, machine: Machine, cached: bool = False) -> Attempt:
        """The attempt of this run that came to this."""
        place = self.folder.kernel_folder(work.unit).relative_to(self.folder.path)
        talked = (self.folder.path / place / TRANSCRIPT).is_file()
        return Attempt(
            **{name: getattr(judgement, name) for name in Judgement.model_fields},
            key=work.key,
            suite=self.plan.suite.name,
            task=work.task.id,
            level=work.task.level,
            tags=work.task.tags,
            dtypes=work.task.dtypes,
            source=self._source(work),
            sample=work.sample,
            problem_sha256=sha256(work.problem) if work.reduced else "",
            kernel=str(place / KERNEL) if work.kernel else "",
            kernel_sha256=sha256(work.kernel) if work.kernel else "",
            verdicts=RunFolder.verdicts_path(work.key) if work.verdicts else "",
            transcript=str(place / TRANSCRIPT) if talked else "",
            cost=outcomes.cost_of(work.generation),
            seconds=work.seconds,
            machine=machine,
            worker=work.worker,
            finished=outcomes.now(),
            cached=cached,
        )

    def _source(self, work: Work) -> str:
        model = work.generation.model if work.generation else ""
        return f"{self.plan.source.kind}:{model}" if model else self.plan.source.name

    def _finish(self, work: Work, attempt: Attempt, *, keep: bool = True) -> None:
        """The line first: from there on it is done."""
        self.folder.finish(attempt)
        if keep:
            self.cache.keep(attempt, work.known)
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

    def _release(self, work: Work) -> None:
        """What waited for this one begins again: it finds the result, or leads itself."""
        for what in [what for what, leader in self._leaders.items() if leader == work.id]:
            del self._leaders[what]
            for follower in self._followers.pop(what, ()):
                self._begin(Work(follower.task, follower.sample))


def _packed(key: str) -> bytes:
    """A key in half the memory; one that somebody edited need not be a number."""
    try:
        return bytes.fromhex(key)
    except ValueError:
        return key.encode()
