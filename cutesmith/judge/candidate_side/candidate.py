"""The handler of the process that holds a candidate: it loads the stripped file and runs `kernel_fn` on given inputs.

It knows neither the seed nor the reference. What it reports of the candidate's behaviour (mutated inputs, aliases,
guard zones, torch operations) is judged by the parent; values go to the reference worker as files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from cutesmith.emulator.faults import told
from cutesmith.errors import CandidateError, UnavailableError
from cutesmith.judge.candidate_side.damage import Buffer, Workspaces, damage
from cutesmith.judge.candidate_side.kernel_file import candidate_code, hold_text, load_kernel, start_device, synchronize
from cutesmith.judge.candidate_side.outputs import (
    appeared,
    never_written,
    plain_tensors,
    same_bytes,
    sample_of,
    take_outputs,
    written_late,
    written_too_early,
)
from cutesmith.judge.candidate_side.requests import REACHED, Load, Loaded, Ran, Record, Recorded, Run, Step, StepReport
from cutesmith.judge.candidate_side.stream_hold import StreamHold
from cutesmith.judge.candidate_side.watching import KernelWatch
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.device_memory import fair_room, own_copies, release_unused, room_here, whole_gpu
from cutesmith.judge.transfer.requests import Give, Scalar, Start, Take, TensorFile, Value
from cutesmith.judge.transfer.tensors import POSING, Guarded, bytes_of, poisoned_elements
from cutesmith.judge.transfer.transfer import Transfer
from cutesmith.problems import contract
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.messages import R, Request
from cutesmith.sandbox.readable import INPUTS
from cutesmith.verdicts import Mechanism, Rule, Violation

NO_LAUNCH = "kernel_fn launched no CuTe kernel"


@dataclass
class Candidate:
    """A loaded candidate on one device.

    "cuda", "emulator" (recorded launches are executed on the CPU), "fake" (recorded, shapes only), or "cpu" (the judge
    tries itself).
    """

    device: str = "cuda"
    kernel_fn: Callable[..., Any] | None = None
    path: Path = Path()
    buffers: list[Buffer] = field(default_factory=list)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    poisoned: list[list[torch.Tensor]] = field(default_factory=list)  # masks of a step's outputs
    workspaces: Workspaces = field(default_factory=Workspaces)
    exits: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    surroundings: Surroundings | None = None
    emulated: Any = None  # the emulated GPU
    gate: Any = None  # of launches on a GPU
    hold: StreamHold | None = None  # there
    transfer: Transfer = field(default_factory=Transfer)
    room: Callable[[], Callable[[], float]] = room_here
    share: Callable[[], float] = whole_gpu  # what the next call could have

    def handle(self, request: Request[R]) -> R:
        """The reply to one request; what the candidate changed of its process counts more than what it raises."""
        try:
            with own_copies(self._beside_large):
                reply: R = self.actions()[type(request)](request)
                return reply
        except (CandidateError, UnavailableError) as error:
            if changes := self.changes():
                raise CandidateError.rejecting(changes[0]) from error
            raise

    def actions(self) -> dict[type[Request[Any]], Callable[[Any], Any]]:
        """Which method answers which request."""
        return {
            Start: self.start,
            Load: self.load,
            Run: self.run,
            Record: self.record,
            Give: self.transfer.give,
            Take: self.transfer.take,
        }

    def _beside_large(self) -> bool:
        """Whether inputs are here, or on their way, whose copies may fill the GPU."""
        return self.share is not whole_gpu or bool(self.transfer.taken)

    def start(self, request: Start) -> None:
        """Bring up libraries and device, which takes seconds that are not the file's."""
        self.device = request.device
        self.transfer = Transfer(request.largest_file, tensors.torch_device(self.device))
        start_device(self.device)
        if self.device == "fake":
            from cutesmith.recording.open_session import session

            self.session = self.exits.enter_context(session(request.arch, fake=True))
        elif self.device == "emulator":
            from cutesmith.emulator.device import emulated_device
            from cutesmith.emulator.machine.settings import Settings

            settings = Settings(orders=request.orders)
            self.emulated = self.exits.enter_context(emulated_device(request.arch, settings=settings))
        elif self.device == "cuda":
            from cutesmith.recording.launch_gate import launch_gate

            self.gate = self.exits.enter_context(launch_gate())
            self.hold = StreamHold()

    def load(self, request: Load) -> Loaded:
        """Confine this process, then run the file without its reference."""
        self.path = hold_text(contract.problem_source(request.path), Path(request.path).name)
        self.surroundings = Surroundings()
        layers = confine(readable=[Path.cwd().parent / INPUTS])
        watch = KernelWatch(self.device)
        guarding = contextlib.nullcontext() if self.device in POSING else watch
        with candidate_code(self.path), guarding:  # a tensor of the module may be a workspace of all calls
            self.kernel_fn = self.loaded_again()
        self.workspaces.keep(watch)
        return Loaded(layers, self.changes())

    def loaded_again(self) -> Callable[..., Any]:
        """`kernel_fn` of the file; on the emulated GPU the branches that its host code takes are noted."""
        return load_kernel(self.path, marked=self.emulated is not None)

    def changes(self) -> tuple[Violation, ...]:
        """What the candidate changed of this process so far."""
        return () if self.surroundings is None else tuple(self.surroundings.changes())

    def run(self, request: Run) -> Ran:
        """Run each step; a report a step."""
        self.kept.clear()
        self.transfer.offered.clear()
        self.buffers, self.poisoned = [], []
        launched = self.launches()
        reports = [self._step(step) for step in self._steps(request.steps)]
        seen = self.emulated is not None or (self.gate is not None and not self.gate.blind)
        if seen and self.launches() == launched and self._something_to_do():
            reports[0] = _accused(reports[0], [Violation(Rule.W1, Mechanism.NO_LAUNCH, NO_LAUNCH)])
        unwritten = never_written(self.poisoned)
        early = zip(reports, written_too_early(self.poisoned))
        reports = [replace(report, unwritten=unwritten, early=here) for report, here in early]
        if any(not same_bytes(bytes_of(output), copy) for output, copy in self.kept):
            text = "a later call overwrote the result of an earlier one: allocate outputs in every call"
            reports[-1] = _accused(reports[-1], [Violation(Rule.O13, Mechanism.KEPT_OUTPUTS, text)])
        if request.stub and not any(report.violations for report in reports):
            reports[-1] = _accused(reports[-1], self._without_launches(request.steps[-1]))
        self.kept.clear()
        self.poisoned.clear()
        self.transfer.taken.clear()
        self.workspaces.forget_freed()
        release_unused()
        return Ran(tuple(reports), self.changes())

    def _steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        """One after the other; of large inputs only what later ones need is held."""
        for number, step in enumerate(steps):
            outputs = Path(step.outputs).parent
            outputs.mkdir(parents=True, exist_ok=True)
            (outputs / REACHED).write_text(str(number))
            yield step
            coming = [value for later in steps[number + 1 :] for value in later.inputs]
            needed = {value.file for value in coming if isinstance(value, TensorFile)}
            for file in () if step is steps[-1] else self.transfer.taken.keys() - needed:
                del self.transfer.taken[file]

    def _step(self, step: Step) -> StepReport:
        self.workspaces.forget_freed()
        self._place(step.inputs, reuse=step.reuse, poison=step.poison)
        arguments = [buffer.value for buffer in self.buffers]
        for index, value in enumerate(arguments if self.emulated is not None else ()):
            if isinstance(value, torch.Tensor):
                self.emulated.name(value, f"input {index}")
        watch = KernelWatch(self.device, poison=step.poison)
        found = 0 if self.emulated is None else len(self.emulated.findings)
        with candidate_code(self.path):
            with contextlib.nullcontext() if self.hold is None else self.hold.ending():
                with watch:
                    returned = self._kernel(arguments)
                with own_copies(self._beside_large):  # queued on the current stream at once
                    first = [sample_of(value) for value in plain_tensors(returned)]
                    early = [bytes_of(value).clone() for value in plain_tensors(returned)]
            synchronize(self.device)
        outputs, violations = take_outputs(returned)
        for index, output in enumerate(outputs):
            shared = [i for i, b in enumerate(self.buffers) if b.guarded is not None and b.guarded.overlaps(output)]
            violations += [_alias(index, number) for number in shared[:1]]
        violations += (
            damage(self.buffers, watch, self.workspaces) + self._faults(found) + written_late(outputs, first, early)
        )
        self.kept += list(zip(outputs, early))
        folder = Path(step.outputs)
        folder.mkdir(parents=True, exist_ok=True)
        given = enumerate(self._out_of_reach(*pair) for pair in zip(outputs, early))
        files = tuple(self.transfer.write_tensor(output, folder / f"{index}") for index, output in given)
        self.poisoned.append([poisoned_elements(output, step.poison) for output in outputs])
        self.workspaces.keep(watch)
        return StepReport(
            type(returned) is tuple, dict(watch.computed), dict(watch.copied), tuple(violations), outputs=files
        )

    def _out_of_reach(self, output: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
        """What is read when the call is long over: of a large output the judge's copy, where that has its layout."""
        if output.nbytes <= self.transfer.largest or not output.is_contiguous():
            return output
        return copy.view(output.dtype).as_strided(output.shape, output.stride())

    def _kernel(self, arguments: list[Any]) -> Any:
        assert self.kernel_fn is not None, "load comes first"
        contract.check_arity(self.kernel_fn, "kernel_fn", arguments)
        if self.emulated is not None:
            self.emulated.forget_refusal()  # of an earlier case
        try:
            with fair_room(self.share()), torch.no_grad():  # as while it is timed (rule H3)
                return self.kernel_fn(*arguments)
        finally:
            if self.emulated is not None:
                self.emulated.check()  # what ended a launch reaches host code only as an error number

    def _place(self, inputs: Sequence[Value], *, reuse: bool, poison: int) -> None:
        """Put inputs into fresh guarded buffers, or new contents behind the same pointers (rule R1).

        Fresh ones lie between bytes of `poison`: a result that depends on what is read there is wrong with one of them.
        """
        spacious = sum(value.bytes for value in inputs if isinstance(value, TensorFile)) <= self.transfer.largest
        self.share = whole_gpu if spacious else self.room()
        if not reuse:
            self.buffers = [self._new_buffer(value, poison) for value in inputs]
            return
        read = [None if isinstance(value, Scalar) else self.transfer.bytes_of(value) for value in inputs]
        sources = [source if source is None else source.to(self.transfer.device) for source in read]
        if self.hold is not None:
            self.hold.begin()  # what does not wait for the current stream reads the old contents (rule T1)
        for buffer, value, source in zip(self.buffers, inputs, sources, strict=True):
            if isinstance(value, Scalar):
                buffer.value = tensors.read_scalar(value)
            elif buffer.guarded is not None:
                buffer.guarded.fill(source)
                buffer.pristine = buffer.guarded.raw.clone()

    def _new_buffer(self, value: Value, poison: int) -> Buffer:
        if isinstance(value, Scalar):
            return Buffer(tensors.read_scalar(value))
        zone_bytes, source = 0 if self.device == "emulator" else tensors.GUARD_BYTES, self.transfer.bytes_of(value)
        guarded = Guarded.holding(value, source, self.transfer.device, zone_bytes=zone_bytes, poison=poison)
        return Buffer(guarded.tensor, guarded, guarded.raw.clone())

    def _without_launches(self, step: Step) -> list[Violation]:
        """The last step once more while launches do nothing: whatever appears does not come from a CuTe kernel (W2)."""
        gate = self.gate if self.emulated is None else self.emulated
        if gate is None:
            return []
        held = gate.held
        self._place(step.inputs, reuse=False, poison=step.poison)
        arguments, watch = [buffer.value for buffer in self.buffers], KernelWatch(self.device, poison=step.poison)
        with candidate_code(self.path), gate.closed():
            with watch:
                returned = self._kernel(arguments)
            synchronize(self.device)
        if gate.held == held:  # no launch was seen to be held back: nothing follows
            return []
        usual = [copy for _, copy in self.kept[-len(plain_tensors(returned)) :]]
        pairs = enumerate(zip(plain_tensors(returned), usual))
        return [found for index, pair in pairs for found in appeared(index, *pair, step.poison)]

    def _something_to_do(self) -> bool:
        """Whether a kernel is needed: not for empty outputs, and not for the constant that empty inputs come to."""
        given = [buffer.value for buffer in self.buffers if isinstance(buffer.value, torch.Tensor)]
        return any(output.numel() for output, _ in self.kept) and (not given or any(v.numel() for v in given))

    def launches(self) -> int:
        """How many launches have been executed so far, where they are seen."""
        if self.emulated is not None:
            return len(self.emulated.launches)
        return 0 if self.gate is None else int(self.gate.launches)

    def _faults(self, known: int) -> list[Violation]:
        """New findings of the emulated GPU, beyond those that are known: one violation, the first, tells all."""
        found = () if self.emulated is None else self.emulated.findings[known:]
        if not found:
            return []
        text, kind, sign = told(found, self.path), found[0].kind, found[0].sign(self.path)
        return [Violation(Rule.O8, Mechanism.EMULATED_SANITIZER, text, reject=False, fault=kind, sign=sign)]

    def record(self, request: Record) -> Recorded:
        """Run `kernel_fn` on inputs without values; what it launched and returned."""
        arguments = [
            tensors.read_scalar(value) if isinstance(value, Scalar) else tensors.empty_like(value)
            for value in request.inputs
        ]
        before = len(self.session.launches)
        watch = KernelWatch("meta", poison=None)
        with candidate_code(self.path), watch:
            returned = self._kernel(arguments)
        outputs, violations = take_outputs(returned)
        # Without addresses an alias of an input is the same storage object.
        storages = {v.untyped_storage()._cdata: i for i, v in enumerate(arguments) if isinstance(v, torch.Tensor)}
        shared = [(index, storages.get(output.untyped_storage()._cdata)) for index, output in enumerate(outputs)]
        violations += [_alias(index, number) for index, number in shared if number is not None]
        return Recorded(
            type(returned) is tuple,
            dict(watch.computed),
            dict(watch.copied),
            tuple(violations),
            outputs=tuple(map(tensors.describe_layout, outputs)),
            launches=tuple(launch.kernel for launch in self.session.launches[before:]),
            changes=self.changes(),
        )


def _accused(report: StepReport, violations: Sequence[Violation]) -> StepReport:
    return replace(report, violations=(*report.violations, *violations))


def _alias(output: int, number: int) -> Violation:
    text = f"output {output} shares memory with input {number}: allocate it"
    return Violation(Rule.O13, Mechanism.ADDRESSES, text)
