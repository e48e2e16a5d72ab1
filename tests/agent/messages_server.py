"""The Messages API on loopback, with scripted answers: what it streams, how it fails, and what it refuses to be sent.

    with serving(answer(thinking("…"), call("view_file", {"path": "kernel.py"})), answer(text("Done."))) as server:
        …                                      # ANTHROPIC_BASE_URL=server.address, any key but WRONG_KEY
        assert server.bodies[1]["messages"][-1]["role"] == "user"

Docs: https://platform.claude.com/docs/en/api/messages, …/build-with-claude/streaming, …/api/errors
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]
Event = dict[str, Any]
Answer = Callable[["Handler"], None]

KEY, WRONG_KEY = "sk-ant-loopback", "sk-ant-wrong"
MODEL = "claude-opus-5-5"
USAGE = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
CHUNK = 7  # characters of a delta


# Blocks of an answer ------------------------------------------------------------------------------------------------


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def thinking(words: str, signature: str = "c2lnbmF0dXJl") -> Block:
    return {"type": "thinking", "thinking": words, "signature": signature}


def redacted(data: str = "cmVkYWN0ZWQ=") -> Block:
    return {"type": "redacted_thinking", "data": data}


def call(name: str, arguments: dict[str, Any], identity: str = "toolu_1") -> Block:
    return {"type": "tool_use", "id": identity, "name": name, "input": arguments}


def raw_call(name: str, arguments: str, identity: str = "toolu_1") -> Block:
    """A call whose arguments are streamed as this very text, JSON or not."""
    return {"type": "tool_use", "id": identity, "name": name, "input": {}, "raw": arguments}


def compaction(summary: str | None, **fields: Any) -> Block:
    return {"type": "compaction", "content": summary, **fields}


# Events of an answer ------------------------------------------------------------------------------------------------


def events(
    *blocks: Block, stop_reason: str = "", usage: dict[str, Any] | None = None, model: str = MODEL, ping: bool = True
) -> list[Event]:
    """The documented events of a message. `usage`: the final counts; the first event has all of them but the output."""
    counts = {**USAGE, **(usage or {})}
    reason = stop_reason or ("tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn")
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None}
    first = {**{k: v for k, v in counts.items() if k != "iterations"}, "output_tokens": 1}
    content: list[Event] = []
    for index, block in enumerate(blocks):
        content.append({"type": "content_block_start", "index": index, "content_block": _opening(block)})
        content += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(block)]
        content.append({"type": "content_block_stop", "index": index})
    pings: list[Event] = [{"type": "ping"}] if ping else []
    return [
        {"type": "message_start", "message": {**head, "stop_sequence": None, "usage": first}},
        *pings,
        *content,
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": counts},
        {"type": "message_stop"},
    ]


def _opening(block: Block) -> Block:
    """How a block begins: what its deltas will bring is empty."""
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    opening = {**block, **empty.get(block["type"], {})}
    opening.pop("raw", None)
    opening.update({"citations": []} if "citations" in block else {})
    return {"type": "compaction", "content": None} if block["type"] == "compaction" else opening


def _deltas(block: Block) -> Iterator[Event]:
    kind = block["type"]
    if kind == "text":
        yield from ({"type": "text_delta", "text": chunk} for chunk in _chunks(block["text"]))
        yield from ({"type": "citations_delta", "citation": citation} for citation in block.get("citations") or ())
    elif kind == "thinking":
        yield from ({"type": "thinking_delta", "thinking": chunk} for chunk in _chunks(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif kind == "tool_use":
        raw = block.get("raw", json.dumps(block["input"]) if block["input"] else "")
        yield {"type": "input_json_delta", "partial_json": ""}
        yield from ({"type": "input_json_delta", "partial_json": chunk} for chunk in _chunks(raw))
    elif kind == "compaction":
        yield {"type": "compaction_delta", **{key: value for key, value in block.items() if key != "type"}}


def _chunks(words: str) -> list[str]:
    return [words[start : start + CHUNK] for start in range(0, len(words), CHUNK)]


def error_event(kind: str, message: str) -> Event:
    return {"type": "error", "error": {"type": kind, "message": message}}


# Answers ------------------------------------------------------------------------------------------------


def answer(*blocks: Block, **options: Any) -> Answer:
    """A whole answer of these blocks; options as for `events`."""
    return stream(events(*blocks, **options))


def stream(
    parts: Sequence[Event], *, cut: bool = False, chunk: int = 0, seconds: float = 0.0, tail: bytes = b""
) -> Answer:
    """These events, the bytes of `tail`, and the end of the body; `cut`: the connection breaks instead.

    `chunk`: so many bytes at a time, `seconds` apart.
    """

    def send(handler: Handler) -> None:
        handler.begin(200, {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"})
        data = "".join(f"event: {part['type']}\ndata: {json.dumps(part)}\n\n" for part in parts).encode() + tail
        size = chunk or max(len(data), 1)
        for start in range(0, len(data), size):
            handler.chunk(data[start : start + size])
            time.sleep(seconds)
        if not cut:
            handler.chunk(b"")

    return send


def stalled(parts: Sequence[Event]) -> Answer:
    """These events, then silence, until the client goes away (`server.left` is set then) or the server stops."""

    def send(handler: Handler) -> None:
        stream(parts, cut=True)(handler)
        handler.wait()

    return send


def silent(handler: Handler) -> None:
    """Not one byte."""
    handler.wait()


def hung_up(handler: Handler) -> None:
    """The connection is closed without an answer."""


def failure(status: int, kind: str, message: str, **headers: str) -> Answer:
    """An error response; headers with underscores, such as retry_after="2"."""

    def send(handler: Handler) -> None:
        body = json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.whole(status, body, {"Content-Type": "application/json", "request-id": "req_1", **named})

    return send


def page(status: int, body: str = "<html>It works!</html>") -> Answer:
    """An answer of another server than that of the Messages API."""
    return lambda handler: handler.whole(status, body, {"Content-Type": "text/html"})


# The server ------------------------------------------------------------------------------------------------


def abilities(*, adaptive: bool = True, effort: Sequence[str] = ("low", "medium", "high", "xhigh", "max"), **more: Any):
    """What the Models API says of a model, as far as cutesmith asks."""
    levels = {level: {"supported": level in effort} for level in ("low", "medium", "high", "xhigh", "max")}
    compact = {"supported": more.pop("compaction", True)}
    capabilities = {
        "thinking": {"supported": True, "types": {"adaptive": {"supported": adaptive}}},
        "effort": {"supported": bool(effort), **levels},
        "context_management": {"supported": True, "compact_20260112": compact},
    }
    return {"type": "model", "lifecycle": "active", "max_tokens": 128_000, "capabilities": capabilities, **more}


class MessagesServer(ThreadingHTTPServer):
    """Gives its answers one after the other; records every request that reached one, also those that were refused."""

    daemon_threads = True

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.models: dict[str, dict[str, Any] | Answer] = {MODEL: abilities()}
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.left = threading.Event()
        self.closing = threading.Event()
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next(self, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        """Record a request and give what it gets."""
        with self.lock:
            number = len(self.bodies)
            self.bodies.append(body)
            self.headers.append(headers)
            self.times.append(time.monotonic())
        if complaint := refused(headers) or objection(body):
            return failure(*complaint)
        if number >= len(self.answers):
            return failure(400, "invalid_request_error", f"the script has {len(self.answers)} answers")
        return self.answers[number]

    def handle_error(self, request, client_address) -> None:
        """A client that goes away is what many tests want: say nothing."""


@contextlib.contextmanager
def serving(*answers: Answer) -> Iterator[MessagesServer]:
    """A running server, stopped at the end."""
    with MessagesServer(*answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    server: MessagesServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0] != "/v1/messages":
            return failure(404, "not_found_error", "Not Found")(self)
        self.close_connection = True
        self.server.next({name.lower(): value for name, value in self.headers.items()}, body)(self)

    def do_GET(self) -> None:
        path, _, name = self.path.partition("?")[0].rpartition("/")
        self.close_connection = True
        if complaint := refused({key.lower(): value for key, value in self.headers.items()}):
            failure(*complaint)(self)
        elif path != "/v1/models":
            failure(404, "not_found_error", "Not Found")(self)
        elif callable(known := self.server.models.get(name)):
            known(self)
        elif known is not None:
            self.whole(200, json.dumps({"id": name, **known}), {"Content-Type": "application/json"})
        else:
            failure(404, "not_found_error", f"model: {name}")(self)

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def whole(self, status: int, body: str, headers: dict[str, str]) -> None:
        self.begin(status, {**headers, "Content-Length": str(len(body.encode()))})
        self.wfile.write(body.encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def wait(self) -> None:
        """Until the client closes the connection, or the server stops."""
        self.connection.settimeout(0.02)
        while not self.server.closing.is_set():
            with contextlib.suppress(TimeoutError):
                if not self.connection.recv(1):
                    self.server.left.set()
                    return

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


# What the API refuses ------------------------------------------------------------------------------------------------


def refused(headers: dict[str, str]) -> tuple[int, str, str] | None:
    """The failure of a request without a good key."""
    key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    if not key or key == WRONG_KEY:
        return 401, "authentication_error", "invalid x-api-key"
    return None


def objection(body: dict[str, Any]) -> tuple[int, str, str] | None:
    """The failure of a request that the API would not take, by its documented rules."""
    messages = body["messages"]
    sentences = [*_block_objections(messages), *_tool_objections(messages)]
    if any(name in body for name in ("temperature", "top_p", "top_k")):
        sentences.append("sampling parameters are not accepted")
    if json.dumps(body).count('"cache_control"') > 4:
        sentences.append("a maximum of 4 blocks with cache_control may be provided")
    if not messages or messages[0]["role"] != "user":
        sentences.append("messages: the first message must be the user's")
    return (400, "invalid_request_error", sentences[0]) if sentences else None


def _block_objections(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        if not message["content"]:
            yield "messages: content must not be empty"
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text" and not block["text"].strip():
                yield "text content blocks must contain non-whitespace text"
            if "thinking" in block["type"] and "cache_control" in block:
                yield "thinking blocks take no cache_control"
            if block["type"] == "tool_use" and not isinstance(block["input"], dict):
                yield "tool_use.input: Input should be a valid dictionary"
            if "caller" in block and block["caller"] is None:
                yield "caller: must not be null"


def _tool_objections(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Every call has its result in the next message, and every result its call in the one before."""
    for before, after in zip([{"content": []}, *messages], [*messages, {"content": []}]):
        calls = {block["id"] for block in _blocks(before, "tool_use")}
        results = {block["tool_use_id"] for block in _blocks(after, "tool_result")}
        if calls != results:
            yield f"tool_use ids without tool_result blocks, or the reverse: {sorted(calls ^ results)}"


def _blocks(message: dict[str, Any], kind: str) -> list[Block]:
    content = message["content"]
    return [block for block in content if block["type"] == kind] if isinstance(content, list) else []
