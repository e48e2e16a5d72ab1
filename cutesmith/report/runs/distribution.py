"""The distribution of speed-ups: a strip of stacked dots for each baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.evals.scores.outcomes import TIMED, Run
from cutesmith.report.charts import Frame, Tick
from cutesmith.report.runs.figures import (
    FOOT,
    LEFT,
    RIGHT,
    Dot,
    factor_ticks,
    order_of_baselines,
    speed_range,
    timed_speedups,
)


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Speed-ups of one series as stacked dots, with the middle half and the median below.

    More than MOST_STACKED are columns instead, as (x, y, width, height).
    """

    name: str
    colour: int
    top: float
    base: float
    dots: tuple[Dot, ...]
    columns: tuple[tuple[float, float, float, float], ...]
    quartiles: tuple[float, float, float]
    count: int
    words: str


@dataclass(frozen=True, kw_only=True)
class DistributionChart:
    """A strip a series, one above the other."""

    width: float
    height: float
    strips: tuple[Strip, ...]
    x_ticks: tuple[Tick, ...]
    one: float


WIDE, SPACE = 1080.0, 40.0  # width of the chart, and what a strip needs beside its dots: its name, the line below them
STACK, TALLEST, ACROSS = 52.0, 118.0, 4  # heights of the dots, at least and at most; how many dots a bin is wide
BINS, MOST_STACKED = 128, 400


def distribution_chart(runs: Sequence[Run], places: dict[str, int]) -> DistributionChart | None:
    """Speed-ups of every task's best kernel against each baseline but the derived one; `places` are the tasks' rows."""
    low, high = speed_range(runs)
    frame = Frame(low=low, high=high, top=1.0, width=WIDE)
    names = sorted({name for run in runs for name in run.baselines}, key=order_of_baselines)
    names = names[:-1] if len(names) > 2 else names
    several = len(runs) > 1
    series = [
        (run, name, colour if several else place)
        for place, name in enumerate(names, start=1)
        for colour, run in enumerate(runs, start=1)
        if timed_speedups(run, name)
    ]
    strips: list[Strip] = []
    for run, name, colour in series:
        above = strips[-1].base + 16 if strips else 0.0
        strips.append(_strip(run, name, colour, above, frame, places, several))
    if not strips:
        return None
    height = strips[-1].base + 16 + FOOT
    return DistributionChart(
        width=WIDE, height=height, strips=tuple(strips), x_ticks=factor_ticks(frame), one=frame.x(1.0)
    )


def _strip(
    run: Run, baseline: str, colour: int, above: float, frame: Frame, places: dict[str, int], named: bool
) -> Strip:
    """The strip that begins at height `above`, as high as its dots need."""
    found = [
        (value, task.task.id)
        for task in run.tasks
        if (best := task.best(baseline)) is not None and best.outcome == TIMED and (value := best.speedup(baseline)) > 0
    ]
    packing = _packed(found, frame)
    tall = STACK if len(found) > MOST_STACKED else max(STACK, packing.step * packing.levels)
    base = above + tall + SPACE - 16
    middle = np.quantile([value for value, _ in found], (0.25, 0.5, 0.75)).tolist()
    low, median, high = (frame.x(value) for value in middle)
    tallest, columns = max(map(len, packing.bins.values())), []
    for column, members in sorted(packing.bins.items()):
        height = STACK * len(members) / tallest
        columns.append((LEFT + column * packing.width, base - 5 - height, packing.width * 0.86, height))
    return Strip(
        name=f"{run.name}, against {baseline}" if named else f"against {baseline}",
        colour=colour,
        top=base - 5 - tall,
        base=base,
        dots=tuple(_stacked(packing, base, colour, places)) if len(found) <= MOST_STACKED else (),
        columns=tuple(columns) if len(found) > MOST_STACKED else (),
        quartiles=(low, median, high),
        count=len(found),
        words=f"{len(found)} tasks, median {middle[1]:.2f}×",
    )


@dataclass(frozen=True)
class _Packing:
    """Speed-ups by bin of `width`, whose dots, `step` apart, stand `across` side by side, at most `levels` high."""

    bins: dict[int, list[tuple[float, str]]]
    width: float
    across: int
    step: float
    levels: int


def _packed(found: Sequence[tuple[float, str]], frame: Frame) -> _Packing:
    """As few dots side by side, and so as large ones, as keep the fullest bin within TALLEST."""
    bins: dict[int, list[tuple[float, str]]] = {}
    width = (frame.width - LEFT - RIGHT) / BINS
    for value, task in sorted(found):
        bins.setdefault(min(int((frame.x(value) - LEFT) / width), BINS - 1), []).append((value, task))
    fullest = max(map(len, bins.values()))
    for across in range(1, ACROSS + 1):
        step, levels = width / across, math.ceil(fullest / across)
        if step * levels <= TALLEST:
            break
    return _Packing(bins, width, across, min(step, TALLEST / levels), levels)


def _stacked(packing: _Packing, base: float, colour: int, places: dict[str, int]) -> Iterable[Dot]:
    width, across, step = packing.width, packing.across, packing.step
    for column, members in packing.bins.items():
        for index, (value, task) in enumerate(members):
            level, beside = divmod(index, across)
            x, y = LEFT + column * width + (beside + 0.5) * width / across, base - 5 - (level + 0.5) * step
            radius, words = max(0.8, step * 0.44), f"{task}: {value:.2f}×"
            yield Dot(x=x, y=y, r=radius, colour=colour, task=places[task], words=words)
