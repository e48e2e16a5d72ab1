"""How much of a run's wall time its GPUs were held for judging and timing, added up as the holds come in."""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field

from cutesmith.evals.records import GpuHold

KEPT = 512  # intervals; holds come in within minutes of each other, so that older ones meet nothing any more


class Union:
    """The length of a union of intervals (seconds), in bounded memory."""

    def __init__(self) -> None:
        self._settled, self._intervals = 0.0, list[tuple[float, float]]()

    def add(self, begin: float, end: float) -> None:
        """One more interval, in about the order of time."""
        first = bisect.bisect_left(self._intervals, (begin, begin))
        if first and self._intervals[first - 1][1] >= begin:
            first -= 1
        last = first
        while last < len(self._intervals) and self._intervals[last][0] <= end:
            begin, end = min(begin, self._intervals[last][0]), max(end, self._intervals[last][1])
            last += 1
        self._intervals[first:last] = [(begin, end)]
        if len(self._intervals) > KEPT:
            self._settled += sum(b - a for a, b in self._intervals[: KEPT // 2])
            del self._intervals[: KEPT // 2]

    @property
    def length(self) -> float:
        """Seconds that at least one interval covers."""
        return self._settled + sum(end - begin for begin, end in self._intervals)


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """Shares of the wall time of all GPUs (None without one), and the seconds behind them.

    `by_stage_s` adds up holds of each stage, those that overlapped several times.
    """

    gpus: int = 0
    window_s: float = 0.0
    held_s: float = 0.0
    timed_s: float = 0.0
    busy: float | None = None
    timing: float | None = None
    by_stage_s: dict[str, float] = field(default_factory=dict)


class GpuTime:
    """Held and timed seconds of each GPU, and wall time: `earlier` is that of the run's processes before this one."""

    def __init__(self) -> None:
        self.earlier = 0.0
        self._held: dict[str, Union] = defaultdict(Union)
        self._timed: dict[str, Union] = defaultdict(Union)
        self._by: dict[str, float] = defaultdict(float)

    def add(self, hold: GpuHold) -> None:
        """One hold."""
        self._by[f"{hold.stage} timing" if hold.exclusive else hold.stage] += hold.end - hold.begin
        for kind in (self._held, self._timed) if hold.exclusive else (self._held,):
            kind[hold.gpu].add(hold.begin, hold.end)

    def share(self, gpus: int, seconds: float) -> float | None:
        """Held seconds over those that the GPUs were there, `seconds` of them in this process; None without GPUs."""
        return self.summary(gpus, seconds).busy

    def summary(self, gpus: int, seconds: float) -> GpuUse:
        """The whole run, `seconds` of it in this process."""
        window = self.earlier + seconds
        held, timed = (sum(union.length for union in kind.values()) for kind in (self._held, self._timed))
        whole = gpus * window if window > 0 else 0.0
        return GpuUse(
            gpus=gpus,
            window_s=round(window, 1),
            held_s=round(held, 1),
            timed_s=round(timed, 1),
            busy=round(held / whole, 4) if whole else None,
            timing=round(timed / whole, 4) if whole else None,
            by_stage_s={what: round(seconds, 1) for what, seconds in sorted(self._by.items())},
        )
