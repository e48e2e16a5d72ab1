"""A recording session: the DSL compiles for one architecture, its host code runs, every launch is written down."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cutesmith.devices import parse_arch
from cutesmith.errors import UnavailableError
from cutesmith.recording.cubin import CubinKernel, read_cubin, unwrap_fatbin
from cutesmith.recording.driver_answers import device_attribute
from cutesmith.recording.host_calls import Attributes, Triple
from cutesmith.recording.ptx import PtxasNote, Spills

_STATIC_SMEM_ATTRIBUTE = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_REGISTERS_ATTRIBUTE = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS
_MAX_DYNAMIC_SMEM_ATTRIBUTE = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize
_NONPORTABLE_CLUSTER_ATTRIBUTE = 14  # cudaFuncAttributeNonPortableClusterSizeAllowed
_FIRST_HANDLE = 0x10000
_NOWHERE = 0x7E00_0000_0000
DEFAULT_SMEM_LIMIT = 48 << 10


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One recorded launch: dynamic shared memory in bytes, attributes by name, each parameter's raw bytes in order.

    Kernels of several compilations may have one name. `compiled` is the one that was launched, None where no cubin
    holds it; `module` its compilation, None of an exported object too.
    """

    kernel: str
    grid: Triple
    block: Triple
    cluster: Triple
    dynamic_smem: int
    smem_limit: int  # what host code raised the kernel's dynamic limit to; 48 KB when it did not
    nonportable_cluster: bool  # whether host code allowed clusters of more than 8 blocks
    stream: int
    attributes: Attributes
    parameters: tuple[bytes, ...]
    compiled: CubinKernel | None = field(default=None, repr=False)
    module: Module | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One compilation: seconds of tracing, MLIR passes, ptxas and host code; spills and notes of ptxas by kernel."""

    function: str
    arch: str
    seconds: float
    ptx: str
    cubin: bytes
    kernels: dict[str, CubinKernel]
    spills: dict[str, Spills]
    notes: dict[str, tuple[PtxasNote, ...]] = field(default_factory=dict)


class Executor(Protocol):
    """Who executes what a session records, at once and in order; what it raises ends the call of the host code."""

    def launch(self, launch: Launch, kernel: CubinKernel, module: Module) -> None:
        """A kernel was launched."""

    def allocate(self, size: int) -> int:
        """A device address for `size` bytes."""

    def free(self, address: int) -> None:
        """A device address is given back."""

    def fill(self, address: int, value: int, size: int) -> None:
        """Set device memory to a byte."""

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes between any two addresses, of the host or the device."""


@dataclass(frozen=True)
class UnstableName:
    """A name whose type is not the same on all paths (TYPE_UNSTABLE_JOIN), two of its types, the line of the region."""

    name: str
    before: str
    after: str
    line: int


