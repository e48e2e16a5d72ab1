"""The DSL's real host code without a GPU: compiled for a real architecture, launches recorded, none executed.

`session(arch)` runs a kernel file unchanged; `cuda_as_cpu()` alone lets torch code that asks for `device="cuda"` run on
CPU tensors; `read_cubin` and `read_ptx` read what the compiler made. Names are loaded on first use, so that the readers
cost no import of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutesmith.recording.cubin import CubinKernel, read_cubin
    from cutesmith.recording.facade import cuda_as_cpu
    from cutesmith.recording.ptx import PtxKernel, read_ptx
    from cutesmith.recording.sessions import Launch, Module, Session, session

__all__ = [
    "CubinKernel",
    "Launch",
    "Module",
    "PtxKernel",
    "Session",
    "cuda_as_cpu",
    "read_cubin",
    "read_ptx",
    "session",
]

_HOMES = {
    "CubinKernel": "cubin",
    "read_cubin": "cubin",
    "cuda_as_cpu": "facade",
    "PtxKernel": "ptx",
    "read_ptx": "ptx",
    "Launch": "sessions",
    "Module": "sessions",
    "Session": "sessions",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
