"""What people see of a running session, on stderr: a live panel on a terminal, plain lines elsewhere, or nothing.

A screen is told of events, streamed text and running tools. Nothing that goes wrong in it reaches the session.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from types import TracebackType
from typing import Protocol, TextIO

from cutesmith.agent.budget import Limits
from cutesmith.agent.display.screen_view import SessionView
from cutesmith.agent.transcript import Event

HEARTBEAT = 60  # seconds of a running tool between two plain lines about it
LONGEST_LINE = 240  # characters of a plain line


class Screen(Protocol):
    """Whoever shows a session. Use as a context manager; events from before it began are taken in, not told again."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def event(self, event: Event) -> None:
        """An event was written to the transcript."""

    def stream(self, line: int, kind: str, text: str) -> None:
        """A piece of a line's answer; the kinds are those of `cutesmith.agent.models.model.Listener`."""

    def tick(self, line: int, seconds: float, message: str) -> None:
        """A tool of the line runs since so many seconds; `message` is its name, its last line on stderr, or neither."""


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def event(self, event: Event) -> None:
        """Nothing is shown."""

    def stream(self, line: int, kind: str, text: str) -> None:
        """Nothing is shown."""

    def tick(self, line: int, seconds: float, message: str) -> None:
        """Nothing is shown."""


class PlainLines(Quiet):
    """One line for every event that matters, without colours; falls silent when the stream takes no more."""

    def __init__(self, stream: TextIO | None = None, view: SessionView | None = None) -> None:
        self.view = view or SessionView()
        self._stream: TextIO | None = stream or sys.stderr
        self._minutes: dict[int, int] = {}

    def event(self, event: Event) -> None:
        """Print what the event says, if it says anything new to people."""
        for sentence in self.view.follow(event):
            self.say(sentence)

    def stream(self, line: int, kind: str, text: str) -> None:
        """Print that an answer is asked for again; the answer itself is not shown."""
        self.view.stream(line, kind, text)
        if kind == "retry":
            self.say(self.view.named(line, text))

    def tick(self, line: int, seconds: float, message: str) -> None:
        """Print once a minute that a tool still runs."""
        self.view.tick(line, seconds, message)
        minutes = int(seconds // HEARTBEAT)
        if minutes > self._minutes.get(line, 0):
            self.say(self.view.named(line, f"{self.view.line(line).doing} runs for {seconds:.0f} s"))
        self._minutes[line] = minutes

    def say(self, sentence: str) -> None:
        """Print one line."""
        text = sentence if len(sentence) <= LONGEST_LINE else sentence[: LONGEST_LINE - 1] + "…"
        try:
            if self._stream is not None:
                print(text, file=self._stream, flush=True)
        except (OSError, ValueError):  # the pipe or the terminal is gone: the session goes on without
            self._stream = None


def open_screen(*, quiet: bool = False, plain: bool = False, limits: Limits | None = None) -> Screen:
    """The screen that fits stderr: a live panel on a terminal, else (or when `plain`) lines; nothing when `quiet`.

    `limits` are those that hold now, None for those that the session began with.
    """
    if quiet:
        return Quiet()
    view = SessionView(limits=asdict(limits) if limits else {})
    if plain or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(view=view)
    from cutesmith.agent.display.screen_live import LivePanel

    return LivePanel(view=view)
