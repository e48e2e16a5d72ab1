#!/usr/bin/env python3
"""Memory of a run's controller over many results: the real controller and files, an engine that answers at once.

    python evals/studies/bench_controller_memory.py --results 10000 --out evals/results/host/controller_memory.json

Each of the results has a kernel of its own, verdicts of the usual size (20 cases, 600 samples) and a line of its own.
Written: resident bytes after every hundredth of the results, and seconds a result. Exit code 1 when the second half
of the run took more than --allow MiB.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cutesmith.evals.engines.instant_engine import InstantEngine, report  # noqa: E402
from cutesmith.evals.engines.jobs import File, Job, Report  # noqa: E402
from cutesmith.evals.keys import sha256  # noqa: E402
from cutesmith.evals.records import Attempt, Machine, Suite, Task  # noqa: E402
from cutesmith.evals.running.cache import Cache  # noqa: E402
from cutesmith.evals.running.folder import RunFolder  # noqa: E402
from cutesmith.evals.running.pipeline import Pipeline  # noqa: E402
from cutesmith.evals.running.plan import Plan, Tally  # noqa: E402
from cutesmith.evals.running.screen import Screen  # noqa: E402
from cutesmith.evals.running.sources import Source  # noqa: E402
from cutesmith.evals.settings import JudgeSettings, MakerSettings  # noqa: E402

TASKS = 100
PAGE = 4096
MIB = 1 << 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=10_000, metavar="N")
    parser.add_argument("--allow", type=float, default=16.0, metavar="MIB", help="growth of the second half (16)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the samples there")
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="where the run's folder is made (default: /dev/shm)"
    )
    options = parser.parse_args(argv)
    measured = measure(options.results, options.scratch or Path("/dev/shm"))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(measured, indent=1) + "\n")
    print(f"{measured['results']} results in {measured['seconds']} s")
    print(f"resident: {measured['first_mib']} MiB after a tenth, {measured['last_mib']} MiB at the end")
    print(f"second half: {measured['second_half_mib']:+} MiB")
    return int(measured["second_half_mib"] > options.allow)


def measure(results: int, scratch: Path) -> dict[str, Any]:
    """Samples of resident memory over a run of so many results."""
    screen = Sampling(max(1, results // 100))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=scratch) as folder, RunFolder(Path(folder) / "run") as run:
        plan = make_plan(Path(folder), results)
        pipeline = Pipeline(plan, run, InstantEngine(judge, slots=16), Cache(Path(folder) / "cache"), screen)
        pipeline.take_up()
        tally = pipeline.run()
    assert tally.complete and tally.solved == plan.total, tally
    samples = [(done, round(size / MIB, 2)) for done, size in screen.samples]
    first, middle, last = (samples[int(len(samples) * share)][1] for share in (0.1, 0.5, 0.999))
    return {
        "results": tally.done,
        "seconds": round(time.monotonic() - began, 1),
        "first_mib": first,
        "last_mib": last,
        "second_half_mib": round(last - middle, 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "resident_mib_by_results": samples,
    }


class Sampling(Screen):
    """Looks at this process's memory after every so many results."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.samples: list[tuple[int, int]] = []

    def finished(self, attempt: Attempt, tally: Tally) -> None:
        """Take a sample now and then; what merely waits for the collector is not growth."""
        if tally.done % self.every == 0:
            gc.collect()
            self.samples.append((tally.done, resident()))


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def make_plan(folder: Path, results: int) -> Plan:
    """Samples of a hundred tasks by a maker whose kernels all differ."""
    tasks = []
    for number in range(min(TASKS, results)):
        path = folder / "tasks" / f"task_{number:03}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# task {number}\n" * 40)
        tasks.append(Task(id=f"level1/{path.stem}", path=path, sha256=sha256(path.read_bytes()), level=1))
    return Plan(
        suite=Suite(name="many", tasks=tuple(tasks)),
        source=Source("claude"),
        maker=MakerSettings(agent="claude"),
        judge=JudgeSettings(on="gpu"),
        machine=Machine(device="none"),
        samples=-(-results // len(tasks)),
        gpus=1,
    )


def judge(job: Job) -> Report:
    """A passing verdict of the usual size."""
    if job.stage == "session":
        kernel = File(name="kernel.py", data=f"# {job.id}\n".encode() * 400)
        verdict = said("agent", kernel="kernel.py", turns=12, dollars=0.5, usage={"input_tokens": 1000})
        return report(job, "make0", generation=verdict, kernel=kernel)
    if job.stage == "check":
        compiled = said("compile", status="compiled", archs=[{"compile_seconds": 1.0, "kernels": [{}] * 3}])
        return report(job, "check0", verdicts={"lint": said("lint"), "compile": compiled})
    cases = [
        {"name": f"case {n}", "passed": True, "inputs": "x" * 80, "outputs": [{"max_abs": 0.1}]} for n in range(20)
    ]
    verdicts = {"verify": said("verify", status="verified", ran_on="gpu", cases=cases, log_tail="." * 2000)}
    if job.stage == "benchmark":
        timings = [timing(name) for name in ("candidate", "eager", "torch.compile")]
        verdicts = {"benchmark": said("benchmark", timings=timings, floor_us=9.0, floor_kind="bytes")}
    now = time.time()
    hold = {"exclusive": job.stage == "benchmark", "asked": now, "begin": now, "end": now + 1e-4}
    return report(job, "gpu0", verdicts=verdicts, gpu="here:0", holds=[hold])


def said(stage: str, status: str = "passed", **more: Any) -> dict[str, Any]:
    """A verdict that has nothing against the kernel."""
    return {"stage": stage, "status": status, "exit_code": 0, "summary": f"{stage}: {status}", **more}


def timing(name: str) -> dict[str, Any]:
    """Two hundred samples."""
    samples = [10.0 + 0.001 * n for n in range(200)]
    return {"name": name, "samples_us": samples, "median_us": 10.1, "host_us": 5.0, "error": ""}


if __name__ == "__main__":
    sys.exit(main())
