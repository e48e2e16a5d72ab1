#!/usr/bin/env python3
"""Throughput of `cutesmith eval run --engine ray` by the number of GPUs of this host, over the same kernels.

    cutesmith eval run --suite core --agent draft --no-benchmark --out DRAFTS       kernels, once
    python evals/studies/bench_ray_scaling.py --kernels DRAFTS --counts 1,2,4,8 --out ray_scaling.json

Kernels are those of an earlier run's folder that its judge verified: --count of them for each GPU, so that each count
has the same mixture. Where there are more GPUs, each kernel comes as often, with a comment of its own, since equal
kernels are judged once. For each count a cluster of one node with so many GPUs is started, used and stopped; every GPU
has the same share of the cores (--cores-per-gpu, with those that share their hardware) and of the work
(--jobs-per-gpu). Written: when each attempt was finished (seconds since the first GPU was held), the GPU's shares, and
two throughputs in kernels a minute: of the whole run, and of its middle, from the 10th to the 90th percentile of the
finished, which leaves start and end out. `linear` is the middle's throughput over that of the smallest count, for each
GPU; exit code 1 when it is below --at-least. `cores_linear` is the same of plain Python on each count's cores with
nothing beside: what the host itself falls short, no engine can make good.

A count may be measured in a call of its own: what --out holds of other counts stays. A run that --at-most ends says
how many kernels it judged. --on emulator or compile tries all of it without a GPU; counts are nodes then, and tell
nothing about GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cutesmith.devices import current_device  # noqa: E402
from cutesmith.evals.reading import read_attempts  # noqa: E402
from evals.studies.bench_host import loops_a_second, sibling_offset, side_by_side  # noqa: E402

ENDING_SECONDS = 60.0
LEAST = 5  # kernels of a run
MARGIN = 0.1  # of the attempts, at either end, that the middle leaves out


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every count; returns the exit code."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the cluster would stay
    known = json.loads(options.out.read_text()) if options.out.is_file() else {"counts": {}}
    with tempfile.TemporaryDirectory(prefix="ray-scaling-") as folder:
        for count in options.counts:
            tasks, kernels = lay_out(options.kernels, options.count, count, Path(folder) / str(count))
            kept = options.keep or Path(folder)
            known["counts"][str(count)] = measure(count, tasks, kernels, options, kept / f"run-{count}")
            shares = {"linear": linear(known["counts"]), "cores_linear": linear(known["counts"], "loops_a_second")}
            written = {**about(options), "counts": known["counts"], **shares}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(written, indent=1) + "\n")
            print(f"{count}: {known['counts'][str(count)]['middle_a_minute']:.1f} kernels a minute")
    for name, shares in (("of linear", written["linear"]), ("the cores alone", written["cores_linear"])):
        print(f"{name}:", ", ".join(f"{count}: {share:.3f}" for count, share in shares.items()))
    return int(min(written["linear"].values()) < options.at_least)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, required=True, metavar="RUN", help="folder of an earlier run")
    parser.add_argument("--counts", type=_counts, default=[1, 2, 4, 8], metavar="1,2,…", help="GPUs (1,2,4,8)")
    parser.add_argument("--count", type=int, default=100, metavar="N", help="kernels for each GPU (100)")
    parser.add_argument("--jobs-per-gpu", type=int, default=12, metavar="N", help="kernels at a time (12)")
    parser.add_argument("--cores-per-gpu", type=int, metavar="N", help="cores a GPU (all, at each count)")
    parser.add_argument("--judges", type=int, default=4, metavar="N", help="judges a GPU (4)")
    parser.add_argument("--on", default="gpu", choices=("gpu", "emulator", "compile"))
    parser.add_argument("--time-limit", type=float, metavar="S", help="begin no kernel after so many seconds")
    parser.add_argument(
        "--at-most", type=float, metavar="S", help="end a run after S seconds, and count what it judged"
    )
    parser.add_argument("--at-least", type=float, default=0.9, metavar="SHARE", help="of linear (0.9)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs' folders there, as DIR/run-COUNT")
    return parser


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on."""
    import ray

    device = current_device()
    return {
        "gpu": device.name if device else "",
        "driver": device.driver if device else "",
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "ray": ray.__version__,
        "kernels_per_gpu": options.count,
        "jobs_per_gpu": options.jobs_per_gpu,
        "cores_per_gpu": options.cores_per_gpu,
        "judges": options.judges,
        "on": options.on,
    }


