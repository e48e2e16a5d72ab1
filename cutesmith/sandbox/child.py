"""The child's side of `sandbox`: `python -m cutesmith.sandbox.child ENTRY READ_FD WRITE_FD SETTINGS`.

Requests and replies are frames on two private pipes: eight bytes of length (little-endian), then one JSON object.
A reply repeats the nonce of its request; stdout and stderr are only a log.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

from cutesmith.errors import CutesmithError
from cutesmith.sandbox.confinement import die_with_parent, limit_resources
from cutesmith.sandbox.failures import mechanism_of
from cutesmith.verdicts import ExitCode, strict_json

Handler = Callable[[dict[str, Any]], dict[str, Any]]
HEADER = struct.Struct("<Q")
MAX_FRAME_BYTES = 256 << 20


def read_exactly(descriptor: int, size: int) -> bytes | None:
    """`size` bytes of a pipe, or None at its end."""
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_frame(descriptor: int, value: dict[str, Any]) -> None:
    """Write one frame whole."""
    body = strict_json(value).encode()
    data = memoryview(HEADER.pack(len(body)) + body)
    while data:
        data = data[os.write(descriptor, data) :]


def read_frame(descriptor: int) -> dict[str, Any] | None:
    """The next request, or None when the parent has gone."""
    header = read_exactly(descriptor, HEADER.size)
    body = None if header is None else read_exactly(descriptor, HEADER.unpack(header)[0])
    return None if body is None else json.loads(body)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as a reply: our own errors keep their exit code, all others mean that the candidate crashed."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    head = {
        "type": type(error).__name__,
        "message": str(error)[-4000:],
        "hint": "",
        "traceback": text[-8000:],
    }
    if isinstance(error, CutesmithError):
        own = {
            "message": error.message,
            "hint": error.hint,
            "rule": str(getattr(error, "rule", None) or ""),
            "mechanism": mechanism_of(error).value,
        }
        return {**head, **own, "exit_code": int(error.exit_code), "ours": True}
    return {**head, "exit_code": int(ExitCode.CRASHED)}


def answer(handler: Handler, request: dict[str, Any]) -> dict[str, Any]:
    """The handler's reply; whatever it raises, SystemExit included, becomes an error that the parent reads."""
    try:
        return {"reply": handler(request)}
    except BaseException as error:  # noqa: BLE001 - a candidate raises what it likes
        return {"error": describe(error)}


def load_entry(entry: str) -> Handler:
    """The handler that `package.module:factory` makes."""
    module, _, factory = entry.partition(":")
    handler: Handler = getattr(importlib.import_module(module), factory)()
    return handler


def serve(entry: str, requests: int, replies: int) -> None:
    """Answer requests until the parent closes the pipe."""
    handler: Handler | None = None
    while (frame := read_frame(requests)) is not None:
        nonce = frame.pop("nonce")
        if handler is None:
            first = answer(lambda _: {"handler": load_entry(entry)}, {})
            if "error" in first:
                write_frame(replies, {"nonce": nonce, **first})
                continue
            handler = first["reply"]["handler"]
        result = answer(handler, frame["request"])
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        write_frame(replies, {"nonce": nonce, **result})


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:  # noqa: BLE001 - the candidate may have replaced its stdout: that is its own loss
        return


def serve_within(settings: dict[str, Any], entry: str, requests: int, replies: int) -> None:
    """Set the limits, then serve; leaves by `os._exit` so that no atexit hook of a candidate can linger."""
    limit_resources(file_bytes=settings["file_bytes"], memory_bytes=settings["memory_bytes"])
    for descriptor in (requests, replies):
        os.set_inheritable(descriptor, False)
    sys.argv = ["python"]
    with contextlib.suppress(BrokenPipeError):  # the parent has gone
        serve(entry, requests, replies)
    os._exit(0)


def main(argv: list[str] | None = None) -> int:
    """A worker as a program of its own."""
    entry, requests, replies, settings = sys.argv[1:] if argv is None else argv
    die_with_parent()
    serve_within(json.loads(settings), entry, int(requests), int(replies))
    raise AssertionError("a worker does not return")


if __name__ == "__main__":
    main()
