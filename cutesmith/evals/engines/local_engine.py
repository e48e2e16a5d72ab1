"""Stages on this machine: pools of long-lived processes, several a GPU, so that one kernel's imports, drawing and
compiling overlap with another's timing (the lock of `sandbox.gpu_lock` keeps a timing alone).
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cutesmith.evals.engines.jobs import BENCHMARK, CHECK, DRAFT, REDUCE, SESSION, VERIFY, Job, Report
from cutesmith.evals.engines.slot import LostJobError, Slot
from cutesmith.verb_process import without_secrets

POOL_OF = {
    REDUCE: "check",
    DRAFT: "make",
    SESSION: "make",
    CHECK: "check",
    VERIFY: "judge",
    BENCHMARK: "judge",
}
URGENCY = {BENCHMARK: 0, VERIFY: 1}  # what is nearest to its end first
AHEAD = 1  # jobs that wait for each pool's next free slot
SLOTS_A_GPU = 8  # measured over the lock alone: 48 kernels in 21.8 s with 4 judges, 14.6 with 8, 12.0 with 12


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many processes a pool has: makers of kernels, CPU checks, judges; `gpus` are CUDA device names ("0").

    With GPUs there are `judges` for each of them, without there are so many in all.
    """

    makers: int
    checks: int
    judges: int
    gpus: tuple[str, ...] = ()


def usual_slots(gpus: Sequence[str], jobs: int | None = None) -> Slots:
    """For this machine's cores; `jobs` is the number of kernels that may be worked on at a time."""
    jobs = jobs or max(1, len(os.sched_getaffinity(0)) * 3 // 4)
    if not gpus:
        return Slots(makers=max(1, jobs // 3), checks=max(1, jobs // 3), judges=max(1, jobs // 2))
    judges = max(1, min(SLOTS_A_GPU, jobs // (2 * len(gpus)) or 1))
    return Slots(makers=max(1, jobs // 3), checks=max(1, jobs // 4), judges=judges, gpus=tuple(gpus))


class LocalEngine:
    """An `Engine` on this machine. A GPU that is lost takes no more jobs; its job is reported as lost."""

    def __init__(self, slots: Slots) -> None:
        self._done: queue.Queue[Report] = queue.Queue()
        processes = slots.makers + slots.checks + slots.judges * max(1, len(slots.gpus))
        threads = max(1, len(os.sched_getaffinity(0)) // processes)  # together they have the cores: waiting ones spin
        common = {"OMP_NUM_THREADS": str(threads), **os.environ}
        gpus = slots.gpus or ("",)
        judges = [(f"gpu{gpu}" if gpu else f"cpu{n}", gpu) for n in range(slots.judges) for gpu in gpus]
        named = {
            "make": [(f"make{n}", gpus[n % len(gpus)]) for n in range(slots.makers)],  # one GPU each, in turn
            "check": [(f"check{n}", "") for n in range(slots.checks)],
            "judge": judges,
        }
        self._pools = {}
        for pool, slots_of in named.items():  # makers alone are given keys, for their models
            base = common if pool == "make" else without_secrets(common)
            made = [Slot(name, {**base, "CUDA_VISIBLE_DEVICES": gpu}) for name, gpu in slots_of]
            self._pools[pool] = _Pool(self._done, made)

    def capacity(self, stage: str) -> int:
        """Slots of the stage's pool that still serve."""
        return self._pools[POOL_OF[stage]].alive

    def room(self, stage: str) -> int:
        """Free slots of the stage's pool, and a job ahead."""
        pool = self._pools[POOL_OF[stage]]
        return max(0, pool.alive + AHEAD - pool.outstanding) if pool.alive else 0

    def submit(self, job: Job) -> None:
        """Queue it in its pool."""
        self._pools[POOL_OF[job.stage]].put(job)

    def completed(self, seconds: float) -> list[Report]:
        """Everything that is done; waits for the first."""
        try:
            found = [self._done.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def close(self) -> None:
        """End every process."""
        for pool in self._pools.values():
            pool.ask_to_close()
        for pool in self._pools.values():
            pool.close()


class _Pool:
    """Slots that serve one queue, a thread each."""

    def __init__(self, done: queue.Queue[Report], slots: Sequence[Slot]) -> None:
        self._done, self._slots = done, list(slots)
        self._jobs: queue.PriorityQueue[tuple[float, int, Job | None]] = queue.PriorityQueue()
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self.alive, self.outstanding, self._closed = len(self._slots), 0, False
        self._lost: set[str] = set()
        self._threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def put(self, job: Job) -> None:
        with self._lock:  # before or after the last slot went, never in between
            self.outstanding += 1
            self._jobs.put((URGENCY.get(job.stage, 2), next(self._numbers), job))
            none_left = self.alive == 0
        if none_left:
            self._give_back()

    def ask_to_close(self) -> None:
        """Begin nothing more, and let the processes clear up, all at the same time."""
        self._closed = True
        for slot in self._slots:
            slot.ask_to_end()

    def close(self) -> None:
        """End the processes; a thread that waits for one finds it gone."""
        for _ in self._slots:
            self._jobs.put((-1, next(self._numbers), None))
        for slot in self._slots:
            slot.end()
        for thread in self._threads:
            thread.join(timeout=10)
        for slot in self._slots:  # one may have begun again while the others were ended
            slot.end()

    def _serve(self, slot: Slot) -> None:
        while (job := self._jobs.get()[2]) is not None and not self._closed:
            if slot.name in self._lost:  # another slot of this GPU found it gone
                self._jobs.put((URGENCY.get(job.stage, 2), next(self._numbers), job))
                break
            report = executed(slot, job)
            if report.gpu_is_lost:
                self._lost.add(slot.name)
            with self._lock:
                self.outstanding -= 1
                self.alive = sum(other.name not in self._lost for other in self._slots)
            self._done.put(report)
        slot.end()
        if not self._closed and self.alive == 0:
            self._give_back()

    def _give_back(self) -> None:
        """The last slot is gone: what still waits is lost."""
        while True:
            try:
                job = self._jobs.get_nowait()[2]
            except queue.Empty:
                return
            if job is not None:
                with self._lock:
                    self.outstanding -= 1
                self._done.put(Report(id=job.id, stage=job.stage, lost="no GPU is left"))


def executed(slot: Slot, job: Job) -> Report:
    """The report of a job; where the result says that the GPU is lost, the job is lost."""
    begin, result = time.time(), None
    try:
        result = slot.run(job)
        lost = result.gpu_lost
    except LostJobError as error:
        lost = str(error)
    end = time.time()
    return Report(id=job.id, stage=job.stage, result=result, lost=lost, worker=slot.name, begin=begin, end=end)
