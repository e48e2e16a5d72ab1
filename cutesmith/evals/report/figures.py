"""Geometry of the page's figures: plain numbers that the template draws as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.evals.records import KERNEL
from cutesmith.evals.scores.curves import Curve, fast_curve
from cutesmith.evals.scores.estimators import THRESHOLDS, Floats
from cutesmith.evals.scores.outcomes import BASELINES, TIMED, Outcome, Run
from cutesmith.report.charts import Tick

WIDTH, HEIGHT, LEFT, FOOT, TOP, RIGHT = 520.0, 290.0, 46.0, 40.0, 12.0, 14.0
POINTS = 181
MOST_DOTS = 2000


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A chart's plane: x logarithmic from `low` to `high`, y linear from 0 to `top` (or logarithmic from `bottom`)."""

    low: float
    high: float
    top: float
    bottom: float = 0.0
    width: float = WIDTH

    def x(self, value: float) -> float:
        """Position of a value, clipped to the frame."""
        clipped = min(max(value, self.low), self.high)
        part = math.log(clipped / self.low) / math.log(self.high / self.low)
        return LEFT + part * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Height of a value."""
        part = math.log(value / self.bottom) / math.log(self.top / self.bottom) if self.bottom else value / self.top
        return HEIGHT - FOOT - part * (HEIGHT - FOOT - TOP)


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
    names = sorted({name for run in runs for name in run.baselines}, key=_order)
    if len(runs) == 1:
        series = [(colour, name, runs[0], name) for colour, name in enumerate(names, start=1)]
        return [_curve_chart("", series, grid)] if names else []
    numbered = list(enumerate(runs, start=1))
    timed = {name: [(at, run.name, run, name) for at, run in numbered if name in run.baselines] for name in names}
    return [_curve_chart(name, series, grid) for name, series in timed.items()]


def _order(name: str) -> tuple[int, str]:
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


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Speed-ups of one series as stacked dots, with the middle half and the median below.

    More than MOST_STACKED are columns instead, as (x, y, width, height).
    """

    name: str
    colour: int
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


STRIP, STACK, WIDE = 92.0, 52.0, 1080.0  # heights of a strip and of its tallest column, width of the chart
BINS, MOST_STACKED = 128, 400


def distribution_chart(runs: Sequence[Run], places: dict[str, int]) -> DistributionChart | None:
    """Speed-ups of every task's best kernel against each baseline but the derived one; `places` are the tasks' rows."""
    low, high = speed_range(runs)
    frame = Frame(low=low, high=high, top=1.0, width=WIDE)
    names = sorted({name for run in runs for name in run.baselines}, key=_order)
    names = names[:-1] if len(names) > 2 else names
    several = len(runs) > 1
    series = [
        (run, name, colour if several else place)
        for place, name in enumerate(names, start=1)
        for colour, run in enumerate(runs, start=1)
        if timed_speedups(run, name)
    ]
    strips = [_strip(*item, row, frame, places, several) for row, item in enumerate(series)]
    if not strips:
        return None
    height = STRIP * len(strips) + FOOT
    return DistributionChart(
        width=WIDE, height=height, strips=tuple(strips), x_ticks=factor_ticks(frame), one=frame.x(1.0)
    )


def _strip(run: Run, baseline: str, colour: int, row: int, frame: Frame, places: dict[str, int], named: bool) -> Strip:
    found = [
        (value, task.task.id)
        for task in run.tasks
        if (best := task.best(baseline)) is not None and best.outcome == TIMED and (value := best.speedup(baseline)) > 0
    ]
    base = STRIP * (row + 1) - 16
    middle = np.quantile([value for value, _ in found], (0.25, 0.5, 0.75)).tolist()
    low, median, high = (frame.x(value) for value in middle)
    return Strip(
        name=f"{run.name}, against {baseline}" if named else f"against {baseline}",
        colour=colour,
        base=base,
        dots=tuple(_stacked(found, base, colour, frame, places)) if len(found) <= MOST_STACKED else (),
        columns=tuple(_columns(found, base, frame)) if len(found) > MOST_STACKED else (),
        quartiles=(low, median, high),
        count=len(found),
        words=f"{len(found)} tasks, median {middle[1]:.2f}×",
    )


def _binned(found: Sequence[tuple[float, str]], frame: Frame) -> tuple[dict[int, list[tuple[float, str]]], float]:
    """The speed-ups by bin, and a bin's width."""
    bins: dict[int, list[tuple[float, str]]] = {}
    width = (frame.width - LEFT - RIGHT) / BINS
    for value, task in sorted(found):
        bins.setdefault(min(int((frame.x(value) - LEFT) / width), BINS - 1), []).append((value, task))
    return bins, width


def _stacked(
    found: Sequence[tuple[float, str]], base: float, colour: int, frame: Frame, places: dict[str, int]
) -> Iterable[Dot]:
    bins, width = _binned(found, frame)
    step = min(width, STACK / max(map(len, bins.values())))
    for column, members in bins.items():
        for level, (value, task) in enumerate(members):
            x, y = LEFT + (column + 0.5) * width, base - 5 - (level + 0.5) * step
            radius, words = max(0.8, step * 0.44), f"{task}: {value:.2f}×"
            yield Dot(x=x, y=y, r=radius, colour=colour, task=places[task], words=words)


