"""A line's conversation, read off the transcript: what is sent to the model next, and what it still waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from cutesmith.agent.models.model import Block
from cutesmith.agent.transcript import Event


class Message(TypedDict):
    """A message of the Messages API."""

    role: str
    content: list[Block]


def messages_of(events: Iterable[Event], line: int) -> list[Message]:
    """The Messages API's alternation of user and assistant; a user's neighbouring blocks become one message."""
    messages: list[Message] = []
    for event in events:
        if event["line"] != line:
            continue
        if event["kind"] == "reply":
            _append(messages, "assistant", event["content"])
        elif event["kind"] in ("line", "message"):
            said = event["opening"] if event["kind"] == "line" else event["text"]
            _append(messages, "user", [{"type": "text", "text": said}])
        elif event["kind"] == "tool":
            result = {"type": "tool_result", "tool_use_id": event["id"], "content": event["text"]}
            _append(messages, "user", [{**result, "is_error": True} if event["is_error"] else result])
    return messages


def _append(messages: list[Message], role: str, blocks: Sequence[Block]) -> None:
    if messages and messages[-1]["role"] == role:  # an empty or a paused answer came between
        messages[-1]["content"] = [*messages[-1]["content"], *blocks]
    elif blocks:
        messages.append({"role": role, "content": list(blocks)})


def last_turn(events: Sequence[Event], line: int) -> tuple[Event | None, list[Event]]:
    """The line's last reply, and what the line recorded after it."""
    after: list[Event] = []
    for event in reversed(events):
        if event["line"] == line and event["kind"] == "reply":
            return event, after[::-1]
        if event["line"] == line:
            after.append(event)
    return None, []


def open_calls(events: Sequence[Event], line: int) -> list[Block]:
    """The tool calls of the last reply that have no result yet."""
    reply, after = last_turn(events, line)
    if reply is None:
        return []
    answered = {event["id"] for event in after if event["kind"] == "tool"}
    return [block for block in reply["content"] if block.get("type") == "tool_use" and block["id"] not in answered]


def silent_turns(events: Iterable[Event], line: int) -> int:
    """How many of the line's last replies in a row called no tool; paused ones do not count."""
    count = 0
    for event in events:
        if event["line"] == line and event["kind"] == "reply" and event["stop_reason"] not in CONTINUED:
            calls = any(block.get("type") == "tool_use" for block in event["content"])
            count = 0 if calls else count + 1
    return count


CONTINUED = ("pause_turn", "compaction")
"""Stop reasons after which the model goes on as soon as it is asked again."""
