"""Launches of the DSL's compiled host code on a real GPU, let through or held back.

Host code launches by the symbols `_cudaLaunchKernelEx` and `_cudaLaunchKernel` of `libcute_dsl_runtime.so`; callbacks
of ours stand in their places and call them. A launch costs some microseconds more: not for timing.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cutesmith.recording.host_calls import _CALLS
from cutesmith.recording.patches import Patches

LAUNCHES = ("_cudaLaunchKernelEx", "_cudaLaunchKernel")


class LaunchGate:
    """`launches` counts those that were let through, `held` those that were not."""

    def __init__(self, library: Path) -> None:
        self.launches = self.held = 0
        self._open = True
        runtime = ctypes.CDLL(str(library))
        self._callbacks = {name: self._callback(name, getattr(runtime, name)) for name in LAUNCHES}

    def _callback(self, name: str, launch: Any) -> Any:
        types = _CALLS[name][1]
        launch.argtypes, launch.restype = types, ctypes.c_int32

        def call(*args: Any) -> int:
            if not self._open:
                self.held += 1
                return 0
            self.launches += 1
            return int(launch(*args))

        return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(call)

    def take(self, engine: Any) -> None:
        """Stand between an MLIR execution engine and the runtime (before its first look-up)."""
        for name, callback in self._callbacks.items():
            engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Within it, launches succeed and do nothing."""
        self._open = False
        try:
            yield
        finally:
            self._open = True


def runtime_library() -> Path | None:
    """The DSL's runtime library; None where the installed DSL names none."""
    from cutlass.runtime import find_runtime_libraries

    return next((Path(path) for path in find_runtime_libraries() if "dsl_runtime" in path), None)


@contextlib.contextmanager
def launch_gate() -> Iterator[LaunchGate | None]:
    """A gate for every function that is compiled within; None where the runtime library is not found."""
    from cutlass.base_dsl import compiler

    library = runtime_library()
    if library is None:
        yield None
        return
    gate = LaunchGate(library)

    def gated(original: Callable[..., Any]) -> Callable[..., Any]:
        def jit(*args: Any, **kwargs: Any) -> Any:
            engine = original(*args, **kwargs)
            gate.take(engine)
            return engine

        return jit

    with Patches() as patches:
        patches.set(compiler.Compiler, "jit", gated(compiler.Compiler.jit))
        yield gate
