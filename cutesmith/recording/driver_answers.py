"""What `cuda.bindings.driver` and `.runtime` answer while recording: one device of the recorded SM version.

Kernel files ask the driver for a stream or a device attribute before they compile, and `launch(min_blocks_per_mp=…)`
asks while it is traced. Memory is the session's. A call that has no answer here is refused by its name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from cutesmith.devices import MAX_THREADS_PER_BLOCK, RESERVED_SMEM_PER_BLOCK, WARP_SIZE, SmVersion
from cutesmith.errors import UnavailableError
from cutesmith.recording.gpu_size import told_to_host_code
from cutesmith.recording.patches import Patches

DRIVER_VERSION = 13000

_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


def device_attribute(sm: SmVersion, number: int) -> int:
    """A CUdevice_attribute (cudaDeviceAttr has the same numbers) of a GPU of this SM version; 0 for others."""
    major, minor = sm.capability
    if number == _MULTIPROCESSORS:
        return told_to_host_code(sm)
    values = {
        1: MAX_THREADS_PER_BLOCK,
        2: 1024,  # block dim x, y, z
        3: 1024,
        4: 64,
        5: 2**31 - 1,  # grid dim x, y, z
        6: 65535,
        7: 65535,
        8: 48 << 10,  # shared memory a block without opt-in
        10: WARP_SIZE,
        12: sm.registers_per_sm,  # registers a block
        38: sm.l2_bytes,
        39: sm.threads_per_sm,
        75: major,
        76: minor,
        81: sm.smem_per_sm,
        82: sm.registers_per_sm,
        97: sm.smem_per_block,
        106: sm.blocks_per_sm,
        111: RESERVED_SMEM_PER_BLOCK,
        120: int(sm.max_cluster > 1),
    }
    return values.get(number, 0)


class DeviceMemory(Protocol):
    """The owner of device memory: addresses, fills and copies as those of `sessions.Session`."""

    def allocate(self, size: int) -> int:
        """A device address for `size` bytes."""

    def free(self, address: int) -> None:
        """A device address is given back."""

    def fill(self, address: int, value: int, size: int) -> None:
        """Set device memory to a byte."""

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes between any two addresses, of the host or the device."""


def answer_driver_calls(patches: Patches, sm: SmVersion, memory: DeviceMemory) -> None:
    """Replace the functions of the driver and the runtime: answered, or refused by name (UnavailableError)."""
    from cuda.bindings import driver, runtime

    for module, prefix, answers in (
        (driver, "cu", {**_driver_answers(driver, sm), **_driver_memory(driver, memory)}),
        (runtime, "cuda", {**_runtime_answers(runtime, sm), **_runtime_memory(runtime, memory)}),
    ):
        patches.set_existing(module, {**_refusals(module, prefix), **answers})


@cache
def _refusals(module: Any, prefix: str) -> dict[str, Callable[..., Any]]:
    """What stands for each function of a module; of these there are a thousand."""
    names = (name for name, value in vars(module).items() if callable(value) and not isinstance(value, type))
    return {name: _refusal(name) for name in names if re.match(f"{prefix}[A-Z]", name)}


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(f"there is no `{name}` without a GPU", hint="Run what needs this call on a GPU.")

    return refuse


def _driver_memory(driver: Any, memory: DeviceMemory) -> dict[str, Callable[..., Any]]:
    ok = driver.CUresult.CUDA_SUCCESS
    copy = _answered(ok, lambda to, source, size: memory.copy(_address(to), _address(source), int(size)))
    calls: dict[str, Callable[..., Any]] = {
        "cuMemAlloc": lambda size: (ok, driver.CUdeviceptr(memory.allocate(int(size)))),
        "cuMemFree": _answered(ok, lambda address: memory.free(int(address))),
        "cuMemsetD8": _answered(ok, lambda at, value, count: memory.fill(int(at), int(value) & 0xFF, int(count))),
        "cuMemsetD32": _answered(ok, lambda at, value, count: _fill_words(memory, int(at), int(value), int(count))),
        **dict.fromkeys(("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD"), copy),
    }
    calls |= {f"{name}Async": _without_stream(call) for name, call in calls.items()}
    return calls | dict.fromkeys(("cuGetErrorName", "cuGetErrorString"), lambda error: (ok, error.name.encode()))


