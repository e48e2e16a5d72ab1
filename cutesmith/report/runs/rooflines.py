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
    floors, reached = [best.attempt.floor_us or 1.0 for _, _, best, _ in found], [share for *_, share in found]
    # so wide that it holds a tick, whatever the floors: ticks are at most a factor of 2.5 apart
    frame = Frame(low=min(floors) / 1.6, high=max(floors) * 1.6, top=min(1.6, 1.05 * max(1.0, *reached)))
    dots = []
    for colour, task, best, share in found[:: _thinning(found)]:
        floor = best.attempt.floor_us or 1.0
        words = f"{task}: {best.median_us(KERNEL) or 0:.1f} us, {100 * share:.0f} % of a floor of {floor:.1f} us"
        x, y, hue = frame.x(floor), frame.y(min(share, frame.top)), colours.get(best.attempt.floor_kind, colour)
        dots.append(Dot(x=x, y=y, r=4.0, colour=hue, task=places[task], words=words))
    powers = range(math.floor(math.log10(frame.low)), math.ceil(math.log10(frame.high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    shares = [value for value in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5) if value <= frame.top]
    return FloorChart(
        dots=tuple(dots),
        legend=tuple((BOUNDS.get(kind, "bound by what is not told"), colour) for kind, colour in colours.items()),
        x_ticks=tuple(Tick(frame.x(us), f"{us:g}") for us in ticks if frame.low <= us <= frame.high),
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
    spots = [_spot(best) for _, _, best in found]
    (low, high), (bottom, top) = (
        (10.0 ** math.floor(math.log10(min(values)) - 0.2), 10.0 ** math.ceil(math.log10(max(values)) + 0.2))
        for values in zip(*spots)
    )
    frame = Frame(low=low, high=high, bottom=bottom, top=top)
    dots = []
    for (colour, task, best), (intensity, rate) in list(zip(found, spots))[:: _thinning(found)]:
        part = best.floor_share()
        words = f"{task}: {rate / 1e12:.3g} TFLOP/s at {intensity:.3g} FLOP/byte"
        words += f", {100 * part:.0f} % of the roofline" if part else ""
        x, y = frame.x(intensity), frame.y(rate)
        dots.append(Dot(x=x, y=y, r=4.5, colour=colour, task=places[task], words=words))
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
