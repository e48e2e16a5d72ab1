"""What a screen knows of a session: `SessionState`, what every line of work is doing, and sentences about events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cutesmith.agent.outcome import judgements
from cutesmith.agent.session_state import JudgedKernel, SessionState
from cutesmith.agent.transcript import Event, worked_seconds
from cutesmith.verb_process import Running

TAIL = 1200  # characters of streamed text that are kept


@dataclass
class LineView:
    """One line of work; `number` 0 is the session itself, before and after the lines. `since` is a monotonic time."""

    number: int
    doing: str = ""
    detail: str = ""
    since: float = 0.0
    verdict: Mapping[str, Any] | None = None
    waiting: list[str] = field(default_factory=list)  # tools that the last reply called and that have not answered
    streamed: str = ""
    streaming: str = ""
    ended: str = ""

    def begin(self, doing: str, seconds: float = 0.0) -> None:
        """Do something else from now on, or from so many seconds ago."""
        self.doing, self.detail, self.since = doing, "", time.monotonic() - seconds


@dataclass(frozen=True)
class Sentence:
    """What an event says to people; `best`: it is of a new best kernel."""

    text: str
    best: bool = False


@dataclass
class SessionView:
    """Follows a session; events older than the view itself are taken in without a sentence."""

    state: SessionState = field(default_factory=SessionState)
    lines: dict[int, LineView] = field(default_factory=dict)
    request: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    latest: int = 0  # the line that streamed last
    began: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    started: float = field(default_factory=time.monotonic)
    _past: list[Event] = field(default_factory=list)
    _before: float = 0.0  # seconds that were worked before the view

    def line(self, number: int) -> LineView:
        """The view of one line of work."""
        return self.lines.setdefault(number, LineView(number))

    def named(self, number: int, text: str) -> str:
        """A sentence about a line of work, fit for a terminal."""
        subject = f"line {number}" + (f", turn {turn}" if (turn := self.state.turns.get(number)) else "")
        return plain(f"{subject}: {text}" if number else text)

    def follow(self, event: Event) -> list[Sentence]:
        """Take an event in; what it says to people, nothing when it is older than this view."""
        best = self.state.best()
        self.state.follow(event)
        self._show(event)
        if datetime.fromisoformat(event["time"]) < self.began:
            self._past.append(event)
            return []
        if self._past:
            self._before, self._past = worked_seconds(self._past), []
        after = self.state.best()  # another one now because of what the event says of it?
        hashes = [judged.sha256 for judged in judgements(event)]
        better = after is not None and after is not best and after.sha256 in hashes
        about = "" if event["line"] or event["kind"] not in CONVERSED else "the request: "
        found = sentences(event, better, self.state)
        return [replace(said, text=self.named(int(event["line"]), about + said.text)) for said in found]

    def _show(self, event: Event) -> None:
        """What every line of work does after an event; other kinds change nothing that a screen shows."""
        kind, line = event["kind"], self.lines.get(int(event["line"])) or LineView(int(event["line"]))
        if kind == "session":
            self.request = str(event.get("request") or Path(str(event.get("argument") or "")).name)
            self.limits = self.limits or (event.get("settings") or {}).get("limits") or {}
        if kind not in ("line", "request", "reply", "tool", "judged", "ended"):
            return
        self.lines[line.number] = line
        if kind == "line":
            line.ended = ""
            self.lines.pop(0, None)  # the draft is there
        elif kind == "request":
            line.ended = line.streaming = line.streamed = ""
            line.begin(ASKING)
        elif kind == "reply":
            line.waiting = tools_called(event)
            line.begin(next(iter(line.waiting), ""))
        elif kind == "tool":
            if event["name"] in line.waiting:
                line.waiting.remove(event["name"])
            line.begin(next(iter(line.waiting), ""))
        elif kind == "judged":
            line.begin("")
        elif kind == "ended":
            line.begin("")
            line.ended = str(event.get("ending", ""))
        for judged in judgements(event):
            line.verdict = judged.verdict

    def stream(self, number: int, kind: str, text: str) -> None:
        """Some more text of a streamed answer."""
        line, self.latest = self.line(number), number
        if kind != line.streaming:
            line.streaming, line.streamed = kind, ""
            line.begin(STREAMED.get(kind, kind), time.monotonic() - line.since if line.doing == ASKING else 0.0)
        line.streamed = (line.streamed + text)[-TAIL:]

    def tick(self, number: int, running: Running) -> None:
        """A tool runs: the first tick names it, the others are of its verbs."""
        line = self.line(number)
        if running.seconds == 0.0 or not line.doing:
            line.begin(running.name, running.seconds)
        line.since = time.monotonic() - running.seconds
        line.detail = running.said or line.detail

    def seconds(self) -> float:
        """Time that was worked on the session, by this process and those before it."""
        return self._before + time.monotonic() - self.started


ASKING = "asks the model"
CONVERSED = ("reply", "tool", "message")  # before the first line of work only a request is talked about
STREAMED = {"thinking": "thinks", "text": "writes", "tool": "calls a tool", "retry": "asks again"}


def told(verdict: Mapping[str, Any]) -> str:
    """A verdict in one sentence."""
    stage, summary = str(verdict.get("stage")), str(verdict.get("summary"))
    status = str(verdict.get("status")).replace("_", " ")
    return f"{stage}: {summary}" if status == stage or status in summary else f"{stage}: {status} · {summary}"


def sentences(event: Event, better: bool, state: SessionState) -> Iterator[Sentence]:
    """What an event says to people: nothing, a sentence, or one a verdict; `better`: it made a new best kernel."""
    kind = event["kind"]
    if kind == "reply":
        said = ", ".join(tools_called(event)) or f"no tool call ({event['stop_reason']})"
        cost = "" if event["dollars"] is None else f", ${event['dollars']:.2f} (${state.dollars:.2f} in all)"
        yield Sentence(f"{said}; {sum(event['usage'].values()):,} tokens{cost}")
    elif kind in ("tool", "judged"):
        verdicts = [judged.verdict for judged in judgements(event)]
        for index, verdict in enumerate(verdicts, start=1):
            best = better and index == len(verdicts)
            again = "the result again, " if event.get("confirms") else ""
            yield Sentence(f"{again}{told(verdict)}{' (the best so far)' * best}", best=best)
        if not verdicts and (event.get("is_error") or kind == "judged"):
            yield Sentence(": ".join(filter(None, (str(event.get("name", "")), str(event.get("text", ""))))))
    elif kind in _SENTENCES:
        yield Sentence(_SENTENCES[kind](event))


def tools_called(reply: Event) -> list[str]:
    """The names of the tools that a reply calls."""
    return [str(block.get("name")) for block in reply["content"] if block.get("type") == "tool_use"]


def beginning(event: Event) -> str:
    """Whose kernel a line of work begins with."""
    if event.get("parent"):
        return f"line {event['parent']}"
    return "the draft" if event.get("effects") else "nothing"


_SENTENCES: dict[str, Callable[[Event], str]] = {
    "session": lambda e: f"session: {e.get('request') or e.get('argument')}",
    "run": lambda e: "going on where the transcript ends" if e.get("resumed") else "begins",
    "problem": lambda e: f"problem accepted (from a {e.get('origin') or 'file'})",
    "line": lambda e: f"begins from {beginning(e)}",
    "message": lambda e: f"is told: {e.get('text', '')}",
    "round": lambda e: f"round {e.get('round')}: kept {e.get('kept')}, dropped {e.get('dropped')}; {e.get('lessons')}",
    "ended": lambda e: f"{e.get('ending')}: {e.get('reason')}",
    "result": lambda e: f"result: {e['verdict'].get('summary')}",
}


def plain(text: str) -> str:
    """The text as one line that a terminal takes for text: no controls, no escapes, nothing that turns it around."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def speed_of(kernel: JudgedKernel) -> list[str]:
    """Its time, its speed-up over the fastest baseline, its share of the floor, and the other speed-ups, if known."""
    if kernel.median_us is None:
        return []
    known = sorted((factor, name) for name, factor in (kernel.benchmark.get("speedups") or {}).items() if factor)
    factors = [f"{factor:.2f}× {plain(name)}" for factor, name in known]
    share = kernel.benchmark.get("floor_percent")
    floor = [f"{share:.0f} % of the floor"] if share else []
    return [f"{kernel.median_us:.1f} µs", *factors[:1], *floor, *factors[1:]]
