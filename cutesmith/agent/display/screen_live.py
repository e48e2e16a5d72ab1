"""The live panel: one thread draws it, so that neither a slow terminal nor an error in drawing holds up a session."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cutesmith.agent.budget import Limits
from cutesmith.agent.display.screen import PlainLines, Screen
from cutesmith.agent.display.screen_panel import draw
from cutesmith.agent.display.screen_view import Sentence, SessionView
from cutesmith.agent.transcript import Event
from cutesmith.verb_process import Running

if TYPE_CHECKING:
    from rich.console import Console

FASTEST, SLOWEST = 1 / 8, 0.5  # seconds between two drawings: when something happened, and for the clock alone
PATIENCE = 2.0  # seconds that a terminal may take for the last drawing


class LivePanel(Screen):
    """A panel at the bottom of the terminal, and above it a line for every event that matters.

    The caller's threads only change the view, under a lock that is never held while anything is written.
    """

    def __init__(self, console: Console | None = None, view: SessionView | None = None) -> None:
        from rich.console import Console

        self.view = view or SessionView()
        self.console = console or Console(file=sys.stderr, highlight=False)
        self.drawings = 0
        self._said: deque[Sentence] = deque()
        self._lock, self._over, self._changed = threading.Lock(), threading.Event(), threading.Event()
        self._fallback: PlainLines | None = None
        self._painter = threading.Thread(target=self._paint, name="live panel", daemon=True)

    def __enter__(self) -> LivePanel:
        self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._changed.set()
        self._painter.join(PATIENCE)

    def event(self, event: Event) -> None:
        """Say what the event says to people, and take it in."""
        with self._lock:
            self._said.extend(self.view.follow(event))
        self._changed.set()
        self._say_plainly()

    def stream(self, line: int, kind: str, text: str) -> None:
        """Show the end of what was streamed."""
        with self._lock:
            self.view.stream(line, kind, text)
            if kind == "retry":
                self._said.append(Sentence(self.view.named(line, text)))
        self._changed.set()
        self._say_plainly()

    def tick(self, line: int, running: Running) -> None:
        """Show the running tool."""
        with self._lock:
            self.view.tick(line, running)
        self._changed.set()

    @property
    def is_drawing(self) -> bool:
        """Whether its thread runs: after the end only while the terminal takes nothing."""
        return self._painter.is_alive()

    def join(self) -> None:
        """Wait until everything is drawn."""
        self._painter.join()

    def _say_plainly(self) -> None:
        """Once the panel is off: print what would have stood above it."""
        if self._fallback is not None:
            while self._said:
                self._fallback.say(self._said.popleft().text)

    def _paint(self) -> None:
        try:
            with self._live() as live:
                while not self._over.is_set():
                    self._changed.wait(SLOWEST)
                    self._changed.clear()
                    self._draw(live)
                    self._over.wait(FASTEST)
                self._draw(live, last=True)
        except Exception as error:  # drawing must not end a session that costs money
            self._switch_off(error)

    def _live(self) -> Any:
        from rich.live import Live

        # stdout holds the result of --json; stderr is redirected so that a warning does not tear the panel.
        return Live(console=self.console, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop")

    def _draw(self, live: Any, *, last: bool = False) -> None:
        size = self.console.size
        with self._lock:
            said = list(self._said)
            self._said.clear()
            panel = draw(self.view, size.width, size.height, last=last)
        for sentence in said:
            self.console.print(sentence.text, markup=False, highlight=False, style="green" if sentence.best else "")
        live.update(panel, refresh=True)
        self.drawings += 1

    def _switch_off(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        with contextlib.suppress(Exception):
            print(f"the live panel is off ({reason:.200}); the session goes on", file=sys.stderr, flush=True)
        self._fallback = PlainLines()


def open_screen(*, quiet: bool = False, plain: bool = False, limits: Limits | None = None) -> Screen:
    """The screen that fits stderr: a live panel on a terminal, else (or when `plain`) lines; nothing when `quiet`.

    `limits` are those that hold now, None for those that the session began with.
    """
    if quiet:
        return Screen()
    view = SessionView(limits=asdict(limits) if limits else {})
    if plain or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(view=view)
    return LivePanel(view=view)
