"""`cutesmith eval run --engine ray`: the plan and the engine of a run on the nodes of a cluster."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cutesmith.errors import UnavailableError, UsageError
from cutesmith.evals.engines.gpus import visible_gpus
from cutesmith.evals.engines.jobs import DRAFT, SESSION, Engine
from cutesmith.evals.engines.local_engine import LocalEngine, Slots
from cutesmith.evals.engines.ray_cluster import RayCluster, RayLog, Staffing
from cutesmith.evals.engines.ray_engine import RayEngine
from cutesmith.evals.running.plan import Plan
from cutesmith.patterns.generation.target import Target, choose_target

LOG = "ray.log"


def prepared_on_ray(
    options: Namespace, make_plan: Callable[[Target, int], Plan], folder: Callable[[Plan], Path]
) -> tuple[Plan, Callable[[], Engine]]:
    """What the run does, and how to get its engine; `folder` is where the run will be.

    Raises UsageError: ray is not installed, `--gpus` names no number; UnavailableError: no cluster, no such GPUs.
    """
    cluster = RayCluster(options.address, RayLog())
    try:
        plan = _plan(cluster, options, make_plan)
        cluster.log.path = folder(plan) / LOG
        staffing = Staffing(
            judges_on_gpu=plan.judge.on == "gpu",
            drafts=plan.source.stage == DRAFT,
            jobs=options.jobs,
            judges=options.judges,
            gpus=plan.gpus if plan.gpus else None,
        )
        sessions = _sessions(plan, options.jobs)
    except BaseException:
        cluster.close()
        raise
    return plan, lambda: RayEngine(cluster, staffing, plan.machine, LocalEngine(sessions))


def _plan(cluster: RayCluster, options: Namespace, make_plan: Callable[[Target, int], Plan]) -> Plan:
    """The plan for the cluster's GPU, which this machine need not have."""
    device = cluster.device() if options.on in ("auto", "gpu") else None
    target = choose_target(options.arch, options.on, find_device=lambda: device)
    gpus = _how_many(options.gpus, sum(node.gpus for node in cluster.nodes())) if target.executes else 0
    plan = make_plan(target, gpus)
    if target.device is None:
        return plan
    of_the_gpu = {"device": target.device.name, "driver": target.device.driver}
    return replace(plan, machine=plan.machine.model_copy(update=of_the_gpu))


def _how_many(text: str, there: int) -> int:
    """GPUs of the whole cluster: their indices mean nothing there."""
    if text == "all":
        return there
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--gpus {text}: with --engine ray it is all, or a number of GPUs of the cluster")
    if int(text) > there:
        raise UnavailableError(f"--gpus {text}: the nodes of the cluster offer {there}")
    return int(text)


def _sessions(plan: Plan, jobs: int | None) -> Slots:
    """Sessions with a model run here, where their folder and their keys are; hence also on a GPU of this machine."""
    here = tuple(visible_gpus()) if plan.judge.on == "gpu" else ()
    if plan.source.stage == SESSION and plan.judge.on == "gpu" and not here:
        raise UnavailableError(
            "sessions with a model run on the machine of this command, and it has no GPU",
            hint="Run the command on a node that has one, or with --on emulator.",
        )
    return Slots(makers=jobs or max(1, len(os.sched_getaffinity(0)) // 3), checks=0, judges=0, gpus=here)
