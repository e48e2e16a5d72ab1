"""Runs in the order of their fast_1, ties marked: a rank is only as good as the interval behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.evals.scores.costs import Costs, costs_of
from cutesmith.evals.scores.estimators import THRESHOLDS, generator, interval, nan_mean, resampled_tasks
from cutesmith.evals.scores.matrices import TaskMatrix, task_matrices
from cutesmith.evals.scores.outcomes import FASTEST, Run
from cutesmith.evals.scores.scorecard import Scorecard, scorecard

FAST_1 = THRESHOLDS.index(1.0)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One run's place; `tied`: its fast_1 is not surely below that of the first run of its place."""

    place: int
    tied: bool
    run: Run
    card: Scorecard
    costs: Costs


@dataclass(frozen=True, kw_only=True)
class Table:
    """Runs that can be ranked against each other: the same tasks on the same device by the same tolerance."""

    title: str
    tasks: int
    standings: list[Standing]


def rank(runs: Iterable[Run], baseline: str = FASTEST) -> list[Table]:
    """A table for each set of tasks, device and tolerance, the largest set first."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.devices, run.tolerance, *(task.task.id for task in run.tasks)), []).append(run)
    tables = [_table(members, baseline) for members in groups.values()]
    return sorted(tables, key=lambda table: (-table.tasks, table.title))


def _table(runs: Sequence[Run], baseline: str) -> Table:
    scored = []
    for run in runs:
        names = (baseline, *(name for name in run.baselines if name != baseline))
        matrices = task_matrices(run.tasks, names)
        card = scorecard("all tasks", run.tasks, np.arange(len(run.tasks)), matrices, run.name)
        scored.append((run, matrices[baseline], card))
    scored.sort(key=lambda item: (-(item[1].values[FAST_1].mean() if item[0].tasks else 0.0), item[0].name))
    standings, leader, place = list[Standing](), 0, 1
    for index, (run, matrix, card) in enumerate(scored):
        tied = index > 0 and not surely_below(matrix, scored[leader][1])
        if not tied:
            leader, place = index, index + 1
        standings.append(Standing(place=place, tied=tied, run=run, card=card, costs=costs_of(run)))
    title = f"{', '.join(runs[0].suites) or 'unnamed suite'} on {runs[0].devices}"
    title += f", tolerance {runs[0].tolerance}" if runs[0].tolerance else ""
    return Table(title=title, tasks=len(runs[0].tasks), standings=standings)


def surely_below(lower: TaskMatrix, upper: TaskMatrix) -> bool:
    """Whether the paired 95 % interval of the difference of fast_1 leaves out 0; both hold the same tasks in order."""
    differences = upper.replicates[FAST_1] - lower.replicates[FAST_1]
    if not differences.shape[1]:
        return False
    chosen = resampled_tasks(differences.shape[1], generator("ranks"), differences.shape[0])
    bounds = interval(nan_mean(np.take_along_axis(differences, chosen, axis=1)))
    return bounds is not None and bounds[0] > 0.0
