"""The cases of one verification in their order, run by one process that holds the kernel, or by two at once.

Two are one order too: each runs its own cases ahead, and what one of them finds counts only when all cases before it
are known. So the verdict is that of one process; cases that nothing would have run after an earlier one are dropped.

The first runs `get_inputs()`, its launches at full size, other input sets from the last one on, rings, and the derived
cases. The second begins with one call on `get_inputs()`, as every other case comes after such a call. It goes through
the other input sets until it meets the first, runs the longer cases, and then derived cases from the last one on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from cutesmith.errors import CutesmithError
from cutesmith.judge.ahead import ahead
from cutesmith.judge.both_ends import BothEnds
from cutesmith.judge.candidate_side import requests as of_candidate
from cutesmith.judge.candidate_side.host_branches import never_taken
from cutesmith.judge.conclusion import set_name
from cutesmith.judge.derived import run_derived
from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.full_size import LAUNCHES, FullSize
from cutesmith.judge.own_sets import begin, replay
from cutesmith.judge.reference_side import requests as of_reference
from cutesmith.judge.ring_cases import RingCases, not_wrapped
from cutesmith.judge.rounds import Round
from cutesmith.lint.call_graph import host_functions
from cutesmith.lint.source import Source
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.verdicts import CaseOutcome, CaseReport, InputKind, Rule

Cases = Iterable[CaseReport]
MOST_LINES = 4  # of host code that no case ran, that are named


@dataclass
class Course:
    """All cases with values of the kernel file `path`; `ran_on` as in a verdict. `second`: where two processes run.

    After the cases: `reduced`, as what the largest input ran; `idle`, what of the file no case ran; `kinds` of the
    inputs; `own_layouts`, which of them no case had in another layout, as the kernel declines each, and why; `left`,
    cases that only a full run has, where this one is quick.
    """

    path: Path
    ran_on: str
    plan: of_reference.Loaded
    first: Round
    second: Round | None = None
    load_second: Callable[[], object] = tuple  # loads the file in the second's process
    reduced: str = ""
    idle: tuple[str, ...] = ()
    own_layouts: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[InputKind, ...] = ()
    left: tuple[str, ...] = ()
    whole: FullSize | None = field(init=False)

    def __post_init__(self) -> None:
        plan, first = self.plan, self.first
        sizes = plan.long_sizes
        self.whole = None if sizes is None else FullSize(first, plan.shapes, sizes, plan.elements)
        self.rings = RingCases(first, resizable=plan.resizable, fresh=not plan.shapes)
        self.lost = False  # whether a derived draw ended the reference's process
        self._planned = of_reference.Planned((), ())
        self._sets: BothEnds[int, list[CaseReport]] = BothEnds(range(plan.sets))
        self._recorded: Future[FullSize] = Future()  # with the launches at full size
        self._derived: BothEnds[DerivedCase, CaseReport | None] = BothEnds(())
        self._shorter: Future[tuple[tuple[int, int], ...]] = Future()  # of the first's round, once a derived case ran

    def cases(self) -> Iterator[CaseReport]:
        """In their order, whichever process runs them; raises what ended one."""
        own = self.own_set(self.first, -1)
        first = [own, self._at_full_size(), self._sets_by_first(), self._rings(), self.derived()]
        second = [self._other_sets(), self._longer(), self._derived_by_second()]
        if self.second is None:
            yield from self._in_order(first, second)
            return
        with (
            ahead(first, stop=self.first.candidate.kill) as first_ahead,
            ahead(second, stop=self._stop_second) as second_ahead,
        ):
            yield from self._in_order(first_ahead, second_ahead)

    def _stop_second(self) -> None:
        assert self.second is not None, "it was started"
        self.second.candidate.kill()
        self._recorded.cancel()
        self._shorter.cancel()

    def _in_order(self, first: Sequence[Cases], second: Sequence[Cases]) -> Iterator[CaseReport]:
        """The cases of both, until one of them ends it: a cheat does, or a call that fails at full size."""
        (own, at_full_size, _, rings, derived), (others, longer, _) = first, second
        right, decided = True, False
        for case in chain(own, others, chain.from_iterable(self._sets.behind())):
            yield case
            right &= case.passed
            decided |= case.outcome is not CaseOutcome.NOT_DECIDED
            if cheats(case):
                return
        if not decided:
            return  # derived inputs would say nothing of the problem's own
        for case in at_full_size:
            yield case
            right &= case.passed
            if case.name == LAUNCHES and not (case.passed and self.first.base.steps):
                return
        for case in chain(derived, self._behind()):
            yield case
            right &= case.passed
            if cheats(case):
                return
        if not self.first.reference.alive:
            if self.second is not None and self.second.ended_reference:
                yield from longer  # it raises, if it ended the process
                raise CutesmithError("a derived draw ended the process of the problem")
            return
        refused, declined = self.first.refused, self.first.declined
        if self.second is not None:
            refused, declined = refused | self.second.refused, declined | self.second.declined
        self.kinds = tuple(kind.after(refused, declined) for kind in self._planned.kinds)
        self.own_layouts, self.left = self._in_own_layouts(declined), self._planned.left
        for more in (rings, longer, self._not_executed()):
            for case in more if right else ():
                yield case
                right &= case.passed
        if right and self.ran_on == "emulator":
            self.idle = self._idle()
        if sizes := self.first.ran_as:  # such as "16384x8192 as 32x8192, 16384x32"
            self.reduced = f"{sizes[0]} as {', '.join(sizes[1:])}"

    def _in_own_layouts(self, declined_draws: Mapping[str, str]) -> dict[str, str]:
        layouts = {name for case in self._planned.cases if case.rule is Rule.S3 for name in case.draws}
        declined = {kind.name: layouts & {*kind.declined} for kind in self.kinds if not layouts & {*kind.drawn}}
        return {name: declined_draws[min(draws)] for name, draws in declined.items() if draws}

    def own_set(self, turn: Round, index: int) -> Iterator[CaseReport]:
        """Several draws of one input set, in one buffer and in new ones (rule R1), twice for determinism."""
        for pair in range(max(1, (turn.options.seeds + 1) // 2)):
            with self._sharing():
                case = replay(turn, f"{set_name(index)}, draws {2 * pair + 1} and {2 * pair + 2}", index)
            turn.right &= case.passed
            yield case
            if case.outcome is not CaseOutcome.PASSED:
                return

    def _other_sets(self) -> Iterator[CaseReport]:
        """Those of `get_input_sets()`, which two processes share; a second comes to them after `get_inputs()` too."""
        turn = self.second or self.first
        if self.second is not None:
            self.load_second()
            begin(turn, set_name(-1))
        yield from chain.from_iterable(self._sets.forwards(lambda index: list(self.own_set(turn, index))))

    def _sets_by_first(self) -> Iterator[CaseReport]:
        """The last ones, where a second process goes through them too; they are told behind those."""
        self._sets.backwards(lambda index: list(self.own_set(self.first, index)))
        yield from ()

    def _at_full_size(self) -> Iterator[CaseReport]:
        if self.whole is None:
            return
        launches = self.whole.launches()
        self._recorded.set_result(self.whole)
        yield launches
        if launches.passed and self.first.base.steps:
            yield from self.whole.fewer_blocks_at_once()

    def derived(self) -> Iterator[CaseReport]:
        """Cases that no one wrote down, of which a second process may take the last ones once the first has run."""
        turn = self.first
        turn.shorter = self.rings.shorter() if self.plan.shapes and self.ran_on == "emulator" else ()
        self._planned = turn.ask(of_reference.Plan(self.plan.shapes, quick=turn.options.quick))
        self._derived = BothEnds(self._planned.cases)
        for case in self._derived.forwards(lambda planned: self._run_derived(turn, planned)):
            if not self._shorter.done():
                self._shorter.set_result(turn.shorter)
            if case is not None:
                yield case
            if not turn.reference.alive:
                return

    def _derived_by_second(self) -> Iterator[CaseReport]:
        """The last ones; `_behind` tells them, in their order."""
        turn = self.second
        assert turn is not None, "it was started"
        turn.shorter = self._shorter.result()
        self._derived.backwards(lambda planned: self._run_derived(turn, planned))
        yield from ()

    def _behind(self) -> Iterator[CaseReport]:
        """The derived cases that the second ran."""
        if self.first.reference.alive:
            yield from (case for case in self._derived.behind() if case is not None)

    def _run_derived(self, turn: Round, planned: DerivedCase) -> CaseReport | None:
        with self._sharing():
            case = run_derived(turn, planned)
        if case is not None:
            turn.right &= case.passed
        if not turn.reference.alive:
            self.lost |= turn.ended_reference
        return case

    def _rings(self) -> Iterator[CaseReport]:
        if self.ran_on == "emulator" and self.first.right:
            yield from self.rings.cases()

    def _longer(self) -> Iterator[CaseReport]:
        turn = self.second or self.first
        if self.whole is None or not turn.right:
            return
        if turn.refusal is not None:  # and the first did not refuse the same call
            raise turn.refusal
        whole = self.whole if self.second is None else replace(self._recorded.result(), turn=turn)
        yield from whole.longer()

    def _not_executed(self) -> Iterator[CaseReport]:
        if self.second is not None:
            self.first.note_sizes(self.second.ran_as)
        if self.whole is not None:
            self.whole.elsewhere = self.second
            yield from self.whole.not_executed()

    def _idle(self) -> tuple[str, ...]:
        """Code of the file that no case ran, a clause each: the verdict says nothing of it."""
        source = Source.read(self.path)
        ran = [
            turn.candidate.call(of_candidate.Executed(), timeout=turn.options.timeout)
            for turn in (self.first, self.second)
            if turn is not None
        ]
        launched = {launch.name for each in ran for launch in each.launches}
        kernels = [function.name for function, kind in source.traced.items() if kind == "kernel"]
        missed = [name for name in kernels if not any(name in whole for whole in launched)]  # a prefix may be set
        branches = {branch for each in ran for branch in each.branches}
        lines = [str(line) for line in never_taken(host_functions(source), branches)]
        more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
        at = f"line{'s' * (len(lines) > 1)} {', '.join(lines[:MOST_LINES])}{more}"
        rings = self.second.rings if self.second is not None else set()
        return (
            *([f"launched {', '.join(missed)}"] if missed else []),
            *([f"took the branch of host code at {at}"] if lines else []),
            *([unused] if (unused := not_wrapped(self.first.rings | rings)) else []),
        )

    def _sharing(self) -> contextlib.AbstractContextManager[None]:
        """The GPU beside others for one step: one that waits to time a kernel waits for a case, not for all of them."""
        return gpu_lock("cuda" if self.ran_on == "gpu" else self.ran_on, exclusive=False)


def cheats(case: CaseReport) -> bool:
    """Whether a case shows a cheat, after which nothing more is tried."""
    return bool(case.rule) and case.outcome is CaseOutcome.REJECTED
