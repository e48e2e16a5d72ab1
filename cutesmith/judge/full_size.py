"""The parent's side of what is tried of `get_inputs()` at its own size, where the emulated GPU runs cases with less.

Its launches are recorded instead of executed, and further cases keep one of its sizes whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutesmith.judge.candidate_side import requests as of_candidate
from cutesmith.judge.derived import Draw, judge_derived
from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.reference_side import requests as of_reference
from cutesmith.judge.reference_side.requests import LongSize
from cutesmith.judge.ring_cases import FEW, MOST_INSTRUCTIONS, ORDERS
from cutesmith.judge.rounds import DERIVED, LARGE_POISON, NAN_POISON, Round
from cutesmith.verdicts import CaseOutcome, CaseReport, ExitCode, Mechanism, Rule, Violation

LAUNCHES = "launches at full size"  # the name of the case
INSTRUCTIONS = 1 << 26  # lane-instructions of a longer case: about a second
FOR_A_GRID = 3 * INSTRUCTIONS  # of one beyond the last block of a grid that is smaller than the inputs ask for
GRID_STOPS = (
    "at full size the grid grows less than the inputs, so that each block takes more of them; the smallest case that "
    "shows this has"
)
MISSED = (CaseOutcome.DECLINED, CaseOutcome.NOT_RUN)
GROWTH = 4  # of the inputs, from one case to the next that looks for code of full size
LEAST_ELEMENTS, MOST_ELEMENTS = 1 << 19, 1 << 24  # of a case, however slow or quick the kernel is


@dataclass
class FullSize:
    """The cases of one verification; `columns`: whether the contract lets columns change, `elements` of all inputs.

    `last`: what the last case did, with inputs of so many elements. `elsewhere`: another round of the same file, whose
    calls execute code too.
    """

    turn: Round
    columns: bool
    long_sizes: Sequence[LongSize]
    elements: int
    elsewhere: Round | None = None
    blocks: tuple[int, ...] = ()
    kernels: frozenset[str] = frozenset()  # that are launched
    crowded: str = ""  # blocks that wait for each other and are more than a GPU holds
    last: of_candidate.Ran = of_candidate.Ran()
    last_elements: int = 0

    def launches(self) -> CaseReport:
        """Call `kernel_fn` on inputs of full size, its launches recorded instead of executed."""
        full = self.turn.ask(of_reference.FullSize(str(self.turn.folder / "inputs")))
        request = of_candidate.FullSize(full.inputs, fresh=not self.columns)
        reply = self.turn.candidate.call(request, timeout=self.turn.options.timeout)
        case = CaseReport(name=LAUNCHES, inputs=full.summary)
        for change in reply.changes:
            return case.violated(change)
        if reply.error:
            refused = reply.exit_code == ExitCode.DOES_NOT_COMPILE
            outcome = CaseOutcome.NOT_LAUNCHED if refused else CaseOutcome.RAISED
            violation = Violation(None, Mechanism.FULL_SIZE_LAUNCHES, reply.error, reject=False)
            return case.violated(violation, outcome)
        if reply.untried:
            return replace(case, outcome=CaseOutcome.NOT_RUN, remark=reply.untried)
        if computed := sorted(reply.computed):
            text = f"kernel_fn computes with torch ({', '.join(computed[:5])}) at full size"
            return case.violated(Violation(Rule.W1, Mechanism.DISPATCH_MODE, f"{text} instead of a CuTe kernel"))
        if not reply.blocks:
            text = "kernel_fn launches no CuTe kernel at full size"
            return case.violated(Violation(Rule.W1, Mechanism.NO_LAUNCH, text))
        if reply.wraps:
            return case.violated(Violation(None, Mechanism.INDEX_WIDTH, reply.wraps, reject=False))
        self.blocks, self.kernels, self.crowded = reply.blocks, frozenset(reply.kernels), reply.crowded
        grids = ", ".join(f"{blocks:,}" for blocks in self.blocks[:8])
        recorded = f"{grids} block{'s' * (self.blocks != (1,))}, not executed"
        return replace(case, outcome=CaseOutcome.RECORDED, remark="; ".join(filter(None, (recorded, reply.remark))))

    def fewer_blocks_at_once(self) -> Iterator[CaseReport]:
        """`get_inputs()` where blocks wait for each other, on a GPU that does not hold all blocks, as at full size."""
        if not self.crowded:
            return
        turn = self.turn
        drawn = turn.draw("a", index=-1)
        case = CaseReport(name="fewer blocks at once than the grid has", inputs=drawn.summary)
        room = max(1, max(turn.base.blocks) // 2)
        steps = (turn.step(0, drawn, reuse=False, poison=NAN_POISON),)
        reply = turn.run(case.name, drawn, of_candidate.Run(steps, limited=True, resident_blocks=room))
        if reply.stopped:
            text = f"a block waits for one that has not started; at full size there are {self.crowded}"
            violation = Violation(Rule.S5, Mechanism.FULL_SIZE_LAUNCHES, text, reject=False)
            yield case.violated(violation, CaseOutcome.HANGS)
        else:
            judged = DerivedCase(case.name, (case.name,), Rule.S5)
            yield judge_derived(turn, case, reply, judged, draws=[Draw(case.name, "a", drawn)])

    def not_executed(self) -> Iterator[CaseReport]:
        """Cases for code that the call at full size takes and no case executed: the smallest inputs that take it.

        Where none can be had, the last says what was not executed.
        """
        missing, elements = self._missing(), self.turn.base_elements
        while missing and elements < self.elements:
            elements = min(GROWTH * elements, self.elements)
            name = f"code of full size: {elements:,} elements"
            most = elements if elements == self.elements else elements // 2  # sizes are halved: it may be twice that
            some = elements > self._affordable(FOR_A_GRID)
            if some and len(self.blocks) > 1:
                break  # of several launches some blocks say nothing
            case = self._tried(name, beyond=most, elements=self.elements, some_blocks=some, missing=missing)
            left = self._missing()
            if left != missing or not case.passed:
                yield case
            missing = left
            if not case.passed or case.outcome is CaseOutcome.NOT_RUN:
                break
        if missing:
            text = f"at full size {' and '.join(missing)}"
            yield CaseReport(name="code of full size", inputs="", outcome=CaseOutcome.NOT_EXECUTED, remark=text)

    def _missing(self) -> tuple[str, ...]:
        timeout = self.turn.options.timeout
        missing = self.turn.candidate.call(of_candidate.NotExecuted(), timeout=timeout)
        if missing and self.elsewhere is not None:
            executed = self.elsewhere.candidate.call(of_candidate.Executed(conditions=True), timeout=timeout)
            missing = self.turn.candidate.call(of_candidate.NotExecuted(executed), timeout=timeout)
            self.elsewhere = None  # it executes no more
        return missing

    def longer(self) -> Iterator[CaseReport]:
        """A case for each size that was shrunk, and one beyond the last block of a grid that ends early.

        The first size that brings the ring of a persistent kernel more trips is tried on a small GPU too, where its
        blocks have several tiles each.
        """
        shared = not self.turn.base.persistent
        for long in self.long_sizes:
            case = self._longer(long)
            yield case
            usual = self.last.ring
            if usual and case.outcome is CaseOutcome.PASSED and not shared:
                yield self._shared(case.name, long)
                shared = self.last.ring is not None and self.last.ring.trips > usual.trips
        if beyond := self._beyond():
            yield self._tried("longer: more elements for each block", beyond=beyond, elements=self.elements)

    def _shared(self, name: str, long: LongSize) -> CaseReport:
        """The last case once more, smaller, where few blocks share what there is."""
        few, part = FEW * self.turn.base.cluster, MOST_INSTRUCTIONS / 2 / self.last.instructions
        return self._tried(
            f"{name} on {few} multiprocessors",
            longer=long,
            elements=int(self.last_elements * min(1, part)),
            columns=self.columns,
            multiprocessors=few,
        )

    def _longer(self, long: LongSize) -> CaseReport:
        name, elements = f"longer: {long.words}", self._affordable(INSTRUCTIONS)
        columns = self.columns or bool(long.axes)  # the other axes of the size were shrunk with it
        case = self._tried(name, longer=long, elements=elements, columns=columns)
        missed = case.outcome in MISSED
        more = self.kernels - set(self.last.kernels)
        if long.argument or not columns or not (missed or (case.passed and more)):
            return case
        whole = self._tried(name, longer=long, elements=elements)  # perhaps it is the columns that it does not take
        return case if whole.outcome in MISSED and not missed else whole

    def _affordable(self, instructions: int) -> int:
        """Elements that take so many lane-instructions, by what the case of `get_inputs()` took."""
        most = self.turn.base_elements * instructions // max(1, self.turn.base.instructions)
        return min(max(LEAST_ELEMENTS, most), MOST_ELEMENTS)

    def _beyond(self) -> int:
        """How many elements it takes until the grid stops growing though the inputs go on; 0 if it grows with them."""
        few_elements, few_blocks = self.turn.base_elements, self.turn.base.blocks
        if len(self.blocks) != len(few_blocks):
            return 0
        growth = self.elements / few_elements
        ended = [full / few for full, few in zip(self.blocks, few_blocks) if full < few * growth / 2]
        wanted = int(1.25 * few_elements * max(ended, default=0))
        return wanted if wanted > few_elements * 1.25 else 0

    def _tried(
        self,
        name: str,
        *,
        elements: int,
        longer: LongSize | None = None,
        beyond: int = 0,
        columns: bool = False,
        some_blocks: bool = False,
        multiprocessors: int = 0,
        missing: tuple[str, ...] = (),
    ) -> CaseReport:
        """One case; the numbers are those of `Draw`. It is judged if it executes some of what is `missing`."""
        turn, case = self.turn, CaseReport(name=name, inputs="", outcome=CaseOutcome.NOT_RUN)
        if not missing and beyond > self._affordable(FOR_A_GRID):
            return replace(case, remark=f"{GRID_STOPS} {beyond:,} elements, which take the emulated GPU too long")
        sizes: dict[str, Any] = {"elements": elements, "longer": longer, "beyond": beyond, "columns": columns}
        drawn = turn.draw(DERIVED, some_blocks=some_blocks, **sizes)
        if not drawn.accepted:
            return replace(case, remark=drawn.why)
        case = CaseReport(name=name, inputs=drawn.summary)
        poison = LARGE_POISON if some_blocks else NAN_POISON
        steps = (turn.step(0, drawn, reuse=False, poison=poison),)
        call = of_candidate.Run(
            steps,
            may_decline=True,
            limited=True,
            fresh=multiprocessors > 0 or not self.columns,
            some_blocks=some_blocks,
            orders=ORDERS if multiprocessors else 1,
            multiprocessors=multiprocessors,
        )
        reply = turn.run_named(name, drawn, call)
        self.last, self.last_elements = reply, drawn.elements
        if missing and reply.steps and self._missing() == missing:
            return case
        if reply.steps:
            turn.note_sizes(drawn.ran_as)
        judged = DerivedCase(name, (name,), Rule.S1 if missing else None, strict=True)
        draws, unwritten = [Draw(name, DERIVED, drawn)], poison if some_blocks else None
        return judge_derived(turn, case, reply, judged, draws=draws, note=drawn.why, unwritten=unwritten)
