"""Where a session stands, read off its events: every kernel that was judged, which is best, and what was spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cutesmith.agent.models.model import Usage
from cutesmith.agent.transcript import Event
from cutesmith.verdicts import VERIFIED, VERIFIED_BY_EMULATION

GRADES = {"compiled": 1, VERIFIED_BY_EMULATION: 2, VERIFIED: 3}
"""How much a verify verdict is worth; anything else is worth nothing."""
CONDEMNING = ("rejected", "wrong_result")
"""What no later verdict on the same text takes back."""


@dataclass
class JudgedKernel:
    """One text of the kernel file and the latest verdict of every stage on it; times in microseconds."""

    sha256: str
    text: str
    line: int
    seq: int  # of the event that verified it last: what else was asked about it makes it no later
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    condemned: bool = False  # found wrong or rejected once: passing with other inputs does not make it right

    def follow(self, verdict: Mapping[str, Any], seq: int) -> None:
        """Take in one more verdict, of event number `seq`; a timing that merely failed takes no earlier time away."""
        if verdict["stage"] == "benchmark" and self.median_us is not None and _says_nothing(verdict):
            return
        self.verdicts = {**self.verdicts, verdict["stage"]: verdict}
        self.condemned = self.condemned or verdict["status"] in CONDEMNING
        if verdict["stage"] == "verify":
            self.seq = seq

    @property
    def state(self) -> str:
        """The status of its verify verdict, "" before one."""
        return str(self.verdicts.get("verify", {}).get("status", ""))

    @property
    def grade(self) -> int:
        """0 unless it passed verification and nothing was ever found against it; see GRADES."""
        return 0 if self.condemned else GRADES.get(self.state, 0)

    @property
    def benchmark(self) -> Mapping[str, Any]:
        """Its benchmark verdict, empty before one."""
        return self.verdicts.get("benchmark", {})

    @property
    def is_compared(self) -> bool:
        """Whether it was timed beside torch.compile too, which a quick timing leaves out."""
        return any("compile" in timing["name"] for timing in self.benchmark.get("timings") or ())

    @property
    def median_us(self) -> float | None:
        """Median device time, None when it was not timed."""
        timings = self.benchmark.get("timings") or ()
        median: float | None = timings[0].get("median_us") if timings and self.benchmark.get("exit_code") == 0 else None
        return median


@dataclass
class Standing:
    """Everything that a decision, the screen or the report needs; `follow` keeps it up to date."""

    kernels: dict[str, JudgedKernel] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    dollars: float = 0.0
    unpriced: bool = False  # some reply had no known price
    turns: dict[int, int] = field(default_factory=dict)  # line -> replies
    last_improvement: dict[int, int] = field(default_factory=dict)  # line -> its turn when it last had a better kernel
    last_reply: dict[int, Event] = field(default_factory=dict)
    rejected: int = 0
    failures: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # line -> latest verdict that did not pass
    endings: dict[int, Event] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Standing:
        """The standing after these events."""
        standing = cls()
        for event in events:
            standing.follow(event)
        return standing

    def follow(self, event: Event) -> None:
        """Take one more event into account."""
        line = int(event["line"])
        if event["kind"] == "reply":
            self._count(line, event)
        elif event["kind"] == "ended":
            self.endings[line] = event
        for effect in event.get("effects", ()):
            if effect["do"] == "judged":
                self._judge(line, int(event["seq"]), effect)

    def _count(self, line: int, event: Event) -> None:
        self.usage += Usage(**event["usage"])
        self.turns[line] = self.turns.get(line, 0) + 1
        self.last_reply[line] = event
        if event["dollars"] is None:
            self.unpriced = True
        else:
            self.dollars += event["dollars"]

    def _judge(self, line: int, seq: int, effect: Mapping[str, Any]) -> None:
        verdict, before = effect["verdict"], self.best(line)
        kernel = self.kernels.setdefault(effect["sha256"], JudgedKernel(effect["sha256"], effect["text"], line, seq))
        kernel.follow(verdict, seq)
        self.rejected += verdict["status"] == "rejected"
        if verdict["exit_code"] != 0:
            self.failures[line] = verdict
        after = self.best(line)
        if after is not None and after is not before:
            self.last_improvement[line] = self.turns.get(line, 0)

    def best(self, line: int | None = None) -> JudgedKernel | None:
        """The kernel to deliver: highest grade, then fastest, then (where nothing is timed) the one verified last.

        None without one. With `line`, of that line of work alone.
        """
        passed = [k for k in self.kernels.values() if k.grade and line in (None, k.line)]
        return min(passed, key=_preference, default=None)

    def verified(self) -> list[JudgedKernel]:
        """Every kernel that passed verification, best first."""
        return sorted((k for k in self.kernels.values() if k.grade), key=_preference)


def _says_nothing(verdict: Mapping[str, Any]) -> bool:
    """Whether a stage ended without a word on the kernel itself: no time, no process, no machine."""
    return verdict["exit_code"] != 0 and verdict["status"] not in CONDEMNING


def _preference(kernel: JudgedKernel) -> tuple[int, bool, float, int]:
    return -kernel.grade, kernel.median_us is None, kernel.median_us or 0.0, -kernel.seq
