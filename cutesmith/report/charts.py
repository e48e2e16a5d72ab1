"""Geometry of the report's charts: plain numbers that the template draws as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cutesmith.verdicts import BenchmarkVerdict, Timing

WIDTH = 560.0
LABEL = 138.0
ROW = 38.0
RIGHT = 84.0
MOST_SAMPLES = 60


@dataclass(frozen=True)
class Bar:
    """One timed callable: lengths in SVG units, values in microseconds."""

    name: str
    y: float
    width: float
    q1: float
    q3: float
    samples: tuple[float, ...]
    median_us: float
    ours: bool


@dataclass(frozen=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A chart's plane: x logarithmic from `low` to `high`; y too, from `bottom` to `top`, or linear where that is 0."""

    low: float
    high: float
    top: float
    bottom: float = 0.0
    width: float = 520.0
    height: float = 290.0
    left: float = 46.0
    right: float = 14.0
    head: float = 12.0
    foot: float = 40.0

    def x(self, value: float) -> float:
        """Position of a value, clipped to the frame."""
        clipped = min(max(value, self.low), self.high)
        part = math.log(clipped / self.low) / math.log(self.high / self.low)
        return self.left + part * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Height of a value."""
        part = math.log(value / self.bottom) / math.log(self.top / self.bottom) if self.bottom else value / self.top
        return self.height - self.foot - part * (self.height - self.foot - self.head)


@dataclass(frozen=True)
class TimeChart:
    """Median times as horizontal bars with quartile whiskers and the samples, and the floor as a line."""

    width: float
    height: float
    left: float
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    floor: float | None
    floor_us: float | None


def time_chart(benchmark: BenchmarkVerdict) -> TimeChart | None:
    """The chart of a benchmark verdict's timings; None when nothing was timed."""
    timings = [timing for timing in benchmark.timings if timing.median_us]
    if not timings:
        return None
    floor_us = benchmark.floor_us
    most = max(max(timing.q3_us or 0.0, timing.median_us) for timing in timings) * 1.05
    scale = (WIDTH - LABEL - RIGHT) / most
    bars = tuple(_bar(timing, index, scale, most) for index, timing in enumerate(timings))
    ticks = tuple(Tick(LABEL + value * scale, f"{value:g}") for value in round_steps(most))
    height = ROW * len(bars) + 30
    return TimeChart(WIDTH, height, LABEL, bars, ticks, LABEL + floor_us * scale if floor_us else None, floor_us)


def _bar(timing: Timing, index: int, scale: float, most: float) -> Bar:
    samples = [value for value in timing.samples_us or () if value is not None and value <= most]
    shown = samples[:: max(1, math.ceil(len(samples) / MOST_SAMPLES))]
    return Bar(
        name=timing.name,
        y=index * ROW + 8,
        width=timing.median_us * scale,
        q1=LABEL + (timing.q1_us or timing.median_us) * scale,
        q3=LABEL + (timing.q3_us or timing.median_us) * scale,
        samples=tuple(LABEL + value * scale for value in shown),
        median_us=timing.median_us,
        ours=index == 0,
    )


def round_steps(most: float, steps: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from 0 up to `most`, about `steps` of them."""
    if not (most > 0 and math.isfinite(most)):
        return [0.0]
    rough = most / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [index * step for index in range(int(most / step) + 1)]


@dataclass(frozen=True)
class Point:
    """A kernel on the roofline: its position, and the FLOP/s that it reached."""

    name: str
    x: float
    y: float
    label: str
    ours: bool


@dataclass(frozen=True)
class Roofline:
    """Reached FLOP/s over arithmetic intensity, both logarithmic, under the measured copy bandwidth.

    `ceiling` is the second, level roof: the rate of a large matrix product, None where the function has none.
    """

    width: float
    height: float
    left: float
    bottom: float
    roof: tuple[float, float, float, float]
    ceiling: tuple[float, float, float, float] | None
    bandwidth: str
    rate: str
    intensity: str
    points: tuple[Point, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def roofline(benchmark: BenchmarkVerdict) -> Roofline | None:
    """Where each timed callable lies under the roofs; None without times, work or a measured bandwidth."""
    flops, moved = benchmark.algorithmic_flops, benchmark.algorithmic_bytes
    bandwidth = benchmark.copy_bytes_per_second
    timings = [timing for timing in benchmark.timings if timing.median_us]
    if not (flops and moved and bandwidth and timings):
        return None
    intensity = flops / moved
    rates = [flops / (timing.median_us * 1e-6) for timing in timings]
    low, high = math.floor(math.log10(intensity)) - 1, math.ceil(math.log10(intensity)) + 1
    rate = benchmark.matmul_flops_per_second
    ridge = rate / bandwidth if rate else math.inf
    if rate:  # both roofs are seen, with where they meet
        low, high = min(low, math.floor(math.log10(ridge))), max(high, math.ceil(math.log10(ridge)) + 1)
    at_roof = max(min(intensity, ridge) * bandwidth, rate or 0.0)
    bottom, top = math.floor(math.log10(min(*rates, at_roof))), math.ceil(math.log10(max(*rates, at_roof)) + 0.5)
    frame = Frame(
        low=10.0**low,
        high=10.0**high,
        bottom=10.0**bottom,
        top=10.0**top,
        width=360.0,
        height=260.0,
        right=12.0,
        foot=34.0,
    )
    points = tuple(
        Point(timing.name, frame.x(intensity), frame.y(reached), f"{reached / 1e12:.3g} TFLOP/s", index == 0)
        for index, (timing, reached) in enumerate(zip(timings, rates, strict=True))
    )
    return Roofline(
        width=frame.width,
        height=frame.height,
        left=frame.left,
        bottom=frame.height - frame.foot,
        roof=roof(frame, bandwidth, ridge),
        ceiling=(frame.x(ridge), frame.y(rate), frame.x(frame.high), frame.y(rate)) if rate else None,
        rate=f"{rate / 1e12:.3g} TFLOP/s" if rate else "",
        bandwidth=f"{bandwidth / 1e12:.2f} TB/s",
        intensity=f"{intensity:.3g} FLOP/byte",
        points=points,
        x_ticks=power_ticks(frame.low, frame.high, frame.x),
        y_ticks=power_ticks(frame.bottom, frame.top, frame.y),
    )


def roof(frame: Frame, bandwidth: float, ridge: float) -> tuple[float, float, float, float]:
    """The slanted roof as far as it lies in the frame: x1, y1, x2, y2; it ends at the ridge (FLOP/byte)."""
    start, end = max(frame.low, frame.bottom / bandwidth), min(frame.high, frame.top / bandwidth, ridge)
    return frame.x(start), frame.y(start * bandwidth), frame.x(end), frame.y(end * bandwidth)


def power_ticks(low: float, high: float, place: Callable[[float], float]) -> tuple[Tick, ...]:
    """The powers of ten from `low` to `high`, such as "100M"."""
    units, ticks = ("", "K", "M", "G", "T", "P"), []
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        unit = min(max(power, 0) // 3, len(units) - 1)
        ticks.append(Tick(place(10.0**power), f"{10.0 ** (power - 3 * unit):g}{units[unit]}"))
    return tuple(ticks)
