"""Handlers that read, in a worker: what comes of it once the process is confined. They import little."""

import contextlib
import errno
import importlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.failures import describe_failure
from cutesmith.sandbox.messages import Request
from cutesmith.sandbox.readable import readable_paths


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
    from cutesmith.judge.candidate_side.candidate import load_kernel, start_device

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


@dataclass(frozen=True)
class Look(Request[object]):
    """What to do: "action", and whatever that takes."""

    wanted: dict[str, object]


ACTIONS = {"look": look, "told": told, "cuda": compute_on_cuda, "compile_with": compile_with, "move": move}


class Handlers:
    """Does what is asked."""

    def handle(self, request):
        return ACTIONS[request.wanted["action"]](request.wanted)


def factory():
    """The entry of a worker that looks round."""
    return Handlers
