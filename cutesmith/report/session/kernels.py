"""Every judged text of the kernel file as a row of the report, and every verdict as an attempt of its chart."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cutesmith.agent.outcome import RecordVerdict, WriteFile, effects_of
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.tools.workspace import KERNEL
from cutesmith.agent.transcript import Event
from cutesmith.report.path_chart import Attempt
from cutesmith.report.session.page import KernelRow
from cutesmith.report.stages import Said, Stages
from cutesmith.report.trimming import TextBudget
from cutesmith.verdicts import VERIFIED, VERIFIED_BY_EMULATION, ExitCode

MOST_ROWS, MOST_DETAILED = 250, 30
LONGEST_DIFF = 4000  # lines of a text that is compared: more take seconds

RUNGS = (
    "rejected",
    "fails lint",
    "passes lint",
    "does not compile",
    "compiles",
    "crashes or hangs",
    "wrong result",
    "launches",
    "verified by emulation",
    "verified",
)
"""How far a kernel came, worst first."""

_FAILED = {
    ExitCode.REJECTED: "rejected",
    ExitCode.LINT: "fails lint",
    ExitCode.DOES_NOT_COMPILE: "does not compile",
    ExitCode.CRASHED: "crashes or hangs",
    ExitCode.TIMED_OUT: "crashes or hangs",
    ExitCode.WRONG_RESULT: "wrong result",
}
_PASSED = {("lint", "passed"): "passes lint", ("compile", "compiled"): "compiles", ("verify", "compiled"): "launches"}
_PASSED |= {("verify", VERIFIED_BY_EMULATION): "verified by emulation", ("verify", VERIFIED): "verified"}


@dataclass
class Judged:
    """One text, whose it was first, and what it was made from; `turn` is its line's own."""

    number: int
    sha256: str
    text: str
    line: int
    turn: int
    before: str = ""
    before_title: str = ""
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass
class History:
    """Follows a session's events from the first on."""

    state: SessionState = field(default_factory=SessionState)
    kernels: dict[str, Judged] = field(default_factory=dict)
    attempts: list[tuple[str, Attempt]] = field(default_factory=list)  # with the kernel's hash
    replies: int = 0
    _turns: dict[tuple[int, int], int] = field(default_factory=dict)  # line, its turn -> replies until then
    _previous: dict[int, tuple[str, str]] = field(default_factory=dict)  # line -> its last text, and what that was
    _plotted: set[tuple[str, float]] = field(default_factory=set)

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """The history that these events make."""
        history = cls()
        for event in events:
            history.follow(event)
        return history

    def follow(self, event: Event) -> None:
        """Take one more event in."""
        self.state.follow(event)
        line = int(event["line"])
        if event["kind"] == "reply":
            self.replies += 1
            self._turns[line, int(event["turn"])] = self.replies
        for effect in effects_of(event):
            if isinstance(effect, RecordVerdict):
                self._judge(line, int(event.get("turn") or 0), effect)
            elif event["kind"] == "line" and isinstance(effect, WriteFile) and effect.path == KERNEL:
                self._previous.setdefault(line, (effect.text, f"what line {line} began with"))

    def _judge(self, line: int, turn: int, effect: RecordVerdict) -> None:
        sha256, verdict = effect.sha256, effect.verdict
        kernel = self.kernels.get(sha256)
        if kernel is None:
            before = self._previous.get(line, ("", ""))
            kernel = Judged(len(self.kernels) + 1, sha256, effect.text, line, turn, *before)
            self.kernels[sha256] = kernel
        self._previous[line] = effect.text, f"kernel {kernel.number}"
        kernel.verdicts[verdict["stage"]] = verdict
        judged = self.state.kernels[sha256]
        timed = judged.median_us if judged.grade and (sha256, judged.median_us) not in self._plotted else None
        if timed is not None:  # verified, and this time was not shown yet
            self._plotted.add((sha256, timed))
        shown = self._turns.get((line, turn), self.replies)
        whose = f"line {line}, its turn {turn}" if line and turn else "the session itself"
        when = f"turn {shown}; {whose}"
        title = f"kernel {kernel.number} ({when})\n{verdict['stage']}: {verdict['status']}: {verdict['summary']}"
        attempt = Attempt(
            turn=shown,
            line=line,
            title=title[:300],
            failed=verdict["exit_code"] in _FAILED,
            median_us=timed,
            rung=rung_of(verdict),
            target=f"kernel-{kernel.number}",
        )
        self.attempts.append((sha256, attempt))

    def marks(self) -> list[Attempt]:
        """Every attempt by its turn; one that was found out later shows no time."""
        honest = {sha256 for sha256, kernel in self.state.kernels.items() if kernel.grade}
        marks = [(a if sha256 in honest else replace(a, median_us=None)) for sha256, a in self.attempts]
        return sorted(marks, key=lambda attempt: attempt.turn)

    def rows(self, texts: TextBudget, turn_ids: set[str]) -> list[KernelRow]:
        """A row a kernel in the order of their first verdicts, at most MOST_ROWS; few of them in every detail."""
        best = [kernel.sha256 for kernel in self.state.verified()]
        latest = list(reversed(self.kernels))
        shown = set(_first(MOST_ROWS, best[: MOST_ROWS // 2], latest))
        detailed = set(_first(MOST_DETAILED, best[: MOST_DETAILED * 2 // 3], latest))
        return [
            self._row(kernel, texts, turn_ids, delivered=best[:1] == [sha256], detailed=sha256 in detailed)
            for sha256, kernel in self.kernels.items()
            if sha256 in shown
        ]

    def _row(
        self, kernel: Judged, texts: TextBudget, turn_ids: set[str], *, delivered: bool, detailed: bool
    ) -> KernelRow:
        turn_id = f"turn-{kernel.line}-{kernel.turn}"
        before, after, diff = kernel.before.splitlines(), kernel.text.splitlines(), ""
        title = f"Changes since {kernel.before_title}"
        if len(before) + len(after) <= LONGEST_DIFF:  # without the names of files
            diff = "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=3))[2:])
        else:
            title += ": too long to compare here"
        if not kernel.before_title:
            title = f"The whole text: {len(after)} lines"
        elif kernel.before == kernel.text:
            title = f"The same text as {kernel.before_title}"
        return KernelRow(
            number=kernel.number,
            sha256=kernel.sha256,
            line=kernel.line,
            turn=kernel.turn,
            turn_id=turn_id if turn_id in turn_ids else "",
            verdict=Said.of(telling(kernel.verdicts)),
            said=[Said.of(verdict) for verdict in kernel.verdicts.values()],
            stages=Stages.read(kernel.verdicts),
            diff=texts.keep(diff),
            diff_title=title,
            delivered=delivered,
            detailed=detailed,
        )


def _first(most: int, *groups: Sequence[str]) -> Iterator[str]:
    """The first different ones of all groups, at most so many."""
    yield from list(dict.fromkeys(item for group in groups for item in group))[:most]


def telling(verdicts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The verdict that says most of a kernel: the furthest stage's, a passed benchmark aside."""
    for stage in ("benchmark", "verify", "compile", "lint"):
        verdict = verdicts.get(stage)
        if verdict and (verdict["exit_code"] != 0 or stage != "benchmark"):
            return verdict
    return next(iter(verdicts.values()))


def rung_of(verdict: Mapping[str, Any]) -> int | None:
    """Its place in RUNGS; None for what says nothing of how far the kernel came."""
    name = _FAILED.get(verdict["exit_code"]) or _PASSED.get((verdict["stage"], verdict["status"]))
    if verdict["stage"] == "compile" and name == "crashes or hangs":
        name = "does not compile"  # the DSL's own exceptions, such as a name that does not exist
    return RUNGS.index(name) if name else None
