#!/usr/bin/env python3
"""Run the offline generator over the task files, several at a time, and sum up what became of them.

    python evals/run_tasks.py --out evals/results/h200/tasks --jobs 12 --time-limit 450
    python evals/run_tasks.py --only 'level2/*norm*' --out /tmp/norms --on compile

OUT/level1/NAME/ holds each task's kernel.py, report.html and result.json (raw samples); OUT/summary.json and
OUT/summary.md the table. Exit code: 0 when every task that was started ended as verified (compiled, where
nothing can be executed), 1 otherwise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

TASKS = Path(__file__).resolve().parent / "tasks"
GOOD = ("verified", "verified on the emulated GPU", "compiled")
COLUMNS = ("task", "status", "pattern", "median_us", "floor_percent", "speedups", "seconds")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen tasks; returns the exit code."""
    options = _parser().parse_args(argv)
    tasks = choose_tasks(options.only)
    if not tasks:
        print(f"no task matches {', '.join(options.only)}", file=sys.stderr)
        return 2
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    rows = run_all(tasks, out, options)
    write_summary(out, rows, tasks, time.monotonic() - started, options)
    print(table(rows))
    print(counts(rows, tasks))
    return 0 if rows and all(row["status"] in GOOD for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["level*/*"], metavar="GLOB", help="tasks, such as 'level1/*'")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) * 3 // 4), help="tasks at a time")
    parser.add_argument(
        "--time-limit", type=float, default=float("inf"), metavar="S", help="start none after S seconds"
    )
    parser.add_argument("--configurations", type=int, default=4, metavar="N", help="configurations a task (default: 4)")
    parser.add_argument("--on", choices=("auto", "gpu", "emulator", "compile"), default="auto")
    parser.add_argument("--arch", help="architecture, such as sm_90a")
    parser.add_argument("--no-benchmark", action="store_true", help="skip the comparison with eager and torch.compile")
    return parser


def choose_tasks(globs: Sequence[str]) -> list[str]:
    """Names such as "level1/softmax" that match any of the globs, sorted."""
    names = sorted(str(path.relative_to(TASKS).with_suffix("")) for path in TASKS.rglob("*.py"))
    return [name for name in names if any(fnmatch(name, glob.removesuffix(".py")) for glob in globs)]


