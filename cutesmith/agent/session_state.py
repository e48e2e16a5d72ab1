"""Where a session stands, read off its events: every kernel that was judged, which is best, and what was spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from cutesmith.agent.models.model import Usage
from cutesmith.agent.outcome import AddNote, RecordVerdict, effects_of, judgements
from cutesmith.agent.transcript import Event
from cutesmith.verdicts import VERIFIED, VERIFIED_BY_EMULATION, ExitCode

GRADES = {"compiled": 1, VERIFIED_BY_EMULATION: 2, VERIFIED: 3}
"""How much a verify verdict is worth; anything else is worth nothing."""
CONDEMNING = ("rejected", "wrong_result")
"""What no later verdict on the same text takes back."""

TIE = "of versions that are equal in this, the latest that verified counts, at `finish` the one that kernel.py holds"
"""How a tie within a line is decided, told in these words everywhere."""

Merit = tuple[int, int, bool, float]
"""Less is better: minus the grade, declined cases, whether it is untimed, microseconds."""


@dataclass
class JudgedKernel:
    """One text of the kernel file and the latest verdict of every stage on it; times in microseconds."""

    sha256: str
    text: str
    line: int
    seq: int  # of the event that verified it last: what else was asked about it makes it no later
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    condemned: bool = False  # found wrong or rejected once: passing with other inputs does not make it right
    evidence: int = 0  # cases that it passed, of every verification with draws of its own
    confirmed: bool = False  # verified again at the end of a session

    def follow(self, verdict: Mapping[str, Any], seq: int) -> None:
        """Take in one more verdict, of event number `seq`; a timing that merely failed takes no earlier time away."""
        says_nothing = verdict["exit_code"] != 0 and verdict["status"] not in CONDEMNING  # no time, process or machine
        if verdict["stage"] == "benchmark" and self.median_us is not None and says_nothing:
            return
        known = self.verdicts.get(verdict["stage"])
        self.verdicts = {**self.verdicts, verdict["stage"]: verdict}
        self.condemned = self.condemned or verdict["status"] in CONDEMNING
        if verdict["stage"] == "verify":
            self.seq = seq
            if verdict != known:  # `finish` says a verdict once more
                passed = sum(bool(case["passed"]) for case in verdict.get("cases", ()))
                self.evidence += passed - int(verdict.get("declined") or 0)

    @property
    def state(self) -> str:
        """The status of its verify verdict, "" before one."""
        return str(self.verdicts.get("verify", {}).get("status", ""))

    @property
    def is_executed(self) -> bool:
        """Whether verify ran it: neither compiled alone, nor stopped before by lint or the machine."""
        verify = self.verdicts.get("verify", {})
        before = (ExitCode.USAGE, ExitCode.LINT, ExitCode.DOES_NOT_COMPILE, ExitCode.UNAVAILABLE, ExitCode.INTERNAL)
        return bool(verify) and verify["status"] != "compiled" and verify["exit_code"] not in before

    @property
    def grade(self) -> int:
        """0 unless it passed verification and nothing was ever found against it; see GRADES."""
        return 0 if self.condemned else GRADES.get(self.state, 0)

    @property
    def declined(self) -> int:
        """How many cases of its verification it refused to take: passed, and yet less than what takes them."""
        return int(self.verdicts.get("verify", {}).get("declined") or 0)

    @property
    def merit(self) -> Merit:
        """What ranks it before anything about its line: grade, cases, time."""
        return -self.grade, self.declined, self.median_us is None, self.median_us or 0.0

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


@dataclass(frozen=True)
class Noted:
    """An entry of the development log: whose, the hash of the kernel's text that it is about ("" for none), when."""

    line: int
    sha256: str
    seq: int
    fields: Mapping[str, str]


@dataclass
class SessionState:
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
    notes: list[Noted] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> SessionState:
        """The state after these events."""
        state = cls()
        for event in events:
            state.follow(event)
        return state

    def follow(self, event: Event) -> None:
        """Take one more event into account."""
        line = int(event["line"])
        if event["kind"] == "reply":
            self.usage += Usage(**event["usage"])
            self.turns[line] = self.turns.get(line, 0) + 1
            self.last_reply[line] = event
            self.unpriced = self.unpriced or event["dollars"] is None
            self.dollars += event["dollars"] or 0.0
        elif event["kind"] == "ended":
            self.endings[line] = event
        for effect in effects_of(event):
            if isinstance(effect, AddNote):
                self.notes.append(Noted(line, effect.sha256, int(event["seq"]), effect.fields))
        for judged in judgements(event):
            self._judge(line, int(event["seq"]), judged)
            kernel = self.kernels[judged.sha256]
            kernel.confirmed = kernel.grade > 0 and (kernel.confirmed or "confirms" in event)

    def _judge(self, line: int, seq: int, judged: RecordVerdict) -> None:
        verdict, before = judged.verdict, self.best(line)
        kernel = self.kernels.setdefault(judged.sha256, JudgedKernel(judged.sha256, judged.text, line, seq))
        kernel.follow(verdict, seq)
        self.rejected += verdict["status"] == "rejected"
        if verdict["exit_code"] != 0:
            self.failures[line] = verdict
        after = self.best(line)
        if after is not None and after is not before:
            self.last_improvement[line] = self.turns.get(line, 0)

    def executed(self) -> list[JudgedKernel]:
        """Every kernel whose values were compared, or that ended while it ran, in the order of the first verdicts."""
        return [kernel for kernel in self.kernels.values() if kernel.is_executed]

    def best(self, line: int | None = None) -> JudgedKernel | None:
        """The kernel to deliver, or with `line` the best of that line of work; None where none passed."""
        return next(iter(self.verified(line)), None)

    def verified(self, line: int | None = None) -> list[JudgedKernel]:
        """Every kernel that passed verification, best first; of one line if it is named. THE ranking: no other is.

        By grade, then fewer declined cases, then time. What is equal in these: in a line the later one; between lines
        the one with more evidence, then the one verified later.
        """
        passed = [kernel for kernel in self.kernels.values() if kernel.grade and line in (None, kernel.line)]
        passed.sort(key=lambda kernel: (kernel.merit, kernel.line, -kernel.seq))
        equals = groupby(passed, key=lambda kernel: (kernel.merit, kernel.line))
        peers = [list(group) for _, group in equals]  # of one line and merit, the latest first
        peers.sort(key=lambda group: (group[0].merit, -group[0].evidence, -group[0].seq))
        return [kernel for group in peers for kernel in group]