def lay_out(run: Path, kernels_per_gpu: int, gpus: int, folder: Path) -> tuple[Path, Path]:
    """Folders of tasks and of kernels, a kernel each: the run's verified (or compiled) ones, spread evenly."""
    named = {task["id"]: task for task in json.loads((run / "run.json").read_text())["tasks"]}
    fit = [one for one in read_attempts(run) if one.kernel and (one.correct or one.status == "compiled")]
    fit = [one for one in fit if one.task in named and (ROOT / "evals" / "tasks" / f"{one.task}.py").is_file()]
    if not fit:
        raise SystemExit(f"{run} holds no verified kernel of a task of evals/tasks")
    tasks, kernels = folder / "tasks", folder / "kernels"
    for place in (tasks, kernels):
        place.mkdir(parents=True)
    rounds = Counter[str]()
    for number in range(kernels_per_gpu):
        attempt = fit[number * len(fit) // kernels_per_gpu if kernels_per_gpu < len(fit) else number % len(fit)]
        for _ in range(gpus):
            rounds[attempt.task] += 1
            name = f"{attempt.task.replace('/', '_')}_{rounds[attempt.task]}.py"
            (tasks / name).write_text((ROOT / "evals" / "tasks" / f"{attempt.task}.py").read_text())
            (kernels / name).write_text(f"{(run / attempt.kernel).read_text()}\n# copy {rounds[attempt.task]}\n")
    return tasks, kernels


def measure(count: int, tasks: Path, kernels: Path, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """One run over all kernels on so many GPUs (without a GPU: nodes)."""
    jobs = options.jobs_per_gpu * (count if options.on == "gpu" else 1)
    line = [sys.executable, "-m", "cutesmith", "eval", "run", "--suite", tasks, "--agent", f"dir:{kernels}"]
    line += ["--engine", "ray", "--on", options.on, "--jobs", jobs, "--judges", options.judges]
    line += ["--quick", "--no-cache", "--out", out, "--json"]
    line += ["--time-limit", options.time_limit] if options.time_limit else []
    with on_cores(options.cores_per_gpu and options.cores_per_gpu * count) as cores:
        alone = loops_a_second(cores)
        with cluster(count, options.on) as address:
            code, said = run_for([*map(str, line), "--address", address], options.at_most)
    summary = json.loads(said)
    if "gpu" not in summary:
        raise SystemExit(f"{count}: {summary}")
    return {"exit_code": code, "summary": summary, "cores": cores, "loops_a_second": alone, **throughput(out)}


def run_for(line: Sequence[str], seconds: float | None) -> tuple[int, str]:
    """Exit code and stdout; after so many seconds the run is asked to end, as by Ctrl-C."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        try:
            try:
                said, _ = run.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGINT)
                said, _ = run.communicate(timeout=ENDING_SECONDS)
        except BaseException:  # leaving `with` waits for the run
            run.kill()
            raise
    return run.returncode, said


def throughput(run: Path) -> dict[str, Any]:
    """Finishing times, and kernels a minute of the whole run and of its middle. Raises SystemExit for too few."""
    begin, finished = moments(run)
    if len(finished) < LEAST:
        raise SystemExit(f"{run}: {len(finished)} kernels were judged; a rate needs {LEAST}")
    first, last = int(MARGIN * len(finished)), int((1 - MARGIN) * (len(finished) - 1))
    return {
        "a_minute": 60 * len(finished) / (finished[-1] - begin),
        "middle_a_minute": 60 * (last - first) / (finished[last] - finished[first]),
        "finished_s": [round(moment - begin, 3) for moment in finished],
    }


def moments(run: Path) -> tuple[float, list[float]]:
    """When the first GPU was held, and when each kernel's last hold ended; by the lines themselves without a GPU."""
    path = run / "gpu_holds.jsonl"
    holds = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    if holds:
        ends: dict[str, float] = {}
        for hold in holds:
            ends[hold["job"]] = max(hold["end"], ends.get(hold["job"], 0.0))
        return min(hold["begin"] for hold in holds), sorted(ends.values())
    begin = json.loads((run / "run.json").read_text())["windows"][0]["begin"]
    return begin, sorted(datetime.fromisoformat(one.finished).timestamp() for one in read_attempts(run))


def linear(counts: dict[str, Any], rate: str = "middle_a_minute") -> dict[str, float]:
    """For each count that has this rate what it is for a GPU, over that of the smallest count."""
    each = {name: found[rate] / int(name) for name, found in counts.items() if rate in found}
    return {name: value / each[min(each, key=int)] for name, value in each.items()}


@contextmanager
def on_cores(count: int | None) -> Iterator[list[int]]:
    """What is started within runs on so many of this process's cores, None for all; with those that share hardware."""
    all_cores = os.sched_getaffinity(0)
    chosen = sorted(all_cores)
    if count is not None:
        chosen = side_by_side(chosen, sibling_offset(chosen))[:count]
    os.sched_setaffinity(0, chosen)
    try:
        yield sorted(chosen)
    finally:
        os.sched_setaffinity(0, all_cores)


@contextmanager
def cluster(count: int, on: str) -> Iterator[str]:
    """The address of a cluster on this host: one node with so many GPUs; without a GPU so many nodes of a core each."""
    from ray.cluster_utils import Cluster

    cores = len(os.sched_getaffinity(0))
    head = {"include_dashboard": False, "num_cpus": cores, "num_gpus": count} if on == "gpu" else {"num_cpus": 0}
    made = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **head})
    try:
        for _ in range(0 if on == "gpu" else count):
            made.add_node(num_cpus=1)
        yield made.address
    finally:
        made.shutdown()


if __name__ == "__main__":
    sys.exit(main())
