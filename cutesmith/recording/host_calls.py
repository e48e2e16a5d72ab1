"""The CUDA runtime as the DSL's compiled host code sees it, answered here instead of by a driver.

Host code that the DSL compiles calls `_cudaLaunchKernelEx` and its like by symbol name. Callbacks registered for those
names on the execution engine take the place of `libcute_dsl_runtime.so`, with or without a GPU in the machine: nothing
reaches a driver. They live as long as the process, because compiled functions may outlive the session that made them.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from cutesmith.recording.tensor_map_calls import encode_im2col, encode_tiled

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_HANDLE = 0x7E00_0000_0000  # of every stream and event

_NOT_SUPPORTED = 801  # cudaErrorNotSupported
_NO_DEVICE = 100  # cudaErrorNoDevice: no session is recording
_UNKNOWN = 999  # cudaErrorUnknown: our own callback failed; the session keeps why

_LAUNCH_CONFIG = struct.Struct("<6IQQQI")  # cudaLaunchConfig_t: grid, block, smem, stream, attributes, their number
_ATTRIBUTE_BYTES = 72  # cudaLaunchAttribute: id, padding, a union of 64 bytes
_TRIPLE_ATTRIBUTES = {4: "cluster", 11: "preferred_cluster"}
_ATTRIBUTES = {
    1: "access_policy_window",
    2: "cooperative",
    3: "synchronization_policy",
    5: "cluster_scheduling",
    6: "programmatic_stream_serialization",
    8: "priority",
    14: "preferred_smem_carveout",
    **_TRIPLE_ATTRIBUTES,
}

Triple = tuple[int, int, int]
Attributes: TypeAlias = "Mapping[str, Triple | int]"


class Recorder(Protocol):
    """What a session does with the calls of the host code."""

    def load_library(self, library: int, image: bytes) -> None:
        """A fat binary was loaded; `library` is its handle."""

    def kernel_handle(self, library: int, name: str) -> int:
        """A handle for the kernel of that name in a library."""

    def kernel_attribute(self, handle: int, attribute: int) -> int:
        """A CUfunction_attribute of a kernel."""

    def set_kernel_attribute(self, handle: int, attribute: int, value: int) -> None:
        """A cudaFuncAttribute of a kernel was set."""

    def device_attribute(self, attribute: int) -> int:
        """A cudaDeviceAttr of the recorded device."""

    def launch(
        self, handle: int, grid: Triple, block: Triple, smem: int, stream: int, attributes: Attributes, args: int
    ) -> None:
        """A kernel was launched; `args` is the address of the array of argument pointers."""

    def allocate(self, size: int) -> int:
        """A device address for `size` bytes."""

    def free(self, address: int) -> None:
        """A device address is given back."""

    def fill(self, address: int, value: int, size: int) -> None:
        """Set device memory to a byte."""

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes between any two addresses, of the host or the device."""

    def surface(self) -> None:
        """Raise what went wrong in a call: host code that the DSL compiled knows error codes only."""

    def failed(self, call: str, error: BaseException | None) -> None:
        """A callback failed (`error`), or host code made a call that is not answered (None)."""


class _Current:
    recorder: Recorder | None = None


current = _Current()


def set_recorder(recorder: Recorder | None) -> Recorder | None:
    """Direct the calls to `recorder`; the one from before is given back."""
    before, current.recorder = current.recorder, recorder
    return before


def _recorder() -> Recorder:
    if current.recorder is None:
        raise RuntimeError("a function that was compiled while recording was called outside of the recording session")
    return current.recorder


def _gives(kind: type[ctypes.c_int32] | type[ctypes.c_uint64], answer: Callable[..., int]) -> Callable[..., int]:
    """A call whose first argument is the address that the answer goes to."""

    def call(out: int, *args: Any) -> int:
        kind.from_address(out).value = answer(*args)
        return 0

    return call


def _load_library(code: int, *options: Any) -> int:
    header, size = struct.unpack("<IHHQ", ctypes.string_at(code, 16))[2:]
    _recorder().load_library(code, ctypes.string_at(code, header + size))
    return code


def _set_kernel_attribute(kernel: int, attribute: int, value: int, device: int = 0) -> int:
    _recorder().set_kernel_attribute(kernel, attribute, value)
    return 0


