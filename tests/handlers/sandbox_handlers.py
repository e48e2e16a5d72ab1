"""What tests of the sandbox run in a worker: each misbehaves in one way, or looks round. They import little."""

import contextlib
import ctypes
import errno
import gc
import importlib
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from cutesmith.errors import ContractError
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.failures import describe_failure
from cutesmith.sandbox.messages import Request
from cutesmith.sandbox.readable import readable_paths


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


def _burn(seconds):
    """A reply after so many seconds of CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return {}


def _burn_in_children():
    """Children compute one after the other, half a second each, while this process waits."""
    while True:
        if (pid := os.fork()) == 0:
            _burn(0.5)
            os._exit(0)
        os.waitpid(pid, 0)


def _burn_in_an_orphan():
    """A process whose parent has ended computes, while this one sleeps."""
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            _burn(600)
        os._exit(0)
    os.waitpid(pid, 0)
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


def _held_by_a_file(byte_count):
    """Memory that is in no one's resident set: a file without a name, written and not mapped."""
    descriptor = os.memfd_create("held")
    while byte_count > 0:
        byte_count -= os.write(descriptor, bytes(1 << 20))
    time.sleep(600)


def _many_files(count, size):
    for number in range(count):
        Path(f"file{number}").write_bytes(bytes(size))
    time.sleep(600)


def _nested(depth):
    for _ in range(depth):
        os.mkdir("nested")
        os.chdir("nested")
    time.sleep(600)


def _held_by_a_thread(byte_count):
    """A reply at once; the memory is taken later."""

    def hold():
        time.sleep(0.2)
        held = bytearray(b"x") * byte_count
        time.sleep(600 + len(held))

    threading.Thread(target=hold).start()
    return {}


def _raise(error, **fields):
    vars(error).update(fields)
    raise error


def _that_stays():
    """Ids of a shared segment, semaphores and a queue, which belong to no one and last."""
    libc = ctypes.CDLL(None)
    return [libc.shmget(0, 4096, 0o600), libc.semget(0, 1, 0o600), libc.msgget(0, 0o600)]


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
        "memory_that_stays": _that_stays(),
    }


def _run(*command, **how):
    """The exit code of a program, or the name of what kept it from starting."""
    try:
        return subprocess.run(command, check=False, capture_output=True, **how).returncode
    except OSError as error:
        return type(error).__name__


def _compiled_addition(folder):
    """2 + 3 by a library that is compiled into the folder, as torch.compile's are."""
    (folder / "add.c").write_text("int add(int a, int b) { return a + b; }")
    _run("cc", "-shared", "-fPIC", "-o", str(folder / "add.so"), str(folder / "add.c"))
    return ctypes.CDLL(str(folder / "add.so")).add(2, 3)


def _confined_with_programs(request):
    """As a baseline that torch.compile compiles: programs may be started, and are confined as this process is."""
    confine(programs=True, writable=[Path(request["cache"])])
    outside = request["outside"]
    found = {
        "program": _run("true"),
        "compiled": _compiled_addition(Path(request["cache"])) if shutil.which("cc") else 5,
        "write_inside": _run("touch", "x"),
        "write_outside": _run("touch", f"{outside}/x"),
        "read": _run("cat", f"{outside}/kept"),
        "namespace": _run("unshare", "--user", "true"),
        "kill_parent": _run("sh", "-c", f"kill -0 {os.getppid()}"),
        "own_session": _run("true", start_new_session=True),
        "setsid": _run("setsid", "true"),
    }
    subprocess.Popen(["sh", "-c", f"(sleep {request['seconds']} &)"], env={}).wait()
    return found


def _started():
    """What a process finds when it starts, its own identity left out."""
    import cutlass.cute  # noqa: F401
    import numpy
    import torch
    from cutlass.base_dsl import cache_helpers, dsl, pyir_class_facts

    options = {name.__name__: vars(one.envar) for name, one in dsl.DSLSingletonMeta._instances.items()}
    return {
        "environment": {name: value for name, value in os.environ.items() if name != "WORKER_ID"},
        "no_bytecode": sys.dont_write_bytecode,
        "from_proc": sorted(filter(None, Path("/proc/self/environ").read_text().split("\0"))),
        "libc": {
            name: ctypes.CDLL(None).getenv(name.encode()) != 0 for name in ("HOME", "FORK_SERVER_ROOM", "WORKER_ID")
        },
        "path": [entry for entry in sys.path if "dsl_packages" not in entry],
        "dsl_path": sorted({entry for entry in sys.path if "dsl_packages" in entry}),
        "dsl": {name: {key: repr(value) for key, value in known.items()} for name, known in options.items()},
        "dsl_cache": [cache_helpers.default_generated_ir_path, *pyir_class_facts._FACTS_CACHE_DIR],
        "temporary": tempfile.gettempdir(),
        "folder": os.getcwd(),
        "torch": [torch.get_num_threads(), torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()],
        "session": os.getsid(0) == os.getpid(),
        "limits": [resource.getrlimit(which) for which in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)],
        "signals": [str(signal.getsignal(which)) for which in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "collects": gc.isenabled(),
        "umask": os.umask(0o022),
        "draws": [random.random(), float(numpy.random.rand()), float(torch.rand(()))],
    }


# What can be read once the process is confined


def outcome(path):
    path = path.replace("PARENT", str(os.getppid()))
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            with open(path, "rb") as file:
                file.read(16)
    except OSError as error:
        return type(error).__name__
    return "read"


