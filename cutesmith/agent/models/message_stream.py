"""One streamed answer of the Messages API, put together event by event, as blocks that can be sent back as they are.

The events are taken as the server wrote them, not as the SDK's types read them: its own accumulator makes a dictionary
out of half a tool call, gives up at JSON that does not parse, and takes a stream that was cut off for a whole one.

Docs: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from cutesmith.agent.models.model import Block, Listener, ModelError, Usage, ignore

Event = Mapping[str, Any]
Said = tuple[str, str]  # what a listener is told

MALFORMED = "__malformed__"
"""The only key of a tool call's input that is not a JSON object, or was cut off; its value is the text that came.

So the call stands in the conversation as valid data, and the toolbox answers it with an error.
"""

CUT_OFF = ("max_tokens", "model_context_window_exceeded", "refusal")
"""Stop reasons that end a message wherever it stands, also within a tool call."""

DEPTH = 100  # levels of nesting in a tool's arguments

PASSING = ("api_error", "overloaded_error", "rate_limit_error", "timeout_error")
"""Types of an error event after which asking again may help."""


class BrokenStream(Exception):
    """The answer ended before it was whole; asking again may help."""


class Answer:
    """The message so far. `whole` once its last event was taken."""

    def __init__(self, listener: Listener = ignore) -> None:
        self.listener = listener
        self.model = ""
        self.stop_reason = ""
        self.whole = False
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._json: dict[int, str] = {}
        self._open: set[int] = set()

    def take(self, event: Event) -> None:
        """Add one event; unknown kinds are ignored. Raises BrokenStream, or ModelError where a retry does not help."""
        try:
            said = self._take(event)
        except (KeyError, TypeError, AttributeError) as error:
            raise BrokenStream(f"the answer has an event that is not as documented ({error!r})") from error
        if said:
            self.listener(*said)

    def content(self) -> list[Block]:
        """The blocks in order, to be sent back unchanged."""
        blocks: list[Block] = []
        for index, begun in sorted(self._blocks.items()):
            block = {key: value for key, value in begun.items() if (key, value) != ("caller", None)}
            if _is_call(block):
                cut = self.stop_reason in CUT_OFF and index == max(self._blocks)
                block["input"] = _parsed(self._json[index], block.get("input") or {}, cut=cut)
            if block.get("type") != "text" or str(block.get("text", "")).strip():  # the API refuses to be sent blanks
                blocks.append(block)
        return _encodable(blocks)

    def usage(self) -> Usage:
        """What is known to be billed; a compaction's tokens are not part of the top-level counts."""
        iterations = self._usage.get("iterations") or ()
        compactions = [item for item in iterations if isinstance(item, dict) and item.get("type") == "compaction"]
        return sum(map(_usage, compactions), _usage(self._usage))

    def _take(self, event: Event) -> Said | None:
        kind = event.get("type")
        if kind == "message_start":
            self.model = str(event["message"].get("model", ""))
            self._count(event["message"].get("usage"))
        elif kind == "content_block_start":
            index, block = event["index"], event["content_block"]
            self._blocks[index], self._json[index] = dict(block), ""
            self._open.add(index)
            return ("tool", str(block.get("name"))) if _is_call(block) else None
        elif kind == "content_block_delta":
            return self._extend(event["index"], event["delta"])
        elif kind == "content_block_stop":
            self._open.discard(event["index"])
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason") or self.stop_reason
            self._count(event.get("usage"))
        elif kind == "message_stop":
            if self._open or not self.stop_reason:
                raise BrokenStream("the answer ended in the middle of a block")
            self.whole = True
        elif kind == "error":
            fault, message = event["error"].get("type"), event["error"].get("message")
            if fault in PASSING:
                raise BrokenStream(f"the server broke off its answer: {message} ({fault})")
            raise ModelError(f"Claude's answer ended in an error: {message} ({fault})")
        return None

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._usage.update({key: value for key, value in (usage or {}).items() if value is not None})

    def _extend(self, index: int, delta: Mapping[str, Any]) -> Said | None:
        block, kind = self._blocks[index], delta.get("type")
        if kind == "input_json_delta":
            self._json[index] += delta["partial_json"]
            return "tool", delta["partial_json"]
        if kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            return None
        for key, value in delta.items():  # text is added to what is there, anything else takes its place
            before = block.get(key)
            if key != "type" and not (before and value is None):
                block[key] = before + value if isinstance(before, str) and isinstance(value, str) else value
        spoken = {"text_delta": "text", "thinking_delta": "thinking"}.get(str(kind))
        return (spoken, delta[spoken]) if spoken else None


def _is_call(block: Mapping[str, Any]) -> bool:
    return str(block.get("type")).endswith("tool_use")


def _parsed(text: str, given: Mapping[str, Any], *, cut: bool) -> Mapping[str, Any]:
    """A tool's arguments; those `given` at the block's start when no JSON came, as for a tool without arguments."""
    if not text.strip() and (given or not cut):
        return given

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        arguments = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) and _is_flat(arguments, DEPTH) else {MALFORMED: text}


def _is_flat(value: Any, levels: int) -> bool:
    """Whether no more than so many levels are nested: what is parsed here is written out again elsewhere."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_flat(item, levels - 1) for item in inside)


def _usage(counts: Mapping[str, Any]) -> Usage:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage(*(count if isinstance(count := counts.get(name), int) else 0 for name in names))


def _encodable(blocks: list[Block]) -> list[Block]:
    """The blocks with halves of surrogate pairs joined, or replaced where the other half is missing."""
    text = json.dumps(blocks, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        joined: list[Block] = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return joined
    return blocks
