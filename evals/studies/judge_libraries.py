#!/usr/bin/env python3
"""The judge's draws on functions of a library that people use: whether code that is known to be right falls.

    python evals/studies/judge_libraries.py --out FILE [--on gpu|emulator] [--only TASK …] [--quick] [--jobs J]

A function of `evals/libraries/quack.py` stands for the kernel of its task. A kernel may not import a library, compute
with torch or copy with it; all other rules hold, and every case is drawn as for a kernel. One line a task in --out:
verdict, cases, what was declined, seconds; lines of other tasks stay. Exit code 1 where one is not verified.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from library_trial import library, refuses  # noqa: E402

from cutesmith import resources  # noqa: E402
from cutesmith.errors import CandidateError  # noqa: E402
from cutesmith.evals.suites.libraries import read_library  # noqa: E402
from cutesmith.judge.conclusion import set_name  # noqa: E402
from cutesmith.judge.course import Course  # noqa: E402
from cutesmith.judge.rounds import Round, VerifyOptions  # noqa: E402
from cutesmith.judge.verification import Judge  # noqa: E402
from cutesmith.verdicts import CaseOutcome, CaseReport, Violation  # noqa: E402

Line = dict[str, Any]
QUACK = resources.libraries() / "quack.py"
UNTUNED = """

from functools import partial

gemm, gemm_act, lse_target_epi = (partial(function, tuned=False) for function in (gemm, gemm_act, lse_target_epi))
kernel_fn = {function}
"""  # else QuACK measures all configurations for each new size, which takes minutes


class LibraryCourse(Course):
    """The cases of a library's function."""

    def own_set(self, turn: Round, index: int) -> Iterator[CaseReport]:
        """Sizes that the library refuses are declined; a kernel has to take them."""
        try:
            yield from super().own_set(turn, index)
        except CandidateError as error:
            if not refuses(error):
                raise
            yield CaseReport(name=set_name(index), inputs="", outcome=CaseOutcome.DECLINED, remark=error.message)


@dataclass
class LibraryJudge(Judge):
    """A judge whose candidate may be a library's function."""

    course = LibraryCourse

    def cheats(self) -> list[Violation]:
        """None: importing the library is what this is about."""
        return []


def main(argv: Sequence[str] | None = None) -> int:
    """Judge them all; returns the exit code."""
    options = _parser().parse_args(argv)
    functions = {task: name for task, name in read_library(QUACK).items() if not options.only or task in options.only}
    lines = _known(options.out)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed(pool.submit(judged, task, name, options) for task, name in functions.items()):
            line = done.result()
            lines[line["task"]] = line
            print(
                f"{line['task']:36} {line['seconds']:6.1f} s  exit {line['exit_code']}: {line['summary']}", flush=True
            )
            options.out.write_text("".join(json.dumps(lines[task]) + "\n" for task in sorted(lines)))
    return int(any(lines[task]["exit_code"] for task in functions))


def judged(task: str, function: str, options: argparse.Namespace) -> Line:
    """The line of one task, by a file that is the library's with a few lines more."""
    problem = resources.tasks() / f"{task}.py"
    begin = time.monotonic()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{function}.py"
        path.write_text(QUACK.read_text(encoding="utf-8") + UNTUNED.format(function=function), encoding="utf-8")
        verify = VerifyOptions(
            arch="sm_90a", quick=options.quick, timeout=options.timeout, preload=library, processes=1
        )
        verdict = LibraryJudge(path=path, problem=problem, options=verify, entry=library).verdict(options.on)
    names = {"task": task, "function": function, "device": verdict.device, "values": verdict.values}
    cases = Counter(case.outcome.value for case in verdict.cases)
    return {
        **names,
        "exit_code": int(verdict.exit_code),
        "rule": verdict.rule,
        "summary": verdict.summary,
        "cases": cases,
        "seconds": round(time.monotonic() - begin, 1),
    }


def _known(path: Path) -> dict[str, Line]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["task"]: line for line in map(json.loads, lines)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the file of lines")
    parser.add_argument("--on", choices=("gpu", "emulator"), default="gpu", help="where the functions run")
    parser.add_argument("--only", nargs="*", default=(), metavar="TASK", help="such as level2/rms_norm")
    parser.add_argument("--quick", action="store_true", help="draw as `verify --quick` does")
    parser.add_argument("--jobs", type=int, default=1, help="at once")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds of a call")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
