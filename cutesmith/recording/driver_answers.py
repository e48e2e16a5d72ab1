"""What `cuda.bindings.driver` and `.runtime` answer while recording: one device of the recorded SM version, no work.

Kernel files ask the driver for a stream or a device attribute before they compile, and `launch(min_blocks_per_mp=…)`
asks while it is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutesmith.devices import MAX_THREADS_PER_BLOCK, RESERVED_SMEM_PER_BLOCK, WARP_SIZE, SmVersion
from cutesmith.recording.patches import Patches

DRIVER_VERSION = 13000


def device_attributes(sm: SmVersion) -> dict[int, int]:
    """Values of CUdevice_attribute (cudaDeviceAttr has the same numbers) for a GPU of this SM version."""
    major, minor = sm.capability
    return {
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
        16: sm.multiprocessors,
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


def answer_driver_calls(patches: Patches, sm: SmVersion) -> None:
    """Replace the driver and runtime functions that host code calls around a launch."""
    from cuda.bindings import driver, runtime

    patches.set_existing(driver, _driver_answers(driver, sm))
    patches.set_existing(runtime, _runtime_answers(runtime, sm))


def _driver_answers(driver: Any, sm: SmVersion) -> dict[str, Callable[..., Any]]:
    success, values = driver.CUresult.CUDA_SUCCESS, device_attributes(sm)
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
    calls["cuDeviceGetAttribute"] = lambda attribute, device: (success, values.get(int(attribute), 0))
    return calls


_DRIVER_NO_OPS = (
    "cuInit cuCtxSetCurrent cuCtxPushCurrent cuCtxSynchronize cuCtxDestroy cuDevicePrimaryCtxRelease "
    "cuStreamSynchronize cuStreamDestroy cuStreamWaitEvent cuEventRecord cuEventSynchronize cuEventDestroy"
)


def _runtime_answers(runtime: Any, sm: SmVersion) -> dict[str, Callable[..., Any]]:
    success, values = runtime.cudaError_t.cudaSuccess, device_attributes(sm)
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
    calls["cudaDeviceGetAttribute"] = lambda attribute, device: (success, values.get(int(attribute), 0))
    return calls


_RUNTIME_NO_OPS = (
    "cudaSetDevice cudaDeviceSynchronize cudaStreamSynchronize cudaStreamDestroy cudaStreamWaitEvent cudaEventRecord "
    "cudaEventSynchronize cudaEventDestroy cudaLibraryUnload cudaGetLastError cudaPeekAtLastError"
)


def _answer(success: Any, value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: (success,) if value is None else (success, value)
