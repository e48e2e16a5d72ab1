"""Geometry of the report's charts: plain numbers that the template draws as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def time_chart(benchmark: Mapping[str, Any]) -> TimeChart | None:
    """The chart of a benchmark verdict's timings; None when nothing was timed."""
    timings = [timing for timing in benchmark.get("timings") or () if timing.get("median_us")]
    if not timings:
        return None
    floor_us = benchmark.get("floor_us")
    most = max(max(timing["q3_us"] or 0.0, timing["median_us"]) for timing in timings) * 1.05
    scale = (WIDTH - LABEL - RIGHT) / most
    bars = tuple(_bar(timing, index, scale, most) for index, timing in enumerate(timings))
    ticks = tuple(Tick(LABEL + value * scale, f"{value:g}") for value in round_steps(most))
    height = ROW * len(bars) + 30
    return TimeChart(WIDTH, height, LABEL, bars, ticks, LABEL + floor_us * scale if floor_us else None, floor_us)


def _bar(timing: Mapping[str, Any], index: int, scale: float, most: float) -> Bar:
    samples = [value for value in timing.get("samples_us") or () if value is not None and value <= most]
    shown = samples[:: max(1, math.ceil(len(samples) / MOST_SAMPLES))]
    return Bar(
        name=str(timing["name"]),
        y=index * ROW + 8,
        width=timing["median_us"] * scale,
        q1=LABEL + (timing["q1_us"] or timing["median_us"]) * scale,
        q3=LABEL + (timing["q3_us"] or timing["median_us"]) * scale,
        samples=tuple(LABEL + value * scale for value in shown),
        median_us=timing["median_us"],
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


def roofline(benchmark: Mapping[str, Any]) -> Roofline | None:
    """Where each timed callable lies under the roofs; None without times, work or a measured bandwidth."""
    flops, moved = benchmark.get("algorithmic_flops"), benchmark.get("algorithmic_bytes")
    bandwidth = benchmark.get("copy_bytes_per_second")
    timings = [timing for timing in benchmark.get("timings") or () if timing.get("median_us")]
    if not (flops and moved and bandwidth and timings):
        return None
    intensity = flops / moved
    rates = [flops / (timing["median_us"] * 1e-6) for timing in timings]
    low, high = math.floor(math.log10(intensity)) - 1, math.ceil(math.log10(intensity)) + 1
    rate = benchmark.get("matmul_flops_per_second")
    ridge = rate / bandwidth if rate else math.inf
    if rate:  # both roofs are seen, with where they meet
        low, high = min(low, math.floor(math.log10(ridge))), max(high, math.ceil(math.log10(ridge)) + 1)
    at_roof = max(min(intensity, ridge) * bandwidth, rate or 0.0)
    bottom, top = math.floor(math.log10(min(*rates, at_roof))), math.ceil(math.log10(max(*rates, at_roof)) + 0.5)
    frame = _LogFrame(low, high, bottom, top)
    points = tuple(
        Point(str(timing["name"]), frame.x(intensity), frame.y(reached), f"{reached / 1e12:.3g} TFLOP/s", index == 0)
        for index, (timing, reached) in enumerate(zip(timings, rates, strict=True))
    )
    start = max(10.0**low, 10.0**bottom / bandwidth)
    end = min(10.0**high, 10.0**top / bandwidth, ridge)
    roof = (frame.x(start), frame.y(start * bandwidth), frame.x(end), frame.y(end * bandwidth))
    return Roofline(
        *(frame.width, frame.height, frame.left, frame.height - frame.foot),
        roof=roof,
        ceiling=(frame.x(ridge), frame.y(rate), frame.x(10.0**high), frame.y(rate)) if rate else None,
        rate=f"{rate / 1e12:.3g} TFLOP/s" if rate else "",
        bandwidth=f"{bandwidth / 1e12:.2f} TB/s",
        intensity=f"{intensity:.3g} FLOP/byte",
        points=points,
        x_ticks=tuple(Tick(frame.x(10.0**power), _power(power)) for power in range(low, high + 1)),
        y_ticks=tuple(Tick(frame.y(10.0**power), _power(power)) for power in range(bottom, top + 1)),
    )


@dataclass(frozen=True)
class _LogFrame:
    low: float
    high: float
    bottom: float
    top: float
    width: float = 360.0
    height: float = 260.0
    left: float = 46.0
    foot: float = 34.0

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.left + share * (self.width - self.left - 12)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.bottom) / (self.top - self.bottom)
        return self.height - self.foot - share * (self.height - self.foot - 12)


def _power(power: int) -> str:
    names = {0: "1", 3: "K", 6: "M", 9: "G", 12: "T", 15: "P"}
    if power < 0:
        return f"{10.0**power:g}"
    unit = max((key for key in names if key <= power), default=0)
    lead = 10 ** (power - unit)
    return f"{lead}{names[unit] if unit else ''}"


def best_baseline(benchmark: Mapping[str, Any]) -> tuple[str, float] | None:
    """The fastest baseline's name and the candidate's speedup over it; None without baselines."""
    speedups: Mapping[str, float | None] = benchmark.get("speedups") or {}
    known: Sequence[tuple[str, float]] = [(name, ratio) for name, ratio in speedups.items() if ratio]
    return min(known, key=lambda item: item[1]) if known else None
