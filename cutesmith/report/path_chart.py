"""Geometry of a session's path: the time of every verified kernel over turns, or how far each attempt came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cutesmith.report.charts import Tick, round_steps

WIDTH, LEFT, RIGHT, TOP = 920.0, 66.0, 170.0, 14.0
PLOT = 260.0  # height of the plot itself
ROW = 15.0  # of one line's failures, below the plot
RUNG = 26.0  # of the ladder of stages
MOST_LINES = 8  # lines of work with a row of failures and a colour each; more share them
LABEL_GAP = 22.0  # of labels as tall as a phone shows them
BIN = 4  # failures that are less apart are one tick
SHAPES = (
    "M0 -5A5 5 0 1 1 0 5A5 5 0 1 1 0 -5Z",
    "M-4.5 -4.5H4.5V4.5H-4.5Z",
    "M0 -6L6 0L0 6L-6 0Z",
    "M0 -5.5L5.5 5H-5.5Z",
)
"""A line of work is told by its shape too, not by its colour alone."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One verdict: when (`turn` counts the session's replies), whose, what it says, and the time when it gave one.

    `rung` is its place on the ladder of stages, None when it has none; `median_us` only of a verified kernel.
    """

    turn: int
    line: int
    title: str
    failed: bool = False
    median_us: float | None = None
    rung: int | None = None
    target: str = ""  # the id of what the page tells about it


@dataclass(frozen=True)
class Mark:
    """A symbol at a position, in its line's colour (1 to MOST_LINES, 0 for the draft) and shape, with a tooltip."""

    x: float
    y: float
    colour: int
    shape: str
    title: str
    target: str
    best: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line that times are compared with: its height, and its label's, which keeps clear of others."""

    y: float
    label_y: float
    label: str
    floor: bool