def _columns(
    found: Sequence[tuple[float, str]], base: float, frame: Frame
) -> Iterable[tuple[float, float, float, float]]:
    bins, width = _binned(found, frame)
    tallest = max(map(len, bins.values()))
    for column, members in sorted(bins.items()):
        height = STACK * len(members) / tallest
        yield LEFT + column * width, base - 5 - height, width * 0.86, height


@dataclass(frozen=True, kw_only=True)
class RooflineChart:
    """Reached FLOP/s over FLOP/byte of every task's best kernel; `roofs` are the lines that the floors imply."""

    dots: tuple[Dot, ...]
    roofs: tuple[tuple[float, float, float, float, str], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    left_out: int


def roofline_chart(runs: Sequence[Run], places: dict[str, int]) -> RooflineChart | None:
    """None where no timed kernel has FLOPs and bytes; thinned to MOST_DOTS."""
    found = [
        (colour, task.task.id, best)
        for colour, run in enumerate(runs, start=1)
        for task in run.tasks
        if (best := task.best()) is not None and best.outcome == TIMED and best.attempt.flops and best.attempt.bytes
    ]
    if not found:
        return None
    frame = _roofline_frame([_spot(best) for _, _, best in found])
    thin = max(1, math.ceil(len(found) / MOST_DOTS))
    dots = [_roofline_dot(*item, frame, places) for item in found[::thin]]
    return RooflineChart(
        dots=tuple(dots),
        roofs=tuple(_roofs([best for _, _, best in found], frame)),
        x_ticks=tuple(_powers(frame.low, frame.high, frame.x)),
        y_ticks=tuple(_powers(frame.bottom, frame.top, frame.y)),
        left_out=len(found) - len(dots),
    )


def _spot(outcome: Outcome) -> tuple[float, float]:
    """FLOP/byte and FLOP/s of a timed kernel with work."""
    flops, moved, median = outcome.attempt.flops or 0, outcome.attempt.bytes or 1, outcome.median_us(KERNEL) or math.inf
    return flops / moved, flops / (median * 1e-6)


def _roofline_frame(spots: Sequence[tuple[float, float]]) -> Frame:
    def bounds(values: Iterable[float], slack: float) -> tuple[float, float]:
        known = sorted(values)
        low, high = math.log10(known[0]) - slack, math.log10(known[-1]) + slack
        return 10.0 ** math.floor(low), 10.0 ** math.ceil(high)

    (low, high), (bottom, top) = bounds((x for x, _ in spots), 0.2), bounds((y for _, y in spots), 0.2)
    return Frame(low=low, high=high, bottom=bottom, top=top)


def _roofline_dot(colour: int, task: str, best: Outcome, frame: Frame, places: dict[str, int]) -> Dot:
    intensity, rate = _spot(best)
    part = best.floor_share()
    words = f"{task}: {rate / 1e12:.3g} TFLOP/s at {intensity:.3g} FLOP/byte"
    words += f", {100 * part:.0f} % of the roofline" if part else ""
    return Dot(x=frame.x(intensity), y=frame.y(rate), r=4.5, colour=colour, task=places[task], words=words)


def _roofs(outcomes: Sequence[Outcome], frame: Frame) -> Iterable[tuple[float, float, float, float, str]]:
    """The bandwidth and the matrix rate that the measured floors stand for: their medians over the kernels."""
    known = [outcome.attempt for outcome in outcomes if outcome.attempt.floor_us]
    bandwidths = [(a.bytes or 0) / (a.floor_us or 1) * 1e6 for a in known if a.floor_kind == "bytes"]
    rates = [(a.flops or 0) / (a.floor_us or 1) * 1e6 for a in known if a.floor_kind == "flops"]
    rate = float(np.median(rates)) if rates else math.inf
    if bandwidths:
        bandwidth = float(np.median(bandwidths))
        start = max(frame.low, frame.bottom / bandwidth)
        end = min(frame.high, frame.top / bandwidth, rate / bandwidth)
        if start < end:
            points = frame.x(start), frame.y(start * bandwidth), frame.x(end), frame.y(end * bandwidth)
            yield (*points, f"copy bandwidth, {bandwidth / 1e12:.2f} TB/s")
    if frame.bottom < rate < frame.top:
        yield LEFT, frame.y(rate), WIDTH - RIGHT, frame.y(rate), f"matrix product, {rate / 1e12:.3g} TFLOP/s"


def _powers(low: float, high: float, place: object) -> Iterable[Tick]:
    names = {-3: "m", 0: "", 3: "K", 6: "M", 9: "G", 12: "T", 15: "P"}
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        unit = max((key for key in names if key <= power), default=-3)
        yield Tick(place(10.0**power), f"{10.0 ** (power - unit):g}{names[unit]}")  # type: ignore[operator]
