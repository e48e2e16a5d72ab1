"""A verb on another machine, over the system's ssh client: files travel there, the verdict travels back.

The request is one line of JSON on stdin and the verdict one object on stdout; the command line that the other machine's
shell sees is fixed but for the program's name, which is checked. Files have numbers in arguments and verdicts, since
their paths differ. The far side ends what it began as soon as its stdin is closed: a killed session leaves nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutesmith.devices import Device, current_device
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.verb_process import Follower, Running, ignore, json_of, run_verb, without_secrets

VERBS = ("lint", "compile", "check", "verify", "benchmark", "profile", "emulate")
"""What may be asked of another machine: the judge's stages."""
DEVICE = "device"  # asks for the GPU of the other machine
SERVE = ("remote", "--serve", "--json")
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15")
MOST_BYTES = 32 * 1024 * 1024  # of a request
SECONDS_TO_CONNECT = 60.0
_HOST = re.compile(r"[A-Za-z0-9_](?:[\w.-]*@)?[\w.-]*")
_PROGRAM = re.compile(r"[\w.+-]+|/[\w./+-]+")
_NAME = re.compile(r"[\w-][\w.-]{0,99}")


@dataclass(frozen=True)
class RemoteHost:
    """Where verbs run: a destination of ssh, and the program `cutesmith` there."""

    host: str
    program: str = "cutesmith"

    @classmethod
    def of(cls, text: str) -> RemoteHost:
        """`HOST`, `USER@HOST` or `HOST:/path/to/cutesmith`; raises UsageError for anything else."""
        host, _, program = text.partition(":")
        if not _HOST.fullmatch(host) or (program and not _PROGRAM.fullmatch(program)):
            hint = "Give HOST or USER@HOST as ssh knows it, or HOST:/path/to/cutesmith."
            raise UsageError(f"--remote {text}: it does not name a host for ssh", hint=hint)
        return cls(host, program or "cutesmith")

    @property
    def command(self) -> list[str]:
        """The ssh client's argument list; the last argument is the fixed line that the other shell reads."""
        return ["ssh", *OPTIONS, "--", self.host, shlex.join([self.program, *SERVE])]


async def run_remotely(
    remote: RemoteHost, verb: str, *arguments: str, files: Sequence[Path], follower: Follower = ignore
) -> dict[str, Any]:
    """Run a verb on the other machine and give its JSON object, with the paths of this one.

    `files` are sent, and `arguments` name them by their paths here. Raises UsageError for another verb, VerbError when
    the other machine gave no verdict, UnavailableError without an ssh client.
    """
    import anyio

    request = _request(verb, arguments, files)
    try:
        started = await anyio.open_process(
            remote.command,
            stdin=subprocess.PIPE,
            env=without_secrets(os.environ),
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise UnavailableError("there is no ssh client here", hint="Install one, such as openssh-client.") from error
    verdict = await json_of(started, f"{verb} on {remote.host}", follower, said=request)
    renamed: dict[str, Any] = _renamed(verdict, {_token(number): str(path) for number, path in enumerate(files)})
    return renamed


def remote_device(remote: RemoteHost) -> Device | None:
    """The GPU of the other machine, None where it has none; raises UnavailableError when it does not answer."""
    request = _request(DEVICE, (), ())
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list; the host is checked
            remote.command,
            input=request,
            capture_output=True,
            env=without_secrets(os.environ),
            timeout=SECONDS_TO_CONNECT,
            check=False,
        )
        said = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        told = answer.stderr.decode("utf-8", "replace").strip()[-400:] if isinstance(error, ValueError) else str(error)
        hint = f"Does `ssh {remote.host} {remote.program} doctor` work without a password?"
        raise UnavailableError(f"{remote.host} does not answer: {told or 'no words'}", hint=hint) from error
    found = said.get("device")
    return Device(**{**found, "capability": tuple(found["capability"])}) if found else None


async def serve() -> dict[str, Any]:
    """The far side: read a request from stdin, run it, give the verdict; raises UsageError for anything else.

    It is cancelled, and the verb's processes end, as soon as stdin is closed.
    """
    import anyio

    verb, arguments, texts = _checked(_read_line())
    if verb == DEVICE:
        device = current_device()
        return {"device": asdict(device) if device else None}
    verdict: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cutesmith-remote-") as folder:
        paths = []
        for number, (name, text) in enumerate(texts):
            path = Path(folder) / str(number) / name
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8")
            paths.append(path)
        names = {_token(number): str(path) for number, path in enumerate(paths)}
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await _stdin_closed()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            verdict = await run_verb(verb, *(_replaced(word, names) for word in arguments), follower=_say)
            tasks.cancel_scope.cancel()
        if not verdict:
            raise UnavailableError("the other side closed the connection")
        renamed: dict[str, Any] = _renamed(verdict, {path: token for token, path in names.items()})
        return renamed


async def _stdin_closed() -> None:
    """Return when stdin ends; what still comes is dropped. No thread waits: it would keep the process alive."""
    loop = asyncio.get_running_loop()
    closed = loop.create_future()

    def read() -> None:
        if not os.read(0, 4096) and not closed.done():
            closed.set_result(None)

    loop.add_reader(0, read)
    try:
        await closed
    finally:
        loop.remove_reader(0)


async def _say(running: Running) -> None:
    """What runs, for the near side's screen: it reads the last line of stderr."""
    if running.said:
        print(running.said, file=sys.stderr, flush=True)


def _request(verb: str, arguments: Sequence[str], files: Sequence[Path]) -> bytes:
    if verb not in (*VERBS, DEVICE):
        raise UsageError(f"{verb} does not run on another machine", hint=f"These do: {', '.join(VERBS)}.")
    names = {str(path): _token(number) for number, path in enumerate(files)}
    texts = [{"name": path.name, "text": path.read_text(encoding="utf-8")} for path in files]
    words = [_replaced(word, names) for word in arguments]
    return json.dumps({"verb": verb, "arguments": words, "files": texts}).encode() + b"\n"


def _checked(line: bytes) -> tuple[str, list[str], list[tuple[str, str]]]:
    """Verb, arguments, and names with texts of the files; raises UsageError."""
    try:
        request = json.loads(line)
        verb, words = request["verb"], [str(word) for word in request["arguments"]]
        texts = [(str(file["name"]), str(file["text"])) for file in request["files"]]
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            "stdin holds no request of a verb", hint="`cutesmith remote HOST VERB …` sends one."
        ) from error
    if verb not in (*VERBS, DEVICE) or not all(_NAME.fullmatch(name) for name, _ in texts):
        raise UsageError(f"{verb} with {[name for name, _ in texts]} is refused", hint=f"Verbs: {', '.join(VERBS)}.")
    return verb, words, texts


def _read_line() -> bytes:
    """One line of stdin, read from the descriptor: a buffer would hold what `watch` waits for."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < MOST_BYTES:
        part = os.read(0, 65536)
        if not part:
            break
        line += part
    return bytes(line)


def _token(number: int) -> str:
    """What stands for a file where its path would stand."""
    return f"⟨file {number}⟩"


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """JSON with other names in every text, keys included."""
    if isinstance(value, str):
        return _replaced(value, names)
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {_replaced(key, names): _renamed(item, names) for key, item in value.items()}
    return value
