"""What became of each tiling, and which is the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median, quantiles

from cutesmith.runtime.tiling import Tiling
from cutesmith.timing.roofline import ROOFS, Floor, Work, floor_of

SKIPPED, NOT_COMPILED, NOT_RUN, TIMED = "skipped", "failed to compile", "failed to run", "timed"
WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One tiling: its state (skipped, failed to compile, failed to run, timed), why, and its samples (microseconds).

    `reason` is every refusal of a skipped one, else the error's sentence; `log_tail` its last lines; `may_pass` says
    that it may have been that moment's fault.
    """

    tiling: Tiling
    state: str = WAITING
    reason: str = ""
    log_tail: str = ""
    may_pass: bool = False
    compile_seconds: float | None = None
    samples_us: tuple[float, ...] = ()

    @property
    def median_us(self) -> float | None:
        """None for what was not timed."""
        return median(self.samples_us) if self.samples_us else None

    @property
    def quartiles_us(self) -> tuple[float, float]:
        """First and third quartile of the samples, which must be some."""
        if len(self.samples_us) == 1:
            return self.samples_us[0], self.samples_us[0]
        low, _, high = quantiles(self.samples_us, n=4, method="inclusive")
        return low, high

    def failed(self, state: str, reason: str, log_tail: str = "", *, may_pass: bool = False) -> Trial:
        """The same tiling with why it is out; samples of it are worth nothing."""
        tail = log_tail[-4000:]
        return replace(self, state=state, reason=reason, log_tail=tail, may_pass=may_pass, samples_us=())


def fastest(trials: Sequence[Trial]) -> Trial | None:
    """The lowest median; of those within its noise the first, since they tie.

    The noise is the half-width of a notch, 1.57 interquartile ranges over the square root of the number of samples:
    about a 95 % interval of the median (McGill, Tukey and Larsen, "Variations of Box Plots", 1978).
    """
    timed = [trial for trial in trials if trial.state == TIMED and trial.samples_us]
    if not timed:
        return None
    best = min(timed, key=lambda trial: trial.median_us or 0.0)
    low, high = best.quartiles_us
    limit = (best.median_us or 0.0) + 1.57 * (high - low) / len(best.samples_us) ** 0.5
    return next(trial for trial in timed if (trial.median_us or 0.0) <= limit)


@dataclass(frozen=True, kw_only=True)
class AutotuneResult:
    """Every tiling's trial in the plan's order; `measured` is the day of the times, `cached` whether that was earlier.

    `flops` and `bytes` are the algorithm's own; the floor is what the measured device needs for either, None where
    nothing was measured.
    """

    trials: tuple[Trial, ...]
    device: str
    timer: str
    inputs: str
    measured: str = ""
    cached: bool = False
    is_time: bool = True  # False: lower bounds by counts, as the emulated GPU gives them
    kept: bool = False  # whether the cache has it now
    flops: int = 0
    bytes: int = 0
    copy_bytes_per_second: float | None = None
    matmul_flops_per_second: float | None = None
    source: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def best(self) -> Trial | None:
        """The fastest, None where none was timed."""
        return fastest(self.trials)

    @property
    def floor(self) -> Floor | None:
        """The bytes at the copy's bandwidth or the operations at the product's rate, whichever takes longer."""
        if not self.copy_bytes_per_second or not self.bytes:
            return None
        work = Work(self.bytes, {"any": self.flops} if self.flops else {})
        return floor_of(work, self.copy_bytes_per_second, {"any": self.matmul_flops_per_second})

    @property
    def floor_percent(self) -> float | None:
        """100 times the floor over the best median."""
        best, floor = self.best, self.floor
        if floor is None or best is None or not best.median_us:
            return None
        return 100 * floor.us / best.median_us

    @property
    def complete(self) -> bool:
        """Whether there is a winner, and nothing failed that might do better another time."""
        return self.best is not None and not any(trial.may_pass for trial in self.trials)

    def summary(self) -> str:
        """One sentence: the winner, its time and what share of the floor that is; where the times are from."""
        counts = {
            state: sum(trial.state == state for trial in self.trials) for state in (SKIPPED, NOT_COMPILED, NOT_RUN)
        }
        others = "".join(f", {count} {state}" for state, count in counts.items() if count)
        best, timed = self.best, sum(trial.state == TIMED for trial in self.trials)
        if best is None:
            first = next((trial.reason for trial in self.trials if trial.reason), "")
            why = f"; the first: {first.splitlines()[0][:300]}" if first else ""
            return f"none of {len(self.trials)} tilings was timed{others}{why}"
        floor, percent = self.floor, self.floor_percent
        share = f", {percent:.0f} % of {ROOFS[floor.kind]}" if floor and percent else ""
        when = f"; times from cache of {self.measured[:10]}" if self.cached else ""
        told = f"{best.tiling.label()}: {self._told_time(best)}{share}"
        return f"{told}; the best of {timed}{others} ({self.device}; {self.timer}){when}"

    def frozen_source(self) -> str:
        """The lines to write into the kernel file in the place of the plan's tilings: the winner, and what it rests on.

        Empty without a winner.
        """
        best = self.best
        if best is None:
            return ""
        timed = sum(trial.state == TIMED for trial in self.trials)
        basis = f"# best of {timed}: {self._told_time(best)} on {self.device}, {self.measured[:10]} ({self.timer})"
        return f"from types import SimpleNamespace\n\n{basis}\nTILING = {best.tiling.namespace()}\n"

    def _told_time(self, trial: Trial) -> str:
        return f"{'' if self.is_time else 'at least '}{trial.median_us:.4g} us"
