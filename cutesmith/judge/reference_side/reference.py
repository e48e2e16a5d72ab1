"""The handler of the trusted process: it owns the problem, draws the inputs, and judges outputs after they were given.

Of a kernel file only what the reference needs is run here: the kernel's own top-level names are left out.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cutesmith.compiling.types_seen import types_seen
from cutesmith.errors import CandidateError, ContractError
from cutesmith.judge.reference_side import requests
from cutesmith.judge.reference_side.cases import (
    Fitted,
    count_elements,
    fit,
    resize,
    size_of,
)
from cutesmith.judge.reference_side.declared_sizes import DeclaredSizes
from cutesmith.judge.reference_side.full_inputs import FullInputs
from cutesmith.judge.reference_side.gpu_values import as_on_a_gpu
from cutesmith.judge.reference_side.known_results import KnownResults, Outputs
from cutesmith.judge.reference_side.longer_cases import Longer
from cutesmith.judge.reference_side.other_inputs import OtherInputs
from cutesmith.judge.reference_side.problem_calls import (
    call_of_file,
    emulated_sizes,
    items_of,
    load_problem,
    promises_shapes,
    seed_everything,
)
from cutesmith.judge.reference_side.structure import structure_violation
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.device_memory import own_copies, release_unused
from cutesmith.judge.transfer.given_outputs import no_meddling
from cutesmith.judge.transfer.requests import Give, Start, Take, TensorLayout
from cutesmith.judge.transfer.tensors import copy_of, poisoned_elements
from cutesmith.judge.transfer.transfer import Transfer
from cutesmith.problems import contract
from cutesmith.problems.precision_flags import without_tf32
from cutesmith.sandbox.messages import R, Request
from cutesmith.verdicts import Mechanism, Precision, Rule, Violation

EMULATED_ELEMENTS = 1 << 18  # of all inputs of a case together: some tenths of a second on the emulated GPU
DERIVED_ELEMENTS = 1 << 17  # of a derived case, of which there are many; a count of them still leaves 16 bits behind


@dataclass
class Reference:
    """A loaded problem on one device: "cuda", "emulator", "cpu" (the judge tries itself) or "fake" (shapes only)."""

    device: str = "cuda"
    loaded: Any = None
    known: KnownResults = field(default_factory=lambda: KnownResults(tuple))  # of the problem's `reference_fn`
    size: str = ""  # of the inputs drawn last
    whole: FullInputs | None = None  # where get_inputs() is made smaller
    asked: str = ""  # what they stand for, where they were made smaller
    other: OtherInputs | None = None  # values and layouts that the problem does not draw
    fits: dict[tuple[str, int], Fitted] = field(default_factory=dict)  # how inputs become smaller, by what they are
    drawn: dict[str, list[Any]] = field(default_factory=dict)
    exits: ExitStack = field(default_factory=ExitStack)
    transfer: Transfer = field(default_factory=Transfer)
    largest_inputs: int = 0  # bytes of those of one case, the most so far

    def handle(self, request: Request[R]) -> R:
        """The reply to one request."""
        with own_copies(lambda: self.largest_inputs > self.transfer.largest):  # copies of such may fill the GPU
            reply: R = self.actions()[type(request)](request)
            return reply

    def actions(self) -> dict[type[Request[Any]], Callable[[Any], Any]]:
        """Which method answers which request."""
        return {
            Start: self.start,
            requests.Load: self.load,
            requests.Plan: self.plan,
            requests.Draw: self.draw,
            requests.Judge: self.judge,
            requests.Layout: self.layout,
            requests.FullSize: self.full_layout,
            requests.Types: self.types,
            Give: self.transfer.give,
            Take: self.take,
        }

    def start(self, request: Start) -> None:
        """Bring up libraries and device, which takes seconds that are not the file's."""
        self.transfer = Transfer(request.largest_file, tensors.torch_device(request.device))
        if request.device == "cuda":
            torch.full((1,), 1.0, device="cuda")
        elif request.device in tensors.POSING:
            importlib.import_module("cutesmith.recording.facade")

    def load(self, request: requests.Load) -> requests.Loaded:
        """Run the problem's part of the file and count its input sets. Raises ContractError."""
        self.device, path = request.device, Path(request.path)
        if self.device in tensors.POSING:
            from cutesmith.recording.facade import cuda_as_cpu

            self.exits.enter_context(cuda_as_cpu(fake=self.device == "fake", arch=request.arch))
        self.loaded = load_problem(path)
        if not hasattr(self.loaded.module, "reference_fn"):
            raise ContractError(f"{path} defines no reference_fn", hint=contract.PROBLEM_LINES)
        function = self.loaded.reference_fn
        self.known = KnownResults(function if self.device == "cuda" else as_on_a_gpu(function), self.device)
        seed_everything(request.seed)
        first = self._inputs(-1)
        contract.check_arity(self.known.function, "reference_fn", first)
        for name in ("ALGORITHMIC_FLOPS", "ALGORITHMIC_BYTES"):
            contract.check_work(getattr(self.loaded.module, name, None), name, first)
        drawn = items_of(self.loaded.get_input_sets or tuple, "get_input_sets")
        sets = sum(bool(self._check(values, "get_input_sets()")) for values in drawn)
        plan = requests.Loaded(sets, promises_shapes(self.loaded.module, sets))
        return replace(plan, **self.whole.about(self.known.refusal)) if self.whole else plan

    def plan(self, request: requests.Plan) -> requests.Planned:
        """The derived cases, by the inputs of `get_inputs()` at full size and by what the reference does with them."""
        whole = self.whole if self.whole and not self.whole.declared else None
        first = self._fit(whole.values, DERIVED_ELEMENTS) if whole else self._inputs(-1)
        full, native = self.whole.values if self.whole else first, self.known.native
        declared = getattr(self.loaded.module, "DOMAIN", None)
        self.other = OtherInputs.of(
            self.known.function,
            first,
            full,
            native,
            gpu=self.device == "cuda",
            domain=declared,
            sizes=request.shapes,
        )
        return self.other.plan(quick=request.quick)

    def _inputs(self, index: int) -> list[Any]:
        """The inputs of `get_inputs()` (index -1) or of one of the sets."""
        if index < 0 and self.device == "emulator" and (sizes := emulated_sizes(self.loaded.module)):
            return self._declared(sizes)
        if index < 0:
            self.whole = None  # two of them may be more than there is memory
            values = self._check(call_of_file(self.loaded.get_inputs, (), "get_inputs"), "get_inputs()")
            if self.device == "emulator" and (shrunk := self._fitted(values).sizes):
                self.whole = FullInputs(values, shrunk)
            return self._fit(values)
        sets = items_of(self.loaded.get_input_sets, "get_input_sets")
        return self._fit(self._check(next(itertools.islice(sets, index, None)), "get_input_sets()"))

    def _declared(self, sizes: dict[str, Any]) -> list[Any]:
        """`get_inputs` of the sizes that the file declares for the emulated GPU; with those of a GPU it is drawn once.

        For inputs whose sizes belong together (page tables, borders): taking rows away would break them.
        """
        if self.whole is None:
            values = self._check(call_of_file(self.loaded.get_inputs, (), "get_inputs"), "get_inputs()")
            self.whole = FullInputs(values, {}, DeclaredSizes.of(sizes, self.loaded.get_inputs, self._called_with))
        values = self._called_with(sizes)
        self.size, self.asked = size_of(values, 0), tensors.summarize(self.whole.values)
        return values

    def _called_with(self, sizes: Mapping[str, Any]) -> list[Any]:
        smaller = call_of_file(partial(self.loaded.get_inputs, **sizes), (), "get_inputs(**EMULATED_SIZES)")
        return self._check(smaller, "get_inputs(**EMULATED_SIZES)")

    def _fit(self, values: list[Any], most_elements: int = EMULATED_ELEMENTS) -> list[Any]:
        """The inputs as the device can take them: the emulated GPU gets fewer rows, where the reference agrees."""
        if self.device != "emulator":
            return values
        fitted = self._fitted(values, most_elements)
        self.size, self.asked = fitted.size, tensors.summarize(values) if fitted.sizes else ""
        return resize(values, fitted.sizes)

    def _fitted(self, values: list[Any], most_elements: int = EMULATED_ELEMENTS) -> Fitted:
        """How these inputs become smaller; the same for all with the same layouts."""
        key = tensors.summarize(values), most_elements
        if key not in self.fits:
            self.fits[key] = replace(fit(values, most_elements, self.known.refusal), values=[])
        return self.fits[key]

    def _check(self, values: Any, where: str) -> list[Any]:
        checked: list[Any] = contract.check_inputs(values, where=where, device=tensors.torch_device(self.device))
        self.largest_inputs = max(self.largest_inputs, tensors.bytes_of_values(checked))
        return checked

    def draw(self, request: requests.Draw) -> requests.Drawn:
        """Draw the inputs of a case under a key; write them as files, or say that the reference refuses them.

        The cases of an emulated `get_inputs()` share one draw of its full size, which takes seconds, and so do its own
        draws where each takes rows and columns of its own.
        """
        seed_everything(request.seed)
        found = None
        if self.whole and (request.longer or request.beyond):
            found = self.whole.longer(request, self.known.function)
            if not found.kept:
                return requests.Drawn(accepted=False, why=found.why)
        name, changed = request.derive, ""
        for done in (request.key, *request.forget):
            self.drawn.pop(done, None)
        self.known.keep_those_of(self.drawn)
        if found and found.inputs is not None:
            values = found.inputs
        elif self.whole is None or self.whole.declared or not self._shares(request):
            values = self._inputs(request.index)
        else:
            fitted = self._fit(self.whole.values, DERIVED_ELEMENTS if name else EMULATED_ELEMENTS)
            values = resize(self.whole.values, found.sizes, found.axes) if found else fitted
        quicker = dict(request.resized)
        if name and self.other and not self.other.may_be_quicker(name, quicker, own_sizes=request.own_sizes):
            quicker.clear()
        if quicker:
            values = resize(values, quicker)
            if why := self.known.refusal(values):
                return requests.Drawn(accepted=False, why=why)
        if name:
            assert self.other is not None, "the plan comes first"
            before, (values, why) = values, self.other.draw(name, values, own_sizes=request.own_sizes)
            if why:
                return requests.Drawn(accepted=False, why=why)
            changed = self.other.changes(name, before, values)
        self.drawn[request.key] = values
        release_unused()
        return replace(self._told(request, values, found), changed=changed, shorter=bool(quicker))

    def _shares(self, request: requests.Draw) -> bool:
        """Whether the inputs are taken from the last draw of `get_inputs()`."""
        if request.derive or request.longer or request.beyond:
            return True
        return request.index < 0 and (bool(request.resized) or (self.whole is not None and self.whole.varied))

    def _told(self, request: requests.Draw, values: list[Any], found: Longer | None) -> requests.Drawn:
        """Write the inputs; say how many elements there are, and what they stand for where that is more."""
        folder, name = Path(request.folder), request.derive
        folder.mkdir(parents=True, exist_ok=True)
        files = tuple(self.transfer.write_value(value, folder / f"{index}") for index, value in enumerate(values))
        keeps_sizes = not name or (self.other is not None and self.other.keeps_sizes(name))
        stand_for = self.asked if keeps_sizes and not request.resized else ""
        whole = self.whole if request.index < 0 and keeps_sizes else None
        return requests.Drawn(
            accepted=True,
            why=f"{found.kept:,} of {found.long:,}: {found.why}" if found and found.why else "",
            inputs=files,
            summary=tensors.summarize(values) + (f" for {stand_for}" if stand_for else ""),
            stand_for=stand_for,
            elements=count_elements([value for value in values if isinstance(value, torch.Tensor)], {}),
            size=self.size
            if self.device == "emulator" and not (name or found or request.resized)
            else size_of(values, 0),
            ran_as=self.whole.ran_as(values)
            if self.whole and request.index < 0 and not (name or request.resized)
            else (),
            whole=tensors.summarize(whole.values) if whole else "",
        )

    def full_layout(self, request: requests.FullSize) -> requests.FullInputs:
        """`get_inputs()` at full size, as a call of which only the launches are recorded needs it."""
        assert self.whole is not None, "load comes first"
        return requests.FullInputs(self.whole.layout(Path(request.folder)), tensors.summarize(self.whole.values))

    def types(self, request: requests.Types) -> requests.TypesSeen:
        """The types that the reference computes with on the inputs under a key, in one more run of it."""
        own = bool(self.loaded.tolerance) and "kernel_fn" in self.loaded.contract.names
        if not (own or request.always):
            return requests.TypesSeen((), own_tolerance=False)
        values = [copy_of(value) for value in self.drawn[request.key]]
        return requests.TypesSeen(tuple(types_seen(self.known.function, values)), own)

    def layout(self, request: requests.Layout) -> requests.LaidOut:
        """Layouts of the inputs of one set and of what the reference returns for them; nothing has values."""
        values = self._inputs(request.index)
        inputs = tuple(
            tensors.describe_layout(v) if isinstance(v, torch.Tensor) else tensors.describe_scalar(v) for v in values
        )
        summary = tensors.summarize(values)
        try:
            outputs, is_tuple = self.known.native(values)
        except ContractError:
            raise
        except Exception:  # noqa: BLE001 - it may need values, which only a GPU gives
            return requests.LaidOut(inputs, summary, None)
        return requests.LaidOut(inputs, summary, tuple(map(tensors.describe_layout, outputs)), is_tuple)

    def judge(self, request: requests.Judge) -> requests.Judged:
        """Compare a candidate's outputs with the reference for the inputs drawn under a key."""
        given = request.outputs

        def outputs() -> Outputs:
            with no_meddling():
                read = [self.transfer.read_tensor(output) for output in given]
            return read if request.unwritten is None else self._written(request.key, read, request.unwritten)

        try:
            judged = self.judged(request.key, given, outputs, is_tuple=request.is_tuple, tolerances=request.tolerances)
            return replace(judged, sums=self.transfer.sums(given)) if judged.outputs else judged
        except CandidateError as error:
            return requests.Judged(Violation(error.rule, error.mechanism, error.message))
        finally:
            self.transfer.taken.clear()
            release_unused()

    def _written(self, key: str, outputs: Outputs, byte: int) -> Outputs:
        """The outputs with PyTorch's own results where no block that ran has written."""
        native, _, _ = self.known.of(key, self.drawn[key])
        absent = [poisoned_elements(output, byte).view(output.shape) for output in outputs]
        if all(bool(places.all()) for places in absent):
            raise CandidateError.rejecting(Violation(Rule.O1, Mechanism.POISON, "the blocks that ran wrote nothing"))
        return [torch.where(places, own, output) for places, own, output in zip(absent, native, outputs)]

    def take(self, request: Take) -> str:
        """Take a chunk of a large output; a file that was changed is told, as what is raised is the problem's fault."""
        try:
            with no_meddling():
                return self.transfer.take(request)
        except CandidateError as error:
            return error.message

    def judged(
        self,
        key: str,
        layouts: Sequence[TensorLayout],
        outputs: Callable[[], Outputs],
        *,
        is_tuple: bool,
        tolerances: requests.Tolerances,
    ) -> requests.Judged:
        """As `judge`, of outputs that are read once their layouts are those wanted."""
        with without_tf32() if tolerances.precision is Precision.FLOAT32 else nullcontext():
            values = self.drawn[key]
            native, wants_tuple, _ = self.known.of(key, values)
            if violation := structure_violation(layouts, is_tuple, native, wants_tuple):
                return requests.Judged(violation)
            known = {} if tolerances.default else self.loaded.tolerance
            rtol = known.get("rtol") if tolerances.rtol is None else tolerances.rtol
            atol = known.get("atol") if tolerances.atol is None else tolerances.atol
            stated = [
                replace(
                    tolerance_for(own.dtype, rtol, atol, tf32=tolerances.precision is Precision.TF32),
                    derived=tolerances.derived,
                    nan_decides=tolerances.strict,
                )
                for own in native
            ]
            rounding = tolerances.precision is Precision.PYTORCH
            results = self.known.compared(key, values, outputs(), stated, strict=tolerances.strict, rounding=rounding)
            found = [result.violation for result in results if result.violation]
            worst = next((violation for violation in found if violation.reject), found[0] if found else None)
            note = "; ".join(result.note for result in results if result.note)
            rounded = worst is None and any(result.rounded for result in results)
            decided = not results or any(result.decided for result in results)
            errors = tuple(result.error for result in results)
            return requests.Judged(worst, errors, note, rounded=rounded, decided=decided)
