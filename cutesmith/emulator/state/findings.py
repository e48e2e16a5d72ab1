"""What a launch has to tell: faults, each line once, and what it printed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cutesmith.emulator.faults import FaultKind, Finding
from cutesmith.emulator.ptx.syntax import Location

MAX_FINDINGS = 100
FATAL = frozenset(FaultKind) - {
    FaultKind.UNINITIALISED_READ,
    FaultKind.RACE,
    FaultKind.DIVERGENT_BARRIER,
    FaultKind.MISMATCHED_BARRIER,
    FaultKind.MISSING_WAIT,
    FaultKind.MISSING_FENCE,
    FaultKind.DEPENDS_ON_ORDER,
}
"""Kinds that end the launch, as they do on a GPU; the others are written down and the launch goes on."""
MOST_PRINTED = 1 << 20  # characters: what the printf buffer of a device holds by default


@dataclass
class Findings:
    """The findings of a launch, in the order in which they were met; the same fault on the same line counts up.

    `lost` counts findings beyond the first MAX_FINDINGS lines.
    """

    kernel: str = ""
    lost: int = 0
    _by_line: dict[tuple[object, ...], Finding] = field(default_factory=dict)

    def add(self, finding: Finding, site: int = -1) -> None:
        """Write a finding down; `site`, the instruction's number, tells faults without a Python line apart."""
        key = (finding.kind, finding.location or site, finding.other)
        known = self._by_line.get(key)
        if known is not None:
            self._by_line[key] = replace(known, count=known.count + finding.count)
        elif len(self._by_line) < MAX_FINDINGS:
            self._by_line[key] = replace(finding, kernel=finding.kernel or self.kernel)
        else:
            self.lost += finding.count

    @property
    def all(self) -> tuple[Finding, ...]:
        """Every finding; reads of uninitialised memory come last, since a race may explain them."""
        return tuple(sorted(self._by_line.values(), key=lambda finding: finding.kind == FaultKind.UNINITIALISED_READ))

    @property
    def fatal(self) -> tuple[Finding, ...]:
        """The findings that end the launch."""
        return tuple(finding for finding in self._by_line.values() if finding.kind in FATAL)


@dataclass
class Printed:
    """The texts that a launch printed, at most MOST_PRINTED characters; `last`: the last one of each lane."""

    texts: list[str] = field(default_factory=list)
    last: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def add(self, lane: int, text: str) -> None:
        """Add what a lane prints."""
        self.last[lane] = text
        if self.size < MOST_PRINTED:
            self.texts.append(text)
        self.size += len(text)


def where(location: Location | None) -> str:
    """Such as "kernel.py:31" (the file's last part), or "an unknown line"."""
    return f"{location.file.rsplit('/', 1)[-1]}:{location.line}" if location else "an unknown line"
