"""The judge's side of its fork server: one process that holds the imported libraries and forks workers from them.

A worker that starts as a program of its own imports PyTorch and the DSL again. The fork server
(`fork_server_process.py`) is given no secret and runs no candidate; the judge talks to it over a pair of sockets that
no worker inherits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutesmith.emulator.native import kept_code
from cutesmith.resources import cache_folder
from cutesmith.sandbox.environment import FORK_SERVER_ROOM, PACKAGE_ROOT, clean_environment
from cutesmith.sandbox.fork_server_orders import Answer, Fork, Forked, Order, Reap, Reaped, Refused, Serve
from cutesmith.sandbox.messages import decode, encode

ROOM_BYTES = 64 << 10
REPLY_BYTES = 4096
IMPORT_SECONDS = 300.0  # PyTorch and the DSL from a cold disk on a busy machine
# NumPy's OpenBLAS starts threads when it is imported, and a process that has threads must not fork.
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1"}


class ForkServerError(Exception):
    """The fork server cannot fork this worker; never leaves this room."""


class ForkedProcess:
    """A process that the fork server forked, with the part of `subprocess.Popen` that a worker needs."""

    def __init__(self, fork_server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._fork_server = fork_server
        self._descriptor = os.pidfd_open(pid)  # the fork server keeps the zombie, so no other process has its pid
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
                self._code = self._fork_server.reap(self.pid)
                os.close(self._descriptor)
            return self._code


class ForkServer:
    """A fork server at the other end of a socket; `process` is None for one that another judge started."""

    def __init__(
        self, connection: socket.socket, key: Mapping[str, str], process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.key = dict(key)
        self.forked = self.living = 0
        self.lent = False
        self._socket, self._process = connection, process
        self.pid = None if process is None else process.pid
        self._socket.settimeout(IMPORT_SECONDS)
        self._lock = threading.Lock()
        self._broken = False
        self._folder: str | None = None

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._broken and (self._process is None or self._process.poll() is None)

    @property
    def busy(self) -> bool:
        """Whether it may still be needed: by a worker, or a judge that it was lent to."""
        return self.living > 0 or self.lent

    def fork(self, order: Fork, descriptors: Sequence[int]) -> ForkedProcess:
        """A worker as `order` says, with the pipes for requests, replies and log; raises ForkServerError."""
        answer = self._ask(order, descriptors)
        if not isinstance(answer, Forked):
            raise ForkServerError(answer.why if isinstance(answer, Refused) else f"{answer} answers no fork")
        self.forked += 1
        self.living += 1
        return ForkedProcess(self, answer.pid)

    def reap(self, pid: int) -> int:
        """The exit code of a worker that has ended."""
        self.living -= 1
        try:
            answer = self._ask(Reap(pid))
        except ForkServerError:
            return -signal.SIGKILL  # how the kernel ends the workers of a fork server that has gone
        assert isinstance(answer, Reaped), answer
        return answer.code

    def connect(self) -> socket.socket:
        """A connection for another judge, at whose end that judge's workers are ended; raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lent = True
        with theirs:
            socket.send_fds(self._socket, [json.dumps(encode(Serve(), Order)).encode()], [theirs.fileno()])
        return ours

    def _ask(self, order: Order, descriptors: Sequence[int] = ()) -> Answer:
        data = json.dumps(encode(order, Order)).encode()
        if len(data) > ROOM_BYTES:
            raise ForkServerError(f"{len(data)} bytes of environment")
        with self._lock:
            if self._broken:
                raise ForkServerError("the fork server did not answer before")
            try:
                socket.send_fds(self._socket, [data], list(descriptors))
                if not (reply := self._socket.recv(REPLY_BYTES)):
                    raise ConnectionResetError("it has ended")
            except BaseException as error:  # Ctrl-C as well
                self._broken = True  # its late answer would be taken for the next one
                if self._process is not None:
                    self._process.kill()
                if not isinstance(error, OSError):
                    raise
                raise ForkServerError(f"the fork server does not answer: {error}") from error
        answer: Answer = decode(json.loads(reply), Answer)
        return answer

    def close(self) -> None:
        """Hang up, which ends this judge's workers, and the fork server if this judge started it."""
        self._socket.close()
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process.kill()
        self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # of one that was killed


def start_fork_server(key: Mapping[str, str]) -> ForkServer:
    """A fork server of this process's own; it imports nothing before the first worker is asked for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tempfile.mkdtemp(prefix="fork-server-")  # the fork server removes it, also after a killed judge
    known = {name: value for name, value in key.items() if value}
    module = "cutesmith.sandbox.fork_server_process"
    more = {**known, **SINGLE_THREADED, FORK_SERVER_ROOM: "-" * ROOM_BYTES, "PYTHONPATH": PACKAGE_ROOT}
    more[kept_code.FOLDER] = str(cache_folder().absolute() / "code")
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno()), str(sys.dont_write_bytecode)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # the worker that is started instead meets it again, and says so
            cwd=folder,
            env=clean_environment(Path(folder), more),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    fork_server = ForkServer(ours, key, process)
    fork_server._folder = folder
    return fork_server
