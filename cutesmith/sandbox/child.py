"""The child's side of `sandbox`: `python -m cutesmith.sandbox.child PROGRAM READ_FD WRITE_FD`.

Requests and replies are frames on two private pipes: eight bytes of length (little-endian), then one JSON object.
A reply repeats the nonce of its request; stdout and stderr are only a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.errors import CandidateError, ContractError, CutesmithError
from cutesmith.sandbox.confinement import die_with_parent, limit_resources
from cutesmith.sandbox.failures import exhausted_memory, lost_context, mechanism_of
from cutesmith.sandbox.messages import Handler, Request, decode, encode, imported, name_of, reply_type
from cutesmith.verdicts import ExitCode, FaultKind, Mechanism, Rule, strict_json

HEADER = struct.Struct("<Q")
MAX_FRAME_BYTES = 256 << 20


@dataclass(frozen=True)
class Program:
    """What a worker runs: its entry and preloads by name (`messages.name_of`), and the rlimits of its process.

    `memory_bytes` bounds the address space; it is None for a worker with a GPU: CUDA reserves far more than it uses.
    """

    entry: str
    preload: tuple[str, ...]
    file_bytes: int
    memory_bytes: int | None

    def import_all(self) -> Any:
        """Import what the worker needs; what its entry returned."""
        for name in self.preload:
            imported(name)()
        return imported(self.entry)()


@dataclass(frozen=True)
class Raised:
    """An exception as a reply; `ours`: it is one of this package's, which chose its exit code."""

    kind: str
    message: str
    hint: str
    rule: Rule | None
    mechanism: Mechanism
    fault: FaultKind | None
    traceback: str
    exit_code: int
    ours: bool
    context_lost: bool


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


def _is_all_ours(error: BaseException) -> bool:
    """Whether no frame is of a problem's or a kernel's file."""
    frames = traceback.extract_tb(error.__traceback__)
    return all(Path(frame.filename).is_relative_to(Path(__file__).parents[1]) for frame in frames)


def describe(error: BaseException) -> Raised:
    """An exception as a reply: our own errors keep their exit code, all others mean that the candidate crashed."""
    ours = error if isinstance(error, CutesmithError) else None
    mechanism = mechanism_of(ours) if ours else exhausted_memory(error) or Mechanism.EXCEPTION
    # A finding tells the kernel's lines, and a sentence of ours needs no frames where all of them are ours.
    whole = mechanism is Mechanism.EMULATED_SANITIZER or (isinstance(error, ContractError) and _is_all_ours(error))
    text = "" if whole else "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Raised(
        kind=type(error).__name__,
        message=ours.message if ours else str(error)[-4000:],
        hint=ours.hint if ours else "",
        rule=error.rule if isinstance(error, CandidateError) else None,
        mechanism=mechanism,
        fault=error.fault if isinstance(error, CandidateError) else None,
        traceback=text[-8000:],
        exit_code=int(ours.exit_code if ours else ExitCode.CRASHED),
        ours=ours is not None,
        context_lost=lost_context(error),
    )


def request_frame(nonce: str, request: Request[Any]) -> dict[str, Any]:
    """A request for the pipe, with the name of its class."""
    return {"nonce": nonce, "kind": name_of(type(request)), "request": encode(request, type(request))}


def serve(program: Program, requests: int, replies: int) -> None:
    """Answer requests until the parent closes the pipe.

    Whatever a handler raises, SystemExit included, becomes an error that the parent reads.
    """
    handler: Handler | None = None
    while (frame := read_frame(requests)) is not None:
        reply: dict[str, Any]
        try:
            if handler is None:
                handler = program.import_all()()
                assert handler is not None
            kind = imported(frame["kind"])
            answer = handler.handle(decode(frame["request"], kind))
            reply = {"reply": encode(answer, reply_type(kind))}
        except BaseException as error:  # noqa: BLE001 - a candidate raises what it likes
            reply = {"error": encode(describe(error), Raised)}
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the candidate may have replaced its stdout: that is its own loss
                stream.flush()
        write_frame(replies, {"nonce": frame["nonce"], **reply})


def serve_within(program: Program, requests: int, replies: int) -> None:
    """Set the limits, then serve; leaves by `os._exit` so that no atexit hook of a candidate can linger."""
    limit_resources(file_bytes=program.file_bytes, memory_bytes=program.memory_bytes)
    for descriptor in (requests, replies):
        os.set_inheritable(descriptor, False)
    sys.argv = ["python"]
    with contextlib.suppress(BrokenPipeError):  # the parent has gone
        serve(program, requests, replies)
    os._exit(0)


def main() -> int:
    """A worker as a program of its own."""
    program, requests, replies = sys.argv[1:]
    die_with_parent()
    serve_within(decode(json.loads(program), Program), int(requests), int(replies))
    raise AssertionError("a worker does not return")


if __name__ == "__main__":
    main()
