"""Stages on the nodes of a Ray cluster: workers with one slot each, hired node by node, one job at a time.

Ray decides nothing about jobs: which worker has which is known here, so that a job whose worker, node or connection is
gone is reported as lost, once, and nothing waits in a worker that may vanish. Sessions with a model stay on this
machine: they work in the run's folder and hold the keys.
"""

from __future__ import annotations

import heapq
import itertools
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.evals.engines.jobs import SESSION, Job, Report
from cutesmith.evals.engines.local_engine import AHEAD, POOL_OF, URGENCY, LocalEngine
from cutesmith.evals.engines.ray_cluster import Node, Post, RayCluster, Staffing, posts_on, reason
from cutesmith.evals.engines.ray_worker import Greeting, MessageSizeError, packed
from cutesmith.evals.keys import judge_hash
from cutesmith.evals.records import Machine

START_SECONDS = 120.0  # for a worker to greet; one that waits for cores or GPUs of others may come later
SURVEY_SECONDS = 5.0  # between two looks at the nodes
OVERTIME_SECONDS = 60.0  # the slot itself ends what hangs; this is for a node that does
HIRINGS = 5  # for one post, without a job done in between: then its node gets no more
GLANCE = 0.1  # seconds of waiting for Ray, while sessions of this machine may end as well


@dataclass(eq=False)
class Worker:
    """A worker from its hiring on. `call` is what it was asked last and has not answered, `job` what that was for."""

    node: Node
    post: Post
    actor: Any
    call: Any
    born: float
    ready: bool = False
    retired: bool = False  # its GPU is lost; it keeps its share, so that Ray gives that GPU to no other
    gpu: str = ""
    job: Job | None = None
    deadline: float = float("inf")

    @property
    def idle(self) -> bool:
        """Whether it may be given a job."""
        return self.ready and not self.retired and self.job is None

    @property
    def serves(self) -> bool:
        """Whether it works, or may begin to soon."""
        return not self.retired and (self.ready or time.monotonic() - self.born < START_SECONDS)

    @property
    def place(self) -> tuple[str, str]:
        """Its node and GPU."""
        return self.node.id, self.gpu


