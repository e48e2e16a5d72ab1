"""The child of `problem_audit`: tries a problem's reference on small draws and says what is wrong."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cutesmith.audit.problem_draws import ELEMENTS, MOST_SETS, Problem, bytes_of, elements_of, tensors_of
from cutesmith.audit.requests import CountedWork, Found, Load, Loaded, Start, Tried, Try
from cutesmith.audit.trials import Influence, Run, exact, run, same_bits, with_many_ties, with_random_masks
from cutesmith.errors import ContractError
from cutesmith.judge.draws.cases import NEGATIVE_INDICES
from cutesmith.judge.draws.domains import Domain, declared, proposed
from cutesmith.judge.draws.kinds import kinds_of
from cutesmith.judge.reference_side.cases import Values, fit
from cutesmith.judge.reference_side.open_ties import undecided_orders
from cutesmith.judge.reference_side.other_inputs import OtherInputs
from cutesmith.judge.reference_side.problem_calls import native_outputs, promises_shapes
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.judge.transfer.tensors import summarize
from cutesmith.problems import contract
from cutesmith.problems.arguments import is_option, names_of
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.sandbox.confinement import confine
from cutesmith.timing.algorithmic_work import work_of
from cutesmith.verdicts import InputKind

BASES = 4  # input sets that are searched for an input's influence
SEEDS = (1, 2)
SETS_SEED = 3
LARGE = 1 << 22  # elements that a reference takes only so: too many for another result in float64 at every change
PATIENCE = 15.0  # seconds for finding out which inputs matter
SAME_BY_CHANCE = 64  # elements: fewer may be equal in two draws
REORDERED = 1 / 16  # of a tolerance: sums in another order stay within it


class AuditWorker:
    """Answers `Start`, then for each file `Load` and `Try`."""

    def __init__(self) -> None:
        self.problem: Problem | None = None
        self.arch = ""

    def handle(self, request: Start | Load | Try) -> dict[str, bool] | Loaded | Tried:
        """Answer; what the file does wrong is a finding or a ContractError."""
        if isinstance(request, Start):
            torch.set_num_threads(1)  # the tensors are small, and threads that wait cost time
            return confine()
        return self.load(request) if isinstance(request, Load) else self.try_out()

    def load(self, request: Load) -> Loaded:
        """Run the file, first for its shapes, then for its values; the reply tells of its inputs."""
        torch.set_default_dtype(torch.float32)
        contract.hold(request.path, request.source)
        problem, self.arch = Problem(path=Path(request.path), host_bytes=request.host_bytes), request.arch
        with cuda_as_cpu(fake=True, arch=self.arch):
            problem.learn_inputs()
        with cuda_as_cpu(arch=self.arch):
            problem.load()
            inputs = problem.measure()
            contract.check_arity(problem.reference_fn, "reference_fn", inputs)
        if not elements_of(inputs):
            raise ContractError("get_inputs() returns no tensor with elements", hint=contract.PROBLEM_LINES)
        self.problem = problem
        names = names_of(problem.reference_fn, inputs, unnamed="x")
        return Loaded(
            inputs=tuple(_described(name, value) for name, value in zip(names, inputs)),
            input_bytes=bytes_of(inputs),
            lines={name: problem.loaded.contract.names.get(name, 0) for name in contract.PROBLEM_NAMES},
            tolerance=dict(problem.loaded.tolerance),
        )

    def try_out(self) -> Tried:
        """Call the reference on all that can be drawn."""
        assert self.problem is not None
        with cuda_as_cpu(fake=True, arch=self.arch):
            self.problem.learn_outputs()
        with cuda_as_cpu(arch=self.arch):
            trial = Trial(self.problem)
            trial.conduct()
            return trial.reply()


class Trial:
    """One problem tried: its draws, and what was found (rules of `audit.problem_audit.ADVICE`)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.inputs = problem.measure()
        self.names = names_of(problem.reference_fn, self.inputs, unnamed="x")
        self.findings: list[Found] = []
        self.draws: list[Values] = []  # of get_inputs()
        self.sets: list[Values] = []
        self.first: Run | None = None
        self.output_bytes = bytes_of(problem.outputs)

    def conduct(self) -> None:
        """Every check; those that make no sense after a failure are left out."""
        self.sets = list(self.problem.sets(SETS_SEED))
        self._draw()
        base = self._tried()
        if base is None:
            why = f" (at smaller sizes: {self.problem.smaller_failure})" if self.problem.smaller_failure else ""
            self._find("too-large", f"get_inputs() is too large to be tried on a CPU, and there is no smaller set{why}")
            return
        self.first = self.first or self._run(base, "get_input_sets()")
        if self.first is None or not self._is_function(base, self.first):
            return
        self._judge_outputs(base, self.first)
        self._judge_influence()
        self._judge_ties(base)
        self._judge_sets(self.first)

    def _tried(self) -> Values | None:
        """The inputs that the reference is called with first; None where all are too large or empty."""
        return next((values for values in (*self.draws, *self.sets) if elements_of(values)), None)

    def reply(self) -> Tried:
        """What was found, and on what."""
        kinds = self._kinds()
        outputs = self.problem.outputs or ([] if self.first is None else self.first.outputs)
        return Tried(
            findings=tuple(self.findings),
            outputs=tuple({**_described("", output), **self._allowed(output)} for output in outputs),
            output_bytes=self.output_bytes,
            work=self._work(),
            sets=tuple(summarize(values) for values in self.sets),
            tried=summarize(self.draws[0]) if self.draws else "",
            domain=self._domain(kinds),
            kinds=kinds,
        )

    def _allowed(self, output: torch.Tensor) -> dict[str, object]:
        """The judge's tolerance for it: of each value, and beside it of their root mean square; exact without one."""
        if not output.is_floating_point():
            return {}
        allowed = tolerance_for(output.dtype, *(self.problem.loaded.tolerance.get(name) for name in ("rtol", "atol")))
        return {"rtol": allowed.rtol, "atol": allowed.atol, "atol_of_rms": allowed.scaled}

    def _domain(self, drawn: Sequence[InputKind]) -> dict[str, str]:
        """What DOMAIN could say of the inputs; raises ContractError for one that says what is not so."""
        values = self.draws[0] if self.draws else next(iter(self.sets), [])
        kinds = kinds_of(self.problem.reference_fn, values)
        known = getattr(self.problem.loaded.module, "DOMAIN", None)
        if known is not None and self.draws:
            declared(known, kinds)
        if known is not None:
            return {}
        from_the_end = {kind.name: Domain.POSITIVE.value for kind in drawn if NEGATIVE_INDICES in kind.drawn}
        return {**from_the_end, **proposed(kinds, values)}

    def _kinds(self) -> tuple[InputKind, ...]:
        """What the judge draws for each input: what it plans for the inputs that were tried, and the reference takes.

        After `PATIENCE` seconds, or where many elements are tried, the rest is told as planned.
        """
        values, module = self._tried(), self.problem.loaded.module
        if values is None or self.first is None:
            return ()
        others = OtherInputs.of(
            self.problem.reference_fn,
            values,
            values,
            partial(native_outputs, self.problem.reference_fn),
            gpu=False,
            domain=getattr(module, "DOMAIN", None),
            sizes=promises_shapes(module, len(self.sets)),
        )
        kinds = others.plan(quick=False).kinds
        deadline = time.monotonic() + (PATIENCE if elements_of(values) <= LARGE else 0.0)
        refused = {}
        for name in dict.fromkeys(name for kind in kinds for name in kind.drawn):
            if time.monotonic() < deadline and (why := _why_not(others, name, values)):
                refused[name] = why
        return tuple(kind.after(refused) for kind in kinds)

    def _work(self) -> CountedWork:
        """Bytes and tensor-core operations at full size, declared or counted; `flops` None where that needs values."""
        total, counted = bytes_of(self.inputs) + self.output_bytes, self.problem.flops
        try:
            work = work_of(self.problem.loaded.module, self.inputs, total, counted or {})
        except ContractError:  # what it declares is a function of the values
            return CountedWork(total, None)
        return CountedWork(work.bytes, dict(work.flops) if counted is not None or work.flops else None)

    def _draw(self) -> None:
        """Two draws of get_inputs(), in the cheapest way that the reference takes."""
        refusal = ""
        for way in self.problem.ways():
            values = way(SEEDS[0])
            found = None if values is None else self._attempt(values)
            if isinstance(found, Run) and values is not None:
                self.first, self.draws = found, [values, *filter(None, [way(SEEDS[1])])]
                return
            refusal = found if isinstance(found, str) else refusal
        if refusal and not self.problem.is_bound:
            raise ContractError(f"reference_fn {refusal}", hint="reference_fn(*get_inputs()) must work as it stands.")

    def _attempt(self, values: Values) -> Run | str:
        """The reference's call on these inputs, or what it raised; ContractError when it returns no tensors."""
        try:
            return run(self.problem.reference_fn, values)
        except ContractError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the reference refuses these inputs
            frames, name = traceback.extract_tb(error.__traceback__), self.problem.path.name
            lines = [frame.lineno for frame in frames if Path(frame.filename).name.startswith(name)]
            where = f" in line {lines[-1]}" if lines else ""
            return f"raised {type(error).__name__}{where}: {str(error)[:1000]} (on {summarize(values)})"

    def _run(self, values: Values, where: str) -> Run | None:
        found = self._attempt(values)
        if isinstance(found, Run):
            return found
        self._find("refused", f"{where}: reference_fn {found}")
        return None

    def _is_function(self, values: Values, first: Run) -> bool:
        """Whether the result depends on the inputs alone, as far as two calls tell."""
        for index in first.changed:
            self._find("changes-input", f"reference_fn writes to its input {self._named(index)}")
        again = run(self.problem.reference_fn, values)
        if first.drew or again.drew:
            self._find("random", "reference_fn draws random numbers")
        elif not same_bits(first.outputs, again.outputs) and not _close(first, again):
            self._find("random", "reference_fn gives two results for the same inputs")
        return not any(finding.rule == "random" for finding in self.findings)

    def _judge_outputs(self, values: Values, first: Run) -> None:
        found = exact(self.problem.reference_fn, values) if elements_of(values) <= LARGE else ""
        if isinstance(found, str) and found:
            self._find("no-float64", f"reference_fn does not run in float64 ({found})")
        wide = None if isinstance(found, str) else found
        if not self.output_bytes:  # the run on shapes alone failed
            self.output_bytes = bytes_of(first.outputs) * bytes_of(self.inputs) // max(1, bytes_of(values))
        if any(value.is_floating_point() and value.double().isnan().any() for value in tensors_of(values)):
            return
        for index, output in enumerate(first.outputs):
            if not output.is_floating_point() or not output.numel():
                continue
            value, exactly = output.double(), wide[index].double() if wide and index < len(wide) else None
            share = float(value.isnan().double().mean())
            if share:
                self._find("nan", f"output {index} is NaN in {100 * share:.2g} % of its elements, and no input is")
            elif bool(value.isinf().all()):
                self._find("infinite", f"output {index} is infinite everywhere")
            elif exactly is not None and exactly.shape == value.shape and (value.isinf() & exactly.isfinite()).any():
                self._find("overflow", f"output {index} overflows {_dtype(output)} where its float64 value is finite")

    def _judge_influence(self) -> None:
        large = any(elements_of(values) > LARGE for values in self.draws)
        influence = Influence(self.problem.reference_fn, in_float64=not large, seconds=PATIENCE)
        for base, other in self._bases():
            influence.watch(base, other)
            if len(influence.of_inputs) == len(self.names) and len(influence.on_outputs) == influence.outputs:
                break
        if influence.late:
            self._find("slow-on-cpu", "reference_fn takes too long on a CPU to try a change of every input")
            return
        tensors = {index for index, value in enumerate(self.inputs) if isinstance(value, torch.Tensor)}
        if not influence.of_inputs & tensors:
            self._find("constant", "reference_fn gives the same result whatever its tensors hold")
            return
        options = {index for index, value in enumerate(self.inputs) if is_option(value)}
        for index in sorted(set(range(len(self.names))) - influence.of_inputs - options):
            # An error, unless it is a scalar or came with a module.
            value, message = self.inputs[index], f"input {self._named(index)} does not change the result"
            if index < len(self.names) - self.problem.state:
                self._find("unused-input" if isinstance(value, torch.Tensor) else "unused-scalar", message)
            elif value.ndim:  # not the counter of a batch norm, which only training reads
                self._find("unused-state", message)
        for index in sorted(set(range(influence.outputs)) - influence.on_outputs):
            self._find("constant-output", f"output {index} was the same for all inputs that were tried")
        drawn = [tensors_of(values) for values in self.draws]
        by_chance = not drawn or all(value.numel() < SAME_BY_CHANCE for value in drawn[0])
        if len(drawn) > 1 and not by_chance and same_bits(drawn[0], drawn[1]):
            self._find("same-values", "get_inputs() returns the same values at every call")

    def _judge_ties(self, base: Values) -> None:
        """Whether an order of equal values shows in the result that PyTorch leaves open, with what is drawn first."""
        drawn = [values for values in (base, *self.sets[:BASES]) if elements_of(values) <= LARGE]
        for values in [*drawn, *with_many_ties(base)]:
            try:
                operations = undecided_orders(self.problem.reference_fn, values)
            except Exception:  # noqa: BLE001, S112 - made-up values may be refused
                continue
            if operations:
                where = "in what is drawn" if any(values is one for one in drawn) else "where values are equal, or NaN"
                names = " and ".join(operations)
                self._find("ties", f"the result depends on the order in which {names} takes equal values, {where}")
                return

    def _bases(self) -> Iterator[tuple[Values, Values]]:
        """Inputs and other inputs of the same shapes, get_inputs() first; then with other masks."""
        pairs = [(self.draws[0], self.draws[-1])] if self.draws else []
        filled = [values for values in self.sets if all(value.numel() for value in tensors_of(values))]
        for values, other in (pairs + [(values, values) for values in filled])[:BASES]:
            yield values, other
            masked = with_random_masks(values)
            if masked is not None:
                yield masked, other

    def _judge_sets(self, first: Run) -> None:
        expected = ([output.dtype for output in first.outputs], first.is_tuple)
        for number, values in enumerate(self.sets):
            where = f"get_input_sets()[{number}]"
            small = fit(values, ELEMENTS, lambda v: str(found) if isinstance(found := self._attempt(v), str) else "")
            found = self._run(small.values, where)
            if found is not None and ([output.dtype for output in found.outputs], found.is_tuple) != expected:
                self._find("other-outputs", f"{where}: reference_fn returns other types than for get_inputs()")
        if len(self.sets) == MOST_SETS:
            self._find("many-sets", f"only the first {MOST_SETS} sets of get_input_sets() were tried")
        if self.problem.loaded.get_input_sets is not None and not self.sets:
            self._find("no-sets", "get_input_sets() gives no sets that are small enough to be tried")

    def _named(self, index: int) -> str:
        return f"{index} ({self.names[index]})"

    def _find(self, rule: str, message: str) -> None:
        self.findings.append(Found(rule, message))


def _why_not(others: OtherInputs, name: str, values: Values) -> str:
    """Why a draw is not made; empty if it is."""
    try:
        return others.draw(name, values)[1]
    except Exception as error:  # noqa: BLE001 - what goes wrong with a draw says nothing against the problem
        return f"it could not be drawn: {type(error).__name__}: {str(error)[:300]}"


def _described(name: str, value: Any) -> dict[str, object]:
    if not isinstance(value, torch.Tensor):
        return {"name": name, "value": repr(value)}
    return {"name": name, "dtype": _dtype(value), "shape": list(value.shape), "bytes": bytes_of([value])}


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _close(first: Run, second: Run) -> bool:
    """Whether two results agree well within the tolerance of their types: the same sums in another order."""
    for one, other in zip(first.outputs, second.outputs):
        if one.shape != other.shape or not one.is_floating_point():
            if not same_bits([one], [other]):
                return False
            continue
        limit = REORDERED * tolerance_for(one.dtype, None, None).rtol
        least = limit * float(one.double().abs().nan_to_num(0.0, 0.0, 0.0).mean()) if one.numel() else 0.0
        if not torch.allclose(one.double(), other.double(), rtol=limit, atol=least, equal_nan=True):
            return False
    return True
