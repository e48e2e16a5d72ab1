"""`cute.runtime.load_module` without a GPU: an exported object file, linked with the calls that a session answers.

The DSL links it with `libcute_dsl_runtime.so`, whose calls reach a driver. Its device code is machine code alone:
kernels are executed where the session compiled them too, and elsewhere a launch refuses by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.recording.host_calls import call_addresses, surfacing
from cutesmith.recording.patches import Patches
from cutesmith.recording.tvm_ffi_calls import with_tvm_tensors

_NAME = "exported"


def hook_load_module(patches: Patches) -> None:
    """Link object files with our calls; their TVM-FFI functions take tensors that pose."""
    import cutlass.cute.export  # noqa: F401 - it sets the provider
    from cutlass.base_dsl.export.external_binary_module import ExternalBinaryModule

    def function_of(module: Any, name: str) -> Any:
        function = original(module, name)
        return surfacing(with_tvm_tensors(function)) if module.enable_tvm_ffi else function

    original = ExternalBinaryModule.__getattr__
    patches.set(ExternalBinaryModule.load_provider, "execution_engine_constructor", LinkedObject)
    patches.set(ExternalBinaryModule, "__getattr__", function_of)


class LinkedObject:
    """What the DSL calls a binary's execution engine: an object file in memory, linked by LLVM.

    It stays until the process ends, as its functions do.
    """

    def __init__(self, content: bytes, libraries: Sequence[str], jit_link: bool = True) -> None:
        import llvmlite.binding as llvm

        if not content:
            hint = "Load the object file (.o) that export_to_c wrote."
            raise UnavailableError("the emulated GPU does not load shared libraries by `load_module`", hint=hint)
        for library in libraries:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        builder = llvm.JITLibraryBuilder().add_object_img(content).add_current_process()
        for name, address in call_addresses().items():
            builder.import_symbol(name, address)
        self._linker = llvm.create_lljit_compiler(use_jit_link=jit_link)
        builder.link(self._linker, _NAME).detach()
        self._linker._owned = True  # else its end, maybe that of the interpreter, would run the object's destructors

    def lookup(self, name: str) -> int | None:
        """The address of a symbol, None where there is none."""
        try:
            found = self._linker.lookup(_NAME, name)
        except RuntimeError:
            return None
        found.detach()
        return int(found[name])
