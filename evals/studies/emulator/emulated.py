"""Running one PTX entry on the emulated GPU, over host memory that nothing checks: the counterpart of `driver.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.launch import LaunchRun
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.state.wave import Wave
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch
from evals.studies.emulator.driver import THREADS

_ACCESS = """define ptr @access(ptr, i32, i32, i64 %address, i32, i32, i32) alwaysinline {
%pointer = inttoptr i64 %address to ptr
ret ptr %pointer
}"""
_KERNEL = CubinKernel(name="test", registers=64, stack_bytes=0, static_smem_bytes=0, code_bytes=0)


class _HostMemory:
    """Global memory is the host's own; there is no other."""

    module_symbols: dict[str, int] = {}

    def attach(self, wave: Wave) -> None:
        """Nothing to fill in."""

    def drain(self) -> None:
        """No faults are found."""


def execute(ptx: str, inputs: np.ndarray[Any, Any], words: int) -> np.ndarray[Any, Any]:
    """Run entry `test(out, in)` with one thread for each column of `inputs` (uint64); `words` output words."""
    inputs, outputs = np.ascontiguousarray(inputs), np.zeros(words, np.uint64)
    program = build_program(parse(ptx), "test")
    native = compile_program(program, _ACCESS)
    launch = Launch(
        kernel="test",
        grid=(inputs.shape[1] // THREADS, 1, 1),
        block=(THREADS, 1, 1),
        cluster=(1, 1, 1),
        dynamic_smem=0,
        smem_limit=0,
        nonportable_cluster=False,
        stream=0,
        attributes={},
        parameters=tuple(array.ctypes.data.to_bytes(8, "little") for array in (outputs, inputs)),
    )
    LaunchRun(program, native, launch, _KERNEL, SM_VERSIONS[90], _HostMemory(), Settings()).run()  # type: ignore[arg-type]
    return outputs
