"""The nursery itself: `python -m cutesmith.checks.isolation.nursery_process SOCKET_FD`.

It imports what workers need, never touches CUDA, starts no thread, and forks a worker for each order. Orders, one JSON
object a packet: `{"entry", "settings", "scratch", "environment"}` with the worker's ends of three pipes (requests,
replies, log; answered by `{"pid"}` or `{"refused"}`), and `{"reap": pid}` for a worker that has ended (answered by
`{"code"}`). At the end of the socket it leaves, and with it, by the kernel, its workers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from cutesmith.checks.isolation.child import serve_within
from cutesmith.checks.isolation.confinement import die_with_parent, hide_memory
from cutesmith.checks.isolation.environment import NURSERY_ROOM
from cutesmith.checks.isolation.fresh_start import import_path, renew, renew_dsl, show_memory

ORDER_BYTES = 1 << 18
OWN_PACKAGE = "cutesmith."
OWN_PATH = sys.path[1:]  # the first is this process's folder; only the package itself came by PYTHONPATH
DRIVERS = ("libcuda.so", "libnvidia-ml.so")  # what CUDA has begun cannot be carried through a fork


def serve_orders(judge: socket.socket) -> None:
    """Answer orders until the judge has gone."""
    while True:
        data, pipes, _, _ = socket.recv_fds(judge, ORDER_BYTES, 3)
        if not data:
            return
        order = json.loads(data)
        answer = _reaped(order["reap"]) if "reap" in order else _forked(order, pipes, judge)
        for descriptor in pipes:
            os.close(descriptor)
        judge.send(json.dumps(answer).encode())


def _reaped(pid: int) -> dict[str, Any]:
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status)}


def _forked(order: dict[str, Any], pipes: Sequence[int], judge: socket.socket) -> dict[str, Any]:
    try:
        _import_for(order)
        renew_dsl()
    except Exception as error:  # noqa: BLE001 - the worker that starts without us meets it again and reports it
        return {"refused": repr(error)}
    if obstacle := _obstacle():
        return {"refused": obstacle}
    parent = os.getpid()
    if pid := os.fork():
        return {"pid": pid}
    _be_worker(order, pipes, judge, parent)
    raise AssertionError("a worker does not return")


def _import_for(order: dict[str, Any]) -> None:
    """Import what this worker will, from our own package and the DSL, for it and for all that come later."""
    before = len(sys.modules)
    sys.path[:] = import_path(os.getcwd(), order["environment"], OWN_PATH)
    module = order["entry"].partition(":")[0]
    if module.startswith(OWN_PACKAGE):
        importlib.import_module(module)
        if "CUTE_DSL_ARCH" in order["environment"]:
            _import_dsl(emulated=order["settings"]["memory_bytes"] is not None)
    if len(sys.modules) != before:
        gc.collect()
        gc.freeze()  # a collection in a worker would write to, and so copy, the pages of every object


def _import_dsl(*, emulated: bool) -> None:
    """The DSL, and for workers without a GPU the emulator with its machine code that is the same for every kernel."""
    importlib.import_module("cutlass.cute")
    with contextlib.suppress(ImportError):  # both are optional
        importlib.import_module("tvm_ffi")
        if emulated:
            importlib.import_module("cutesmith.emulator.device")
            access = importlib.import_module("cutesmith.emulator.native.access")
            importlib.import_module("cutesmith.emulator.native.jit").compiled_access(access.access_ir())


def _obstacle() -> str:
    """Why a fork would be unsound now."""
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        return f"{threads} threads"
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        loaded = {driver for line in lines for driver in DRIVERS if driver in line}
    return f"{', '.join(sorted(loaded))} loaded" if loaded else ""


def _be_worker(order: dict[str, Any], pipes: Sequence[int], judge: socket.socket, parent: int) -> None:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != parent:  # it ended before that took effect
            os._exit(1)
        judge.close()
        requests, replies = _place(*pipes)
        os.chdir(order["scratch"])
        renew(order["environment"], OWN_PATH)
        show_memory()
        gc.enable()
        serve_within(order["settings"], order["entry"], requests, replies)
    except BaseException:  # noqa: BLE001 - nothing may return into the nursery's loop
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
    """Serve the judge at the other end of the socket."""
    judge = socket.socket(fileno=int(sys.argv[1]))
    judge.set_inheritable(False)
    os.environ.pop(NURSERY_ROOM)
    hide_memory()  # no candidate may write to what later workers are made of
    gc.disable()
    with contextlib.suppress(OSError):  # the judge has gone
        serve_orders(judge)
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
