"""A verb as a child process: `cutesmith VERB … --json`, followed line by line, killed with all that it started.

A child keeps its parent alive whatever a kernel does, ends when the parent is cancelled, and gives exactly the JSON
object that the command line gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutesmith import resources
from cutesmith.errors import CutesmithError

if TYPE_CHECKING:  # `python -m cutesmith` reads a constant here: only who runs a verb imports anyio and asyncio
    import anyio

PARENT_VARIABLE = "CUTESMITH_CHILD"
"""Set in a child's environment: it then ends with its parent, also when that is killed."""
SECRET = re.compile(r"^ANTHROPIC_|(^|_)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)($|_)")
HEARTBEAT = 2.0  # seconds between messages about a child that says nothing
TAIL = 4000  # characters of output that are kept for a failure


@dataclass(frozen=True)
class Running:
    """A verb (or an agent's tool) that runs since so many seconds; `said` is its last line on stderr, "" at times."""

    name: str
    seconds: float
    said: str = ""


Follower = Callable[[Running], Awaitable[None]]
"""Told of a running child when it says something, and every HEARTBEAT."""

Loan = tuple[Mapping[str, str], tuple[int, ...]]
"""What a child is given to use something of its parent's: variables, and descriptors to inherit."""
Lender = Callable[[], AbstractContextManager[Loan]]


class VerbError(CutesmithError):
    """The child gave no JSON object; the message keeps the tail of what it printed."""


async def ignore(running: Running) -> None:
    """A follower that does not listen."""


@contextlib.contextmanager
def _nothing() -> Iterator[Loan]:
    yield {}, ()


async def run_verb(
    verb: str,
    *arguments: str,
    follower: Follower = ignore,
    keys: bool = False,
    lender: Lender = _nothing,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Run a verb in a child process and give its JSON object; raises VerbError when it gave none.

    It is given no keys, but for one that itself asks a model (`keys`). `lender` is held while the child is started;
    `folder` is the child's current one (default: this process's).
    """
    import anyio

    command = [sys.executable, "-m", "cutesmith", verb, "--json", *arguments]
    path = os.pathsep.join(p for p in (str(resources.PACKAGE.parent), os.environ.get("PYTHONPATH", "")) if p)
    inherited = os.environ if keys else without_secrets(os.environ)
    environment = {**inherited, "PYTHONPATH": path, PARENT_VARIABLE: "1"}
    with lender() as (variables, descriptors):
        started = await anyio.open_process(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            env={**environment, **variables},
            pass_fds=descriptors,
            start_new_session=True,
        )
    return await json_of(started, verb, follower)


async def json_of(started: anyio.abc.Process, verb: str, follower: Follower, *, said: bytes = b"") -> dict[str, Any]:
    """The JSON object that a child prints; raises VerbError when it prints none.

    `said` is written to its stdin, which stays open until the child ends: it ends when its reader is gone.
    """
    async with started as child:
        try:
            if said and child.stdin is not None:
                with contextlib.suppress(OSError, *_closed_streams()):  # it ended before: its own message says why
                    await child.stdin.send(said)
            output, errors = await _follow(follower, child, verb)
        finally:
            _kill(child)
    try:
        verdict: dict[str, Any] = json.loads(output)
    except ValueError:
        raise VerbError(
            f"cutesmith {verb} ended with {child.returncode} and no JSON:\n{(output + errors)[-TAIL:]}"
        ) from None
    return verdict


def _closed_streams() -> tuple[type[Exception], ...]:
    import anyio

    return anyio.BrokenResourceError, anyio.ClosedResourceError


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without keys and tokens, by their names: no verb needs one, and kernels run below verbs."""
    return {name: value for name, value in environment.items() if not SECRET.search(name.upper())}


async def _follow(follower: Follower, child: anyio.abc.Process, verb: str) -> tuple[str, str]:
    """Everything that the child prints; the follower is told on the way."""
    import anyio
    from anyio.streams.text import TextReceiveStream

    started, texts = time.monotonic(), {"out": "", "err": ""}
    assert child.stdout is not None and child.stderr is not None
    streams = {"out": child.stdout, "err": child.stderr}

    async def drain(name: str) -> None:
        async for text in TextReceiveStream(streams[name], errors="replace"):
            texts[name] += text
            if name == "err" and text.strip():
                await follower(Running(verb, time.monotonic() - started, text.strip().splitlines()[-1]))

    async def beat() -> None:
        while True:
            await anyio.sleep(HEARTBEAT)
            await follower(Running(verb, time.monotonic() - started))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        async with anyio.create_task_group() as drains:
            drains.start_soon(drain, "out")
            drains.start_soon(drain, "err")
        await child.wait()
        tasks.cancel_scope.cancel()
    return texts["out"], texts["err"]


def _kill(child: anyio.abc.Process) -> None:
    """End the child and the workers that it started: they are one process group."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            os.killpg(child.pid, signal.SIGKILL)
