"""LLVM IR to machine code of this host: `compile_program(program, access_ir).run(basic_block, context, lanes)`."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.native.kept_code import kept_code
from cutesmith.emulator.native.logs import NO_INSTRUMENTATION, Instrumentation
from cutesmith.emulator.native.regions import program_text
from cutesmith.emulator.program.abi import ACCESS_FUNCTION, CONTEXT_WORDS, Array
from cutesmith.emulator.program.basic_blocks import Program

# Measured on an EPYC 9004 over a softmax, a layer norm, QuACK's cross entropy and an sm_80 GEMM (450 to 1070
# instructions, 17 to 134 regions): LLVM's O1 takes 0.35 to 1.1 s for 350 to 490 M lane-instructions a second and core,
# O2 20 % longer for the same speed, these passes with the fast code generator 0.07 to 0.17 s for 320 to 360 M.
_PASSES = ("always_inliner", "sroa", "simplify_cfg", "instruction_combine", "simplify_cfg")
_KEPT_PROGRAMS = 256
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

_lock = threading.Lock()
_programs: OrderedDict[bytes, NativeProgram] = OrderedDict()


class NativeProgram:
    """Machine code of a program. It may run from several threads at once, each with a context of its own."""

    def __init__(self, engines: tuple[Any, ...], basic_blocks: tuple[int, ...]) -> None:
        self._engines = engines  # they own the code
        engine = engines[0]
        self._functions: dict[int, Callable[..., None]] = {
            basic_block: _SIGNATURE(engine.get_function_address(f"run_{basic_block}")) for basic_block in basic_blocks
        }

    def run(self, basic_block: int, context: Array, lanes: Array) -> None:
        """Run lanes from `basic_block`, the entry of a region, until each is suspended; the GIL is released meanwhile.

        `context`: int64 (CONTEXT_WORDS,), see abi.Context. `lanes`: int32 (n,), lanes of the wave, each once.
        """
        if context.dtype != np.int64 or context.shape != (CONTEXT_WORDS,):
            raise ValueError(f"a context is int64 ({CONTEXT_WORDS},), not {context.dtype} {context.shape}")
        lanes = np.ascontiguousarray(lanes, np.int32)
        self._functions[basic_block](context.ctypes.data, lanes.ctypes.data, lanes.size)


def compile_program(
    program: Program, access_ir: str, instrumentation: Instrumentation = NO_INSTRUMENTATION
) -> NativeProgram:
    """Compile all regions of a program, or find them compiled: the same code is compiled once a process.

    `access_ir`: LLVM IR that defines `access`, as `sanitizer.access` does. Raises UnsupportedInstruction.
    """
    return compile_text(program_text(program, instrumentation), access_ir, tuple(program.regions))


def compile_text(text: str, access_ir: str, basic_blocks: tuple[int, ...]) -> NativeProgram:
    """Compile the IR of region functions; the IR of `access` is compiled apart, once a process."""
    key = hashlib.sha256(f"{access_ir}\0{text}".encode()).digest()
    with _lock:
        if key not in _programs:
            _programs[key] = NativeProgram(_machine_code(text, access_ir), basic_blocks)
            if len(_programs) > _KEPT_PROGRAMS:
                _programs.popitem(last=False)
        _programs.move_to_end(key)
        return _programs[key]


def _machine_code(text: str, access_ir: str) -> tuple[Any, Any]:
    """Engines of the region functions, little optimised, and of `access`."""
    machine, access_engine = _target(0), compiled_access(access_ir)
    access = int(access_engine.get_function_address(ACCESS_FUNCTION))
    module = llvm.parse_assembly(text)
    module.link_in(llvm.parse_assembly(_IEEE.get(platform.machine(), _IEEE_ELSEWHERE)))
    _require_symbols(module, ACCESS_FUNCTION)
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith("run_"):
            function.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.add_global_mapping(module.get_function(ACCESS_FUNCTION), access)
    engine.finalize_object()
    return engine, access_engine


@cache
def compiled_access(text: str) -> Any:
    """The execution engine of `access`, one a process."""
    return machine_code(text)


def machine_code(text: str) -> Any:
    """The execution engine that owns the code of any IR text, optimised well; its functions have an address."""
    module = llvm.parse_assembly(text)
    _require_symbols(module)
    version = ".".join(map(str, (llvmlite.__version__, *llvm.llvm_version_info)))
    host = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()} {llvm.get_default_triple()}"
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target(2))
    code = kept_code(f"{version}\n{host}\n{text}", partial(_object_code, module))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _object_code(module: Any) -> bytes:
    machine = _target(2)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _require_symbols(module: Any, *known: str) -> None:
    """Raise where a function cannot be resolved: the JIT itself would end the process."""
    names = {function.name for function in module.functions if function.is_declaration} - {*known}
    for name in sorted(names):
        if not name.startswith("llvm.") and not hasattr(ctypes.CDLL(None), name):
            raise EmulationError(f"native code needs the function `{name}`, which this process does not have")


def _target(level: int) -> Any:
    """A new target machine: an execution engine owns and frees the one it is given."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=cpu, features=features, opt=level)


# The floating-point environment of native code: round to nearest, subnormals kept, whatever the calling thread has set.
_IEEE = {
    "x86_64": """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i64 @enter_ieee() alwaysinline {
%word = alloca i32
call void @llvm.x86.sse.stmxcsr(ptr %word)
%saved = load i32, ptr %word
store i32 8064, ptr %word
call void @llvm.x86.sse.ldmxcsr(ptr %word)
%wide = zext i32 %saved to i64
ret i64 %wide
}
define void @leave_ieee(i64 %saved) alwaysinline {
%word = alloca i32
%narrow = trunc i64 %saved to i32
store i32 %narrow, ptr %word
call void @llvm.x86.sse.ldmxcsr(ptr %word)
ret void
}""",
    "aarch64": """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define i64 @enter_ieee() alwaysinline {
%saved = call i64 @llvm.aarch64.get.fpcr()
call void @llvm.aarch64.set.fpcr(i64 0)
ret i64 %saved
}
define void @leave_ieee(i64 %saved) alwaysinline {
call void @llvm.aarch64.set.fpcr(i64 %saved)
ret void
}""",
}
_IEEE_ELSEWHERE = """
define i64 @enter_ieee() alwaysinline { ret i64 0 }
define void @leave_ieee(i64 %saved) alwaysinline { ret void }"""
