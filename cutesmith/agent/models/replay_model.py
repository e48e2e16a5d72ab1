"""A model that answers as it answered in a recorded session: to run that session's tools again, without a network.

Usage and dollars are the recorded ones, so that budgets end the session where they ended it then; the model's name says
that it was replayed.
"""

from __future__ import annotations

from collections.abc import Iterable

from cutesmith.agent.models.model import Listener, ModelError, Reply, Request, Usage, ignore
from cutesmith.agent.transcript import Event
from cutesmith.errors import UsageError


class ReplayModel:
    """Answers with the `reply` events of a transcript: line by line, turn by turn, in the order of the recording.

    `line`: answer every line of work as this one was answered; None: each as it was. Raises UsageError when there is
    nothing to replay.
    """

    def __init__(self, events: Iterable[Event], *, line: int | None = None) -> None:
        self.line = line
        self._replies: dict[int, list[Event]] = {}
        self._asked: dict[int, int] = {}  # line of the asker -> its last turn
        for event in events:
            if event["kind"] == "reply" and line in (None, event["line"]):
                self._replies.setdefault(int(event["line"]), []).append(event)
        if not self._replies:
            of = "" if line is None else f" of line {line}"
            raise UsageError(
                f"the transcript has no replies{of}", hint="Give the transcript.jsonl of an agent session."
            )
        self.name = replayed(str(next(iter(self._replies.values()))[0]["model"]))

    async def ready(self) -> None:
        """Nothing is needed."""

    async def reply(self, request: Request, listener: Listener = ignore) -> Reply:
        """The recorded answer to this turn; raises ModelError where the recording ends or another turn is due."""
        line = request.line if self.line is None else self.line
        recorded = self._replies.get(line, [])
        turn, before = request.turn, self._asked.get(request.line)
        if before is not None and turn not in (before, before + 1):
            raise ModelError(f"turn {turn} of line {request.line} is asked for after turn {before}")
        if not 1 <= turn <= len(recorded):
            raise ModelError(f"the transcript has {len(recorded)} replies of line {line}, none for turn {turn}")
        said = [block for event in recorded[: turn - 1] for block in event["content"]]
        if said != [block for sent in request.messages if sent["role"] == "assistant" for block in sent["content"]]:
            raise ModelError(f"before turn {turn} of line {request.line} the conversation is not the recorded one")
        self._asked[request.line] = turn
        event = recorded[turn - 1]
        for block in event["content"]:
            kind = str(block.get("type"))
            if kind in ("text", "thinking"):
                listener(kind, str(block.get(kind, "")))
            elif kind == "tool_use":
                listener("tool", str(block.get("name")))
        return Reply(
            content=event["content"],
            stop_reason=event["stop_reason"],
            usage=Usage(**event["usage"]),
            model=replayed(str(event["model"])),
            dollars=event["dollars"],
        )


def replayed(model: str) -> str:
    """The name of a model whose answers are played back."""
    return model if model.startswith("replay of ") else f"replay of {model}"
