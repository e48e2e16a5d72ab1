"""What a stage of an attempt is given, for the engine that executes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cutesmith.evals.engines import jobs
from cutesmith.evals.engines.jobs import BENCHMARK, CHECK, DRAFT, REDUCE, SESSION, VERIFY, Job
from cutesmith.evals.running.folder import KERNEL, RunFolder
from cutesmith.evals.running.plan import Plan, Work

# Time-outs of one call of a kernel after which a stage's process hangs: every stage keeps limits of its own, far below.
CALLS = {CHECK: 4, VERIFY: 30, BENCHMARK: 10, REDUCE: 6, DRAFT: 60, SESSION: 720}


def stage_job(plan: Plan, folder: RunFolder, work: Work, stage: str) -> Job:
    """The job of this stage; `folder` is the run's, where a session works."""
    settings = plan.judging(work.task)
    job: Callable[..., Job]
    seconds = 600.0 + CALLS[stage] * max(settings.timeout, settings.benchmark_timeout if stage == BENCHMARK else 0.0)
    if stage == REDUCE:
        job = jobs.ReduceJob
    elif stage == DRAFT:
        job = partial(jobs.DraftJob, maker=plan.maker)
    elif stage == SESSION:
        place = str(folder.kernel_folder(work.unit))
        agent, options = plan.source.agent(work.task.id), plan.maker.session_options()
        job = partial(jobs.SessionJob, agent=agent, options=options, folder=place)
    else:
        kinds = {CHECK: jobs.CheckJob, VERIFY: jobs.VerifyJob, BENCHMARK: jobs.BenchmarkJob}
        job = partial(kinds[stage], kernel=jobs.File(name=KERNEL, data=work.kernel))
        if stage == BENCHMARK:
            job = partial(job, libraries=plan.libraries(work.task))
    task = jobs.File(name=work.task.path.name, data=work.problem)
    return job(id=work.id, seconds=seconds, task=task, settings=settings)
