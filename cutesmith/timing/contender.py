"""One callable of a benchmark: the requests that warm it up and time it, its samples, its launches to be judged."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median, quantiles

from cutesmith.sandbox.worker import Worker
from cutesmith.timing.requests import Burst, Estimate, Round, WarmedUp, WarmUp
from cutesmith.verdicts import Mechanism, Rule, Timing, Violation

ROUND_MICROSECONDS = 15_000.0  # of device time, about; between 3 and 20 launches
CLOCK_FACTOR, CLOCK_SLACK_US = 1.4, 4_000.0  # rule T4: the parent's clock may read this much more
BURSTS_AGAIN = 2
WARM_UP_FACTOR, WARM_UP_SLACK_US = 4.0, 50.0  # rule T6: clocks alone move a launch by less than a factor of two


@dataclass
class Contender:
    """One callable of the contest: where it runs, its estimates, its samples, seconds of its first calls.

    `clock` is the parent's own, in seconds.
    """

    name: str
    worker: Worker
    host_us: float = 20.0
    device_us: float = 0.0
    samples: list[float] = field(default_factory=list)
    error: str = ""
    mechanism: str = ""  # the limit that the error comes from
    warm_up_s: float = 0.0
    clock: Callable[[], float] = time.perf_counter

    @property
    def launches(self) -> int:
        """How many launches a round has."""
        return max(3, min(20, int(ROUND_MICROSECONDS / max(self.device_us, 1.0))))

    def round_request(self, shift: int) -> Round:
        """One round with fresh values, no output kept."""
        return Round(self.name, self.launches, self.host_us, shift)

    def warm_up(self, timeout: float) -> WarmedUp:
        """First calls; estimates of device and host time."""
        begin = self.clock()
        reply = self.worker.call(WarmUp(self.name), timeout=timeout)
        self.warm_up_s = self.clock() - begin
        self.device_us, self.host_us = reply.device_us, reply.host_us
        return reply

    def estimate(self) -> None:
        """The device time again, once no one else uses the GPU: a slow warm-up must not cut repetitions (rule T6)."""
        self.device_us = self.worker.call(Estimate(self.name, self.host_us))

    def slow_start(self) -> Violation | None:
        """Rule T6: launches were far slower before the timing than in it."""
        middle = median(self.samples)
        if self.device_us <= WARM_UP_FACTOR * middle + WARM_UP_SLACK_US:
            return None
        text = f"its warm-up took {self.device_us:.1f} us a launch, the timed launches {middle:.1f} us"
        return Violation(Rule.T6, Mechanism.WARM_UP, text)

    def late(self) -> str:
        """Rule T4: what is said of launches that the parent's clock finds slower than they were timed at; else nothing.

        A burst that is late may have met another process that came and went: then the next ones must all be in time.
        """
        if not self._late_burst():
            return ""
        return next(filter(None, (self._late_burst() for _ in range(BURSTS_AGAIN))), "")

    def _late_burst(self) -> str:
        """Launches back to back on the parent's own clock."""
        reported = max(median(self.samples), self.host_us)
        launches = max(10, min(2000, int(20_000 / reported)))
        begin = self.clock()
        self.worker.call(Burst(self.name, launches))
        wall_us = 1e6 * (self.clock() - begin)
        if wall_us <= CLOCK_FACTOR * launches * reported + CLOCK_SLACK_US:
            return ""
        return f"{launches} launches took {wall_us / launches:.1f} us each by the parent's clock, not {reported:.1f}"

    def timing(self, byte_count: int | None) -> Timing:
        """Median and quartiles of the samples."""
        if not self.samples:
            none = Timing(name=self.name, samples_us=(), median_us=0.0, q1_us=0.0, q3_us=0.0)
            return replace(none, error=self.error, mechanism=self.mechanism)
        low, middle, high = quantiles(self.samples, n=4, method="inclusive")
        return Timing(
            name=self.name,
            samples_us=tuple(round(sample, 3) for sample in self.samples),
            median_us=round(middle, 3),
            q1_us=round(low, 3),
            q3_us=round(high, 3),
            host_us=round(self.host_us, 3),
            bytes_per_second=None if byte_count is None else byte_count / (middle * 1e-6),
        )


def launch_to_keep(source: random.Random, launches: int, copies: int, *, again: bool) -> int:
    """A random launch of a round, whose output is judged (rules R2, R3).

    `again`: one that finds a copy of the inputs as another launch left it, where results can be remembered. Inputs
    rotate through `copies`; where no launch of the round sees one again, any may be kept.
    """
    return source.randrange(copies if again and launches > copies else 0, launches)