def imported(name):
    try:
        importlib.import_module(name)
    except (ImportError, OSError) as error:
        return type(error).__name__
    return "read"


def look(request):
    """Import `before`, confine, then read `paths` and import `after`: what became of each."""
    for name in request.get("before", ()):
        importlib.import_module(name)
    layers = confine(readable=[Path(path) for path in request.get("readable", ())])
    found = {path: outcome(path) for path in request["paths"]} | {name: imported(name) for name in request["after"]}
    return {"layers": layers, "found": found, "environment": sorted(os.environ)}


def told(request):
    """What a verdict says of a kernel that opens `path` in `mode`."""
    confine()
    try:
        open(request["path"], request["mode"]).close()
    except OSError as error:
        failure = describe_failure(Path("kernel.py"), error)
        return {"message": failure.message, "hint": failure.hint, "rule": str(failure.rule or "")}
    return {}


def move(request):
    """What becomes of files that are moved to another folder, or linked there, once the process is confined."""
    confine()
    became = {}
    for name, source, target in request["moves"]:
        try:
            (os.link if name.startswith("link") else os.replace)(source, target)
            became[name] = "done"
        except OSError as error:
            became[name] = type(error).__name__ if error.errno != errno.EXDEV else "EXDEV"
    return became


def compile_with(request):
    """What a program of PATH prints once the process is confined, with `programs` or without."""
    confine(programs=request["programs"])
    try:
        finished = subprocess.run([request["program"]], capture_output=True, text=True, check=False)
    except PermissionError as error:
        return {"refused": error.errno}
    return {"printed": finished.stdout, "said": finished.stderr}


def compute_on_cuda(request):
    """CUDA, the DSL and a first launch after the confinement; the files that the process uses outside its list."""
    from cutesmith.judge.candidate_side.kernel_file import load_kernel, start_device

    start_device("cuda")
    listed = readable_paths()
    layers = confine(readable=[Path(request["kernel"]).parent])
    import torch

    x = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    x @ x
    load_kernel(Path(request["kernel"]))(torch.randn(1000, device="cuda"))
    torch.cuda.synchronize()
    return {"layers": layers, "outside": [path for path in _used() if not _listed(path, listed)]}


def _used():
    """Files that are mapped or open, as far as this process may ask."""
    mapped = re.findall(r" (/\S+)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    with contextlib.suppress(PermissionError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                mapped.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted({path for path in mapped if os.path.exists(path)})


def _listed(path, listed):
    return any(Path(path).is_relative_to(folder) for folder in (*listed, Path.cwd(), Path("/proc")))


ACTIONS = {
    "echo": lambda r: {"value": r["value"], "pid": os.getpid()},
    "environment": lambda r: {"environment": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv},
    "modules": lambda r: {
        "loaded": [name for name in ("torch", "cutlass.cute") if name in sys.modules],
        "parent": os.getppid(),
    },
    "started": lambda r: _started(),
    "descriptors": lambda r: {"open": [int(fd) for fd in os.listdir("/proc/self/fd")]},
    "raise": lambda r: {"value": 1 / 0},
    "contract": lambda r: _raise(ContractError("no get_inputs", hint="def get_inputs(): ...")),
    "passing_error": lambda r: _raise(ContractError("all is well"), exit_code=r["code"]),
    "raise_text": lambda r: _raise(ValueError(r["text"])),
    "exit": lambda r: sys.exit(0),
    "os_exit": lambda r: os._exit(0),
    "segfault": lambda r: {"value": ctypes.string_at(0)},
    "abort": lambda r: os.kill(os.getpid(), signal.SIGABRT),
    "loop": lambda r: _burn(600),
    "sleep": lambda r: time.sleep(600),
    "burn": lambda r: _burn(r["seconds"]),
    "burn_in_children": lambda r: _burn_in_children(),
    "burn_in_an_orphan": lambda r: _burn_in_an_orphan(),
    "pause": lambda r: time.sleep(0.2) or {},
    "double_fork": lambda r: _double_fork(r["pid_file"]) or {},
    "fork_many": lambda r: _fork_many(),
    "forge": lambda r: _write_everywhere(),
    "print": lambda r: _print(r["bytes"]) or {},
    "allocate": lambda r: {"size": len(bytearray(r["bytes"]))},
    "touch": lambda r: _touch_memory(r["bytes"]),
    "hold_by_a_file": lambda r: _held_by_a_file(r["bytes"]),
    "hold_by_a_thread": lambda r: _held_by_a_thread(r["bytes"]),
    "many_files": lambda r: _many_files(r["count"], r["size"]),
    "nested": lambda r: _nested(r["depth"]),
    "big_file": lambda r: {"size": Path("big").write_bytes(bytes(r["bytes"]))},
    "confined": _confined,
    "confined_with_programs": _confined_with_programs,
    "look": look,
    "told": told,
    "cuda": compute_on_cuda,
    "compile_with": compile_with,
    "move": move,
    "nan": lambda r: {"value": float("nan")},
}


@dataclass(frozen=True)
class Act(Request[object]):
    """What to do: "action", and whatever that takes."""

    wanted: dict[str, object]


class Handlers:
    """Does what is asked."""

    def handle(self, request):
        return ACTIONS[request.wanted["action"]](request.wanted)


def factory():
    """The entry of a worker that misbehaves."""
    return Handlers
