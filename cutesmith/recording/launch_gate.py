"""Launches of the DSL's compiled host code on a real GPU, let through or held back.

Host code launches by the symbols `_cudaLaunchKernelEx` and `_cudaLaunchKernel` of `libcute_dsl_runtime.so`; callbacks
of ours stand in their places and call them. TVM-FFI functions stay in the MLIR engine, as the DSL would move them into
one that takes no callbacks. A launch costs some microseconds more: not for timing.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cutesmith.recording.host_calls import _CALLS
from cutesmith.recording.patches import Patches
from cutesmith.recording.tvm_ffi_calls import stay_in_engine

LAUNCHES = ("_cudaLaunchKernelEx", "_cudaLaunchKernel")
RUNTIME = "dsl_runtime"


class LaunchGate:
    """`launches` counts those that were let through, `held` those that were not.

    `blind` once a function was compiled between which and its runtime nothing could stand.
    """

    def __init__(self) -> None:
        self.launches = self.held = 0
        self.blind = False
        self._open = True
        self._callbacks: dict[str, dict[str, ctypes._FuncPointer]] = {}  # by library

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

    def take(self, engine: Any, libraries: Sequence[str]) -> None:
        """Stand between an MLIR execution engine and its runtime (before its first look-up).

        `libraries` are the engine's own: handles of kernels mean nothing to another copy of the runtime.
        """
        library = next((str(path) for path in libraries if RUNTIME in str(path)), None)
        if library is None:
            self.blind = True
            return
        if library not in self._callbacks:
            runtime = ctypes.CDLL(library)
            self._callbacks[library] = {name: self._callback(name, getattr(runtime, name)) for name in LAUNCHES}
        for name, callback in self._callbacks[library].items():
            engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Within it, launches succeed and do nothing."""
        self._open = False
        try:
            yield
        finally:
            self._open = True


@contextlib.contextmanager
def launch_gate() -> Iterator[LaunchGate]:
    """A gate for every function that is compiled within."""
    from cutlass.base_dsl import compiler

    gate = LaunchGate()

    def gated(original: Callable[..., Any]) -> Callable[..., Any]:
        def jit(self: Any, module: Any, opt_level: int = 2, shared_libs: Sequence[str] = ()) -> Any:
            engine = original(self, module, opt_level, shared_libs)
            gate.take(engine, shared_libs)
            return engine

        return jit

    with Patches() as patches:
        patches.set(compiler.Compiler, "jit", gated(compiler.Compiler.jit))
        stay_in_engine(patches)
        yield gate
