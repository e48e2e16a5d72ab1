"""TVM-FFI calls while recording: run in the MLIR engine, where our calls are registered, on tensors that pose as CUDA.

The DSL otherwise moves a TVM-FFI function into a second engine that knows no callbacks, and TVM-FFI reads torch tensors
through a C interface that no Python code sees.

Errors that host code raises, such as of an argument's shape, are made here without the C++ frames that TVM-FFI looks
up: for the first one it reads the symbols of every library of the process, 0.4 s.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from cutesmith.recording.facade import active_facade
from cutesmith.recording.host_calls import surfacing
from cutesmith.recording.patches import Patches

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int32
_ENTRY = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _POINTER)  # TVMFFISafeCallType: handle, args, count, result
_PACKED = ctypes.CFUNCTYPE(None, _POINTER)

_RAISE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), _INT)

_entries: list[Any] = []  # the functions that TVM-FFI holds raw pointers to


def hook_tvm_ffi(patches: Patches) -> None:
    """Replace how the DSL makes and calls TVM-FFI functions; nothing to do where tvm_ffi is not installed."""
    try:
        import tvm_ffi
        from cutlass.cutlass_dsl import tvm_ffi_provider as provider
    except ImportError:
        return
    patches.set(tvm_ffi, "from_dlpack", _with_views(tvm_ffi.from_dlpack, _view))
    stay_in_engine(patches)
    for name in ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"):
        owner = getattr(provider, name)
        patches.set(owner, "__call__", surfacing(_with_engine(with_tvm_tensors(owner.__call__))))
    # Who asks for the bare TVM-FFI function gets the object around it, whose calls are the ones converted above.
    patches.set(provider.TVMFFIJitCompiledFunctionWithKwargs, "__tvm_ffi_object__", lambda compiled: compiled)


def stay_in_engine(patches: Patches) -> None:
    """Run TVM-FFI functions where callbacks can be registered; nothing to do where tvm_ffi is not installed."""
    try:
        from cutlass.cutlass_dsl import tvm_ffi_provider as provider
    except ImportError:
        return
    patches.set(provider.TVMFFIJitCompiledFunctionBase, "_create_tvm_ffi_function", _function_in_engine)


def register_errors(engine: Any) -> None:
    """Let the host code of an MLIR engine raise its errors through us (before its first look-up)."""
    if (raising := _raising()) is not None:
        engine.raw_register_runtime("TVMFFIErrorSetRaisedFromCStrParts", ctypes.cast(raising, _POINTER))


class _Bytes(ctypes.Structure):
    """TVMFFIByteArray."""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


@functools.cache
def _raising() -> Any:
    """`TVMFFIErrorSetRaisedFromCStrParts` without a backtrace; None where tvm_ffi is not installed."""
    try:
        from tvm_ffi.libinfo import find_libtvm_ffi
    except ImportError:
        return None
    library = ctypes.CDLL(find_libtvm_ffi())

    def set_raised(kind: bytes, parts: Any, count: int) -> None:
        message = b"".join(parts[index] or b"" for index in range(count))
        error = _POINTER()
        texts = [_Bytes(text, len(text)) for text in (kind, message, b"")]
        library.TVMFFIErrorCreate(*map(ctypes.byref, texts), ctypes.byref(error))
        library.TVMFFIErrorSetRaised(error)
        library.TVMFFIObjectDecRef(error)

    return _RAISE(set_raised)


def _with_engine(original: Any) -> Any:
    """`original` of a compiled function, after the check that it was compiled for this GPU."""

    def call(compiled: Any, *args: Any, **kwargs: Any) -> Any:
        compiled._validate_engine()
        return original(compiled, *args, **kwargs)

    return call


def _with_views(original: Any, convert: Any) -> Any:
    """`original` with every tensor argument that poses as CUDA converted, also in lists and (named) tuples."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*[_map(convert, a) for a in args], **{name: _map(convert, a) for name, a in kwargs.items()})

    return call


def with_tvm_tensors(function: Any) -> Any:
    """A TVM-FFI function, called with tensors of TVM-FFI where they pose as CUDA tensors."""
    return _with_views(function, _tvm_tensor)


def _map(convert: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return convert(value)
    if type(value) in (tuple, list):
        return type(value)(_map(convert, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return value._make(_map(convert, item) for item in value)
    return value


def _view(tensor: torch.Tensor) -> Any:
    facade = active_facade()
    return facade.view(tensor) if facade and facade.says_cuda(tensor) else tensor


def _tvm_tensor(tensor: torch.Tensor) -> Any:
    import tvm_ffi

    return tvm_ffi.from_dlpack(tensor)


def _function_in_engine(compiled: Any) -> Any:
    """The TVM-FFI function of a compiled host function, run in its MLIR engine; None without an engine."""
    import tvm_ffi

    if compiled.engine is None:
        return None
    packed = _PACKED(compiled.engine.raw_lookup(f"__tvm_ffi_{compiled.function_name}"))

    def entry(handle: int | None, args: int | None, count: int, result: int | None) -> int:
        values = (_POINTER(handle), _POINTER(args), _INT(count), _POINTER(result), _INT(0))
        packed(ctypes.cast((_POINTER * 5)(*[ctypes.addressof(value) for value in values]), _POINTER))
        return values[4].value

    callback = _ENTRY(entry)
    _entries.append((packed, callback))
    address = ctypes.cast(callback, _POINTER).value or 0
    return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=compiled.engine)