class RayEngine:
    """An `Engine` on a cluster. `machine` is what every node must be like; others are left out, and said so."""

    def __init__(self, cluster: RayCluster, staffing: Staffing, machine: Machine, sessions: LocalEngine) -> None:
        """Hire on every node and wait until all have greeted; raises UnavailableError when no node can judge."""
        self._cluster, self._staffing, self._machine, self._sessions = cluster, staffing, machine, sessions
        self._workers: list[Worker] = []
        self._queues: dict[str, list[tuple[int, int, Job]]] = {pool: [] for pool in ("make", "check", "judge")}
        self._numbers = itertools.count()
        self._reports: list[Report] = []
        self._granted: dict[str, int] = {}
        self._hirings: Counter[tuple[str, str]] = Counter()
        self._last_words: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._lost_on: dict[str, set[str]] = {}
        self._in_sessions, self._surveyed = 0, 0.0
        self._begin()

    # What a run asks for

    def capacity(self, stage: str) -> int:
        """Workers of the stage's pool that serve."""
        if stage == SESSION:
            return self._sessions.capacity(stage)
        return sum(worker.serves and worker.post.pool == POOL_OF[stage] for worker in self._workers)

    def room(self, stage: str) -> int:
        """Idle workers of the stage's pool, and a job ahead."""
        if stage == SESSION:
            return self._sessions.room(stage)
        pool = POOL_OF[stage]
        idle = sum(worker.idle and worker.post.pool == pool for worker in self._workers)
        return max(0, idle + AHEAD - len(self._queues[pool])) if self.capacity(stage) else 0

    def submit(self, job: Job) -> None:
        """Give it to a worker, or keep it for the next one that is idle."""
        if job.stage == SESSION:
            self._in_sessions += 1
            self._sessions.submit(job)
            return
        heapq.heappush(self._queues[POOL_OF[job.stage]], (URGENCY.get(job.stage, 2), next(self._numbers), job))
        self._hand_out()

    def completed(self, seconds: float) -> list[Report]:
        """Everything that is done; waits for the first."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            self._listen(min(left, GLANCE) if self._in_sessions else left)
            if self._in_sessions:
                ended = self._sessions.completed(0.001)
                self._in_sessions -= len(ended)
                self._reports += ended
            if self._reports or not left:
                found, self._reports = self._reports, []
                return found

    def close(self) -> None:
        """End every worker and leave the cluster."""
        self._sessions.close()
        workers, self._workers = self._workers, []
        self._cluster.part([worker.actor for worker in workers if worker.ready])
        for worker in workers:
            if not worker.ready:
                self._cluster.dismiss(worker.actor)
        self._cluster.close()

    # Jobs

    def _hand_out(self) -> None:
        for pool, queue in self._queues.items():
            while queue and (idle := [w for w in self._workers if w.idle and w.post.pool == pool]):
                self._give(heapq.heappop(queue)[2], idle)
            if queue and not any(worker.serves and worker.post.pool == pool for worker in self._workers):
                self._reports += [_lost(job, "no node is left that could do it") for _, _, job in queue]
                queue.clear()

    def _give(self, job: Job, idle: list[Worker]) -> None:
        """To a worker elsewhere than where it was lost, if there is one; among those to the least busy GPU."""
        busy = Counter(worker.place for worker in self._workers if worker.job is not None)
        avoided = self._lost_on.get(job.id, set())
        worker = min(idle, key=lambda one: (one.node.id in avoided, busy[one.place]))
        try:
            data = packed(job)
        except MessageSizeError as error:
            self._reports.append(_lost(job, str(error)))
            return
        worker.job, worker.deadline = job, time.monotonic() + job.seconds + OVERTIME_SECONDS
        worker.call = worker.actor.run.remote(data)

    def _listen(self, seconds: float) -> None:
        """Take what workers say, and look after those that say nothing."""
        self._survey()
        calls = {worker.call: worker for worker in self._workers if worker.call is not None}
        if not calls:
            time.sleep(min(seconds, GLANCE))
        for call in self._cluster.answered(list(calls), seconds):
            if calls[call] in self._workers:
                self._hear(calls[call], call)
        for worker in [worker for worker in self._workers if time.monotonic() > worker.deadline]:
            self._lose(worker, "it did not answer in time")
        self._survey()
        self._hand_out()

    def _hear(self, worker: Worker, call: Any) -> None:
        try:
            answer = self._cluster.ray.get(call, timeout=OVERTIME_SECONDS)
        except self._cluster.ray.exceptions.RayError as error:
            self._lose(worker, reason(error))
            return
        worker.call = None
        if worker.job is None:
            self._welcome(worker, Greeting.model_validate_json(answer))
        else:
            self._take(worker, worker.job, Report.model_validate_json(answer))

    def _take(self, worker: Worker, job: Job, report: Report) -> None:
        worker.job, worker.deadline = None, float("inf")
        self._hirings[(worker.node.id, worker.post.name)] = 0
        self._lost_on.pop(job.id, None)
        if report.lost:
            self._lost_on[job.id] = {worker.node.id}
        if report.gpu_is_lost:  # no worker there is given another job
            for other in self._workers:
                other.retired = other.retired or other.place == worker.place
        self._reports.append(report)

    def _lose(self, worker: Worker, why: str) -> None:
        """A worker is gone: what it had is lost, and its post is free."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._cluster.dismiss(worker.actor)
        self._last_words[worker.node.id] = why
        self._surveyed = 0.0  # look at once: the node may live, and have room for another one
        where = f"{worker.node.address} {worker.post.name}"
        if worker.job is not None:
            self._lost_on.setdefault(worker.job.id, set()).add(worker.node.id)
            self._reports.append(_lost(worker.job, f"{where}: {why}", where))

    # Workers

    def _begin(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        try:
            self._survey()
            while time.monotonic() < deadline and any(not w.ready for w in self._workers):
                self._listen(1.0)
            self._reports.clear()
            if not any(worker.ready and worker.post.pool == "judge" for worker in self._workers):
                reasons = "; ".join(self._left_out.values())
                what = "with a GPU " if self._staffing.judges_on_gpu else ""
                why = f"can judge{': ' + reasons if reasons else ' within two minutes'}"
                wrong = f"no node of the Ray cluster {what}{why}"
                raise UnavailableError(wrong, hint="`ray status` says what the cluster has.")
        except BaseException:
            self.close()
            raise

    def _survey(self) -> None:
        """Part with nodes that are gone, hire for posts that are free."""
        if self._surveyed and time.monotonic() - self._surveyed < SURVEY_SECONDS:
            return
        self._surveyed = time.monotonic()
        nodes = {node.id: node for node in self._cluster.nodes()}
        for worker in [worker for worker in self._workers if worker.node.id not in nodes]:
            self._lose(worker, "its node left the cluster")
        taken = {(worker.node.id, worker.post.name) for worker in self._workers}
        for node in nodes.values():
            if node.id not in self._granted:  # as many of its GPUs as the run may have
                most = self._staffing.gpus
                left = node.gpus if most is None else most - sum(self._granted.values())
                self._granted[node.id] = max(0, min(node.gpus, left))
            granted = replace(node, gpus=self._granted[node.id])
            for post in posts_on(granted, self._staffing) if node.id not in self._left_out else ():
                if (node.id, post.name) not in taken and node.id not in self._left_out:
                    self._hirings[(node.id, post.name)] += 1
                    if self._hirings[(node.id, post.name)] > HIRINGS:
                        died = f"{HIRINGS} workers died there one after the other"
                        self._leave_out(node, f"{died}: {self._last_words[node.id]}")
                        continue
                    actor = self._cluster.hire(node, post)
                    call = actor.greet.remote()
                    self._workers.append(Worker(node=node, post=post, actor=actor, call=call, born=time.monotonic()))

    def _welcome(self, worker: Worker, greeting: Greeting) -> None:
        """Its outcomes must mean the same as those of all others: the same versions, judge and kind of GPU."""
        theirs, not_there = dict(greeting.machine), () if worker.post.gpus else ("device", "driver")
        ours = {name: value for name, value in self._machine if name not in not_there}
        words = [f"{name} {theirs[name]} there, {ours[name]} here" for name in ours if theirs[name] != ours[name]]
        if not words and greeting.judge != judge_hash():
            words = ["another source of cutesmith there"]
        if words:
            self._leave_out(worker.node, ", ".join(words))
        else:
            worker.ready, worker.gpu = True, greeting.gpu

    def _leave_out(self, node: Node, why: str) -> None:
        """Give the node nothing more, for all of the run."""
        if node.id in self._left_out:
            return
        self._left_out[node.id] = f"node {node.address} is left out: {why}"
        print(f"warning: {self._left_out[node.id]}", file=sys.stderr)
        for worker in [worker for worker in self._workers if worker.node.id == node.id]:
            self._lose(worker, why)


def _lost(job: Job, why: str, worker: str = "") -> Report:
    now = time.time()
    return Report(id=job.id, stage=job.stage, lost=why, worker=worker, begin=now, end=now)
