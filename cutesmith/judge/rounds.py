"""One case on its way: drawn by the reference worker, run by the candidate worker, judged by the reference worker."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith.compiling.narrowing import Compiled
from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.requests import REACHED, CallReport, Ran, Run, Step, StepReport
from cutesmith.judge.problem_process import reference_call, reference_reply
from cutesmith.judge.reference_side.requests import Draw, Drawn, Judge, Judged, Tolerances
from cutesmith.judge.transfer.chunks import LARGEST_FILE, hand_over
from cutesmith.judge.transfer.given_outputs import open_plain, require_own
from cutesmith.judge.transfer.requests import Scalar, Start, TensorFile
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.sandbox.messages import R, Request
from cutesmith.sandbox.readable import INPUTS
from cutesmith.sandbox.scratch import content_of, remove_folder, scratch_folder
from cutesmith.sandbox.worker import GIB, Worker
from cutesmith.verdicts import ExitCode, MbarrierRing, Mechanism, Precision, Rule, Violation

NAN_POISON, LARGE_POISON = 0xFF, 0x5A  # as in transfer.tensors, which imports torch
TOO_EARLY = "nothing that this call wrote stayed: let every stream that you use wait for the current one first"
DERIVED, OTHER_DERIVED = "derived", "other derived"  # the keys of such inputs on the reference's side
SMALLER = (
    "Return fewer elements from get_inputs() and get_input_sets(), or raise --timeout; if they are few, look for a "
    "loop or a wait that nothing ends."
)
COMPARED_BYTES = 1 << 20
KEPT_BYTES = 8 * GIB  # of files that the next case writes over; making new pages costs more than filling them
START_SECONDS = 300.0  # importing PyTorch and the DSL from a cold disk on a busy machine


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How to verify: tolerances (None: the file's, else those of the dtype), input draws a set, seconds a call.

    `precision`: what products and convolutions of float32 may round their factors to; results are judged by that.
    `quick` draws what moves or scales floats as a whole and one other set of scalars, for an inner loop. A problem in
    the kernel's own file is confined as the kernel is, any other only with `confine_problem`.
    `orders`: in how many orders of completion the emulated GPU runs launches with bulk copies (emulator's Settings).
    `processes`: that hold the kernel at once, 2 at most and only without a GPU; one where several kernels are judged.
    `largest_file`: bytes of a tensor that moves as one file. `preload` imports what other processes import in which a
    kernel meets a GPU (rule H3; `timing.entries.import_for_gpu`).
    """

    rtol: float | None = None
    atol: float | None = None
    precision: Precision = Precision.PYTORCH
    arch: str | None = None
    seeds: int = 2
    timeout: float = 120.0
    sanitize: bool = False
    quick: bool = False
    orders: int = 1
    confine_problem: bool = False
    processes: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    largest_file: int = LARGEST_FILE
    preload: Callable[[], object] = import_dsl


