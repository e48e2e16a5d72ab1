"""Geometry of the page's figures: plain numbers that the template draws as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.evals.scores.estimators import THRESHOLDS, Floats
from cutesmith.evals.scores.matrices import Curve, fast_curve
from cutesmith.evals.scores.outcomes import BASELINES, TIMED, Run
from cutesmith.report.charts import Frame, Tick

WIDTH, HEIGHT, LEFT, RIGHT, FOOT = Frame.width, Frame.height, Frame.left, Frame.right, Frame.foot
POINTS = 181


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series: its path, the band around it, and its marks at the standard thresholds as (x, y, words)."""

    name: str
    colour: int
    path: str
    band: str
    marks: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, kw_only=True)
class CurveChart:
    """fast_p over p; `edge` is where p = 0 stands, left of the axis."""

    title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    one: float


def speed_range(runs: Iterable[Run]) -> tuple[float, float]:
    """Powers of two around the speed-ups of all runs, at least from 1/4 to 4."""
    known = [value for run in runs for name in run.baselines for value in timed_speedups(run, name)]
    low, high = (float(bound) for bound in np.quantile(known, (0.002, 0.998))) if known else (1.0, 1.0)
    return 2.0 ** min(-2, math.floor(math.log2(low))), 2.0 ** max(2, math.ceil(math.log2(high * 1.02)))


def timed_speedups(run: Run, baseline: str) -> list[float]:
    """The speed-ups of all correct kernels that were timed beside the baseline."""
    return [value for outcome in run.outcomes if outcome.outcome == TIMED and (value := outcome.speedup(baseline)) > 0]


def curve_charts(runs: Sequence[Run]) -> list[CurveChart]:
    """One chart with a line a baseline for a single run, else one chart a baseline with a line a run."""
    low, high = speed_range(runs)
    grid = np.unique(np.concatenate([np.geomspace(low, high, POINTS), [p for p in THRESHOLDS if low <= p <= high]]))
    names = sorted({name for run in runs for name in run.baselines}, key=order_of_baselines)
    if len(runs) == 1:
        series = [(colour, name, runs[0], name) for colour, name in enumerate(names, start=1)]
        return [_curve_chart("", series, grid)] if names else []
    numbered = list(enumerate(runs, start=1))
    timed = {name: [(at, run.name, run, name) for at, run in numbered if name in run.baselines] for name in names}
    return [_curve_chart(name, series, grid) for name, series in timed.items()]


def order_of_baselines(name: str) -> tuple[int, str]:
    """A key that sorts baselines as scores list them, unknown ones last."""
    return (BASELINES.index(name) if name in BASELINES else len(BASELINES), name)


def _curve_chart(title: str, series: Sequence[tuple[int, str, Run, str]], grid: Floats) -> CurveChart:
    frame = Frame(low=float(grid[0]), high=float(grid[-1]), top=1.0)
    lines = tuple(
        _line(name, colour, fast_curve(run.tasks, baseline, grid, run.name), frame)
        for colour, name, run, baseline in series
    )
    shares = tuple(Tick(frame.y(value), f"{100 * value:g} %") for value in (0.0, 0.25, 0.5, 0.75, 1.0))
    return CurveChart(title=title, lines=lines, x_ticks=factor_ticks(frame), y_ticks=shares, one=frame.x(1.0))


def factor_ticks(frame: Frame) -> tuple[Tick, ...]:
    """Powers of two as factors."""
    powers = range(round(math.log2(frame.low)), round(math.log2(frame.high)) + 1)
    step = max(1, math.ceil(len(powers) / 9))
    return tuple(Tick(frame.x(2.0**power), f"{2.0**power:g}×") for power in powers if power % step == 0)


def _line(name: str, colour: int, curve: Curve, frame: Frame) -> Line:
    upper = _steps(curve.p, curve.high, frame)
    lower = _steps(curve.p[::-1], curve.low[::-1], frame)
    marks = [
        (frame.x(p), frame.y(float(curve.share[place])), f"fast_{p:g} {100 * curve.share[place]:.1f} %")
        for p in THRESHOLDS
        if p >= frame.low
        for place in [int(np.searchsorted(curve.p, p))]
    ]
    path = "M" + "L".join(_steps(curve.p, curve.share, frame))
    return Line(name=name, colour=colour, path=path, band="M" + "L".join([*upper, *lower]) + "Z", marks=tuple(marks))


def _steps(p: Floats, shares: Floats, frame: Frame) -> list[str]:
    return [f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in zip(p.tolist(), shares.tolist())]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A kernel on a chart: the place of its task in the page's table, and words about it."""

    x: float
    y: float
    r: float
    colour: int
    task: int
    words: str
