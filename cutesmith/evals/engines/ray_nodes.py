"""Who works on which node of a cluster: how many processes of each pool, and what share of the node each one takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutesmith.evals.engines.local_engine import Slots, usual_slots

SHARES = 10_000  # Ray counts resources in ten-thousandths


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of the cluster: Ray's id, its address, the cores and GPUs that it offers."""

    id: str
    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Staffing:
    """How nodes are staffed. `judges_on_gpu`: kernels are judged on GPUs. `drafts`: the offline generator is asked.

    `jobs`: kernels at a time on each node (None: 3/4 of its cores). `judges`: for each GPU, or node without (None:
    by the cores). `gpus`: of the whole cluster (None: all).
    """

    judges_on_gpu: bool
    drafts: bool
    jobs: int | None = None
    judges: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, kw_only=True)
class Post:
    """One worker's place on a node: its pool, its shares of a core and of a GPU, its OpenMP threads."""

    name: str
    pool: str
    cpus: float
    gpus: float
    threads: int


def slots_on(node: Node, staffing: Staffing) -> Slots:
    """How many of each: a node without a GPU compiles where kernels are judged on GPUs, since a draft is run there."""
    jobs = staffing.jobs or max(1, node.cpus * 3 // 4)
    if staffing.judges_on_gpu and not node.gpus:
        return Slots(makers=0, checks=jobs, judges=0)
    gpus = tuple(str(number) for number in range(node.gpus)) if staffing.judges_on_gpu else ()
    slots = usual_slots(gpus, jobs)
    slots = replace(slots, judges=staffing.judges) if staffing.judges else slots
    return slots if staffing.drafts else replace(slots, makers=0)


def posts_on(node: Node, staffing: Staffing) -> list[Post]:
    """A node's workers. A GPU's judges have equal shares of it (its lock lets one time), as has a maker on it."""
    slots = slots_on(node, staffing)
    gpus = len(slots.gpus)
    judges = slots.judges * max(1, gpus)
    cpus = _share(node.cpus, slots.makers + slots.checks + judges)
    share = _share(1, slots.judges + -(-slots.makers // gpus)) if gpus else 0.0
    threads = max(1, node.cpus // max(1, slots.makers + slots.checks + judges))
    return [
        Post(name=f"{pool}{number}", pool=pool, cpus=cpus, gpus=0.0 if pool == "check" else share, threads=threads)
        for pool, count in (("judge", judges), ("make", slots.makers), ("check", slots.checks))
        for number in range(count)
    ]


def _share(whole: int, count: int) -> float:
    """An equal share of at most one, rounded down so that all of them fit."""
    return min(1.0, whole * SHARES // max(1, count) / SHARES)
