"""Running one PTX entry on the emulated GPU: the counterpart of `driver.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.launch import LaunchRun
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.state.allocations import Allocations
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch
from evals.studies.emulator.driver import THREADS

_ALIGNMENT = 256
_KERNEL = CubinKernel(name="test", registers=64, stack_bytes=0, static_smem_bytes=0, code_bytes=0)


def execute(ptx: str, inputs: np.ndarray[Any, Any], words: int, tensor_core_sm: int = 0) -> np.ndarray[Any, Any]:
    """Run entry `test(out, in)` with one thread for each column of `inputs` (uint64); `words` output words.

    `tensor_core_sm`: see Settings.
    """
    before = np.zeros(words, np.uint64)
    return launch(ptx, np.ascontiguousarray(inputs), before, inputs.shape[1] // THREADS, tensor_core_sm=tensor_core_sm)


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that begins at a multiple of 256 bytes, as memory of a GPU does."""
    room = np.zeros(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def launch(
    ptx: str, inputs: np.ndarray[Any, Any], before: np.ndarray[Any, Any], blocks: int,
    encode: Callable[[int, int], bytes] | None = None, *, cluster: int = 1, tensor_core_sm: int = 0,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """What is in the output, which holds `before`, after blocks of 128 threads have run: as `driver.Gpu.launch`."""
    arrays = aligned(before), aligned(inputs)
    allocations = Allocations()
    for array, name in zip(arrays, ("out", "in")):
        allocations.add_array(array, array.ctypes.data, name)
    program = build_program(parse(ptx), "test")
    parameters = [array.ctypes.data.to_bytes(8, "little") for array in arrays]
    if encode is not None:
        parameters.append(encode(*(array.ctypes.data for array in arrays)))
    asked = Launch(
        kernel="test",
        grid=(blocks, 1, 1),
        block=(THREADS, 1, 1),
        cluster=(cluster, 1, 1),
        dynamic_smem=0,
        smem_limit=0,
        nonportable_cluster=False,
        stream=0,
        attributes={},
        parameters=tuple(parameters),
    )
    memory = Memory(program, allocations, sanitize=False)
    settings = Settings(sanitize=False, tensor_core_sm=tensor_core_sm)
    LaunchRun(program, compile_program(program, access_ir()), asked, _KERNEL, SM_VERSIONS[90], memory, settings).run()
    return arrays[0]
