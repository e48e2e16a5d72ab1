"""What people see of a running session, on stderr: a live panel on a terminal, plain lines elsewhere, or nothing.

A screen is told of events, streamed text and running tools. Nothing that goes wrong in it reaches the session.
"""

from __future__ import annotations

import sys
from typing import TextIO

from cutesmith.agent.display.screen_view import SessionView
from cutesmith.agent.transcript import Event
from cutesmith.verb_process import Running

HEARTBEAT = 60  # seconds of a running tool between two plain lines about it
LONGEST_LINE = 240  # characters of a plain line


class Screen:
    """What shows a session; this one shows nothing, the others print or draw.

    Use as a context manager. Events from before it began are taken in, not told again.
    """

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def event(self, event: Event) -> None:
        """An event was written to the transcript."""

    def stream(self, line: int, kind: str, text: str) -> None:
        """More text of a line's answer; the kinds are those of `cutesmith.agent.models.model.Listener`."""

    def tick(self, line: int, running: Running) -> None:
        """A tool of the line, or a verb of it, runs."""


class PlainLines(Screen):
    """One line for every event that matters, without colours; falls silent when the stream takes no more."""

    def __init__(self, stream: TextIO | None = None, view: SessionView | None = None) -> None:
        self.view = view or SessionView()
        self._stream: TextIO | None = stream or sys.stderr
        self._minutes: dict[int, int] = {}

    def event(self, event: Event) -> None:
        """Print what the event says, if it says anything new to people."""
        for sentence in self.view.follow(event):
            self.say(sentence.text)

    def stream(self, line: int, kind: str, text: str) -> None:
        """Print that an answer is asked for again; the answer itself is not shown."""
        self.view.stream(line, kind, text)
        if kind == "retry":
            self.say(self.view.named(line, text))

    def tick(self, line: int, running: Running) -> None:
        """Print once a minute that a tool still runs."""
        self.view.tick(line, running)
        minutes = int(running.seconds // HEARTBEAT)
        if minutes > self._minutes.get(line, 0):
            self.say(self.view.named(line, f"{self.view.line(line).doing} runs for {running.seconds:.0f} s"))
        self._minutes[line] = minutes

    def say(self, sentence: str) -> None:
        """Print one line."""
        text = sentence if len(sentence) <= LONGEST_LINE else sentence[: LONGEST_LINE - 1] + "…"
        try:
            if self._stream is not None:
                print(text, file=self._stream, flush=True)
        except (OSError, ValueError):  # the pipe or the terminal is gone: the session goes on without
            self._stream = None