@dataclass
class Session:
    """What one run of host code compiled and launched; `errors` are calls that could not be answered.

    `calls` counts those of `cute.compile`; with a `share` only those in its range are made, and what the others return
    does nothing: `left_out` counts the calls of that. `on_compiled` is called after each that was made. With an
    `executor`, launches are executed as they are recorded; its first exception is `failure`, and every later call into
    compiled host code ends in it, as a GPU's error sticks to its context.
    """

    arch: str
    executor: Executor | None = None
    line_info: bool = False
    share: tuple[int, int] | None = None
    calls: int = 0
    left_out: int = 0
    on_compiled: Callable[[], object] = lambda: None
    failure: BaseException | None = None
    held_back: list[Callable[[], object]] | None = None  # what a CUDA graph captures, to be done at its replays
    launches: list[Launch] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _kernels: dict[str, CubinKernel] = field(default_factory=dict)
    _libraries: dict[int, Module] = field(default_factory=dict)
    _handles: dict[int, tuple[int, str]] = field(default_factory=dict)  # library and kernel
    _settings: dict[tuple[int, int], int] = field(default_factory=dict)
    unstable: list[UnstableName] = field(default_factory=list)  # those of a compilation that failed for the first
    compiling: bool = False  # whether a compilation was under way when an exception passed through

    def surface(self) -> None:
        """Raise the failure, when there is one."""
        if self.failure is not None:
            raise self.failure from self.failure.__cause__  # not "during handling of" what the host code made of it

    def load_library(self, library: int, image: bytes) -> None:
        """A fat binary was loaded; `library` is its handle."""
        self._kernels.update(read_cubin(image))
        elves = unwrap_fatbin(image)
        self._libraries.pop(library, None)  # the address of one that is gone may come again
        for module in self.modules:
            if module.cubin in elves:
                self._libraries[library] = module

    def kernel_handle(self, library: int, name: str) -> int:
        """A handle for the kernel of that name in a library."""
        handle = _FIRST_HANDLE + 16 * len(self._handles)
        self._handles[handle] = (library, name)
        return handle

    def kernel_attribute(self, handle: int, attribute: int) -> int:
        """Registers and static shared memory from the cubin, 0 for any other CUfunction_attribute."""
        kernel = self._kernel_of(handle)
        if kernel is None:
            return 0
        return {_STATIC_SMEM_ATTRIBUTE: kernel.static_smem_bytes, _REGISTERS_ATTRIBUTE: kernel.registers}.get(
            attribute, 0
        )

    def set_kernel_attribute(self, handle: int, attribute: int, value: int) -> None:
        """A cudaFuncAttribute of a kernel was set."""
        self._settings[handle, attribute] = value

    def device_attribute(self, attribute: int) -> int:
        """A cudaDeviceAttr of the recorded SM version."""
        return device_attribute(parse_arch(self.arch).sm, attribute)

    def launch(
        self, handle: int, grid: Triple, block: Triple, smem: int, stream: int, attributes: Attributes, args: int
    ) -> None:
        """Write one launch down, with the bytes of its parameters."""
        library, name = self._handles[handle]
        kernel = self._kernel_of(handle)
        given, built_in = attributes.get("cluster"), kernel.cluster if kernel else (0, 0, 0)
        launch = Launch(
            kernel=name,
            grid=grid,
            block=block,
            cluster=next((c for c in (given, built_in) if isinstance(c, tuple) and any(c)), (1, 1, 1)),
            dynamic_smem=smem,
            smem_limit=self._settings.get((handle, _MAX_DYNAMIC_SMEM_ATTRIBUTE), DEFAULT_SMEM_LIMIT),
            nonportable_cluster=bool(self._settings.get((handle, _NONPORTABLE_CLUSTER_ATTRIBUTE), 0)),
            stream=stream,
            attributes=attributes,
            parameters=_read_parameters(kernel, args),
            compiled=kernel,
            module=self._libraries.get(library),
        )
        self.launches.append(launch)
        if self.executor is not None:
            self._ask(lambda: self._execute(launch))

    def _ask(self, step: Callable[[], object]) -> None:
        """Do what host code asks for, or keep it for the replays of the graph that captures."""
        step() if self.held_back is None else self.held_back.append(step)

    def _kernel_of(self, handle: int) -> CubinKernel | None:
        """The kernel of a handle; several libraries may have one of the same name."""
        library, name = self._handles.get(handle, (0, ""))
        module = self._libraries.get(library)
        return module.kernels.get(name) if module else self._kernels.get(name)

    def _execute(self, launch: Launch) -> None:
        self.surface()
        if launch.compiled is None or launch.module is None:
            what = f"the kernel {launch.kernel} was not compiled in this session"
            hint = "An exported object holds machine code alone: compile the function in the same run."
            if any(not module.cubin for module in self.modules):
                what = f"the DSL keeps no PTX of {launch.kernel} when it compiles for {self.arch}"
                hint = "It is PTX that the emulated GPU executes: take a related architecture, such as sm_100a."
            raise UnavailableError(what, hint=hint)
        assert self.executor is not None
        self.executor.launch(launch, launch.compiled, launch.module)

    def allocate(self, size: int) -> int:
        """A device address for `size` bytes; always the same one where nothing is executed."""
        return self.executor.allocate(size) if self.executor else _NOWHERE

    def free(self, address: int) -> None:
        """A device address is given back."""
        if self.executor:
            self.executor.free(address)

    def fill(self, address: int, value: int, size: int) -> None:
        """Set device memory to a byte."""
        if executor := self.executor:
            self._ask(lambda: executor.fill(address, value, size))

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes between any two addresses."""
        if executor := self.executor:
            self._ask(lambda: executor.copy(target, source, size))

    def failed(self, call: str, error: BaseException | None) -> None:
        """Remember a call that could not be answered."""
        self.errors.append(f"{call}: {error!r}" if error else f"{call} is not answered while recording")
        if self.executor is not None and self.failure is None:
            self.failure = error or UnavailableError(f"the emulated GPU has no `{call.lstrip('_')}`")


def _read_parameters(kernel: CubinKernel | None, args: int) -> tuple[bytes, ...]:
    if kernel is None or not kernel.parameters:
        return ()
    addresses = (ctypes.c_uint64 * len(kernel.parameters)).from_address(args)
    return tuple(
        ctypes.string_at(address, size) for address, (_, size) in zip(addresses, kernel.parameters, strict=True)
    )
