"""The scores of a run or of a part of it, each with what it is taken over: nothing leaves a denominator unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutesmith.evals.scores.estimators import best_at_k, pass_at_k
from cutesmith.evals.scores.matrices import TaskMatrix, task_matrices
from cutesmith.evals.scores.outcomes import NOT_ATTEMPTED, OUTCOMES, Run, TaskResult
from cutesmith.evals.scores.summaries import Score, Summary, exponential, of_share, score_of_tasks, summarise


@dataclass(frozen=True, kw_only=True)
class Against(Summary):
    """What a run is worth against one baseline.

    The summary is over `tasks` tasks; `untimed` of these are correct without both times and count as fast
    for p = 0 alone. Speed-ups are over the tasks with a correct kernel that was timed beside the baseline, each once.
    `outside`: tasks for which there is no such baseline, solved or not.
    """

    baseline: str
    tasks: int
    untimed: int
    outside: int


@dataclass(frozen=True, kw_only=True)
class Scorecard:
    """All scores of the tasks under one name, such as "level 1" or "all tasks"."""

    name: str
    tasks: int
    states: Mapping[str, int]  # outcomes of the tasks, with NOT_ATTEMPTED
    correct: Score  # share of all tasks
    judged: int  # tasks with at least one judged sample
    floor: Score  # median share of the roofline
    against: Mapping[str, Against]
    pass_at: Mapping[int, Score]  # by k
    best_at: Mapping[int, Score]  # by k, against the first baseline
    samples: Mapping[str, int]  # outcomes of the kernels


def run_scorecards(run: Run) -> dict[str, list[Scorecard]]:
    """Scores of the whole run, and by level, tag and dtype: {"all": [one], "level": […], "tag": […], "dtype": […]}."""
    baselines, tasks = run.baselines, run.tasks
    matrices = task_matrices(tasks, baselines or ("",))
    groups = {"all": {"all tasks": np.arange(len(tasks))}, **groups_of(tasks)}
    return {
        kind: [scorecard(name, tasks, places, matrices, run.name) for name, places in members.items()]
        for kind, members in groups.items()
    }


def groups_of(tasks: Sequence[TaskResult]) -> dict[str, dict[str, NDArray[np.intp]]]:
    """Places of the tasks by level, tag and dtype; a task with several tags is in each of their groups."""
    found: dict[str, dict[str, list[int]]] = {"level": {}, "tag": {}, "dtype": {}}
    for place, task in enumerate(task.task for task in tasks):
        levels = (f"level {task.level}",) if task.level else ()
        for kind, names in zip(found.values(), (levels, task.tags, task.dtypes)):
            for name in dict.fromkeys(names):
                kind.setdefault(name, []).append(place)
    return {kind: {name: np.array(places[name]) for name in sorted(places)} for kind, places in found.items()}


def scorecard(
    name: str, all_tasks: Sequence[TaskResult], places: NDArray[np.intp], matrices: Mapping[str, TaskMatrix], seed: str
) -> Scorecard:
    """The scores of some tasks, from the matrices of all."""
    tasks, parts = [all_tasks[place] for place in places], {b: m.of(places) for b, m in matrices.items()}
    names = [baseline for baseline in matrices if baseline]
    whole = summarise(next(iter(parts.values())), seed)
    states = Counter(task.state for task in tasks)
    return Scorecard(
        name=name,
        tasks=len(tasks),
        states={state: states[state] for state in (*OUTCOMES, NOT_ATTEMPTED) if states[state]},
        correct=whole.fast[0.0],
        judged=sum(bool(task.judged) for task in tasks),
        floor=whole.floor,
        against={baseline: against(baseline, tasks, parts[baseline], seed) for baseline in names},
        pass_at=pass_at(tasks, seed),
        best_at=best_at(tasks, names[0], seed) if names else {},
        samples=Counter(outcome.outcome for task in tasks for outcome in task.outcomes),
    )


def against(baseline: str, tasks: Sequence[TaskResult], matrix: TaskMatrix, seed: str) -> Against:
    """The scores against one baseline."""
    inside = np.array([place for place, task in enumerate(tasks) if not task.lacks(baseline)], dtype=np.intp)
    speedups = [tasks[place].speedups(baseline) for place in inside]
    return Against(
        **vars(summarise(matrix.of(inside), seed)),
        baseline=baseline,
        tasks=len(inside),
        untimed=sum(bool(np.isnan(known).any() and not (known > 0).any()) for known in speedups),
        outside=len(tasks) - len(inside),
    )


def pass_at(tasks: Sequence[TaskResult], seed: str) -> dict[int, Score]:
    """pass@k for k = 1, 2, 4 … and the most samples that a task has.

    A task without a judged sample counts as 0; one with fewer than k judged samples is left out of that k: `over`.
    """

    def passing(task: TaskResult, k: int) -> float:
        return pass_at_k(len(task.judged), sum(outcome.correct for outcome in task.judged), k)

    return {k: of_share(_at_k(tasks, k, seed, passing)) for k in budgets(tasks)}


def best_at(tasks: Sequence[TaskResult], baseline: str, seed: str) -> dict[int, Score]:
    """What the fastest verified one of k kernels gains, the baseline kept where none is faster: a geometric mean.

    So a wrong, an untimed and a slower kernel count as 1, and a task as the mean logarithm over all draws of k samples.
    """

    def log_best(task: TaskResult, k: int) -> float:
        return best_at_k(np.log(np.fmax(task.speedups(baseline), 1.0)).tolist(), k)

    return {k: exponential(_at_k(tasks, k, seed, log_best)) for k in budgets(tasks)}


def budgets(tasks: Sequence[TaskResult]) -> list[int]:
    """1, 2, 4 … up to the most judged samples of any task, and that number."""
    most = max((len(task.judged) for task in tasks), default=0)
    return sorted({*(1 << power for power in range(most.bit_length())), *([most] if most else [])})


def _at_k(tasks: Sequence[TaskResult], k: int, seed: str, value: Callable[[TaskResult, int], float]) -> Score:
    counted = [task for task in tasks if not task.judged or len(task.judged) >= k]
    return score_of_tasks(np.array([value(task, k) if task.judged else 0.0 for task in counted]), seed)
