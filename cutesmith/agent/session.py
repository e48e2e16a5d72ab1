"""A session's folder: what the transcript says, made into files.

problem.py        what is to be written; the judge's copy
kernel.py         the deliverable: the best verified kernel, never the last edit
transcript.jsonl  every event; all the rest can be made again from it
DEVLOG.md         predictions, changes, measurements
work/LINE/        what a line's file tools reach
checkpoints/LINE/ every version that was kept, with the verdict that held
judged/SHA/       the very texts that were judged
result.json, report.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from cutesmith.agent.budget import Limits
from cutesmith.agent.display.screen import Screen
from cutesmith.agent.outcome import AddNote, Effect, KeepVersion, RecordVerdict, WriteFile, effects_of
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.tools.workspace import Workspace
from cutesmith.agent.transcript import FILE, Event, Transcript, TranscriptError, worked_seconds
from cutesmith.checkpoints import CheckpointStore, write_atomically
from cutesmith.devlog import FILE as DEVLOG
from cutesmith.devlog import TITLE, render_entry
from cutesmith.errors import UsageError
from cutesmith.verb_process import Follower, Running

PROBLEM, KERNEL = "problem.py", "kernel.py"


class Session:
    """The events so far, and the folder that they make. `open_session` gives one."""

    def __init__(self, folder: Path, transcript: Transcript, screen: Screen | None = None) -> None:
        self.folder, self.transcript, self.screen = folder, transcript, screen or Screen()
        self.state = SessionState.of(transcript.events)
        self.limits = Limits()
        self._before = worked_seconds(transcript.events)
        self._started = time.monotonic()
        self._workspaces: dict[int, Workspace] = {}

    @property
    def events(self) -> list[Event]:
        """Every event so far."""
        return self.transcript.events

    @property
    def seconds(self) -> float:
        """Time worked on this session, by every process that did."""
        return self._before + time.monotonic() - self._started

    def first(self, kind: str) -> Event | None:
        """The first event of a kind."""
        return next((event for event in self.events if event["kind"] == kind), None)

    def record(self, kind: str, line: int = 0, **fields: Any) -> Event:
        """Write an event, then let it take effect; raises TranscriptError when the disk takes no more."""
        event = self.transcript.append(kind, line=line, **fields)
        self.state.follow(event)
        self.screen.event(event)
        self._apply([event])
        return event

    def restore(self) -> None:
        """Bring the folder to what the transcript says, whatever a killed process left."""
        for event in self.events:
            self.screen.event(event)
        self._apply(self.events)

    def check(self, line: int) -> None:
        """Raise the Ending that the limits ask for before this line's next turn, if any."""
        self.limits.check(line, self.state, self.seconds)

    def workspace(self, line: int) -> Workspace:
        """The folder that this line's file tools reach."""
        if line not in self._workspaces:
            folder = self.folder / "work" / str(line)
            folder.mkdir(parents=True, exist_ok=True)
            store = CheckpointStore(folder / KERNEL, folder=self.folder / "checkpoints" / str(line))
            self._workspaces[line] = Workspace(folder, store)
        return self._workspaces[line]

    def follower(self, line: int) -> Follower:
        """What shows the progress of a line's running tool."""

        async def follow(running: Running) -> None:
            self.screen.tick(line, running)

        return follow

    def _apply(self, events: list[Event]) -> None:
        """The files that these events make; every effect may come twice."""
        kinds: set[type[Effect]] = set()
        with self._disk_errors():
            for event in events:
                if event["kind"] == "problem":
                    self.write(PROBLEM, event["source"])
                for effect in effects_of(event):
                    kinds.add(type(effect))
                    if isinstance(effect, (WriteFile, KeepVersion)):
                        self.workspace(int(event["line"])).apply(effect, int(event["seq"]))
            best = self.state.best()
            if RecordVerdict in kinds and best is not None:
                self.write(KERNEL, best.text)
            elif RecordVerdict in kinds:  # what it held was found wrong since
                (self.folder / KERNEL).unlink(missing_ok=True)
            if AddNote in kinds:
                self.write(DEVLOG, TITLE + "".join(_log_entries(self.events)))

    def write(self, name: str, text: str) -> None:
        """Give a file of the folder this text, if it does not have it."""
        target, data = self.folder / name, text.encode()
        if not target.is_file() or target.read_bytes() != data:
            write_atomically(target, data)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            wrong = f"{self.folder} cannot be written: {error.strerror}"
            raise TranscriptError(wrong, hint=f"Make room, then go on with --resume {self.folder}") from error


@contextmanager
def new_session(folder: Path, screen: Screen | None = None, **about: Any) -> Iterator[Session]:
    """A session in a folder that is new or empty; raises UsageError when it is neither or cannot be written.

    `about` are the fields of its first event. A folder that could not even take that event is removed again.
    """
    existed = folder.exists()
    _make_empty(folder)
    try:
        with Transcript(folder / FILE) as transcript:
            session = Session(folder, transcript, screen)
            session.record("session", **about)
            session.record("run", pid=os.getpid(), resumed=False)
            yield session
    finally:  # a session whose first event was never written leaves nothing behind
        path = folder / FILE
        if path.is_file() and b'"kind": "session"' not in path.read_bytes():
            path.unlink()
            if not existed and not any(folder.iterdir()):
                folder.rmdir()


@contextmanager
def resumed_session(folder: Path, screen: Screen | None = None) -> Iterator[Session]:
    """The session of a folder, brought to where its transcript ends; raises UsageError when there is none."""
    if not (folder / FILE).is_file():
        raise UsageError(f"{folder} holds no session: it has no {FILE}", hint="Give the folder of an agent session.")
    with Transcript(folder / FILE) as transcript:
        session = Session(folder, transcript, screen)
        if session.first("session") is None:
            raise UsageError(f"{folder}: the session ended before it began", hint="Start again without --resume.")
        session.restore()
        session.record("run", pid=os.getpid(), resumed=True)
        yield session


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = next(folder.iterdir(), None)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made a folder: {error.strerror}", hint="Give another --out.") from error
    if (folder / FILE).exists():
        raise UsageError(f"{folder} holds a session", hint=f"Go on with --resume {folder}, or give another --out.")
    if taken is not None:
        raise UsageError(f"{folder} is not empty: it holds {taken.name}", hint="Give another --out.")


def _log_entries(events: list[Event]) -> Iterator[str]:
    """Every note as an entry, named after the line and the kernel text that it was written about."""
    for event in events:
        for effect in effects_of(event):
            if isinstance(effect, AddNote):
                subject = " · ".join(word for word in (f"line {event['line']}", effect.sha256[:8]) if word)
                yield render_entry(subject, effect.fields, datetime.fromisoformat(event["time"]))