@dataclass
class Round:
    """The two workers and the folder through which one case goes; several rounds may share the reference's.

    `base` is what a call on `get_inputs()` of `base_elements` cost. `ran_as` has the shapes of the largest input, at
    full size and then as it ran. `recompiled`: what the kernel compiles to, where it cannot be asked. `sums` are the
    checksums of large outputs that were judged, by their files. `refused` has draws that the reference does not take,
    and why; `declined` those that the kernel does not. `shorter`: sizes that derived values get instead of others.
    `shrunk`: the file's own input sets that the emulated GPU ran smaller, by their numbers, and as what for which.
    `tf32_convolutions`: a result was right only since float32 convolutions may round to tf32.

    `name` tells rounds that share a reference apart, `turns` is held by the one that talks to it, and
    `ended_reference` is of the one whose request that process did not survive. `keys`: of the inputs that it holds.
    `right`: every case passed so far. `refusal` of the call that `begin` makes. `rings`: of mbarriers, as of `Ran`, of
    all cases.
    """

    folder: Path
    reference: Worker
    candidate: Worker
    options: VerifyOptions
    base: Ran = Ran()
    base_elements: int = 0
    ran_as: list[str] = field(default_factory=list)
    shrunk: dict[int, str] = field(default_factory=dict)
    recompiled: Callable[[], Compiled] | None = None
    sums: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)
    shorter: tuple[tuple[int, int], ...] = ()
    tf32_convolutions: bool = False
    name: str = ""
    turns: threading.RLock = field(default_factory=threading.RLock)
    ended_reference: bool = False
    keys: set[str] = field(default_factory=set)
    right: bool = True
    refusal: CandidateError | None = None
    rings: set[MbarrierRing] = field(default_factory=set)

    def another(self, folder: Path, candidate: Worker, name: str) -> Round:
        """Another round with the same reference, for another process of the kernel."""
        options, shrunk, turns = self.options, self.shrunk, self.turns
        return Round(folder, self.reference, candidate, options, shrunk=shrunk, name=name, turns=turns)

    def ask(self, request: Request[R]) -> R:
        """The reply of the reference's side; errors as of `reference_call`."""
        with self.turns:
            lived = self.reference.alive
            try:
                return reference_call(self.reference, request)
            finally:
                self.ended_reference |= lived and not self.reference.alive

    def draw(self, key: str, *, begins: bool = True, **what: Any) -> Drawn:
        """Inputs of a case under a key, as files; `begins`: the first of a case; `what`: further fields of `Draw`."""
        place = (
            self.folder / INPUTS / {DERIVED: "a", OTHER_DERIVED: "b"}.get(key, key)
        )  # over those of a case that is done
        done = tuple(sorted(self.keys)) if what.get("derive") and begins else ()  # their memory is needed
        self.keys.add(self.name + key)
        request = Draw(key=self.name + key, folder=str(place), forget=done, **{"seed": new_seed(), **what})
        return self.ask(request)

    def note_sizes(self, ran_as: Sequence[str]) -> None:
        """Remember as what `get_inputs()` ran."""
        full, *smaller = ran_as or ("",)
        self.ran_as.extend([full] if full and not self.ran_as else [])
        self.ran_as.extend(shape for shape in smaller if shape not in self.ran_as[1:])

    def step(self, number: int, drawn: Drawn, *, reuse: bool, poison: int) -> Step:
        """One call of the candidate."""
        outputs = self.folder / "candidate" / "outputs" / str(number)
        return Step(drawn.inputs, reuse, poison, str(outputs))

    def run(self, name: str, drawn: Drawn, request: Run, each: Sequence[Drawn] = ()) -> Ran:
        """Let the candidate run the steps of a case; what runs over time or a sanitizer finds names the case.

        `each`: the inputs of every step, where they are not all `drawn`.
        """
        timeout = self.options.timeout
        with contextlib.suppress(OSError):
            self._reached.unlink()
        try:
            with self.turns:
                hand_over(
                    lambda chunk: reference_call(self.reference, chunk),
                    lambda chunk: self.candidate.call(chunk, timeout=timeout),
                    [value for step in request.steps for value in step.inputs],
                    self.options.largest_file,
                )
            reply = self.candidate.call(request, timeout=timeout)
            self.rings |= {reply.ring} if reply.ring else set()
            for step, report in zip(request.steps, reply.steps):
                require_own(report.outputs, Path(step.outputs))
            return reply
        except CandidateError as error:
            if error.exit_code == ExitCode.TIMED_OUT:
                last = self._last(drawn, each)
                raise too_slow(error, last.summary, last.size, case=f"{name}: ") from error
            if error.fault is None:
                raise
            raise error.reworded(f"{name}: {error.message}", hint=error.hint) from error

    @property
    def _reached(self) -> Path:
        return self.folder / "candidate" / "outputs" / REACHED

    def _last(self, drawn: Drawn, each: Sequence[Drawn]) -> Drawn:
        """The inputs of the call that was begun last, as the candidate's process says; those of the case without."""
        try:
            with open(open_plain(str(self._reached)), "rb") as file:
                return each[int(file.read(9))]
        except (OSError, ValueError, IndexError):
            return drawn

    def run_named(self, name: str, drawn: Drawn, request: Run, each: Sequence[Drawn] = ()) -> Ran:
        """The same for inputs that the judge chose: every error names the case."""
        try:
            return self.run(name, drawn, request, each)
        except CandidateError as error:
            if error.exit_code == ExitCode.TIMED_OUT or error.fault is not None:
                raise
            last = self._last(drawn, each)
            raise error.reworded(f"{name} [{last.summary}]: {error.message}", hint=error.hint) from error

    def judge(
        self,
        key: str,
        report: StepReport,
        *,
        default: bool = False,
        strict: bool = True,
        unwritten: int | None = None,
    ) -> Judged:
        """What the reference's side says of outputs; `default`: by the tolerances of their types alone.

        Without `strict`, elements that the reference gives NaN for are not decided. `unwritten` as of `Judge`.
        """
        derived = key in (DERIVED, OTHER_DERIVED)
        asked = self.options
        tolerances = Tolerances(
            rtol=asked.rtol,
            atol=asked.atol,
            precision=asked.precision,
            derived=derived,
            default=default,
            strict=strict,
        )
        question = Judge(self.name + key, report.outputs, report.is_tuple, tolerances, unwritten)
        with self.turns:  # chunks that were taken are those of this question
            hand_over(
                lambda chunk: self.candidate.call(chunk, timeout=self.options.timeout),
                lambda chunk: reference_call(self.reference, chunk),
                report.outputs,
                self.options.largest_file,
                keep=True,
            )
            judged = self.ask(question)
        self.tf32_convolutions |= judged.rounded
        for output in report.outputs:
            self.sums.pop(output.file, None)
        self.sums.update(zip((output.file for output in report.outputs), judged.sums))
        return judged

    def clean(self) -> None:
        """Make room, where the files of this case take so much that the next one's might not fit beside them."""
        outputs, drawn = self.folder / "candidate" / "outputs", list((self.folder / INPUTS).iterdir())
        if sum(content_of(folder).bytes for folder in (outputs, *drawn)) > KEPT_BYTES:
            for folder in (outputs, *drawn):  # the one above stays: the candidate may read that, and no new one
                remove_folder(folder)