def run_all(tasks: Sequence[str], out: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a finished task; no task is started after the time limit. Ctrl-C keeps the rows so far."""
    deadline, rows = time.monotonic() + options.time_limit, list[dict[str, Any]]()
    context = multiprocessing.get_context("spawn")  # a forked child must not inherit half of CUDA or of a lock
    with ProcessPoolExecutor(min(options.jobs, len(tasks)), mp_context=context) as pool:
        try:
            for row in _finished(pool, tasks, out, options, deadline):
                rows.append(row)
                print(f"[{len(rows)}/{len(tasks)}] {row['task']}: {row['status']}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    return sorted(rows, key=lambda row: row["task"])


def _finished(
    pool: ProcessPoolExecutor, tasks: Sequence[str], out: Path, options: argparse.Namespace, deadline: float
) -> Iterator[dict[str, Any]]:
    waiting, running = list(tasks), set[Future[dict[str, Any]]]()
    while waiting or running:
        while waiting and len(running) < options.jobs and time.monotonic() < deadline:
            running.add(pool.submit(run_task, waiting.pop(0), str(out), vars(options)))
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def run_task(name: str, out: str, options: dict[str, Any]) -> dict[str, Any]:
    """Generate one task in this worker process: its row of the summary. Whatever is raised becomes the row's status."""
    from cutesmith.errors import CutesmithError
    from cutesmith.patterns.generation.generate import generate_kernel

    started = time.monotonic()
    try:
        verdict = generate_kernel(
            TASKS / f"{name}.py",
            arch=options["arch"],
            out=Path(out) / name,
            on=options["on"],
            configurations_limit=options["configurations"],
            benchmark=not options["no_benchmark"],
        ).to_dict()
    except CutesmithError as error:
        verdict = {"status": error.exit_code.name.lower(), "summary": str(error)}
    except Exception as error:  # one task must not end the others
        verdict = {"status": "internal", "summary": f"{type(error).__name__}: {error}"}
    return row_of(name, verdict, time.monotonic() - started)


def row_of(name: str, verdict: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What the summary keeps of a verdict."""
    stages = {stage["stage"]: stage for stage in verdict.get("stages", ())}
    benchmark = stages.get("benchmark", {})
    timings = benchmark.get("timings") or ()
    tried = [candidate["median_us"] for candidate in verdict.get("tried", ()) if candidate.get("chosen")]
    return {
        "task": name,
        "status": verdict["status"],
        "pattern": verdict.get("pattern", ""),
        "median_us": timings[0]["median_us"] if timings else next(iter(tried), None),
        "floor_percent": benchmark.get("floor_percent"),
        "speedups": benchmark.get("speedups", {}),
        "configuration": verdict.get("configuration", {}),
        "seconds": round(seconds, 1),
        "summary": verdict.get("summary", ""),
        "cases": len(stages.get("verify", {}).get("cases", ())),
    }


def write_summary(
    out: Path, rows: list[dict[str, Any]], tasks: Sequence[str], seconds: float, options: argparse.Namespace
) -> None:
    """`summary.json` and `summary.md`."""
    from cutesmith.checkpoints import write_atomically
    from cutesmith.devices import current_device
    from cutesmith.verdicts import strict_json

    started = {row["task"] for row in rows}
    device = current_device()
    summary = {
        "device": device.name if device else "no GPU",
        "seconds": round(seconds, 1),
        "command": " ".join(["python evals/run_tasks.py", *_arguments(options)]),
        "counts": counts(rows, tasks),
        "not_run": [name for name in tasks if name not in started],
        "tasks": rows,
    }
    write_atomically(out / "summary.json", (strict_json(summary, indent=1) + "\n").encode())
    write_atomically(out / "summary.md", markdown(summary).encode())


def _arguments(options: argparse.Namespace) -> Iterator[str]:
    for key, value in vars(options).items():
        if key == "only":
            yield "--only " + " ".join(f"'{glob}'" for glob in value)
        elif value is True:
            yield f"--{key.replace('_', '-')}"
        elif value not in (None, False, float("inf")):
            yield f"--{key.replace('_', '-')} {'DIR' if key == 'out' else value}"


def markdown(summary: dict[str, Any]) -> str:
    """The summary as a page: what ran where, the table, what failed and why, what was not run."""
    rows = summary["tasks"]
    lines = [f"# Tasks on {summary['device']}", "", f"`{summary['command']}`", ""]
    lines += [f"{summary['counts']}, {summary['seconds']} s", "", "| " + " | ".join(COLUMNS) + " |"]
    lines += ["|" + "---|" * len(COLUMNS), *("| " + " | ".join(cells(row)) + " |" for row in rows)]
    failed = [row for row in rows if row["status"] not in GOOD]
    if failed:
        lines += ["", "## Not solved", ""]
        lines += [f"- {row['task']}: {' '.join(row['summary'].split())[:400]}" for row in failed]
    if summary["not_run"]:
        lines += ["", f"## Not run (time limit): {', '.join(summary['not_run'])}"]
    return "\n".join(lines) + "\n"


def cells(row: dict[str, Any]) -> list[str]:
    """One table row as text, in the order of COLUMNS."""
    speedups = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in row["speedups"].items() if ratio)
    median = f"{row['median_us']:.1f}" if row["median_us"] else ""
    floor = f"{row['floor_percent']:.0f}" if row["floor_percent"] else ""
    return [row["task"], row["status"], row["pattern"], median, floor, speedups, f"{row['seconds']}"]


def table(rows: list[dict[str, Any]]) -> str:
    """The table in columns, for a terminal."""
    lines = [list(COLUMNS), *(cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def counts(rows: list[dict[str, Any]], tasks: Sequence[str]) -> str:
    """How many ended how, as one line."""
    states = [row["status"] for row in rows]
    found = [f"{states.count(state)} {state}" for state in sorted(set(states), key=lambda s: (s not in GOOD, s))]
    missing = len(tasks) - len(rows)
    return f"{len(tasks)} tasks: " + ", ".join([*found, f"{missing} not run"] if missing else found)


if __name__ == "__main__":
    sys.exit(main())
