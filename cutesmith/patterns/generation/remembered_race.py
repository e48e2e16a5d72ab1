"""The race of a problem's candidates, remembered: the same files on the same device have the same order.

A race in which something failed is not remembered, since it may be that moment's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cutesmith.patterns.generation.target import Target
from cutesmith.problems.contract import problem_source
from cutesmith.runtime.tuning_cache import (
    TuningCache,
    TuningKey,
    compiler_versions,
    device_identity,
    source_hashes,
)
from cutesmith.timing.contest import QUICK_ROUNDS
from cutesmith.verdicts import Timing


@dataclass
class RememberedRace:
    """One race; `date` is the day of an earlier one whose times were taken, "" when the candidates raced now."""

    problem: Path
    target: Target
    sources: Sequence[str]
    cache: TuningCache | None
    date: str = ""

    def timings(self, race: Callable[[], Sequence[Timing]]) -> list[Timing]:
        """A timing for each source, from the cache or from `race`."""
        if (known := self._known()) is not None:
            return known
        timings = list(race())
        if self.cache is not None and timings and not any(timing.error for timing in timings):
            self.cache.put(self.key(), {"timings": [asdict(timing) for timing in timings]})
        return timings

    def key(self) -> TuningKey:
        """The problem, every candidate in its order, the GPU with its driver, and what compiled them."""
        device = self.target.device
        where = device_identity(device) if device is not None else "no GPU"
        return TuningKey(
            sources=source_hashes([problem_source(self.problem), *self.sources]),
            device=f"{where}, {self.target.arch}",
            inputs="get_inputs()",
            method=f"race, {QUICK_ROUNDS} rounds",
            versions=compiler_versions(),
        )

    def _known(self) -> list[Timing] | None:
        found = self.cache.get(self.key()) if self.cache is not None else None
        if found is None:
            return None
        try:
            known = found.result["timings"]
            timings = [Timing(**{**fields, "samples_us": tuple(fields["samples_us"])}) for fields in known]
        except (KeyError, TypeError):  # written by another version
            return None
        if len(timings) != len(self.sources):
            return None
        self.date = found.date
        return timings
