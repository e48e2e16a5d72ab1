"""The emulated GPU as a kernel file sees it: a recording session that executes every launch at once.

Tensors on "cuda" are CPU memory that poses as CUDA memory (`recording.facade`); the addresses that they claim become
the address space of the launches. Streams and events order nothing more than the order of the calls does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.emulator.engines.completion_orders import completes_later
from cutesmith.emulator.errors import EmulatorBug, EndlessLoop, LaunchRefused
from cutesmith.emulator.faults import FaultKind, Finding
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.barriers import arrives_only
from cutesmith.emulator.machine.consequences import Snapshot, order_that_matters, uninitialised_bytes_matter
from cutesmith.emulator.machine.device_memory import DeviceMemory
from cutesmith.emulator.machine.launch import LaunchReport, LaunchRun, refuse_over_limits
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.observation import Observer
from cutesmith.emulator.machine.scheduler import NativeCode
from cutesmith.emulator.machine.schedules import described
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.native.logs import Instrumentation
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.spinning import depends_on_other_blocks
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.state.allocations import Allocation, Allocations
from cutesmith.emulator.state.geometry import some_clusters
from cutesmith.emulator.state.lent_arrays import LentArrays
from cutesmith.errors import CutesmithError, UnavailableError
from cutesmith.recording.open_session import session

if TYPE_CHECKING:
    import torch

    from cutesmith.recording.cubin import CubinKernel
    from cutesmith.recording.facade import Facade
    from cutesmith.recording.sessions import Launch, Module, Session


_NOWHERE = 0x7E00_0000_0000  # what `cudaMalloc` gives where nothing is executed
_MOST_SHOWN = 1 << 14  # characters of a launch's printed text on stderr; its report keeps the whole


class EmulatedDevice:
    """An emulated GPU in use: `launches` holds a report of every launch so far, also of one that a fault ended."""

    def __init__(self, arch: str, settings: Settings, observer: Observer | None = None) -> None:
        self.arch = arch
        self.settings = settings
        self.observer = observer
        self.launches: list[LaunchReport] = []
        self.held = 0  # launches that were held back
        self._some_blocks = False
        self._open = True
        self._allocations = Allocations()
        self._memory = DeviceMemory(self._allocations)
        self._lent, self._kept = LentArrays(), LentArrays()  # of launches, and of memory before a launch
        self.sm = parse_arch(arch).sm
        self._programs: dict[tuple[int, str], tuple[Module, Program, NativeCode]] = {}
        self._mapped: dict[int, Allocation] = {}  # by the address that the storage claims
        self._tensors = 0
        self._names: dict[int, str] = {}
        self._facade: Facade | None = None
        self._session: Session | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What went wrong in all launches, in their order."""
        return tuple(finding for report in self.launches for finding in report.findings)

    def check(self) -> None:
        """Raise the error of a call of host code, if there was one: the code may have swallowed it."""
        if self._session is not None:
            self._session.surface()

    def forget_refusal(self) -> None:
        """Allow further calls after a launch that was refused, as on a GPU, or that took too many steps."""
        if self._session is not None and isinstance(self._session.failure, (LaunchRefused, EndlessLoop)):
            self._session.failure = None

    def forget_failure(self) -> None:
        """Allow further calls after any error, as a new process would."""
        if self._session is not None:
            self._session.failure = None

    @contextmanager
    def unexecuted(self, *, storage: bool) -> Iterator[list[Unexecuted]]:
        """Within it, launches are checked against the GPU's limits (LaunchRefused) and recorded, but not executed.

        Without `storage`, new tensors have no memory, so that any size costs nothing.
        """
        assert self._session is not None and self._facade is not None
        recorder = _Recorder(self.sm, self._facade)
        self._session.executor = recorder
        try:
            with nullcontext() if storage else self._facade.without_storage():
                yield recorder.launches
        finally:
            self._session.executor, self._session.failure = self, None

    @contextmanager
    def some_blocks(self) -> Iterator[None]:
        """Within it, a launch whose blocks do not depend on each other is executed for 20 to 60 of its clusters."""
        self._some_blocks = True
        try:
            yield
        finally:
            self._some_blocks = False

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of all kernels that were executed."""
        return tuple(program for _, program, _ in self._programs.values())

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Name the tensor's memory in messages, such as "input 0"."""
        if tensor.numel():
            self._names[self.memory_of(tensor)] = name

    def memory_of(self, tensor: torch.Tensor) -> int:
        """The device address at which the memory of a tensor with elements begins."""
        assert self._facade is not None, "tensors have addresses while the device is in use"
        return self._facade.address(tensor) - int(tensor.storage_offset()) * tensor.element_size()

    def enter(self, recorded: Session, facade: Facade) -> None:
        """Take the session, and the facade of its tensors."""
        self._session, self._facade = recorded, facade

    def launch(self, launch: Launch, kernel: CubinKernel, module: Module) -> None:
        """Execute a launch that host code makes."""
        assert self._facade is not None
        with self._facade.at_work():
            try:
                self._execute(launch, kernel, module)
            except CutesmithError:
                raise
            except Exception as error:
                raise EmulatorBug(error) from error

    def _execute(self, launch: Launch, kernel: CubinKernel, module: Module) -> None:
        if not self._open:
            self.held += 1
            return
        self._refuse_other_code(module)
        key = (id(module), launch.kernel)  # the module is kept, so that its identity is not used again
        if key not in self._programs:
            compiled = build_program(parse(module.ptx), launch.kernel)
            how = self.observer.instrumentation if self.observer else Instrumentation(profile=True)
            self._programs[key] = (module, compiled, compile_program(compiled, access_ir(), how))
        _, program, native = self._programs[key]
        self._map_claims()

        def prepare(settings: Settings, observer: Observer | None = None) -> LaunchRun:
            return LaunchRun(
                program=program,
                native=native,
                launch=launch,
                kernel=kernel,
                sm=self.sm,
                memory=Memory(program, self._allocations, sanitize=settings.sanitize, lent=self._lent),
                settings=settings,
                grid_id=len(self.launches) + 1,
                observer=observer,
            )

        before = Snapshot.take(self._allocations, self._kept) if self.settings.sanitize else None
        self._allocations.touch()
        run = prepare(self.settings, self.observer)
        if self._some_blocks and not depends_on_other_blocks(program):
            run.chosen = some_clusters(run.geometry)
        try:
            run.run()
        finally:
            report = run.report()
            self.launches.append(report)
            sys.stderr.write(report.printed[:_MOST_SHOWN])
            for name in run.memory.unchecked:
                sys.stderr.write(f"note: races on {name} were not looked for, it is too large: use smaller inputs\n")
        if before is not None and any(finding.kind is FaultKind.UNINITIALISED_READ for finding in report.findings):
            again = lambda fill: prepare(replace(self.settings, fill=fill)).run()  # noqa: E731
            if not uninitialised_bytes_matter(before, self._allocations, again):
                reads = tuple(found for found in report.findings if found.kind is FaultKind.UNINITIALISED_READ)
                others = tuple(found for found in report.findings if found not in reads)
                self.launches[-1] = replace(report, findings=others, unused_reads=reads)
        if before is not None and self.settings.orders > 1 and run.chosen is None:
            in_order = lambda order: prepare(replace(self.settings, order=order)).run().findings  # noqa: E731
            self._try_orders(program, before, in_order)

    def _try_orders(self, program: Program, before: Snapshot, run: Callable[[int], tuple[Finding, ...]]) -> None:
        """Add findings where the launch ends otherwise in another order of completions and of warps."""
        waits = [
            each
            for each in program.instructions
            if completes_later(each) or each.opcode == "mbarrier" or arrives_only(each)
        ]
        first, report = self.settings.order, self.launches[-1]
        numbers = range(first + 1, first + self.settings.orders) if waits else ()
        found = order_that_matters(before, self._allocations, numbers, run, report.findings)
        if found is None:
            return
        origin, text = (0, 0, 0), f"in order {found.order} ({described(found.order)}) instead of {first}"
        new = tuple(replace(each, message=f"{text}: {each.message}") for each in found.findings)
        if not new:
            text = f"{text}, which the rules allow too, the launch {found.how}"
            new = (Finding(FaultKind.DEPENDS_ON_ORDER, text, waits[0].location, origin, origin, report.kernel),)
        self.launches[-1] = replace(report, findings=(*report.findings, *new))

    def _refuse_other_code(self, module: Module) -> None:
        """Raise UnavailableError for machine code that a GPU of this SM version would not load."""
        code, own = parse_arch(module.arch).sm.capability, self.sm.capability
        if code[0] != own[0] or code[1] > own[1]:
            what = f"a kernel was compiled for {module.arch}, which the emulated {self.arch} cannot run"
            raise UnavailableError(what, hint=f"Emulate it with --arch {module.arch}.")

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Within it, launches succeed and do nothing; `held` counts them."""
        self._open = False
        try:
            yield
        finally:
            self._open = True

    def allocate(self, size: int) -> int:
        """`cudaMalloc`."""
        return self._memory.allocate(size)

    def free(self, address: int) -> None:
        """`cudaFree`."""
        self._memory.free(address)

    def fill(self, address: int, value: int, size: int) -> None:
        """`cudaMemset`."""
        self._map_claims()
        assert self._facade is not None
        with self._facade.at_work():
            self._memory.fill(address, value, size)

    def copy(self, target: int, source: int, size: int) -> None:
        """`cudaMemcpy`."""
        self._map_claims()
        assert self._facade is not None
        with self._facade.at_work():
            self._memory.copy(target, source, size)

    def _map_claims(self) -> None:
        """Bring the storages that tensors have claimed addresses for into the address space."""
        assert self._facade is not None
        for address in self._facade.release_dead(self._mapped):  # no launch has its memory any more
            self._allocations.remove(address)
            del self._mapped[address]
        for claim in self._facade.claims():
            allocation = self._mapped.get(claim.address)
            if allocation is None:
                size, element = claim.storage.nbytes(), claim.alias.element_size()
                dtype = str(claim.alias.dtype).removeprefix("torch.")
                allocation = Allocation(
                    address=claim.address,
                    size=size,
                    host=claim.storage.data_ptr(),
                    name=f"tensor {self._tensors} ({dtype}, {size // element} elements)",
                    element=element,
                    fresh=not claim.written,
                    owner=claim.storage,
                )
                self._mapped[claim.address] = self._allocations.add(allocation)
                self._tensors += 1
            allocation.host = claim.storage.data_ptr()
            allocation.name = self._names.get(claim.address, allocation.name)
            if claim.written:
                allocation.written_by_host()


@dataclass(frozen=True)
class Unexecuted:
    """A launch that was only written down, and the memory that tensors had then: (address, bytes)."""

    launch: Launch
    kernel: CubinKernel
    module: Module
    memory: tuple[tuple[int, int], ...]


class _Recorder:
    """An executor that only checks launches and gives addresses without memory."""

    def __init__(self, sm: SmVersion, facade: Facade) -> None:
        self.launches: list[Unexecuted] = []
        self._sm, self._facade = sm, facade

    def launch(self, launch: Launch, kernel: CubinKernel, module: Module) -> None:
        refuse_over_limits(launch, kernel, self._sm)
        memory = tuple((claim.address, claim.storage.nbytes()) for claim in self._facade.claims())
        self.launches.append(Unexecuted(launch, kernel, module, memory))

    def allocate(self, size: int) -> int:
        return _NOWHERE

    def free(self, address: int) -> None: ...

    def fill(self, address: int, value: int, size: int) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...


@contextmanager
def emulated_device(
    arch: str, *, sanitize: bool = True, settings: Settings | None = None, observer: Observer | None = None
) -> Iterator[EmulatedDevice]:
    """Within it, code written for a GPU of `arch` runs unchanged, and its kernels on the emulated GPU.

    `observer`: watches the launches (profiling.sampling.Profiler, tracer.Tracer).

    Errors of a launch (LaunchRefused, KernelFault, EndlessLoop, UnsupportedInstruction, PtxSyntaxError) are raised by
    the call that made it and by every later one; what the code swallows is raised at the end. UnavailableError names a
    CUDA entry point that the emulated GPU lacks. Sanitizer findings that end no launch are in `findings`.
    """
    from cutesmith.recording.facade import active_facade

    device = EmulatedDevice(arch, settings or Settings(sanitize=sanitize), observer)
    with session(arch, executor=device, line_info=True) as recorded:
        facade = active_facade()
        assert facade is not None
        device.enter(recorded, facade)
        yield device
        device.check()