def _launch_ex(config: int, kernel: int, args: int) -> int:
    gx, gy, gz, bx, by, bz, smem, stream, at, count = _LAUNCH_CONFIG.unpack(
        ctypes.string_at(config, _LAUNCH_CONFIG.size)
    )
    attributes = dict(_attribute(at + _ATTRIBUTE_BYTES * i) for i in range(count))
    _recorder().launch(kernel, (gx, gy, gz), (bx, by, bz), smem, stream, attributes, args)
    return 0


def _attribute(address: int) -> tuple[str, Triple | int]:
    (number,) = struct.unpack("<I", ctypes.string_at(address, 4))
    name = _ATTRIBUTES.get(number, f"attribute_{number}")
    words = struct.unpack("<3I", ctypes.string_at(address + 8, 12))
    return name, words if number in _TRIPLE_ATTRIBUTES else words[0]


def _launch(
    kernel: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, args: int, smem: int, stream: int | None
) -> int:
    _recorder().launch(kernel, (gx, gy, gz), (bx, by, bz), smem, stream or 0, {}, args)
    return 0


def _init_library_once(state: int, init: int, load: int, set_error: int) -> int:
    """What the TVM-FFI entry calls before its first launch: load the library, then bind it to device 0."""
    if ctypes.c_uint64.from_address(state).value:
        return 0
    error: int = ctypes.CFUNCTYPE(_INT, _POINTER)(init)(state)
    return error or ctypes.CFUNCTYPE(_INT, _POINTER, _INT)(load)(state, 0)


def _succeed(*args: Any) -> int:
    return 0


def _free(address: int | None, stream: int | None = None) -> int:
    _recorder().free(address or 0)
    return 0


def _fill(address: int | None, value: int, size: int, stream: int | None = None) -> int:
    _recorder().fill(address or 0, value & 0xFF, size)
    return 0


def _copy(target: int | None, source: int | None, size: int, kind: int, stream: int | None = None) -> int:
    _recorder().copy(target or 0, source or 0, size)
    return 0


