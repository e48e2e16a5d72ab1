"""The Chat Completions API on loopback, with scripted answers, beside `messages_server`.

    with serving(answer(content="Here.", calls=[("view_file", {"path": "kernel.py"})])) as server:
        …                                   # OPENAI_BASE_URL=f"{server.address}/v1", any key but WRONG_KEY

Docs: https://developers.openai.com/api/reference/resources/chat
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tests.agent import messages_server
from tests.agent.messages_server import Answer, Handler, MessagesServer

MODEL = "local/kernel-writer"
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 30}}
Chunk = dict[str, Any]


def chunks(
    *, content: str = "", thought: str = "", calls: Sequence[tuple[str, Any]] = (), finish: str = "", **more: Any
) -> list[Chunk]:
    """The chunks of an answer, split small; the arguments of a call that are a text are sent as they are."""
    deltas: list[Chunk] = [{"role": "assistant", "content": ""}]
    deltas += [{more.get("thought_key", "reasoning_content"): part} for part in messages_server._chunks(thought)]
    deltas += [{"content": part} for part in messages_server._chunks(content)]
    for index, (name, arguments) in enumerate(calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        head = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        for part in messages_server._chunks(text):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    reason = finish or ("tool_calls" if calls else "stop")
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": reason}])
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return [*({**head, "choices": choice} for choice in choices), {**head, "choices": [], "usage": USAGE}]


def stream(parts: Sequence[Chunk], *, cut: bool = False, tail: bytes = b"data: [DONE]\n\n") -> Answer:
    """These chunks and the end of the stream; `cut`: the connection breaks before it."""

    def send(handler: Handler) -> None:
        handler.begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for part in parts:
            handler.chunk(f"data: {json.dumps(part)}\n\n".encode())
        if not cut:
            handler.chunk(tail)
            handler.chunk(b"")

    return send


def answer(**options: Any) -> Answer:
    """A whole answer; options as for `chunks`."""
    return stream(chunks(**options))


def failure(status: int, message: str, **headers: str) -> Answer:
    """An error response."""

    def send(handler: Handler) -> None:
        body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.whole(status, body, {"Content-Type": "application/json", "x-request-id": "req_1", **named})

    return send


class _ChatHandler(Handler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.close_connection = True
        if self.path != "/v1/chat/completions":
            return failure(404, "Not Found")(self)
        self.server.next({name.lower(): value for name, value in self.headers.items()}, body)(self)

    def do_GET(self) -> None:
        self.close_connection = True
        place, _, name = self.path.replace("%2F", "/").partition("/models/")
        if place != "/v1":
            failure(404, "Not Found")(self)
        elif name == MODEL:
            self.whole(200, json.dumps({"id": name, "object": "model"}), {"Content-Type": "application/json"})
        else:
            failure(404, f"The model `{name}` does not exist.")(self)


class ChatServer(MessagesServer):
    """Gives its answers one after the other; records every request."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(*answers)
        self.RequestHandlerClass = _ChatHandler

    def next(self, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        with self.lock:
            number = len(self.bodies)
            self.bodies.append(body)
            self.headers.append(headers)
        if headers.get("authorization") == f"Bearer {messages_server.WRONG_KEY}":
            return failure(401, "Incorrect API key provided")
        if complaint := _objection(body["messages"]):
            return failure(400, complaint)
        return self.answers[number] if number < len(self.answers) else failure(400, "the script is over")


def _objection(messages: Sequence[dict[str, Any]]) -> str:
    """The rule about tool calls: each has its result, right after the message that calls."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return "an assistant message with 'tool_calls' must be followed by tool messages"
        else:
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return ""


@contextlib.contextmanager
def serving(*answers: Answer) -> Iterator[ChatServer]:
    """A running server, stopped at the end."""
    with ChatServer(*answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
