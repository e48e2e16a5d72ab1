"""The Chat Completions API in the terms of the Messages API: what is sent, and what comes back, event by event.

Blocks of thinking are shown and kept, and not sent back. Docs:
https://developers.openai.com/api/reference/resources/chat
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from cutesmith.agent.models.message_stream import Event
from cutesmith.agent.models.model import Block, Request

STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Finish reasons of chunks, as stop reasons of messages; others are kept as they are."""

ERROR = "[error] "  # a tool's result has no flag for it here


def body_of(name: str, request: Request, effort: str) -> dict[str, Any]:
    """The arguments of `client.chat.completions.create` for a streamed answer."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    messages = [sent for message in request.messages for sent in _messages(message)]
    body: dict[str, Any] = {
        "model": name,
        "messages": [*system, *messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if effort:
        body["reasoning_effort"] = effort
    return body


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One message as one or more: results of tools are messages of their own, right after the calls."""
    content = message["content"]
    blocks: Sequence[Block] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    if message["role"] == "assistant":
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        return
    for block in blocks:
        if block["type"] == "tool_result":
            mark = ERROR if block.get("is_error") else ""
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": mark + str(block["content"])}
    if text:
        yield {"role": "user", "content": text}


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


class ChatEvents:
    """The chunks of one answer as events of the Messages API."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}  # "text", "thinking" or a call's number -> the index of its block
        self._begun = False
        self._finish = ""

    def of(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        """What a chunk adds to the answer."""
        if not self._begun:
            self._begun = True
            yield {"type": "message_start", "message": {"model": chunk.get("model") or ""}}
        for choice in (chunk.get("choices") or ())[:1]:
            yield from self._delta(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
        if usage := chunk.get("usage"):
            yield {"type": "message_delta", "delta": {}, "usage": _usage(usage)}

    def end(self) -> Iterator[Event]:
        """The last events; without a finish reason the answer broke off, and there are none."""
        if self._finish:
            yield from ({"type": "content_block_stop", "index": index} for index in self._places.values())
            reason = STOP_REASONS.get(self._finish, self._finish)
            calls = any(key not in ("text", "thinking") for key in self._places)
            if calls and reason == "end_turn":  # some servers say "stop" after calls too
                reason = "tool_use"
            yield {"type": "message_delta", "delta": {"stop_reason": reason}}
            yield {"type": "message_stop"}

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")  # of vLLM, SGLang, OpenRouter and others
        if isinstance(thought, str) and thought:
            index = yield from self._block("thinking", {"type": "thinking", "thinking": ""})
            yield _extended(index, {"type": "thinking_delta", "thinking": thought})
        if said := delta.get("content") or delta.get("refusal"):
            index = yield from self._block("text", {"type": "text", "text": ""})
            yield _extended(index, {"type": "text_delta", "text": said})
        for call in delta.get("tool_calls") or ():
            function, number = call.get("function") or {}, call.get("index", 0)
            identity = call.get("id") or f"call_{number}"
            opened: Block = {"type": "tool_use", "id": identity, "name": function.get("name"), "input": {}}
            index = yield from self._block(str(number), opened)
            if arguments := function.get("arguments"):
                yield _extended(index, {"type": "input_json_delta", "partial_json": arguments})

    def _block(self, key: str, opened: Block) -> Generator[Event, None, int]:
        """The index of a block, which is begun where it is new."""
        if key not in self._places:
            self._places[key] = len(self._places)
            yield {"type": "content_block_start", "index": self._places[key], "content_block": opened}
        return self._places[key]


def _extended(index: int, delta: Mapping[str, Any]) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    """Tokens as the Messages API counts them: cached ones are not part of the input."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": (usage.get("prompt_tokens") or 0) - cached,
        "output_tokens": usage.get("completion_tokens") or 0,
        "cache_read_input_tokens": cached,
    }
