"""What the arms of a trial are worth, and the difference of two arms: paired by task, repeats within their task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from cutesmith.evals.reading import RESULTS, RunFacts, read_attempts, read_facts
from cutesmith.evals.records import EAGER
from cutesmith.evals.scores.comparison import compare_runs, verdict_line
from cutesmith.evals.scores.costs import costs_of
from cutesmith.evals.scores.estimators import is_fast, nan_mean, sign_test
from cutesmith.evals.scores.outcomes import Outcome, Run, TaskResult, run_of
from cutesmith.evals.scores.scorecard import run_scorecards
from cutesmith.evals.scores.summaries import Score, among, is_a_point, of_share, score_of_tasks
from cutesmith.evals.skill_trials.trial import Step, Trial, run_folder

NO_SCORE = Score(value=None)
Pairs = Sequence[tuple[TaskResult, TaskResult]]


@dataclass(frozen=True, kw_only=True)
class ArmScores:
    """One arm: shares of the tasks and geometric mean of the speed-up against eager; sums and means over sessions.

    `dollars` is None when no session has a price; `unpriced` sessions used tokens and have none. Tokens are all that
    were read and written, `cached_a_session` those of them that the cache gave or took.
    """

    arm: str
    tasks: int
    sessions: int
    judged: int
    solved: Score
    fast: Score
    speedup: Score
    dollars: float | None
    unpriced: int
    dollars_a_session: float | None
    tokens_a_session: float | None
    cached_a_session: float | None
    turns_a_session: float | None


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A task that one arm solves more often: correct of judged samples in both, and why not where one failed."""

    task: str
    first: tuple[int, int]
    second: tuple[int, int]
    first_said: str
    second_said: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The second arm less the first, task by task, over `tasks` that both have judged; `unpaired` are left out.

    `more`, `less`, `alike`: tasks that the second solves more often, less often, as often. `solved` and `fast`: shares;
    `speedup`: geometric mean of the ratios of speed-ups where both timed; dollars, tokens and turns: a session's.
    Intervals: 95 %, tasks drawn again in pairs. `solved_p`, `speed_p`: exact sign tests.
    """

    first: str
    second: str
    tasks: int
    unpaired: int
    more: int
    less: int
    alike: int
    solved: Score
    solved_p: float
    fast: Score
    speedup: Score
    speed_p: float
    dollars: Score
    tokens: Score
    turns: Score
    flips: tuple[Flip, ...]


def read_arm(trial: Trial, out: Path, arm: str) -> Run:
    """All repeats of an arm as one run, each repeat a sample; without tasks where nothing was done yet."""
    folders = {repeat: run_folder(out, Step(arm=arm, repeat=repeat)) for repeat in range(trial.repeats)}
    known = {repeat: folder for repeat, folder in folders.items() if (folder / RESULTS).is_file()}
    outcomes = (
        Outcome.of(attempt.model_copy(update={"sample": repeat}))
        for repeat, folder in known.items()
        for attempt in read_attempts(folder)
    )
    facts = read_facts(next(iter(known.values()))) if known else RunFacts()
    return run_of(outcomes, facts, folder=out, name=arm)


def arm_scores(run: Run) -> ArmScores:
    """What an arm is worth."""
    card = run_scorecards(run)["all"][0]
    against, costs = card.against.get(EAGER), costs_of(run)
    sessions = len(run.outcomes)
    priced = [outcome.attempt.cost.dollars for outcome in run.outcomes if outcome.attempt.cost.dollars is not None]
    return ArmScores(
        arm=run.name,
        tasks=len(run.tasks),
        sessions=sessions,
        judged=sum(len(task.judged) for task in run.tasks),
        solved=of_share(card.correct),
        fast=of_share(against.fast[1.0]) if against else NO_SCORE,
        speedup=against.geometric_mean if against else NO_SCORE,
        dollars=costs.dollars,
        unpriced=costs.unpriced,
        dollars_a_session=_mean(priced),
        tokens_a_session=_mean([_tokens(outcome) for outcome in run.outcomes]),
        cached_a_session=_mean([outcome.attempt.cost.cached_tokens for outcome in run.outcomes]),
        turns_a_session=_mean([outcome.attempt.cost.turns for outcome in run.outcomes]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _tokens(outcome: Outcome) -> int:
    cost = outcome.attempt.cost
    return cost.input_tokens + cost.output_tokens + cost.cached_tokens


def difference(first: Run, second: Run) -> Difference:
    """The second arm less the first."""
    mine, theirs = ({task.task.id: task for task in run.tasks if task.judged} for run in (first, second))
    names = sorted(mine.keys() & theirs.keys())
    pairs = [(mine[name], theirs[name]) for name in names]
    compared = compare_runs(
        replace(first, tasks=tuple(before for before, _ in pairs)),
        replace(second, tasks=tuple(after for _, after in pairs)),
        EAGER,
    )
    gains = [_solved(after) - _solved(before) for before, after in pairs]
    more, less = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return Difference(
        first=first.name,
        second=second.name,
        tasks=len(pairs),
        unpaired=len({task.task.id for run in (first, second) for task in run.tasks}) - len(pairs),
        more=more,
        less=less,
        alike=len(pairs) - more - less,
        solved=difference_of_shares(gains),
        solved_p=sign_test(more, less),
        fast=difference_of_shares([_fast(after) - _fast(before) for before, after in pairs]),
        speedup=compared.speed,
        speed_p=compared.speed_p,
        dollars=_number_difference(pairs, _dollars),
        tokens=_number_difference(pairs, lambda task: fmean(map(_tokens, task.outcomes))),
        turns=_number_difference(pairs, lambda task: fmean(outcome.attempt.cost.turns for outcome in task.outcomes)),
        flips=tuple(_flip(before, after) for (before, after), gain in zip(pairs, gains) if gain),
    )


def _solved(task: TaskResult) -> float:
    return sum(outcome.correct for outcome in task.judged) / len(task.judged)


def _fast(task: TaskResult) -> float:
    """The share of its samples that is faster than eager; NaN where correct ones were not timed."""
    speedups = task.speedups(EAGER)
    return float("nan") if np.isnan(speedups).any() else float(is_fast(speedups, 1.0).mean())


def _dollars(task: TaskResult) -> float:
    known = [outcome.attempt.cost.dollars for outcome in task.outcomes]
    return float(nan_mean(np.array([float("nan") if value is None else value for value in known])))


def difference_of_shares(values: Sequence[float]) -> Score:
    """The mean of one difference of shares a task, each from -1 to 1; tasks without a value (NaN) are left out.

    Where all of n tasks differ alike, drawing them again would call that certain. Then none of n was otherwise: by
    Wilson's interval for 0 of n so large a share of all tasks may be, and these may differ by -1 or by 1.
    """
    score = _mean_of_tasks(values)
    return among(score, -1.0, 1.0) if is_a_point(score) else score


def _number_difference(pairs: Pairs, value: Callable[[TaskResult], float]) -> Score:
    """A difference of numbers without bounds; without an interval where all tasks differ alike."""
    score = _mean_of_tasks([value(after) - value(before) for before, after in pairs])
    return replace(score, interval=None) if is_a_point(score) else score


def _mean_of_tasks(values: Sequence[float]) -> Score:
    known = np.array(values, dtype=np.float64)
    return score_of_tasks(known[np.isfinite(known)], "skill trial")


def _flip(before: TaskResult, after: TaskResult) -> Flip:
    counts = [(sum(outcome.correct for outcome in task.judged), len(task.judged)) for task in (before, after)]
    return Flip(
        task=before.task.id,
        first=counts[0],
        second=counts[1],
        first_said=_said(before),
        second_said=_said(after),
    )


def _said(task: TaskResult) -> str:
    """The verdict on a sample that failed, where one did: the best one's says nothing of what was worse."""
    failed = tuple(outcome for outcome in task.judged if not outcome.correct)
    return verdict_line(replace(task, outcomes=failed) if failed else task)


def arms_of_trial(trial: Trial, out: Path) -> Mapping[str, Run]:
    """Every arm that has results."""
    runs = {arm: read_arm(trial, out, arm) for arm in trial.arms}
    return {arm: run for arm, run in runs.items() if run.outcomes}
