"""Where a recording session takes hold of the DSL: architecture, options, artefacts, execution engine, TVM-FFI calls.

Everything is put back when the session ends. Written against nvidia-cutlass-dsl 4.8: each replaced attribute is named
once, in `_Hooks`.
"""

from __future__ import annotations

import copy
import functools
import re
import sys
import time
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutesmith.devices import parse_arch
from cutesmith.errors import UnavailableError
from cutesmith.recording.cubin import read_cubin
from cutesmith.recording.driver_answers import answer_driver_calls
from cutesmith.recording.exported_objects import hook_load_module
from cutesmith.recording.gpu_size import told_to_host_code
from cutesmith.recording.host_calls import register_host_calls, surfacing
from cutesmith.recording.operation_places import find_places_once
from cutesmith.recording.patches import Patches
from cutesmith.recording.ptx import PtxasNote, Spills, read_notes, read_remarks
from cutesmith.recording.sessions import Module, Session, UnstableName
from cutesmith.recording.tvm_ffi_calls import hook_tvm_ffi, register_errors

_PLACE_IN_LOCATION = re.compile(r'"([^"]+\.py)":(\d+):\d+')
_UNSTABLE = re.compile(r"has type `([^`]+)` on one path and `([^`]+)`")
_PTXAS_REMARKS = "remarks{ptx}"
_JOIN, _REGION = "_check_region_result", ("mix_iter_arg_names", "region_result_list")  # of its caller


@contextmanager
def hook_compiler(recorded: Session, scratch: Path) -> Iterator[None]:
    """Direct every compilation of the process to `recorded`; artefacts are dumped beneath `scratch` on the way."""
    with Patches() as patches:
        _Hooks(recorded, scratch).install(patches)
        yield