def _runtime_memory(runtime: Any, memory: DeviceMemory) -> dict[str, Callable[..., Any]]:
    ok = runtime.cudaError_t.cudaSuccess
    calls: dict[str, Callable[..., Any]] = {
        "cudaMalloc": lambda size: (ok, memory.allocate(int(size))),
        "cudaFree": _answered(ok, lambda address: memory.free(int(address))),
        "cudaMemset": _answered(ok, lambda at, value, size: memory.fill(int(at), int(value) & 0xFF, int(size))),
        "cudaMemcpy": _answered(
            ok, lambda to, source, size, kind: memory.copy(_address(to), _address(source), int(size))
        ),
    }
    calls |= {f"{name}Async": _without_stream(call) for name, call in calls.items()}
    return calls | dict.fromkeys(("cudaGetErrorName", "cudaGetErrorString"), lambda error: (ok, error.name.encode()))


def _answered(success: Any, act: Callable[..., object]) -> Callable[..., Any]:
    """A call that does something and gives success alone."""

    def call(*args: Any) -> tuple[Any]:
        act(*args)
        return (success,)

    return call


def _without_stream(call: Callable[..., Any]) -> Callable[..., Any]:
    """The asynchronous form: the same arguments, and a stream, which orders nothing."""
    return lambda *args: call(*args[:-1])


def _fill_words(memory: DeviceMemory, address: int, value: int, count: int) -> None:
    words = (ctypes.c_uint32 * count)(*[value & 0xFFFFFFFF] * count)
    memory.copy(address, ctypes.addressof(words), ctypes.sizeof(words))


def _address(place: Any) -> int:
    """The address of a handle, a number, or a buffer of the host."""
    try:
        buffer = memoryview(place)
    except TypeError:
        return int(place)
    if isinstance(place, bytes):
        return ctypes.cast(ctypes.c_char_p(place), ctypes.c_void_p).value or 0
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _driver_answers(driver: Any, sm: SmVersion) -> dict[str, Callable[..., Any]]:
    success = driver.CUresult.CUDA_SUCCESS
    name = f"{sm.products[0]} (recorded)".encode()
    answers: dict[str, object] = {
        "cuDeviceGetCount": 1,
        "cuDriverGetVersion": DRIVER_VERSION,
        "cuDeviceGetName": name,
        "cuEventElapsedTime": 0.0,
        "cuEventQuery": None,
        "cuStreamQuery": None,
    }
    for call in ("cuDeviceGet", "cuCtxGetDevice"):
        answers[call] = driver.CUdevice(0)
    for call in ("cuCtxGetCurrent", "cuCtxCreate", "cuDevicePrimaryCtxRetain", "cuStreamGetCtx"):
        answers[call] = driver.CUcontext(0)
    for call in ("cuStreamCreate", "cuStreamCreateWithPriority"):
        answers[call] = driver.CUstream(0)
    for call in _DRIVER_NO_OPS.split():
        answers[call] = None
    calls: dict[str, Callable[..., Any]] = {call: _answer(success, value) for call, value in answers.items()}
    calls["cuEventCreate"] = lambda *args: (success, driver.CUevent(0))
    calls["cuDeviceGetAttribute"] = lambda attribute, device: (success, device_attribute(sm, int(attribute)))
    return calls


_DRIVER_NO_OPS = (
    "cuInit cuCtxSetCurrent cuCtxPushCurrent cuCtxSynchronize cuCtxDestroy cuDevicePrimaryCtxRelease "
    "cuStreamSynchronize cuStreamDestroy cuStreamWaitEvent cuEventRecord cuEventSynchronize cuEventDestroy"
)


def _runtime_answers(runtime: Any, sm: SmVersion) -> dict[str, Callable[..., Any]]:
    success = runtime.cudaError_t.cudaSuccess
    answers: dict[str, object] = {
        "cudaGetDeviceCount": 1,
        "cudaGetDevice": 0,
        "cudaDriverGetVersion": DRIVER_VERSION,
        "cudaRuntimeGetVersion": DRIVER_VERSION,
        "cudaStreamCreate": runtime.cudaStream_t(0),
        "cudaEventCreate": runtime.cudaEvent_t(0),
        "cudaEventElapsedTime": 0.0,
    }
    for call in _RUNTIME_NO_OPS.split():
        answers[call] = None
    calls: dict[str, Callable[..., Any]] = {call: _answer(success, value) for call, value in answers.items()}
    calls["cudaDeviceGetAttribute"] = lambda attribute, device: (success, device_attribute(sm, int(attribute)))
    return calls


_RUNTIME_NO_OPS = (
    "cudaSetDevice cudaDeviceSynchronize cudaStreamSynchronize cudaStreamDestroy cudaStreamWaitEvent cudaEventRecord "
    "cudaEventSynchronize cudaEventDestroy cudaLibraryUnload cudaGetLastError cudaPeekAtLastError"
)


def _answer(success: Any, value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: (success,) if value is None else (success, value)
