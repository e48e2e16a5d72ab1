"""How a worker's process starts: forked from this process's fork server where possible, else as a program of its own.

The fork server starts at the first worker, or the process that started this one lends its own: a long-lived process
that runs verbs as children (`verb_process.run_verb`) lends it to them over a socket that only they inherit, so that the
libraries are imported once for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cutesmith.sandbox.child import Program
from cutesmith.sandbox.environment import ALLOWED_VARIABLES, PACKAGE_ROOT, PER_WORKER, clean_environment
from cutesmith.sandbox.fork_server import ForkedProcess, ForkServer, ForkServerError, start_fork_server
from cutesmith.sandbox.fork_server_orders import Fork
from cutesmith.sandbox.messages import encode

OFF = "CUTESMITH_NO_FORK_SERVER"
LENT = "CUTESMITH_FORK_SERVER"  # in a verb's environment: the descriptor, and what both must have in common
_SAME_THREADS = "OMP_NUM_THREADS"  # can be set for a worker, but not be taken back

WorkerProcess = ForkedProcess | subprocess.Popen[bytes]
"""What both ways have in common: `pid`, `poll`, and `wait`, which raises `subprocess.TimeoutExpired`."""


class _Shared:
    """The fork server that all threads of this process ask."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fork_server: ForkServer | None = None
        self._owner = 0
        self._given_up = not _supported()

    def get(self, key: Mapping[str, str]) -> ForkServer | None:
        """The fork server for this environment; None where it cannot be had now."""
        with self.lock:
            if self._owner != os.getpid():  # a fork of the judge must not speak on its parent's socket
                self.fork_server, self._owner = _borrowed(key), os.getpid()
            if self.fork_server is not None and not self._fits(self.fork_server, key):
                return None
            if self.fork_server is None and not self._given_up:
                self.fork_server = start_fork_server(key)
            return self.fork_server

    def _fits(self, fork_server: ForkServer, key: Mapping[str, str]) -> bool:
        """False for a fork server of another environment that is in use; one that is not, or is dead, is put away."""
        if fork_server.alive and (fork_server.key == key or fork_server.busy):
            return fork_server.key == key
        self._put_away(fork_server)
        return True

    def _put_away(self, fork_server: ForkServer) -> None:
        fork_server.close()
        self.fork_server = None

    def failed(self, fork_server: ForkServer) -> None:
        """Put one away that never forked a worker, and try no other: the next would fail, too."""
        with self.lock:
            if fork_server.forked == 0 and fork_server is self.fork_server:
                self._given_up = True
                self._put_away(fork_server)

    def close(self) -> None:
        """Hang up; the next worker starts another fork server."""
        with self.lock:
            if self.fork_server is not None and self._owner == os.getpid():
                self._put_away(self.fork_server)


def _supported() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3
    except (AttributeError, OSError):
        return False
    return True


SHARED = _Shared()
atexit.register(SHARED.close)


def start_worker(order: Fork, descriptors: tuple[int, int, int]) -> tuple[WorkerProcess, str]:
    """A worker in a session of its own, with no descriptors but its pipes and /dev/null; and why it was not forked.

    `descriptors` are the worker's ends of the pipes for requests, replies and log. CUTESMITH_NO_FORK_SERVER turns
    forking off.
    """
    forked = _fork_worker(order, descriptors)
    if not isinstance(forked, str):
        return forked, ""
    requests, replies, log = descriptors
    program = json.dumps(encode(order.program, Program))
    executed = subprocess.Popen(
        [sys.executable, "-m", "cutesmith.sandbox.child", program, str(requests), str(replies)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=order.scratch,
        env=order.environment,
        pass_fds=(requests, replies),
        start_new_session=True,
    )
    return executed, forked


def _fork_worker(order: Fork, descriptors: Sequence[int]) -> ForkedProcess | str:
    """The worker, or why it has to be started as a program of its own: a fork server cannot do everything."""
    common = clean_environment(Path("/"))
    if os.environ.get(OFF):
        return f"{OFF} is set"
    if _fixed(order.environment) != _fixed(common):
        return "another environment"
    fork_server = SHARED.get(_key(common))
    if fork_server is None:
        return "no fork_server"
    try:
        return fork_server.fork(order, descriptors)
    except ForkServerError as error:
        SHARED.failed(fork_server)
        return str(error)


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in PER_WORKER}


def _key(common: Mapping[str, str]) -> dict[str, str]:
    """What a fork server was started with and cannot change."""
    return {**_fixed(common), _SAME_THREADS: common.get(_SAME_THREADS, "")}


@contextlib.contextmanager
def lend_fork_server(
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Mapping[str, str], tuple[int, ...]]]:
    """Variables and descriptors with which a child uses this process's fork server; to be left once it started.

    `environment` is the child's, where it says more than this process's.
    """
    more = {name: value for name, value in (environment or {}).items() if name in ALLOWED_VARIABLES}
    key = _key(clean_environment(Path("/"), more))
    fork_server = None if os.environ.get(OFF) else SHARED.get(key)
    with contextlib.ExitStack() as opened:
        try:
            ours = opened.enter_context(fork_server.connect()) if fork_server else None
        except OSError:  # it died: the verb starts one of its own, and so will we
            ours = None
        yield ({}, ()) if ours is None else ({LENT: f"{ours.fileno()}:{_digest(key)}"}, (ours.fileno(),))


def _borrowed(key: Mapping[str, str]) -> ForkServer | None:
    """The fork server that the parent lent, if it is of the same code and environment."""
    descriptor, _, digest = os.environ.pop(LENT, "").partition(":")
    if not descriptor.isdecimal():
        return None
    try:
        connection = socket.socket(fileno=int(descriptor))
    except OSError:
        return None  # a process between us and the lender did not pass it on
    connection.set_inheritable(False)
    if (connection.family, connection.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET) and digest == _digest(key):
        return ForkServer(connection, key)
    connection.close()
    return None


def _digest(key: Mapping[str, str]) -> str:
    """Names environment, interpreter, and the state of our own sources."""
    newest = max(path.stat().st_mtime_ns for path in Path(PACKAGE_ROOT, "cutesmith").rglob("*.py"))
    return hashlib.sha256(json.dumps([PACKAGE_ROOT, sys.executable, newest, sorted(key.items())]).encode()).hexdigest()
