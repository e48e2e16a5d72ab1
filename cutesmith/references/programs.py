"""A block executed: compiled with no GPU, run on the emulated GPU, or run on the machine's own.

The pages are our own text, hence trusted: blocks run in this process, one after another.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import io
import os
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cutesmith.references.blocks import Block

TAIL = 1500  # characters of an error that a complaint shows
_KEPT: list[dict[str, object]] = []
"""Globals of executed blocks: compiled functions freed while the DSL still works on others end in a crash."""


@dataclass(frozen=True)
class Outcome:
    """What executing a block for one architecture gave: its output, and what is wrong ("" when nothing is)."""

    block: str
    arch: str
    on: str  # "compile", "emulator" or "gpu"
    seconds: float
    output: str
    fault: str


def execute(block: Block, arch: str, *, on_gpu: bool = False) -> Outcome:
    """Execute a compile, run or fails block for one architecture; `on_gpu` takes the machine's own."""
    compile_only = block.kind == "compile"
    on = "compile" if compile_only else "gpu" if on_gpu else "emulator"
    device = {"compile": _compiled, "emulator": _emulated, "gpu": _own}[on]
    start = time.perf_counter()
    with _working_in(_folder()), _captured(_folder()) as output:  # a block that keeps its PTX leaves it there
        fault = _fault(block, device(arch), _folder(), "block" if compile_only else "__main__")
    return Outcome(block.name, arch, on, round(time.perf_counter() - start, 3), output(), fault)


def _fault(block: Block, device: AbstractContextManager[Callable[[], list[str]]], folder: Path, name: str) -> str:
    try:
        with device as findings:
            _run(block, folder, name)
            found = findings()
    except Exception as error:
        found = [_described(error)]
        if not block.expected:
            return found[0][-TAIL:]
    if block.expected:
        seen = "\n".join(found) or "nothing went wrong"
        return "" if block.expected in seen else f"its error must contain {block.expected!r}; {seen[-TAIL:]}"
    return "\n".join(found)


def _run(block: Block, folder: Path, name: str) -> None:
    path = folder / f"{block.name.replace('-', '_')}.py"
    path.write_text("\n" * block.line + block.source, encoding="utf-8")  # lines as in the page
    _KEPT.append(runpy.run_path(str(path), run_name=name))
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.synchronize()  # a fault of the last launch belongs to this block


def _described(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    while (error := error.__cause__ or error.__context__) is not None:  # type: ignore[assignment]
        text = f"{text}\n{type(error).__name__}: {error}"
    return text


@functools.cache
def _folder() -> Path:
    """Where blocks work: one folder for the whole process, as the DSL looks for what it keeps where it was imported."""
    folder = tempfile.mkdtemp(prefix="cutesmith-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """`contextlib.chdir` of Python 3.11."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _compiled(arch: str) -> Iterator[Callable[[], list[str]]]:
    from cutesmith.recording.open_session import session

    with session(arch) as recorded:
        yield lambda: [*recorded.errors, *([] if recorded.modules else ["it compiles nothing: call cute.compile"])]
        recorded.surface()


@contextlib.contextmanager
def _emulated(arch: str) -> Iterator[Callable[[], list[str]]]:
    from cutesmith.emulator.device import emulated_device
    from cutesmith.profiling.scripts.stand_ins import script_stand_ins
    from cutesmith.recording.facade import active_facade
    from cutesmith.recording.patches import Patches

    with emulated_device(arch) as device, Patches() as patches:
        facade = active_facade()
        assert facade is not None
        script_stand_ins(patches, facade, [])  # as `cutesmith emulate --script` runs a program
        yield lambda: [f"{finding.kind.value}: {finding}" for finding in device.findings]


@contextlib.contextmanager
def _own(_arch: str) -> Iterator[Callable[[], list[str]]]:
    yield list


@contextlib.contextmanager
def _captured(folder: Path) -> Iterator[Callable[[], str]]:
    """What Python, C code and kernels print, in order: both streams of the process go into one file."""
    path = folder / "output.txt"
    saved, streams = (os.dup(1), os.dup(2)), (sys.stdout, sys.stderr)
    text = ""
    with path.open("wb", buffering=0) as sink:
        _flush()
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(os.dup(1), "wb", 0), encoding="utf-8", write_through=True)
        try:
            yield lambda: text
        finally:
            _flush()
            sys.stdout.close()
            sys.stdout, sys.stderr = streams
            for number, descriptor in zip((1, 2), saved):
                os.dup2(descriptor, number)
                os.close(descriptor)
            text = path.read_text(encoding="utf-8", errors="replace")


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
