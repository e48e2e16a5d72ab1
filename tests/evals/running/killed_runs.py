"""Kills a run with SIGKILL at every write, resumes it, and says how the results differ from an undisturbed run's.

Run as a program with an empty folder; prints one JSON object. It forks: one process that imported everything once can
die as often as it likes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from cutesmith.evals.keys import judge_hash
from cutesmith.evals.reading import RESULTS
from cutesmith.evals.running.folder import RunFolder
from tests.evals.running import judged_runs

SAMPLES, TASKS = 1, 3
MADE = "made.txt"  # one line a kernel that a model was paid for


def dying(method):
    """It, with a chance to die before and after."""

    def write(self, *arguments):
        self._at("before")
        kept = method(self, *arguments)
        self._at("after")
        return kept

    return write


class Killing(RunFolder):
    """Kills this process before, in the middle of, or after write number `at`."""

    at, where, writes = -1, "", 0
    _write, keep_kernel = dying(RunFolder._write), dying(RunFolder.keep_kernel)

    @dying
    def finish(self, attempt):
        if self.writes == self.at and self.where == "middle":
            with open(self.path / RESULTS, "ab") as file:
                file.write(attempt.model_dump_json().encode()[:100])
            os.kill(os.getpid(), signal.SIGKILL)
        super().finish(attempt)

    def _at(self, where):
        type(self).writes += where == "before"
        if self.writes == self.at and self.where == where:
            os.kill(os.getpid(), signal.SIGKILL)


def answer(job):
    """Task 1 is wrong, task 2 has no kernel; a session leaves a line for each kernel that it makes."""
    if job.stage == "session":
        with open(Path(job.folder).parents[4] / MADE, "a") as file:
            file.write(f"{job.id}\n")
        if "task 2" in job.id:
            verdict = judged_runs.verdict("agent", 1, "wrong_result")
            return judged_runs.report(job, generation=verdict)
    if job.stage == "verify" and "task 1" in job.id:
        return judged_runs.failing("verify", 1, "wrong_result")(job)
    return judged_runs.judge(job)


def run(root: Path, name: str, at: int, where: str) -> None:
    Killing.at, Killing.where, Killing.writes = at, where, 0
    a_plan = judged_runs.plan(root, TASKS, f"script:{root / 'script.json'}", samples=SAMPLES)
    tally = judged_runs.run(a_plan, root / name, answer, folder_class=Killing)
    assert tally.complete, tally
    (root / name / "writes").write_text(str(Killing.writes))


def in_child(*arguments) -> int:
    """The same in a forked process; its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            run(*arguments)
            os._exit(0)
        except BaseException as error:  # nothing may run twice
            print(repr(error), file=sys.stderr)
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def state(root: Path, name: str) -> dict:
    """Results and kernels, and how often each was paid for at most."""
    lines = {f"{task}#{sample}": line for (task, sample), line in judged_runs.results(root / name).items()}
    kernels = {str(path.relative_to(root / name)): path.read_text() for path in (root / name).rglob("kernel.py")}
    return {"lines": lines, "kernels": kernels}


def paid(root: Path) -> Counter[str]:
    text = (root / MADE).read_text()
    (root / MADE).unlink()
    return Counter(text.split("\n")[:-1])


def main() -> None:
    root = Path(sys.argv[1])
    (root / "script.json").write_text("[]")
    judge_hash()  # once: edits of the judge meanwhile shall not change the keys
    assert in_child(root, "whole", -1, "") == 0
    wanted, once, problems, kills = state(root, "whole"), paid(root), [], 0
    writes = int((root / "whole" / "writes").read_text())
    points = [(at, where) for at in range(1, writes + 1) for where in ("before", "after")]
    points += [(at, "middle") for at in range(1, writes + 1)]
    for at, where in points:
        name = f"{where}{at}"
        killed = in_child(root, name, at, where) == signal.SIGKILL
        kills += killed
        if killed and in_child(root, name, -1, "") != 0:
            problems.append(f"{name}: not resumed")
        elif state(root, name) != wanted:
            problems.append(f"{name}: {state(root, name)}")
        twice = sum((paid(root) - once).values())
        if twice > 1:  # the one whose answer was on its way to the disk
            problems.append(f"{name}: {twice} kernels were paid for twice")
    print(json.dumps({"writes": writes, "points": len(points), "kills": kills, "problems": problems}))


if __name__ == "__main__":
    main()
