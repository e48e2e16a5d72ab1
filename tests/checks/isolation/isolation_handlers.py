"""Handlers that the isolation tests run in a worker: each misbehaves in one way. They import little."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from cutesmith.checks.isolation.confinement import confine
from cutesmith.errors import ContractError


def _attempt(action):
    try:
        action()
    except (OSError, MemoryError) as error:
        return type(error).__name__
    return "done"


def _double_fork(pid_file):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(pid_file).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not (Path(pid_file).exists() and Path(pid_file).read_text()):
        time.sleep(0.005)


def _fork_many():
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(600)


def _write_everywhere():
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            _attempt(lambda name=name: os.write(int(name), b"\x02\0\0\0\0\0\0\0{}"))
    time.sleep(600)


def _print(byte_count):
    line = "x" * 65535 + "\n"
    for _ in range(byte_count // len(line)):
        sys.stdout.write(line)
    print("the last line")


def _touch_memory(byte_count):
    block = bytearray(byte_count)
    block[::4096] = b"\x01" * len(block[::4096])
    time.sleep(600)


def _break_contract():
    raise ContractError("no get_inputs", hint="def get_inputs(): ...")


def _confined(request):
    layers = confine()
    outside = request["outside"]
    return {
        "layers": layers,
        "write_outside": _attempt(lambda: Path(outside, "x").write_text("x")),
        "truncate_outside": _attempt(lambda: os.truncate(Path(outside, "kept"), 0)),
        "write_shared": _attempt(lambda: Path(request["shared"]).write_text("x")),
        "write_null": _attempt(lambda: Path("/dev/null").write_text("x")),
        "write_inside": _attempt(lambda: Path("x").write_text("x")),
        "fork": _attempt(os.fork),
        "exec": _attempt(lambda: subprocess.run(["true"], check=False)),
        "socket": _attempt(lambda: socket.socket(socket.AF_INET)),
        "unix_socket": _attempt(lambda: socket.socket(socket.AF_UNIX)),
        "kill_parent": _attempt(lambda: os.kill(os.getppid(), 0)),
        "signal_self": _attempt(lambda: os.kill(os.getpid(), 0)),
        "parent_environment": _attempt(lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes()),
        "thread": _attempt(lambda: threading.Thread(target=int).start()),
    }


ACTIONS = {
    "echo": lambda r: {"value": r["value"], "pid": os.getpid()},
    "environment": lambda r: {
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "argv": sys.argv,
    },
    "descriptors": lambda r: {"open": [int(fd) for fd in os.listdir("/proc/self/fd")]},
    "raise": lambda r: {"value": 1 / 0},
    "contract": lambda r: _break_contract(),
    "exit": lambda r: sys.exit(0),
    "os_exit": lambda r: os._exit(0),
    "segfault": lambda r: {"value": ctypes.string_at(0)},
    "abort": lambda r: os.kill(os.getpid(), signal.SIGABRT),
    "loop": lambda r: time.sleep(600),
    "double_fork": lambda r: _double_fork(r["pid_file"]) or {},
    "fork_many": lambda r: _fork_many(),
    "forge": lambda r: _write_everywhere(),
    "print": lambda r: _print(r["bytes"]) or {},
    "allocate": lambda r: {"size": len(bytearray(r["bytes"]))},
    "touch": lambda r: _touch_memory(r["bytes"]),
    "big_file": lambda r: {"size": Path("big").write_bytes(bytes(r["bytes"]))},
    "confined": _confined,
    "nan": lambda r: {"value": float("nan")},
}


def factory():
    """The handler: `action` names what to do."""
    return lambda request: ACTIONS[request["action"]](request)
