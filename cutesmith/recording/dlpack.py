"""DLPack capsules that say "CUDA device 0" over memory of the CPU, or over no memory at all.

With them the DSL gives a tensor the memory space gmem, exactly as on a GPU; a capsule of a CPU tensor is `generic`, and
`cp.async` then refuses to compile. Layout: https://dmlc.github.io/dlpack/latest/c_api.html (DLManagedTensor).
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_CUDA_DEVICE = 2
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

_TYPE_NAMES = {
    "float64": (_FLOAT, 64),
    "float32": (_FLOAT, 32),
    "float16": (_FLOAT, 16),
    "bfloat16": (_BFLOAT, 16),
    "int8": (_INT, 8),
    "int16": (_INT, 16),
    "int32": (_INT, 32),
    "int64": (_INT, 64),
    "uint8": (_UINT, 8),
    "uint16": (_UINT, 16),
    "uint32": (_UINT, 32),
    "uint64": (_UINT, 64),
    "bool": (_BOOL, 8),
    "complex64": (_COMPLEX, 64),
    "complex128": (_COMPLEX, 128),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
    "float4_e2m1fn_x2": (17, 4),
}
_TYPES = {getattr(torch, name): code for name, code in _TYPE_NAMES.items() if hasattr(torch, name)}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


# Consumers may outlive this module: what the interpreter's end finds alive still calls the deleters.
_alive: dict[int, tuple[Any, ...]] = {}  # what a capsule's consumer still points into, by the struct's address


def _delete_managed(address: int | None, alive: dict[int, Any] = _alive) -> None:
    if address is not None:
        alive.pop(address, None)


_NAME = b"dltensor"
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _delete_capsule(
    capsule: int | None,
    alive: dict[int, Any] = _alive,
    is_valid: Any = _is_valid,
    pointer_of: Any = _pointer_of,
    name: bytes = _NAME,
) -> None:
    # A consumer renames the capsule and then owns the struct; only an unread capsule still frees it.
    if capsule is not None and is_valid(capsule, name):
        alive.pop(pointer_of(capsule, name), None)


_managed_deleter, _capsule_deleter = _Deleter(_delete_managed), _Deleter(_delete_capsule)
for _forever in (_managed_deleter, _capsule_deleter):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_forever))


class CudaTensorView:
    """A tensor's shape, strides and dtype as a DLPack producer on CUDA device 0, at the given (never read) address."""

    def __init__(self, tensor: torch.Tensor, address: int) -> None:
        self._tensor = tensor
        self._address = address

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA_DEVICE, 0)

    def __dlpack__(self, stream: Any = None, **unused: Any) -> Any:
        managed, dims = self._describe()
        address = ctypes.addressof(managed)
        _alive[address] = (managed, *dims, self._tensor)
        return _new_capsule(address, _NAME, ctypes.cast(_capsule_deleter, ctypes.c_void_p))

    def _describe(self) -> tuple[_DLManagedTensor, tuple[Any, Any]]:
        tensor = self._tensor
        with torch._C.DisableTorchFunction():
            sizes, steps, dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype
        if dtype not in _TYPES:
            raise TypeError(f"{dtype} has no DLPack type")
        code, bits = _TYPES[dtype]
        rank = len(sizes)
        shape, strides = (ctypes.c_int64 * max(rank, 1))(*sizes), (ctypes.c_int64 * max(rank, 1))(*steps)
        managed = _DLManagedTensor()
        managed.tensor = _DLTensor(
            self._address, _CUDA_DEVICE, 0, rank, code, bits, 2 if bits == 4 else 1,
            ctypes.addressof(shape), ctypes.addressof(strides), 0,
        )  # fmt: skip
        managed.deleter = ctypes.cast(_managed_deleter, ctypes.c_void_p)
        return managed, (shape, strides)
