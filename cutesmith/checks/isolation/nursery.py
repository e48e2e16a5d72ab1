"""The judge's side of its nursery: one process that holds the imported libraries and forks workers from them.

A worker that starts as a program of its own imports PyTorch and the DSL anew. The nursery (`nursery_process.py`) is
given no secret and runs no candidate; the judge talks to it over a pair of sockets that no worker inherits. Whatever it
cannot do, the judge does without it: `fork_worker` then says None.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutesmith.checks.isolation.environment import NURSERY_ROOM, PACKAGE_ROOT, PER_WORKER, clean_environment

OFF = "CUTESMITH_NO_NURSERY"
ROOM_BYTES = 64 << 10
REPLY_BYTES = 4096
IMPORT_SECONDS = 300.0  # PyTorch and the DSL from a cold disk on a busy machine
# NumPy's OpenBLAS starts threads when it is imported, and a process that has threads must not fork.
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1"}


class NurseryError(Exception):
    """The nursery cannot fork this worker; never leaves this module."""


class ForkedProcess:
    """A process that the nursery forked, with the part of `subprocess.Popen` that a worker needs."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._descriptor = os.pidfd_open(pid)  # the nursery keeps the zombie, so the pid is nobody else's
        self._lock = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, minus the signal's number where one ended it; None while the process lives."""
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """As `poll`, once the process has ended; raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        with self._lock:
            if self._code is None:
                poller = select.poll()
                poller.register(self._descriptor, select.POLLIN)
                if not poller.poll(None if timeout is None else int(timeout * 1000)):
                    raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
                self._code = self._nursery.reap(self.pid)
                os.close(self._descriptor)
            return self._code


class Nursery:
    """A running nursery; `close` ends it, and with it the kernel ends its workers."""

    def __init__(self, key: Mapping[str, str]) -> None:
        self.key = dict(key)
        self.forked = self.living = 0
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(IMPORT_SECONDS)
        with theirs:
            self._process = _start(theirs.fileno())
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def fork(self, order: dict[str, Any], descriptors: Sequence[int]) -> ForkedProcess:
        """A worker as `order` says, with the pipes for requests, replies and log; raises NurseryError."""
        reply = self._ask(order, descriptors)
        if "refused" in reply:
            raise NurseryError(reply["refused"])
        self.forked += 1
        self.living += 1
        return ForkedProcess(self, reply["pid"])

    def reap(self, pid: int) -> int:
        """The exit code of a worker that has ended."""
        self.living -= 1
        try:
            return int(self._ask({"reap": pid})["code"])
        except NurseryError:
            return -signal.SIGKILL  # how the kernel ends the workers of a nursery that has gone

    def _ask(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        data = json.dumps(message).encode()
        if len(data) > ROOM_BYTES:
            raise NurseryError(f"{len(data)} bytes of environment")
        with self._lock:
            answer = self._exchange(data, descriptors)
        if not answer:
            raise NurseryError("the nursery has ended")
        reply: dict[str, Any] = json.loads(answer)
        return reply

    def _exchange(self, data: bytes, descriptors: Sequence[int]) -> bytes:
        try:
            socket.send_fds(self._socket, [data], list(descriptors))
            return self._socket.recv(REPLY_BYTES)
        except OSError as error:
            self._process.kill()  # its late answer would be taken for the next one
            raise NurseryError(f"the nursery does not answer: {error}") from error

    def close(self) -> None:
        """End the nursery, and so every worker of it that still lives."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process.kill()
        self._process.wait()


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    scratch = tempfile.mkdtemp(prefix="nursery-")  # removed by the nursery when it ends
    more = {**SINGLE_THREADED, NURSERY_ROOM: "-" * ROOM_BYTES, "PYTHONPATH": PACKAGE_ROOT}
    return subprocess.Popen(
        [sys.executable, "-m", "cutesmith.checks.isolation.nursery_process", str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # the worker that is started instead meets it again, and says so
        cwd=scratch,
        env=clean_environment(Path(scratch), more),
        pass_fds=(descriptor,),
        start_new_session=True,
    )


class _Shared:
    """The one nursery of this process, started at the first worker, and anew when the environment has changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.nursery: Nursery | None = None
        self._owner = 0
        self._given_up = not _supported()

    def get(self, key: Mapping[str, str]) -> Nursery | None:
        """The nursery for this environment; None where there can be none now."""
        with self.lock:
            if self._owner != os.getpid():  # a fork of the judge must not speak on its parent's socket
                self.nursery, self._owner = None, os.getpid()
            if self.nursery is not None and not self._fits(self.nursery, key):
                return None
            if self.nursery is None and not self._given_up:
                self.nursery = Nursery(key)
            return self.nursery

    def _fits(self, nursery: Nursery, key: Mapping[str, str]) -> bool:
        """False for a nursery of another environment with workers; without, or dead, it is put away."""
        if nursery.alive and nursery.key == key:
            return True
        if nursery.alive and nursery.living:
            return False
        self._put_away(nursery)
        return True

    def _put_away(self, nursery: Nursery) -> None:
        nursery.close()
        self.nursery = None

    def failed(self, nursery: Nursery) -> None:
        """Put one away that never forked a worker, and try no other: the next would fail alike."""
        with self.lock:
            if nursery.forked == 0 and nursery is self.nursery:
                self._given_up = True
                self._put_away(nursery)

    def close(self) -> None:
        """End the nursery of this process; the next worker starts another."""
        with self.lock:
            if self.nursery is not None and self._owner == os.getpid():
                self._put_away(self.nursery)


def _supported() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3
    except (AttributeError, OSError):
        return False
    return True


SHARED = _Shared()
atexit.register(SHARED.close)


def fork_worker(order: dict[str, Any], descriptors: Sequence[int]) -> ForkedProcess | None:
    """A worker forked from this process's nursery; None when it has to be started as a program of its own.

    `order` holds the entry, the settings of `child.py`, the scratch folder and the whole environment; `descriptors` are
    the worker's ends of the pipes for requests, replies and log. CUTESMITH_NO_NURSERY turns forking off.
    """
    common = clean_environment(Path("/"))
    if os.environ.get(OFF) or _fixed(order["environment"]) != _fixed(common):
        return None
    nursery = SHARED.get({**_fixed(common), "OMP_NUM_THREADS": common.get("OMP_NUM_THREADS", "")})
    if nursery is None:
        return None
    try:
        return nursery.fork(order, descriptors)
    except NurseryError:
        SHARED.failed(nursery)
        return None


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in PER_WORKER}
