"""What the tests of runs share: suites in a folder, kernels beside them, and a judge that passes or fails them."""

from __future__ import annotations

import json
from pathlib import Path

from cutesmith.evals.engines.instant_engine import InstantEngine, report
from cutesmith.evals.engines.jobs import File
from cutesmith.evals.keys import sha256
from cutesmith.evals.records import Machine, Suite, Task
from cutesmith.evals.running.cache import Cache
from cutesmith.evals.running.folder import RunFolder
from cutesmith.evals.running.pipeline import Pipeline
from cutesmith.evals.running.plan import Plan
from cutesmith.evals.running.running import run_plan
from cutesmith.evals.running.screen import Screen
from cutesmith.evals.running.sources import parse_source
from cutesmith.evals.running.summary import EvalVerdict
from cutesmith.evals.settings import JudgeSettings, MakerSettings

SMALLER = b"# at smaller sizes\n"
GPU = JudgeSettings(on="gpu", arch="sm_90a")


def suite(root: Path, count: int):
    """A suite of so many task files."""
    for number in range(count):
        path = root / "tasks" / f"level{1 + number % 2}" / f"task {number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# task {number}\n")
    tasks = (_task(path, root / "tasks") for path in (root / "tasks").rglob("*.py"))
    return Suite(name="tasks", tasks=tuple(sorted(tasks, key=lambda task: task.id)))


def _task(path: Path, folder: Path) -> Task:
    name = path.relative_to(folder).with_suffix("").as_posix()
    return Task(id=name, path=path, sha256=sha256(path.read_bytes()), level=int(name[5]))


def kernels(root: Path, count: int, text="kernel {number}") -> str:
    """The --agent of a folder with a kernel for every task."""
    folder = root / "made"
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"task {number}.py").write_text(text.format(number=number))
    return f"dir:{folder}"


def plan(root: Path, count: int = 3, agent: str = "", judge: JudgeSettings = GPU, **about) -> Plan:
    source = parse_source(agent or kernels(root, count))
    maker = MakerSettings(agent=source.name)
    machine = Machine(device="a GPU", dsl="1")
    return Plan(suite=suite(root, count), source=source, maker=maker, judge=judge, machine=machine, gpus=1, **about)


def verdict(stage: str, code: int = 0, status: str = "passed", **more):
    return {"stage": stage, "exit_code": code, "status": status, "summary": f"{stage} says {status}", **more}


def timing(name: str, *samples_us: float, host_us: float | None = None, **failed: str):
    """The first sample is the median."""
    median_us = samples_us[0] if samples_us else 0.0
    return {"name": name, "samples_us": samples_us, "median_us": median_us, "host_us": host_us, **failed}


TIMINGS = [
    timing("candidate", 2.0, 2.0, 3.0, host_us=1.0),
    timing("eager", 4.0, 4.0, host_us=1.0),
    timing("torch.compile", error="it did not compile"),
    timing("lib.py:f", 3.0),
]
VERDICTS = {
    "check": {
        "lint": verdict("lint"),
        "compile": verdict("compile", status="compiled", archs=[{"compile_seconds": 0.5}]),
    },
    "verify": {"verify": verdict("verify", status="verified", ran_on="gpu")},
    "benchmark": {"benchmark": verdict("benchmark", timings=TIMINGS, floor_us=1.0, floor_kind="bytes")},
}


def judge(job):
    """Everything passes; makers make a kernel that names its job. A stage took 0.25 s, half of it waiting."""
    result = {"verdicts": VERDICTS.get(job.stage, {})}
    if job.stage in ("draft", "session"):
        made = File(name="kernel.py", data=f"made for {job.id}".encode())
        result = {"generation": verdict("generate", kernel="kernel.py"), "kernel": made}
    if job.stage == "reduce":
        result = {"problem": File(name="problem.py", data=SMALLER)}
    hold = {"exclusive": job.stage == "benchmark", "asked": 0.0, "begin": 1.0, "end": 2.0}
    return report(job, "gpu0", **result, gpu="host:0", holds=[] if job.stage == "check" else [hold])


def saying(stage: str, *, task: str = "", times: int = 99, **result):
    """A judge that gives this result so often for that stage of these tasks, else passes; `asked`: units and stages."""

    def answer(job):
        answer.asked.append((job.id, job.stage))
        if job.stage != stage or task not in job.id or answer.asked.count((job.id, stage)) > times:
            return judge(job)
        return report(job, "gpu0", **result)

    answer.asked = []
    return answer


def failing(stage: str, code: int, status: str, *, task: str = "", **more):
    """A judge that passes everything but one stage of these tasks."""
    return saying(stage, task=task, verdicts={stage: verdict(stage, code, status, **more)})


def run(a_plan, folder: Path, answer=judge, *, cache=None, engine=None, folder_class=RunFolder):
    """The tally of a pipeline over an engine that answers at once."""
    engine = engine or InstantEngine(answer)
    with folder_class(folder) as opened:
        pipeline = Pipeline(a_plan, opened, engine, Cache(cache), Screen())
        pipeline.take_up()
        return pipeline.run()


def execute(a_plan, folder: Path, answer=judge, *, resume=False, engine=None, screen=None) -> EvalVerdict:
    """The verdict of a whole run over such an engine."""
    engine, screen = engine or InstantEngine(answer), screen or Screen()
    return run_plan(a_plan, folder, engine, Cache(None), screen, resume=resume, command=["--agent", "x"])


def results(folder: Path):
    """The lines of results.jsonl by unit, without when they were written."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    found = {(line["task"], line.get("sample", 0)): line for line in lines}
    assert len(found) == len(lines), "an attempt has two lines"
    for line in lines:
        line.pop("finished")
        line.pop("seconds", None)
    return found
