"""What the tests of trials share: a trial in a folder, sessions that end at once, attempts in their folders."""

from __future__ import annotations

from pathlib import Path

from cutesmith.evals.engines.instant_engine import InstantEngine, report
from cutesmith.evals.records import Cost
from cutesmith.evals.running.screen import Quiet
from cutesmith.evals.settings import MakerSettings
from cutesmith.evals.skill_trials.running import run_trial
from cutesmith.evals.skill_trials.trial import Step, Trial, arms_of, run_folder
from tests.evals import sample_attempts
from tests.evals.running import judged_runs

CENT = Cost(dollars=0.01, input_tokens=100, output_tokens=10, turns=2)


def trial(*arms: str, repeats: int = 3, **about) -> Trial:
    known = {"words": ("--suite", "core"), "agent": "script:s.json", "session": ()}
    return Trial(**{**known, "arms": arms or ("with", "bare"), "repeats": repeats, **about})


def arms(of: Trial):
    """The arms of a trial as a command would have them."""
    pages = [name.removeprefix("without-") for name in of.arms if name.startswith("without-")]
    return arms_of(whole="with" in of.arms, bare="bare" in of.arms, pages=pages)


class Sessions:
    """Runs of so many tasks whose sessions end at once; a bare one makes no kernel. Remembers what was asked for.

    `dollars` is what a session says it cost; after `lives` sessions the process is "killed": KeyboardInterrupt.
    """

    def __init__(self, root: Path, count: int = 2, *, dollars: float = 0.01, lives: int = 10_000) -> None:
        self.root, self.count, self.dollars, self.lives = root, count, dollars, lives
        self.script = root / "s.json"
        self.script.write_text("[]")
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.plans: list[str] = []

    def prepare(self, command):
        where = command.index("--") if "--" in command else len(command)
        options = tuple(command[where + 1 :])
        self.plans.append(command[command.index("--out") + 1])
        made = judged_runs.plan(self.root, self.count, f"script:{self.script}")
        maker = MakerSettings(agent=made.source.name, options=options)
        made = type(made)(**{**vars(made), "maker": maker})
        return made, lambda: InstantEngine(self.answer), list(command)

    def answer(self, job):
        if job.stage != "session":
            return judged_runs.judge(job)
        if self.lives <= 0:
            raise KeyboardInterrupt
        self.lives -= 1
        self.asked.append((job.id, tuple(job.payload["options"])))
        cost = {"dollars": self.dollars, "usage": {"input_tokens": 100, "output_tokens": 10}, "turns": 2}
        if "--bare" in job.payload["options"]:
            verdict = judged_runs.verdict("agent", 7, "no kernel", ending="finished", **cost)
            return report(job, "gpu0", verdict=verdict, holds=[])
        made = judged_runs.judge(job)
        made.result["verdict"].update(cost, ending="finished")
        return made

    def run(self, a_trial: Trial, out: Path, **more):
        """The progress of the trial."""
        return run_trial(a_trial, arms(a_trial), out, self.prepare, lambda plan: Quiet(), tasks=self.count, **more)


def write_arm(out: Path, arm: str, *repeats) -> None:
    """The runs of an arm: for each repeat its attempts."""
    for number, attempts in enumerate(repeats):
        folder = run_folder(out, Step(arm=arm, repeat=number))
        tasks = sorted({attempt.task for attempt in attempts})
        sample_attempts.write_run(folder, attempts, suite="s", tasks=tasks)
