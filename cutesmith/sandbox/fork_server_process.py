"""The fork server itself: `python -m cutesmith.sandbox.fork_server_process SOCKET_FD NO_BYTECODE`.

It imports what workers need, never touches CUDA, starts no thread, and forks a worker for each order
(`fork_server_orders`). When a judge hangs up, its workers are ended; when the first judge does, the fork server ends
too, and the kernel ends all workers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence

from cutesmith.sandbox.child import serve_within
from cutesmith.sandbox.confinement import die_with_parent, hide_memory, show_memory
from cutesmith.sandbox.environment import FORK_SERVER_ROOM
from cutesmith.sandbox.fork_server_orders import Answer, Fork, Forked, Order, Reap, Reaped, Refused, Serve
from cutesmith.sandbox.fresh_start import import_path, renew, renew_dsl
from cutesmith.sandbox.messages import decode, encode

ORDER_BYTES = 1 << 18
OWN_PACKAGE = "cutesmith."
OWN_PATH = sys.path[1:]  # the first is this process's folder; only the package itself came by PYTHONPATH
DRIVER = "/dev/nvidia"  # open once CUDA or NVML has begun, which cannot be carried through a fork; loaded, they may be


class Judge:
    """One judge at the other end of a socket, and its workers that were not reaped."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.workers: set[int] = set()

    def receive(self) -> tuple[Order, list[int]] | None:
        """The next order and its descriptors; None when the judge has gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, ORDER_BYTES, 3)
        except OSError:
            return None
        return (decode(json.loads(data), Order), descriptors) if data else None

    def reply(self, answer: Answer) -> None:
        """Answer; a judge that has gone meanwhile is noticed at the next order."""
        with contextlib.suppress(OSError):
            self.socket.send(json.dumps(encode(answer, Answer)).encode())

    def reap(self, pid: int) -> Reaped:
        """How the worker ended."""
        self.workers.discard(pid)
        _, status = os.waitpid(pid, 0)
        return Reaped(os.waitstatus_to_exitcode(status))

    def close(self) -> None:
        """End its workers."""
        self.socket.close()
        for pid in list(self.workers):
            os.kill(pid, signal.SIGKILL)  # not reaped, so it is still that process
            self.reap(pid)


class Desk:
    """All judges; the first is the fork server's own."""

    def __init__(self, first: int) -> None:
        self.judges: dict[int, Judge] = {}
        self._first, self._poller = first, select.poll()
        self._admit(first)

    def _admit(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self.judges[descriptor] = Judge(descriptor)
        self._poller.register(descriptor, select.POLLIN)

    def serve(self) -> None:
        """Answer orders until the first judge has gone."""
        while self._first in self.judges:
            for descriptor, _ in self._poller.poll():
                self._attend(self.judges[descriptor])

    def _attend(self, judge: Judge) -> None:
        received = judge.receive()
        if received is None:
            descriptor = judge.socket.fileno()
            self._poller.unregister(descriptor)
            del self.judges[descriptor]
            judge.close()
            return
        order, descriptors = received
        if isinstance(order, Serve):
            self._admit(*descriptors)
        elif isinstance(order, Reap):
            judge.reply(judge.reap(order.pid))
        else:
            answer = _fork(order, descriptors, [known.socket for known in self.judges.values()])
            for pipe in descriptors:
                os.close(pipe)
            if isinstance(answer, Forked):
                judge.workers.add(answer.pid)
            judge.reply(answer)


def _fork(order: Fork, pipes: Sequence[int], judges: Sequence[socket.socket]) -> Forked | Refused:
    try:
        _import_for(order)
        renew_dsl()
    except Exception as error:  # noqa: BLE001 - the worker that starts without us meets it again and reports it
        return Refused(repr(error))
    if obstacle := _obstacle(gpu=order.program.memory_bytes is None):
        return Refused(obstacle)
    parent = os.getpid()
    if pid := os.fork():
        return Forked(pid)
    _be_worker(order, pipes, judges, parent)
    raise AssertionError("a worker does not return")


def _import_for(order: Fork) -> None:
    """Import what this worker will, from our own package and the DSL, for it and for all that come later."""
    before = len(sys.modules)
    sys.path[:] = import_path(os.getcwd(), order.environment, OWN_PATH)
    if order.program.entry.startswith(OWN_PACKAGE):
        with _cuda_by_its_device_file():
            order.program.import_all()
    if len(sys.modules) != before:
        gc.freeze()  # a collection in a worker would write to, and so copy, the pages of every object


@contextlib.contextmanager
def _cuda_by_its_device_file() -> Iterator[None]:
    """Within it `torch.cuda.is_available()`, which TVM-FFI asks when imported, starts no CUDA and no thread."""
    cuda = importlib.import_module("torch").cuda
    asked = cuda.is_available
    cuda.is_available = lambda: os.path.exists("/dev/nvidiactl")
    try:
        yield
    finally:
        cuda.is_available = asked


def _obstacle(*, gpu: bool) -> str:
    """Why a fork would be unsound now, or of no use to a worker with a GPU."""
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        return f"{threads} threads"
    opened = next((f"{path} is open" for path in _open_files() if path.startswith(DRIVER)), "")
    return opened or ("torch was asked for GPUs, and starts none in a fork" if gpu and _refused_by_torch() else "")


def _refused_by_torch() -> bool:
    """Whether torch would refuse to start CUDA in a fork of this process: only a fork can tell."""
    if "torch" not in sys.modules:
        return False
    if pid := os.fork():
        return os.waitpid(pid, 0)[1] != 0
    refused = True
    try:
        refused = sys.modules["torch"].cuda._is_in_bad_fork()
    finally:
        os._exit(int(refused))


def _open_files() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            yield os.readlink(f"/proc/self/fd/{name}")


def _be_worker(order: Fork, pipes: Sequence[int], judges: Sequence[socket.socket], parent: int) -> None:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != parent:  # it ended before that took effect
            os._exit(1)
        for judge in judges:
            judge.close()
        requests, replies = _place(*pipes)
        os.chdir(order.scratch)
        sys.dont_write_bytecode = True
        renew(order.environment, OWN_PATH)
        show_memory()
        gc.enable()
        serve_within(order.program, requests, replies)
    except BaseException:  # noqa: BLE001 - nothing may return into the fork server's loop
        traceback.print_exc()
    finally:
        os._exit(1)


def _place(requests: int, replies: int, log: int) -> tuple[int, int]:
    """The pipes at the lowest numbers, log as stdout and stderr, and nothing else open; stdin is /dev/null already."""
    high = [os.dup(descriptor) for descriptor in (requests, replies, log)]
    os.dup2(high[2], 1)
    os.dup2(high[2], 2)
    kept = {0, 1, 2, *high[:2]}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))
    return high[0], high[1]


def main() -> int:
    """Serve the judge at the other end of the socket, and those that it sends."""
    os.environ.pop(FORK_SERVER_ROOM)
    hide_memory()  # no candidate may write to what later workers are made of
    gc.disable()
    sys.dont_write_bytecode = sys.argv[2] == "True"  # it imports trusted files alone, which the judge may not import
    Desk(int(sys.argv[1])).serve()
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
