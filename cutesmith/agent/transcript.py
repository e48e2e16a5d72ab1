"""`transcript.jsonl`: everything that happened, one event a line, appended and on the disk before it takes effect.

Every event has `seq` (from 0), `time` (UTC, ISO 8601), `line` (the line of work from 1; 0 is the session itself) and
`kind`:

    session   request, settings, environment: the first event
    run       pid, resumed: a process works on this session from here on
    problem   source, origin ("file" or "request"), audit: what is to be written, accepted
    line      parent, opening: a line of work begins with this user message (`parent` 0: from the draft)
    message   text: a user message of ours, such as a nudge or what other lines learnt
    request   turn: the model is being asked; without a `reply` after it the process ended while it answered
    reply     turn, content, stop_reason, usage, dollars, model, seconds
    tool      turn, id, name, input, text, is_error, effects, finish, seconds: the answer to one tool call
    judged    text, effects, seconds: a judgement that no model asked for: of the first draft (with pattern, unmatched)
              or of the best kernel at the end (`confirms`: its hash, where it was verified again)
    round     round, kept, dropped, lessons: what the search did after a round
    ended     ending (the name of an Ending), reason: this line of work is over
    result    verdict: AgentVerdict.to_dict()

`effects` are the classes of `cutesmith.agent.outcome` as JSON. A last line that a kill cut is dropped on opening.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cutesmith.append_log import AppendLog, LogWriteError
from cutesmith.errors import UsageError
from cutesmith.verdicts import strict_json

FILE = "transcript.jsonl"
Event = Mapping[str, Any]


class TranscriptError(LogWriteError):
    """An event could not be written: the disk is full or the folder went away. Nothing after it took effect."""


class Transcript:
    """The events of a session, and the one process that may add to them. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        self._log = AppendLog(path, resume=f"--resume {path.parent}")

    def __enter__(self) -> Transcript:
        """Open for appending; raises UsageError when another process has it open or the file cannot be written."""
        with contextlib.ExitStack() as opened:
            opened.enter_context(self._log)
            self.events = parse(self.path.read_bytes(), self.path)
            opened.pop_all()  # it stays open, unless it does not hold a transcript
        return self

    def __exit__(self, *_: object) -> None:
        self._log.__exit__()

    def append(self, kind: str, *, line: int = 0, **fields: Any) -> Event:
        """Write one event, with its Effects as JSON, and flush it to the disk.

        Raises TranscriptError, and then the file is as it was.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        if "effects" in fields:
            fields["effects"] = [effect.to_dict() for effect in fields["effects"]]
        text = strict_json({"seq": len(self.events), "time": now, "line": line, "kind": kind, **fields})
        try:
            self._log.append(text)
        except LogWriteError as error:
            raise TranscriptError(error.message, hint=error.hint) from error
        written: Event = json.loads(text)  # what a resumed process would see
        self.events.append(written)
        return written


def parse(data: bytes, path: Path) -> list[Event]:
    """The events of a transcript's bytes; raises UsageError for a line that is not an event, naming it."""
    events: list[Event] = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or event.get("seq") != len(events) or "kind" not in event:
            raise UsageError(f"{path}, line {number}: not the event that belongs there", hint="The file was changed.")
        events.append(event)
    return events


def read_transcript(path: Path) -> list[Event]:
    """The whole events of a transcript that another process may still be writing; raises UsageError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="Give the folder of an agent session.") from error
    return parse(data[: data.rfind(b"\n") + 1], path)


def worked_seconds(events: Iterable[Event]) -> float:
    """How long the processes worked whose events these are: each from its `run` event to its last one."""
    total, begin, last = 0.0, None, None
    for event in events:
        now = datetime.fromisoformat(event["time"])
        if event["kind"] == "run" and begin is not None and last is not None:
            total += (last - begin).total_seconds()
        begin, last = (now if event["kind"] == "run" or begin is None else begin), now
    return total + ((last - begin).total_seconds() if begin is not None and last is not None else 0.0)
