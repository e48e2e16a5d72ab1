"""Kernels against what the machine allows: their share of the roofline, and FLOP/s over FLOP/byte."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.evals.records import KERNEL
from cutesmith.evals.scores.outcomes import TIMED, Outcome, Run
from cutesmith.report.charts import Frame, Tick, power_ticks, roof
from cutesmith.report.runs.figures import LEFT, RIGHT, WIDTH, Dot

MOST_DOTS = 2000
BOUNDS = {"bytes": "bound by memory", "flops": "bound by operations"}


@dataclass(frozen=True, kw_only=True)
class FloorChart:
    """Share of the roofline over the floor's time, of every task's best kernel; `legend`: (what bounds it, colour)."""

    dots: tuple[Dot, ...]
    legend: tuple[tuple[str, int], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    one: float
    left_out: int


def floor_chart(runs: Sequence[Run], places: dict[str, int]) -> FloorChart | None:
    """None where no kernel was timed against a floor; colours are runs, or what bounds a kernel of a single run."""
    found = [(*each, share) for each in _timed(runs) if (share := each[2].floor_share())]
    if not found:
        return None
    kinds = sorted({best.attempt.floor_kind for _, _, best, _ in found}) if len(runs) == 1 else []
    colours = {kind: at for at, kind in enumerate(kinds, start=1)}
    frame = _floor_frame([(best.attempt.floor_us or 1.0, share) for _, _, best, share in found])
    dots = [
        _floor_dot(colours.get(best.attempt.floor_kind, colour), task, best, share, frame, places)
        for colour, task, best, share in found[:: _thinning(found)]
    ]
    shares = [value for value in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5) if value <= frame.top]
    return FloorChart(
        dots=tuple(dots),
        legend=tuple((BOUNDS.get(kind, "bound by what is not told"), colour) for kind, colour in colours.items()),
        x_ticks=tuple(Tick(frame.x(us), f"{us:g}") for us in _decades(frame.low, frame.high)),
        y_ticks=tuple(Tick(frame.y(share), f"{100 * share:g} %") for share in shares),
        one=frame.y(1.0),
        left_out=len(found) - len(dots),
    )


def _timed(runs: Sequence[Run]) -> list[tuple[int, str, Outcome]]:
    """Every task's best kernel that was timed: the number of its run, the task, the kernel."""
    return [
        (colour, task.task.id, best)
        for colour, run in enumerate(runs, start=1)
        for task in run.tasks
        if (best := task.best()) is not None and best.outcome == TIMED
    ]


def _thinning(found: Sequence[object]) -> int:
    """Each how many-eth is drawn."""
    return max(1, math.ceil(len(found) / MOST_DOTS))


def _floor_frame(spots: Sequence[tuple[float, float]]) -> Frame:
    """So wide that it holds a tick, whatever the floors: those are at most a factor of 2.5 apart."""
    floors, shares = ([spot[axis] for spot in spots] for axis in (0, 1))
    return Frame(low=min(floors) / 1.6, high=max(floors) * 1.6, top=min(1.6, 1.05 * max(1.0, *shares)))


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten within the bounds, thinned to the powers where they are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _floor_dot(colour: int, task: str, best: Outcome, share: float, frame: Frame, places: dict[str, int]) -> Dot:
    floor = best.attempt.floor_us or 1.0
    words = f"{task}: {best.median_us(KERNEL) or 0:.1f} us, {100 * share:.0f} % of a floor of {floor:.1f} us"
    return Dot(x=frame.x(floor), y=frame.y(min(share, frame.top)), r=4.0, colour=colour, task=places[task], words=words)


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
    found = [each for each in _timed(runs) if each[2].attempt.flops and each[2].attempt.bytes]
    if not found:
        return None
    frame = _roofline_frame([_spot(best) for _, _, best in found])
    dots = [_roofline_dot(*item, frame, places) for item in found[:: _thinning(found)]]
    return RooflineChart(
        dots=tuple(dots),
        roofs=tuple(_roofs([best for _, _, best in found], frame)),
        x_ticks=power_ticks(frame.low, frame.high, frame.x),
        y_ticks=power_ticks(frame.bottom, frame.top, frame.y),
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
        points = roof(frame, bandwidth, rate / bandwidth)
        if points[0] < points[2]:
            yield (*points, f"copy bandwidth, {bandwidth / 1e12:.2f} TB/s")
    if frame.bottom < rate < frame.top:
        yield LEFT, frame.y(rate), WIDTH - RIGHT, frame.y(rate), f"matrix product, {rate / 1e12:.3g} TFLOP/s"