def behaviour(report: CallReport, changes: Sequence[Violation], *, own: bool) -> Violation | None:
    """The first thing that the candidate did that no result excuses."""
    if changes:
        return changes[0]
    text = ""
    if computed := sorted(report.computed):
        text = f"kernel_fn computes with torch ({', '.join(computed[:5])}) instead of a CuTe kernel"
    elif report.copied and own:
        text = f"kernel_fn copies tensors with torch ({', '.join(report.copied)}): read strides instead"
    if text:
        return Violation(Rule.W1, Mechanism.DISPATCH_MODE, text)
    return next(iter(report.violations), None)


def too_slow(error: CandidateError, inputs: str, size: str, *, case: str = "") -> CandidateError:
    """A time-out with the inputs on which it happened, and what to do."""
    return error.reworded(f"{case}{error.message} on {inputs} ({size})", hint=SMALLER)


def explained(judged: Judged, report: StepReport) -> Violation | None:
    """What is wrong with a result; elements that were never written (rule O1) or too early (T1) are said to be."""
    wrong = judged.violation
    if wrong is None or not judged.outputs:
        return wrong
    if report.early:
        return Violation(Rule.T1, Mechanism.STREAM_ORDER, f"{TOO_EARLY}: {wrong.text}", reject=False)
    if not report.unwritten:
        return wrong
    text, outputs = (
        f"{report.unwritten} output elements were never written",
        [o for o in judged.outputs if o.mismatches],
    )
    if sum(output.mismatches for output in outputs) == report.unwritten:  # nothing else is wrong
        places = [f"output {output.output}{f': {output.where}' if output.where else ''}" for output in outputs]
        return Violation(Rule.O1, Mechanism.POISON, f"{text} ({'; '.join(places)})", wrong.reject)
    return Violation(Rule.O1, Mechanism.POISON, f"{text}; {wrong.text}", wrong.reject)


def shapes_of(drawn: Drawn) -> tuple[tuple[int, ...], ...]:
    """The shapes of a case's tensors, with whatever layouts."""
    return tuple(value.shape for value in drawn.inputs if not isinstance(value, Scalar))


def same_bytes(first: Sequence[TensorFile], second: Sequence[TensorFile], sums: Mapping[str, str]) -> bool:
    """Whether tensors that were judged hold the same bytes; their files may be longer. `sums` as of `Round`."""
    if [one.bytes for one in first] != [other.bytes for other in second]:
        return False
    for one, other in zip(first, second):
        if (total := sums.get(one.file, "")) != sums.get(other.file, ""):
            return False
        if not total and one.bytes and not _same_beginning(one.file, other.file, one.bytes):
            return False
    return True


def _same_beginning(first: str, second: str, size: int) -> bool:
    """Whether two files hold the same first bytes, and as many as the candidate's process says that they do."""
    try:
        with open(open_plain(first), "rb") as one, open(open_plain(second), "rb") as other:
            while size > 0:
                chunk = one.read(min(COMPARED_BYTES, size))
                if not chunk or chunk != other.read(len(chunk)):
                    return False
                size -= len(chunk)
    except OSError:
        return False
    return True


def new_seed() -> int:
    """A seed that cannot be guessed; it never enters the candidate's process."""
    return secrets.randbits(48)


def start_both(reference: Worker, candidate: Worker, request: Start) -> None:
    """Import libraries and bring up the device on both sides: it is slow and counts for neither file."""
    first, second = reference.send(request), candidate.send(request)
    reference_reply(first)
    second.reply(timeout=START_SECONDS)


@contextlib.contextmanager
def loading(subject: str) -> Iterator[None]:
    """A time-out in here is the file's fault, not the reference's: it was only being loaded."""
    try:
        yield
    except CandidateError as error:
        if error.exit_code != ExitCode.TIMED_OUT:
            raise
        what = "look for a loop at module level or in get_inputs()"
        raise error.reworded(f"{subject} did not finish loading {error.limit}: {what}", hint="") from error


@contextlib.contextmanager
def exchange() -> Iterator[Path]:
    """A folder for tensors between processes: in memory where there is room, on disk otherwise; removed at the end."""
    shared = Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > 4 * GIB
    with scratch_folder(where=shared if roomy else None) as folder:
        for name in ("candidate", INPUTS):
            (folder / name).mkdir()
        yield folder