_CALLS: dict[str, tuple[Callable[..., int], list[Any]]] = {
    "_cudaLibraryLoadData": (_gives(ctypes.c_uint64, _load_library), [_POINTER] * 4 + [_INT, _POINTER, _POINTER, _INT]),
    "_cudaLibraryGetKernel": (
        _gives(
            ctypes.c_uint64, lambda library, name: _recorder().kernel_handle(library, ctypes.string_at(name).decode())
        ),
        [_POINTER] * 3,
    ),
    "_cuKernelGetAttribute": (
        _gives(_INT, lambda attribute, kernel, device: _recorder().kernel_attribute(kernel, attribute)),
        [_POINTER, _INT, _POINTER, _INT],
    ),
    "_cudaDeviceGetAttribute": (
        _gives(_INT, lambda attribute, device: _recorder().device_attribute(attribute)),
        [_POINTER, _INT, _INT],
    ),
    "_cudaGetDevice": (_gives(_INT, lambda *device: 0), [_POINTER]),
    "_cuDeviceGet": (_gives(_INT, lambda *device: 0), [_POINTER, _INT]),
    "_cudaGetDeviceCount": (_gives(_INT, lambda: 1), [_POINTER]),
    "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": (
        _gives(_INT, lambda *kernel: 1),
        [_POINTER, _POINTER, _INT, _SIZE],
    ),
    "_cudaLaunchKernelEx": (_launch_ex, [_POINTER] * 3),
    "_cudaLaunchKernel": (_launch, [_POINTER] + [_INT] * 6 + [_POINTER, _SIZE, _POINTER]),
    "cuda_dialect_init_library_once": (_init_library_once, [_POINTER] * 4),
    "cuda_dialect_unload_library_once": (_succeed, [_POINTER]),
    "_cudaKernelSetAttributeForDevice": (_set_kernel_attribute, [_POINTER, _INT, _INT, _INT]),
    "_cudaFuncSetAttribute": (_set_kernel_attribute, [_POINTER, _INT, _INT]),
    "_cudaSetDevice": (_succeed, [_INT]),
    "_cudaDeviceSynchronize": (_succeed, []),
    "_cudaStreamSynchronize": (_succeed, [_POINTER]),
    "_cudaStreamCreate": (_gives(ctypes.c_uint64, lambda: _HANDLE), [_POINTER]),
    "_cudaStreamDestroy": (_succeed, [_POINTER]),
    "_cudaStreamWaitEvent": (_succeed, [_POINTER, _POINTER, _INT]),
    "_cudaEventCreate": (_gives(ctypes.c_uint64, lambda: _HANDLE), [_POINTER]),
    "_cudaEventRecord": (_succeed, [_POINTER, _POINTER]),
    "_cudaEventDestroy": (_succeed, [_POINTER]),
    "_cudaMalloc": (_gives(ctypes.c_uint64, lambda size, stream=None: _recorder().allocate(size)), [_POINTER, _SIZE]),
    "_cudaMallocAsync": (
        _gives(ctypes.c_uint64, lambda size, stream=None: _recorder().allocate(size)),
        [_POINTER, _SIZE, _POINTER],
    ),
    "_cudaFree": (_free, [_POINTER]),
    "_cudaFreeAsync": (_free, [_POINTER, _POINTER]),
    "_cudaMemset": (_fill, [_POINTER, _INT, _SIZE]),
    "_cudaMemsetAsync": (_fill, [_POINTER, _INT, _SIZE, _POINTER]),
    "_cudaMemcpy": (_copy, [_POINTER, _POINTER, _SIZE, _INT]),
    "_cudaMemcpyAsync": (_copy, [_POINTER, _POINTER, _SIZE, _INT, _POINTER]),
    "_cudaLibraryUnload": (_succeed, [_POINTER]),
    "_cuTensorMapEncodeTiled": (encode_tiled, [_POINTER, _INT, _INT] + [_POINTER] * 5 + [_INT] * 4),
    "_cuTensorMapEncodeIm2col": (
        encode_im2col,
        [_POINTER, _INT, _INT] + [_POINTER] * 5 + [_INT] * 2 + [_POINTER] + [_INT] * 4,
    ),
}
_UNANSWERED = (
    "_cuLibraryGetGlobal _cuLibraryGetKernel _cuLibraryGetKernelCount _cuLibraryGetManaged _cuLibraryGetModule "
    "_cuLibraryGetUnifiedFunction _cuLibraryLoadData _cuLibraryLoadFromFile _cuLibraryUnload "
    "_cudaEventElapsedTime _cudaFreeHost _cudaGetDeviceProperties _cudaGraphDestroy _cudaGraphExecDestroy "
    "_cudaGraphInstantiate _cudaGraphLaunch _cudaLibraryGetGlobal _cudaLibraryGetKernelCount _cudaLibraryGetManaged "
    "_cudaLibraryGetUnifiedFunction _cudaLibraryLoadFromFile _cudaMallocHost _cudaMallocManaged _cudaProfilerStart "
    "_cudaProfilerStop _cudaStreamAddCallback _cudaStreamBeginCapture _cudaStreamEndCapture"
).split()
"""Symbols of the runtime that no recorded call needs: registered all the same, so that none can reach a real driver."""


def _guarded(name: str, answer: Callable[..., int]) -> Callable[..., int]:
    def call(*args: Any) -> int:
        if current.recorder is None and answer is not _succeed:
            return _NO_DEVICE
        try:
            return answer(*args)
        except BaseException as error:  # an exception cannot cross compiled code
            _recorder().failed(name, error)
            return _UNKNOWN

    return call


def _refuse(name: str) -> Callable[..., int]:
    """A call that ends as `surfacing` says; host code that asserts its success would end the process before that."""

    def call(*args: Any) -> int:
        if current.recorder is None:
            return _NOT_SUPPORTED
        current.recorder.failed(name, None)
        return 0

    return call


def surfacing(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, a call into compiled host code, that ends in the exception of the call within it that failed."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            if current.recorder is not None:
                current.recorder.surface()

    return call


_callbacks: dict[str, ctypes._FuncPointer] = {}


def call_addresses() -> dict[str, int]:
    """Where the code of each answered call is, by its symbol."""
    if not _callbacks:
        for name, (answer, types) in _CALLS.items():
            _callbacks[name] = ctypes.CFUNCTYPE(_INT, *types)(_guarded(name, answer))
        for name in _UNANSWERED:
            _callbacks[name] = ctypes.CFUNCTYPE(_INT)(_refuse(name))
    return {name: ctypes.cast(callback, ctypes.c_void_p).value or 0 for name, callback in _callbacks.items()}


def register_host_calls(engine: Any) -> None:
    """Let the host code of an MLIR execution engine call us instead of the CUDA runtime (before its first look-up)."""
    for name, address in call_addresses().items():
        engine.raw_register_runtime(name, ctypes.c_void_p(address))
