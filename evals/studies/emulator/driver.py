"""Running one PTX entry on the GPU of this machine through the CUDA driver API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

THREADS = 128


class Gpu:
    """The first GPU and its primary context; `name` is the device's name."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        text = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", text, 100, device)
        self.name = text.value.decode()

    def execute(self, ptx: str, inputs: np.ndarray[Any, Any], words: int) -> np.ndarray[Any, Any]:
        """Run entry `test(out, in)` with one thread for each column of `inputs` (uint64); `words` output words."""
        return self.launch(ptx, inputs, np.zeros(words, np.uint64), inputs.shape[1] // THREADS)

    def launch(
        self, ptx: str, inputs: np.ndarray[Any, Any], before: np.ndarray[Any, Any], blocks: int,
        encode: Callable[[int, int], bytes] | None = None,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        """What is in the output, which holds `before`, after blocks of 128 threads have run entry `test(out, in)`.

        `encode`: gives the 128 bytes of a third parameter for the addresses of output and input.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ptx.encode() + b"\0")
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"test")
        target, source = self._filled(before), self._filled(inputs)
        values: list[Any] = [target, source]
        if encode is not None:
            values.append(ctypes.create_string_buffer(encode(target.value, source.value), 128))
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self._call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        output = np.zeros_like(before)
        self._call("cuMemcpyDtoH_v2", output.ctypes.data_as(ctypes.c_void_p), target, ctypes.c_size_t(output.nbytes))
        for address in (source, target):
            self._call("cuMemFree_v2", address)
        self._call("cuModuleUnload", module)
        return output

    def tensor_map(self, call: str, *arguments: Any) -> bytes:
        """The 128 bytes that a driver function encodes; raises RuntimeError with its code."""
        room = ctypes.create_string_buffer(128 + 64)
        aligned = -ctypes.addressof(room) % 64
        self._call(call, ctypes.c_void_p(ctypes.addressof(room) + aligned), *arguments)
        return room.raw[aligned : aligned + 128]

    def _filled(self, data: np.ndarray[Any, Any]) -> ctypes.c_uint64:
        """The address of a copy of an array."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t(data.nbytes)
        self._call("cuMemAlloc_v2", ctypes.byref(address), size)
        self._call("cuMemcpyHtoD_v2", address, data.ctypes.data_as(ctypes.c_void_p), size)
        return address

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} returned CUDA error {code}")