class _Hooks:
    """The replaced functions of the DSL, and what they share."""

    def __init__(self, recorded: Session, scratch: Path) -> None:
        self._recorded = recorded
        self._scratch = scratch
        self._depth = 0
        self._started = 0.0
        self._spills: dict[str, Spills] = {}
        self._notes: dict[str, tuple[PtxasNote, ...]] = {}
        self._constants: dict[str, tuple[tuple[str, str], ...]] = {}  # by the mangled name of a kernel
        self._unstable: Exception | None = None  # the first of this compilation

    def install(self, patches: Patches) -> None:
        """Replace what a session needs; `patches` puts it back."""
        from cutlass.base_dsl import compile_backend, compiler, diagnostics, dsl, enums, jit_executor
        from cutlass.cutlass_dsl import cuda_jit_executor, cutlass_ast_decorators

        self._set_environment(patches, dsl.DSLSingletonMeta._instances.values())
        answer_driver_calls(patches, parse_arch(self._recorded.arch).sm, self._recorded)
        executor = cuda_jit_executor.CudaDialectJitCompiledFunction
        patches.set(executor, "num_devices", 1)
        for owner, name, wrap in (
            (executor, "_load_cuda_library", _without_handles),
            (compiler.Compiler, "jit", _with_host_calls),
            (compiler.CompileCallable, "_compile", self._compile_share),
            (compiler.CompileOptions, "apply_envar_settings", functools.partial(_from_pristine_options, patches)),
            (diagnostics.CompilerDiagnosticSession, "_collected_diagnostics", self._take_remarks),
            (dsl.BaseDSL, "_func", self._time_outermost),
            (dsl.BaseDSL, "mangle_name", self._note_constants),
            (compile_backend.CompilerBackend, "compile", self._keep_module),
            (jit_executor.JitCompiledFunction, "_validate_engine", self._name_other_gpu),
            (jit_executor.JitExecutor, "run_compiled_program", surfacing),
            (jit_executor.JitCompiledFunction, "run_compiled_program", surfacing),
        ):
            patches.set(owner, name, wrap(getattr(owner, name)))
        joins = cutlass_ast_decorators.ScfGenerator
        patches.set(joins, _JOIN, staticmethod(self._note_join(getattr(joins, _JOIN))))
        patches.set(enums.Arch, "from_string", staticmethod(_naming_unknown(enums.Arch.from_string)))
        find_places_once(patches)
        _answer_hardware_info(patches, self._recorded.arch)
        hook_tvm_ffi(patches)
        hook_load_module(patches)

    def _set_environment(self, patches: Patches, dsls: Any) -> None:
        for dsl in dsls:
            options = f"{dsl.envar.compiler_opt} {_PTXAS_REMARKS}".strip()
            for name, value in {
                "_arch": self._recorded.arch,
                "dump_dir": str(self._scratch),
                "keep_ptx": True,
                "keep_cubin": True,
                "keep_sass": False,
                "disable_file_caching": True,
                "no_cache": True,
                "warnings_ignore": True,
                "compiler_backend": "legacy",  # the other one brings an executor of its own
                "compiler_opt": options,
                "lineinfo": dsl.envar.lineinfo or self._recorded.line_info,
            }.items():
                patches.set(dsl.envar, name, value)

    def _take_remarks(self, original: Any) -> Any:
        """Keep what ptxas says of spills and of its changes, and show it only to those who asked."""

        def collected(session: Any) -> list[Any]:
            others = []
            for diagnostic in original(session):
                if diagnostic.severity == "remark" and diagnostic.code.startswith("ptxas"):
                    text = f"{diagnostic.message}\n{diagnostic.reason}"
                    place = _place_of(diagnostic)
                    spills = read_remarks(text).items()
                    self._spills.update({name: replace(found, place=place) for name, found in spills})
                    self._notes.update(read_notes(text))
                else:
                    others.append(diagnostic)
            return others

        return collected

    def _time_outermost(self, original: Any) -> Any:
        """Start the clock where a host function is traced; functions that it inlines come through here too."""

        def func(dsl: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth == 0:
                self._started, self._unstable = time.perf_counter(), None
                self._recorded.unstable.clear()
            self._depth += 1
            self._recorded.compiling = True
            try:
                result = original(dsl, *args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0 and self._unstable is not None:
                    raise self._unstable from None
            self._recorded.compiling = self._depth > 0  # an exception leaves it set
            return result

        return _as_part_of(original.__module__, func)

    def _note_constants(self, original: Any) -> Any:
        """Keep what a kernel is compiled for, by the name that the DSL makes of its arguments."""

        def mangle_name(dsl: Any, function: str, arguments: Any, signature: Any) -> str:
            name: str = original(dsl, function, arguments, signature)
            self._constants[f"kernel_{name}"] = tuple(constants_of(zip(signature.parameters, arguments)))
            return name

        return _as_part_of(original.__module__, mangle_name)

    def _note_join(self, original: Any) -> Any:
        """Trace on where a name has two types, with the value from before the region, so that all such names are known.

        Then the first error is raised. The values at the region's end are a list of the function that calls the check.
        """

        def check(before: object, after: object, name: str, operation: str) -> None:
            try:
                original(before, after, name, operation)
            except Exception as error:
                caller = sys._getframe(1).f_locals
                names, results = (caller.get(known) for known in _REGION)
                types_of = _UNSTABLE.search(str(error))
                if not types_of or not names or not isinstance(results, list):
                    raise
                results[list(names).index(name)] = before
                self._unstable = self._unstable or error
                self._recorded.unstable.append(UnstableName(name, types_of[1], types_of[2], getattr(error, "line", 0)))

        return _as_part_of(original.__module__, check)

    def _compile_share(self, original: Any) -> Any:
        """Make the calls of `cute.compile` that are of the session's share."""

        def compile_function(owner: Any, *args: Any, **kwargs: Any) -> Any:
            share, number = self._recorded.share, self._recorded.calls
            self._recorded.calls += 1
            is_made = share is None or share[0] <= number < share[1]
            if not is_made:
                return CompiledElsewhere(self._recorded)
            compiled = original(owner, *args, **kwargs)
            self._recorded.on_compiled()
            return compiled

        return _as_part_of(original.__module__, compile_function)

    def _name_other_gpu(self, original: Any) -> Any:
        """The DSL says of code for another GPU, when it is called, that the DSL has a bug."""

        def validate(compiled: Any) -> None:
            if compiled.engine is None and (arch := compiled.compiled_for) != self._recorded.arch:
                what = f"a kernel was compiled for {arch}, which {self._recorded.arch} cannot run"
                raise UnavailableError(what, hint=f"Use --arch {arch}.")
            original(compiled)

        return validate

    def _keep_module(self, original: Any) -> Any:
        """Keep the artefacts of each compilation: the dump files of two compilations may have one name."""

        def compile_module(backend: Any, context: Any) -> Any:
            compiled = original(backend, context)
            arch = backend._resolve_compile_gpu_arch()
            compiled.compiled_for = arch
            ptx, cubin = _artifacts(compiled)
            found = read_cubin(cubin) if cubin else {}
            kernels = {
                name: replace(one, constants=self._constants.get(_numberless(name), ())) for name, one in found.items()
            }
            self._recorded.modules.append(
                Module(
                    function=context.function_name,
                    arch=arch,
                    seconds=time.perf_counter() - self._started,
                    ptx=ptx,
                    cubin=cubin,
                    kernels=kernels,
                    spills={name: self._spills[name] for name in kernels if name in self._spills},
                    notes={name: self._notes[name] for name in kernels if name in self._notes},
                )
            )
            return compiled

        return compile_module


def constants_of(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Of named arguments of a kernel those that are known while it is traced: numbers, types, and shapes of tensors."""
    for name, value in arguments:
        shape = getattr(value, "shape", None)
        if isinstance(value, type):
            yield name, value.__name__
        elif value is None or isinstance(value, (bool, int, float, str, tuple)):
            yield name, repr(value)
        elif isinstance(shape, tuple):
            yield f"{name}.shape", _shape_text(shape)


def _shape_text(shape: Any) -> str:
    """A shape in which sizes that are known when the kernel runs are "?"."""
    if not isinstance(shape, tuple):
        return str(shape) if isinstance(shape, int) else "?"
    return f"({', '.join(map(_shape_text, shape))})"


def _numberless(kernel: str) -> str:
    """The name of an entry without the number that the DSL adds."""
    return kernel.rpartition("_")[0]


class CompiledElsewhere:
    """Stands for a compiled function that another process compiles: a call of it is counted and launches nothing."""

    def __init__(self, recorded: Session) -> None:
        self._recorded = recorded

    def __call__(self, *args: object, **kwargs: object) -> None:
        self._recorded.left_out += 1

    def __tvm_ffi_object__(self) -> None: ...


def _place_of(diagnostic: Any) -> str:
    """The Python line that the DSL names for a remark, such as "kernel.py:31"."""
    found = _PLACE_IN_LOCATION.findall(str(getattr(diagnostic, "location", "")))
    return f"{Path(found[0][0]).name}:{found[0][1]}" if found else ""


def _as_part_of(module: str, function: Any) -> Any:
    """The function as one of `module`: the DSL blames a user's mistake on the nearest frame outside of its modules."""
    names = {**function.__globals__, "__name__": module}
    return types.FunctionType(function.__code__, names, function.__name__, None, function.__closure__)


def _artifacts(compiled: Any) -> tuple[str, bytes]:
    """PTX text and cubin bytes; a path in their place means that the file was not written (no device code)."""
    artifacts = getattr(compiled, "artifacts", None)
    ptx, cubin = getattr(artifacts, "PTX", None), getattr(artifacts, "CUBIN", None)
    return (ptx if isinstance(ptx, str) and "\n" in ptx else ""), (cubin if isinstance(cubin, bytes) else b"")


def _without_handles(original: Any) -> Any:
    """Load the library as usual, but keep no handle: the driver would be asked to unload it."""

    def load(function: Any) -> list[Any]:
        original(function)
        return []

    return load


def _with_host_calls(original: Any) -> Any:
    """Without optimisation, as host code runs a few times here: 60 ms in place of 80 to compile a small kernel."""

    def jit(compiler: Any, module: Any, opt_level: int = 2, *args: Any, **kwargs: Any) -> Any:
        engine = original(compiler, module, 0, *args, **kwargs)
        register_host_calls(engine)
        register_errors(engine)
        return engine

    return jit


def _from_pristine_options(patches: Patches, original: Any) -> Any:
    """Options outlive one compilation (`cute.compile` owns an object): each starts and ends as it was written."""
    seen: dict[int, tuple[Any, dict[str, object]]] = {}

    def restore(options: Any, pristine: dict[str, object]) -> None:
        vars(options).update(copy.deepcopy(pristine))

    def apply(options: Any, environment: Any, function_name: str) -> None:
        if id(options) not in seen:
            seen[id(options)] = (options, copy.deepcopy(vars(options)))
            patches.at_exit(functools.partial(restore, *seen[id(options)]))
        restore(*seen[id(options)])
        original(options, environment, function_name)

    return apply


def _naming_unknown(original: Any) -> Any:
    """The DSL's architecture of a name; of one that it lacks it says KeyError alone."""

    def from_string(name: str) -> Any:
        try:
            return original(name)
        except KeyError:
            what = f"a kernel is to be compiled for {name}, which the DSL does not know"
            raise UnavailableError(what, hint="Leave --gpu-arch out, and name the GPU by --arch.") from None

    return from_string


def _answer_hardware_info(patches: Patches, arch: str) -> None:
    """`cutlass.utils.HardwareInfo` asks the driver by compiling and querying a kernel: answer from the table.

    Clusters are assumed to fill the device; a real one loses a few multiprocessors to its GPC sizes.
    """
    from cutlass.utils.hardware_info import HardwareInfo

    sm = parse_arch(arch).sm

    def init(info: Any, device_id: int = 0) -> None:
        info.device_id = device_id

    answers = {
        "__init__": init,
        "get_max_active_clusters": lambda info, cluster_size, stream=None: max(
            1, told_to_host_code(sm) // cluster_size
        ),
        "get_l2_cache_size_in_bytes": lambda info: sm.l2_bytes,
        "get_device_multiprocessor_count": lambda info: told_to_host_code(sm),
    }
    patches.set_existing(HardwareInfo, answers)
