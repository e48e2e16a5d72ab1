"""One kernel file that the generator tries, and what each stage said of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.generation.drafting import Cover, Drafted
from cutesmith.runtime.tiling import Tiling
from cutesmith.verdicts import (
    VERIFIED,
    VERIFIED_BY_EMULATION,
    CompileVerdict,
    LintVerdict,
    Timing,
    Verdict,
    VerifyVerdict,
)


@dataclass
class Candidate:
    """A configuration of the pattern, its file and source, and the verdicts so far."""

    number: int
    configuration: Configuration
    tiling: Tiling
    path: Path
    source: str
    cover: Cover
    verdicts: list[Verdict] = field(default_factory=list)
    timing: Timing | None = None
    chosen: bool = False
    timed_on: str = ""  # the day of an earlier race that the timing is from
    unverified: str = ""  # why the emulated GPU could not decide, such as an instruction that it lacks

    def verdict(self, kind: type[Verdict]) -> Verdict | None:
        """The latest verdict of that kind, None before its stage."""
        return next((verdict for verdict in reversed(self.verdicts) if isinstance(verdict, kind)), None)

    @property
    def linted(self) -> bool:
        """Whether lint has nothing against it."""
        return _passed(self.verdict(LintVerdict))

    @property
    def compiled(self) -> bool:
        """Whether it compiles and the hardware would take every launch."""
        return _passed(self.verdict(CompileVerdict))

    @property
    def verified(self) -> bool:
        """Whether it was executed and agrees with the reference; a compile-only pass does not count."""
        verdict = self.verdict(VerifyVerdict)
        return _passed(verdict) and verdict is not None and verdict.status in (VERIFIED, VERIFIED_BY_EMULATION)

    @property
    def failed(self) -> Verdict | None:
        """The first verdict that holds something against it."""
        return next((verdict for verdict in self.verdicts if not verdict.passed), None)

    @property
    def median_us(self) -> float | None:
        """Median device time in microseconds, None when it was not timed."""
        return self.timing.median_us if self.timing is not None and not self.timing.error else None

    @property
    def is_doubtful(self) -> bool:
        """Whether a kernel spills registers, or its machine code reads some that nothing has written."""
        verdict = self.verdict(CompileVerdict)
        archs = verdict.archs if isinstance(verdict, CompileVerdict) else ()
        kernels = [kernel for arch in archs for kernel in arch.kernels]
        return any(k.spill_store_bytes or k.spill_load_bytes or k.undefined_registers for k in kernels)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: configuration, status, summary, median, and every stage's verdict under its name."""
        last = self.failed or (self.verdicts[-1] if self.verdict(CompileVerdict) else None)
        head = {
            "number": self.number,
            "path": str(self.path),
            "configuration": self.configuration.to_dict(),
            "cover": self.cover.told,
            "status": last.status if last else "drafted",
            "summary": last.summary if last else "",
            "median_us": self.median_us,
            "chosen": self.chosen,
            "timing": self.timing,
            "timed_on": self.timed_on,
            "tiling": self.tiling.to_dict(),
        }
        return {**head, **{verdict.stage: verdict.to_dict() for verdict in self.verdicts}}


def skipped_row(number: int, skipped: Drafted, cover: Cover) -> dict[str, Any]:
    """The row of a configuration that was refused before it became a candidate."""
    return {
        "number": number,
        "configuration": skipped.configuration.to_dict(),
        "cover": cover.told,
        "status": "skipped",
        "summary": "; ".join(skipped.refusals),
        "median_us": None,
        "chosen": False,
        "tiling": skipped.tiling.to_dict(),
    }


def by_speed(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Timed candidates first, fastest first; the others follow in the pattern's own order."""
    return iter(sorted(candidates, key=lambda c: (c.median_us is None, c.median_us or 0.0, c.number)))


def _passed(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.passed
