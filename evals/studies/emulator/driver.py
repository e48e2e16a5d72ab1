"""Running one PTX entry on the GPU of this machine through the CUDA driver API."""

from __future__ import annotations

import ctypes
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
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ptx.encode() + b"\0")
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"test")
        source, target = self._allocate(inputs.nbytes), self._allocate(8 * words)
        self._call("cuMemcpyHtoD_v2", source, inputs.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(inputs.nbytes))
        self._call("cuMemsetD8_v2", target, ctypes.c_ubyte(0), ctypes.c_size_t(8 * words))
        parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in (target, source)))
        blocks = inputs.shape[1] // THREADS
        self._call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        output = np.zeros(words, np.uint64)
        self._call("cuMemcpyDtoH_v2", output.ctypes.data_as(ctypes.c_void_p), target, ctypes.c_size_t(8 * words))
        for address in (source, target):
            self._call("cuMemFree_v2", address)
        self._call("cuModuleUnload", module)
        return output

    def _allocate(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} returned CUDA error {code}")
