"""Cases for kernels that go round a ring of mbarriers: fewer trips than stages, as many, one more, and 2 stages + 1.

Which size decides the trips is not known beforehand: the emulated GPU counts the phases of the ring's mbarriers
(`emulator/machine/rings.py`), one size after another is changed, and what the trips then do says how long it has to
be. Each case also runs with the first warps of a block ahead of the others, and with the last. Where no size adds
trips, as blocks of a persistent kernel share what there is, a case runs on a GPU with few multiprocessors, and so does
one of a persistent kernel without a ring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from cutesmith.judge.candidate_side.requests import Run
from cutesmith.judge.derived import Draw, judge_derived
from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.rounds import DERIVED, NAN_POISON, Round
from cutesmith.judge.transfer.requests import Scalar
from cutesmith.verdicts import CaseOutcome, CaseReport, MbarrierRing

ORDERS = 3  # of launches with a ring; emulator.machine.schedules: side by side, first warps first, last warps first
MOST_CASES = 8  # with other sizes
MOST_PROBES = 3  # sizes that are changed to see what decides the trips
MOST_INSTRUCTIONS = 1 << 24  # lane-instructions of a case in one order
MOST_GROWTH = 64  # of the elements, however few they are
FEW = 2  # multiprocessors, for each block of a cluster; a cluster's tiles have another one's between them


@dataclass(frozen=True)
class _Tried:
    """A case, and the ring that it went round; None where it was not executed."""

    case: CaseReport
    ring: MbarrierRing | None = None


@dataclass
class RingCases:
    """The cases of one verification, by what the case of `get_inputs()` did; `resizable`: whether sizes may change.

    `fresh`: the file is loaded again for other sizes, as one copy need not take several.

    `seen`: rings by the length of the size that decides the trips. One with no more trips than stages may be longer.
    """

    turn: Round
    resizable: bool
    fresh: bool
    seen: dict[int, MbarrierRing] = field(default_factory=dict)

    def cases(self) -> Iterator[CaseReport]:
        """None where no ring has several stages and blocks share no work; a failed one is the last."""
        base = self.turn.base.ring
        if base is None:
            if self.turn.base.persistent:
                yield self._on_a_small_gpu()
            return
        for size in self._sizes()[:MOST_PROBES] if self.resizable else ():
            other = _another(size, base)
            probe = self._tried({size: other})
            yield probe.case
            if not probe.case.passed:
                return
            if probe.ring is not None and probe.ring.trips != base.trips:
                self.seen = {size: base, other: probe.ring}
                yield from self._on_both_sides(size)
                return
        own = self._tried({})  # its own trips at least, in other orders
        yield own.case
        if own.case.passed and not base.wrapped:
            yield self._on_a_small_gpu()

    def shorter(self) -> tuple[tuple[int, int], ...]:
        """A size that no output has, and the length with 2 stages + 1 trips where it has more than twice as many.

        Other values show as much with it: each stage is used twice at least. None where the reference refuses it.
        """
        ring = self.turn.base.ring
        if ring is None or not self.resizable or ring.trips <= 2 * _enough(ring):
            return ()
        for size in self._sizes()[:1]:
            other = _another(size, ring)
            if self._is_inner(size) and other * ring.trips == size * _enough(ring):
                resized = ((size, other),)
                return resized if self.turn.draw(DERIVED, resized=resized).accepted else ()
        return ()

    def _on_both_sides(self, size: int) -> Iterator[CaseReport]:
        """Trips on both sides of the stages, once a size is known that decides them."""
        while (wanted := self._next()) and len(self.seen) < MOST_CASES:
            tried = self._tried({size: wanted})
            yield tried.case
            if not tried.case.passed:
                return
            if tried.ring is None:
                break
            self.seen[wanted] = tried.ring
        if not self._wrapped:
            yield self._on_a_small_gpu()

    def _on_a_small_gpu(self) -> CaseReport:
        """The sizes of `get_inputs()` where fewer blocks share them."""
        return self._tried({}, FEW * self.turn.base.cluster).case

    @property
    def _wrapped(self) -> list[MbarrierRing]:
        """The rings whose stages are all there."""
        return [ring for ring in self.seen.values() if ring.wrapped]

    def _next(self) -> int:
        """The next length to try, 0 where there is none."""
        if not self._wrapped:
            return 2 * max(self.seen)
        stages, reached = self._wrapped[0].stages, {ring.trips for ring in self.seen.values()}
        wanted = {stages, stages + 1, _enough(self._wrapped[0])} - reached
        wanted |= set() if min(reached) < stages else {stages - 1}
        lengths = (self._length_for(trips) for trips in sorted(wanted))
        return next((length for length in lengths if length and length not in self.seen), 0)

    def _length_for(self, trips: int) -> int:
        """The length with so many trips, on the line through the first that were seen; 0 if it is not whole."""
        (few, least), (more, most) = list(self.seen.items())[:2]
        length, rest = divmod((trips - least.trips) * (more - few), most.trips - least.trips)
        return max(0, few + length) if not rest else 0

    def _sizes(self) -> list[int]:
        """Distinct sizes above 1 of the inputs, those that no output has before the others, long ones first."""
        drawn = self.turn.draw(DERIVED)
        inputs = {size for value in drawn.inputs if not isinstance(value, Scalar) for size in value.shape if size > 1}
        return sorted(inputs, key=lambda size: (not self._is_inner(size), -size))

    def _is_inner(self, size: int) -> bool:
        """Whether no output has it."""
        return all(size not in output.shape for output in self.turn.base.steps[0].outputs)

    def _tried(self, sizes: dict[int, int], multiprocessors: int = 0) -> _Tried:
        """One case with these sizes instead of others, on a GPU with so many multiprocessors if not 0."""
        turn = self.turn
        changed = ", ".join(f"size {old} as {new}" for old, new in sizes.items()) or "the sizes of get_inputs()"
        changed += f" on {multiprocessors} multiprocessors" if multiprocessors else ""
        name = f"{'ring of mbarriers' if turn.base.ring else 'more tiles for each block'}: {changed}"
        drawn = turn.draw(DERIVED, resized=tuple(sizes.items()))
        case = CaseReport(name=name, inputs=drawn.summary)
        if not drawn.accepted:
            return _Tried(replace(case, outcome=CaseOutcome.NOT_RUN, remark=drawn.why))
        most = min(MOST_GROWTH, MOST_INSTRUCTIONS // max(1, turn.base.instructions)) * turn.base_elements
        if sizes and drawn.elements > most:
            why = f"{drawn.elements:,} elements take the emulated GPU too long"
            return _Tried(replace(case, outcome=CaseOutcome.NOT_RUN, remark=why))
        steps = (turn.step(0, drawn, reuse=False, poison=NAN_POISON),)
        others = bool(sizes or multiprocessors)
        fresh = bool(sizes) and self.fresh or multiprocessors > 0
        call = Run(
            steps,
            may_decline=others,
            may_raise=turn.base.ring is None,
            limited=True,
            fresh=fresh,
            orders=ORDERS,
            multiprocessors=multiprocessors,
        )
        reply = turn.run_named(name, drawn, call)
        judged = DerivedCase(name, (name,), strict=True)
        trips = f"{reply.ring.trips} trips of {reply.ring.stages} stages, " if reply.ring else ""
        trips = trips or f"{', '.join(map(str, reply.blocks))} blocks, "
        note = f"{trips}in {ORDERS} orders"
        report = judge_derived(turn, case, reply, judged, draws=[Draw(name, DERIVED, drawn)], note=note)
        return _Tried(report, reply.ring)


def not_wrapped(rings: Collection[MbarrierRing]) -> str:
    """What the kernel did not do with a ring in any case, of those `rings`; empty where it did, or has none.

    An array whose mbarriers serve once each, as one for each factor, has as many trips as stages in all cases.
    """
    if any(ring.wrapped for ring in rings) or all(ring.trips == ring.stages for ring in rings):
        return ""
    most = max(rings, key=lambda ring: ring.trips)
    trips = f"{most.trips} trip{'s' * (most.trips > 1)}"
    return f"used a stage of its ring of {most.stages} mbarriers again ({trips} at most)"


def _another(size: int, ring: MbarrierRing) -> int:
    """Twice the size, or less where its ring wrapped: the size of 2 stages + 1 trips if it is proportional to them."""
    if not ring.wrapped:
        return 2 * size
    fewer, rest = divmod(size * _enough(ring), ring.trips)
    return fewer if not rest and fewer < size else size // 2


def _enough(ring: MbarrierRing) -> int:
    """Trips in which each stage is used twice at least, and one three times."""
    return 2 * ring.stages + 1