@dataclass(frozen=True)
class PathChart:
    """What the template draws; `best` is the outline of the best so far, `ticks` are failures below the plot."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    best: str
    levels: tuple[Level, ...] = ()
    failures: tuple[Mark, ...] = ()
    lines: tuple[tuple[int, int, str], ...] = ()  # the line of work, its colour, its shape
    timed: bool = True

    @property
    def size(self) -> float:
        """How large a mark is drawn: smaller where there are many."""
        return min(1.0, max(0.5, 60 / max(len(self.marks), 1)))


def path_chart(
    attempts: Sequence[Attempt], *, turns: int, baselines: Mapping[str, float], floor_us: float | None
) -> PathChart | None:
    """Times over so many turns, on a logarithmic scale; the ladder of stages where nothing was timed.

    `baselines` are medians by name, in microseconds as all times here. None without attempts.
    """
    across = _Turns(max(turns, 1))
    timed = [attempt for attempt in attempts if attempt.median_us]
    if not timed:
        return _ladder(attempts, across)
    levels = {name: value for name, value in baselines.items() if value > 0}
    values = [attempt.median_us or 0.0 for attempt in timed] + list(levels.values()) + ([floor_us] if floor_us else [])
    scale = _LogScale(min(values) / 1.08, max(values) * 1.08)
    marks, best = _improvements([(a, across.x(a.turn), scale.y(a.median_us or 0.0)) for a in timed], across.right)
    failures, rows = _failures(attempts, across)
    compared = [(scale.y(value), f"{name} {_us(value)}", False) for name, value in levels.items()]
    compared += [(scale.y(floor_us), f"floor {_us(floor_us)}", True)] if floor_us else []
    return PathChart(
        WIDTH,
        TOP + PLOT + ROW * rows + 46,
        LEFT,
        across.right,
        TOP + PLOT,
        x_ticks=across.ticks(),
        y_ticks=scale.ticks(),
        marks=marks,
        best=best,
        levels=_spread(compared),
        failures=failures,
        lines=_lines(attempts),
    )


def _us(value: float) -> str:
    return f"{value:,.4g} µs"


def _ladder(attempts: Sequence[Attempt], across: _Turns) -> PathChart | None:
    """How far each attempt came; the rungs that nothing reached are left out."""
    placed = [attempt for attempt in attempts if attempt.rung is not None]
    if not placed:
        return None
    rungs = sorted({attempt.rung for attempt in placed if attempt.rung is not None})
    bottom = TOP + RUNG * len(rungs)
    heights = {rung: bottom - RUNG * (index + 0.5) for index, rung in enumerate(rungs)}
    marks, best = _improvements([(a, across.x(a.turn), heights[a.rung or 0]) for a in placed], across.right)
    return PathChart(
        WIDTH,
        bottom + 46,
        LEFT,
        across.right,
        bottom,
        x_ticks=across.ticks(),
        y_ticks=tuple(Tick(y, str(rung)) for rung, y in heights.items()),
        marks=marks,
        best=best,
        lines=_lines(attempts),
        timed=False,
    )


def _improvements(placed: Iterable[tuple[Attempt, float, float]], right: float) -> tuple[tuple[Mark, ...], str]:
    """The marks, and the outline of the best so far: a step at every mark that lies lower (or, on a ladder, higher)."""
    marks: list[Mark] = []
    steps: list[str] = []
    best = math.inf
    for attempt, x, y in placed:
        height = -y if attempt.median_us else y  # less time is lower on the page, further up the ladder is higher
        better = height < best
        if better:
            best = height
            steps.append(f"H{x:.1f}V{y:.1f}" if steps else f"M{x:.1f} {y:.1f}")
        marks.append(Mark(x, y, _colour(attempt.line), _shape(attempt.line), attempt.title, attempt.target, better))
    # marks that look the same share the tooltip of the last
    distinct = {(round(m.x), round(m.y), m.colour, m.best): m for m in marks}.values()
    return tuple(distinct), "".join([*steps, f"H{right:.1f}"]) if steps else ""


def _failures(attempts: Sequence[Attempt], across: _Turns) -> tuple[tuple[Mark, ...], int]:
    """A tick for every failed verdict in its line's row; those of one place are one tick that counts them."""
    places: dict[tuple[int, int], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.failed:
            places.setdefault((_colour(attempt.line), BIN * round(across.x(attempt.turn) / BIN)), []).append(attempt)
    rows = {colour: index for index, colour in enumerate(sorted({colour for colour, _ in places}))}
    ticks: list[Mark] = []
    for (colour, x), found in places.items():
        title = found[0].title + (f"\nand {len(found) - 1} more here" if len(found) > 1 else "")
        ticks.append(Mark(float(x), TOP + PLOT + 12 + ROW * rows[colour], colour, "", title, found[0].target))
    return tuple(ticks), len(rows)


def _spread(levels: Sequence[tuple[float, str, bool]]) -> tuple[Level, ...]:
    """Labels from the bottom up, each at least LABEL_GAP above the one before."""
    placed: list[Level] = []
    lowest = math.inf
    for y, label, floor in sorted(levels, reverse=True):
        label_y = min(y + 4, lowest - LABEL_GAP)
        placed.append(Level(y, label_y, label, floor))
        lowest = label_y
    return tuple(placed)


def _lines(attempts: Sequence[Attempt]) -> tuple[tuple[int, int, str], ...]:
    return tuple((line, _colour(line), _shape(line)) for line in sorted({attempt.line for attempt in attempts}))


def _colour(line: int) -> int:
    return (line - 1) % MOST_LINES + 1 if line else 0


def _shape(line: int) -> str:
    return SHAPES[(max(line, 1) - 1) % len(SHAPES)]


@dataclass(frozen=True)
class _Turns:
    """The horizontal axis: turn 0 is what was judged before the first."""

    last: int
    right: float = WIDTH - RIGHT

    def x(self, turn: float) -> float:
        return LEFT + 14 + turn / self.last * (self.right - LEFT - 28)

    def ticks(self) -> tuple[Tick, ...]:
        whole = sorted({round(value) for value in round_steps(self.last, 8)})
        return tuple(Tick(self.x(value), f"{value:,}") for value in whole)


@dataclass(frozen=True)
class _LogScale:
    """The vertical axis: microseconds, logarithmic, less is lower."""

    low: float
    high: float

    def y(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return TOP + PLOT - share * PLOT

    def ticks(self) -> tuple[Tick, ...]:
        """Round values inside: 1, 2 and 5 times powers of ten, or even steps where the range is narrow."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        inside = [value for value in values if self.low <= value <= self.high]
        if len(inside) < 3:
            steps = round_steps(self.high, max(5, round(5 * self.high / (self.high - self.low))))
            inside = [value for value in steps if self.low <= value]
        return tuple(Tick(self.y(value), f"{value:,g}") for value in inside)
