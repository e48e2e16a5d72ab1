#!/usr/bin/env python3
"""The bar that kernels are held against: eager PyTorch, torch.compile and the library functions of each task, timed.

    python evals/studies/bench_baselines.py --out evals/results/h200/baselines.jsonl [--libraries-only] [--jobs J]

Needs a GPU. As `cutesmith benchmark` times them, in rounds by turns with a cold L2, only without a kernel: so tasks
that no one has solved show their bar too. A library's function is timed where its result passes as a kernel's would.
One line a task: every sample, seconds of each baseline's first calls (compilation and measured choices are in them),
the floor of this machine, and what went wrong. What --out holds of other tasks stays. Exit code 1 when one failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cutesmith.errors import CutesmithError  # noqa: E402
from cutesmith.evals.records import Task  # noqa: E402
from cutesmith.evals.suites import load_suite  # noqa: E402
from cutesmith.judge.problem_process import reference_call  # noqa: E402
from cutesmith.judge.rounds import exchange  # noqa: E402
from cutesmith.judge.transfer.requests import Start  # noqa: E402
from cutesmith.sandbox.gpu_lock import gpu_lock  # noqa: E402
from cutesmith.sandbox.worker import Worker  # noqa: E402
from cutesmith.timing.contender import Contender  # noqa: E402
from cutesmith.timing.contest import BenchmarkOptions, Contest  # noqa: E402
from cutesmith.timing.requests import Machine  # noqa: E402

Line = dict[str, Any]


class Bar(Contest):
    """A contest of baselines alone."""

    def line(self) -> Line:
        """Their timings and the floor. Raises CutesmithError when the problem cannot be used here."""
        with exchange() as folder, self._reference(folder, self._arch()) as reference, reference:
            return self.timed(folder, reference)

    def timed(self, folder: Path, reference: Worker) -> Line:
        """The same by a process that runs already."""
        with gpu_lock(exclusive=False):
            reference_call(reference, Start("cuda"))
            self._draw(folder, reference)
        contenders = self._baselines(reference)
        with gpu_lock(exclusive=True):
            self.machine = reference_call(reference, Machine(tuple(self.work.flops)))
            self._time(contenders, reference)
        return self._found(contenders)

    def _time(self, contenders: Sequence[Contender], reference: Worker) -> None:
        for contender in contenders:
            if not contender.error:
                contender.estimate()
        self._rounds(contenders, reference, candidate=None)
        self._host_times(contenders)

    def _found(self, contenders: Sequence[Contender]) -> Line:
        self.timings = [contender.timing(self.work.bytes) for contender in contenders]
        floor = self._floor()
        warmed = {contender.name: round(contender.warm_up_s, 3) for contender in contenders}
        return {
            "device": self.device,
            "inputs": "" if self.prepared is None else self.prepared.inputs,
            "floor_us": round(floor.us, 3),
            "floor_kind": floor.kind,
            "timings": [{**asdict(timing), "warm_up_s": warmed[timing.name]} for timing in self.timings],
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Time them all; returns the exit code."""
    options = _parser().parse_args(argv)
    tasks = load_suite(options.suite, levels=options.level, ids=options.only).tasks
    tasks = tuple(task for task in tasks if task.libraries or not options.libraries_only)
    lines = _known(options.out)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed(pool.submit(measured, task, options) for task in tasks):
            line = done.result()
            print(told(line), flush=True)
            lines[line["task"]] = line
            options.out.write_text("".join(f"{json.dumps(lines[task])}\n" for task in sorted(lines)))
    failed = [task.id for task in tasks if failures(lines[task.id])]
    print(f"{len(tasks)} tasks; with a baseline that failed: {len(failed)} {' '.join(failed)}")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--suite", default="core")
    parser.add_argument("--level", type=int, action="append", default=[])
    parser.add_argument("--only", action="append", default=[], metavar="TASK")
    parser.add_argument("--libraries-only", action="store_true", help="only tasks that have library functions")
    parser.add_argument("--no-libraries", action="store_true", help="leave library functions out")
    parser.add_argument("--no-compile-baseline", action="store_true", help="leave torch.compile out")
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="tasks at a time; timing takes turns (4)")
    return parser


def _known(path: Path) -> dict[str, Line]:
    """The lines of an earlier call, by task; what is not a line is measured again."""
    known: dict[str, Line] = {}
    for text in path.read_text().splitlines() if path.is_file() else ():
        with suppress(ValueError, KeyError, TypeError):
            line = json.loads(text)
            known[line["task"]] = line
    return known


def measured(task: Task, options: argparse.Namespace) -> Line:
    """The line of one task; what is wrong with the problem becomes its "error"."""
    named = {
        f"{one.path}:{one.function}": f"{one.path.stem}:{one.function}"
        for one in task.libraries
        if not options.no_libraries
    }
    compiled = not options.no_compile_baseline
    contest = Bar(task.path, BenchmarkOptions(baselines=tuple(named), compiled=compiled, rounds=options.rounds))
    line: Line = {"task": task.id, "error": ""}
    try:
        line |= contest.line()
    except CutesmithError as error:
        line["error"] = str(error)[-1500:]
    for timing in line.get("timings", ()):
        timing["name"] = named.get(timing["name"], timing["name"])
    return line


def failures(line: Line) -> list[str]:
    """What went wrong: with the task, or with a baseline."""
    wrong = [f"{timing['name']}: {timing['error']}" for timing in line.get("timings", ()) if timing["error"]]
    return [line["error"], *wrong] if line["error"] else wrong


def told(line: Line) -> str:
    """One line for a reader: medians, with seconds of the first calls where those are long."""
    good = [timing for timing in line.get("timings", ()) if not timing["error"]]
    times = ", ".join(f"{t['name']} {t['median_us']:.1f} us (first {t['warm_up_s']:.0f} s)" for t in good)
    floor = f"; floor {line['floor_us']:.1f}" if "floor_us" in line else ""
    return f"{line['task']}: {times}{floor}{''.join(f'; {text[:300]}' for text in failures(line))}"


if __name__ == "__main__":
    sys.exit(main())
