"""Who runs next: lanes until they stop, stops once their warps or blocks are complete, a deadlock when none can move.

The loop is that of docs/emulator.md. Lanes that can run are kept by the piece where they start, lanes that wait by
their stop, so that a round costs a few array operations however many lanes take part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cutesmith.emulator.faults import EndlessLoop, Finding, KernelFault
from cutesmith.emulator.machine import deadlock
from cutesmith.emulator.machine.barriers import Barriers
from cutesmith.emulator.machine.findings import where
from cutesmith.emulator.machine.groups import LaneGroups, WarpMap
from cutesmith.emulator.machine.lanes import WARP, Array, Lanes, Warps
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.machine.spinning import waiting_line
from cutesmith.emulator.machine.wave import Wave
from cutesmith.emulator.native.abi import EXITED, FAULTED, Context, resume_of
from cutesmith.emulator.operations import registry
from cutesmith.emulator.program.pieces import Program, Stop
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand

_CLOCKS_PER_ROUND = 1024
_MOST_FUEL = 1 << 20
_ALL_LANES = 0xFFFF_FFFF
_MOST_IMPATIENT_ROUNDS = 64
_MASKED = ("shfl", "vote", "match", "redux", "elect", "bar.warp", "barrier.warp")
_WHOEVER_IS_THERE = ("activemask",)


class NativeCode(Protocol):
    """The machine code of a program (native/jit.py)."""

    def run(self, piece: int, context: Array, lanes: Array) -> None:
        """Run int32 `lanes` from a piece until each stops; stop codes are in the wave's `stops`."""


@dataclass(frozen=True)
class StopPlan:
    """A stop with what executes it: kind "lane", "warp", "present" (whichever lanes are there) or "barrier"."""

    stop: Stop
    kind: str
    handler: Callable[[Any], Any] | None
    mask: Operand | None = None

    @property
    def instruction(self) -> Instruction:
        """The instruction of the stop."""
        return self.stop.instruction


def plan_stops(program: Program) -> tuple[StopPlan, ...]:
    """How each stop of the program is executed; UnsupportedInstruction for one that nobody knows."""
    return tuple(_plan(stop) for stop in program.stops)


def _plan(stop: Stop) -> StopPlan:
    instruction = stop.instruction
    kind = registry.kind_of(instruction)
    if kind == "lane":
        return StopPlan(stop, kind, registry.lane_handler(instruction))
    if kind == "barrier":
        return StopPlan(stop, kind, None)
    assert kind == "warp", f"{instruction.full_opcode} is {kind}, no stop"
    handler, name = registry.warp_handler(instruction), f"{instruction.full_opcode}."
    if name.startswith(_WHOEVER_IS_THERE):
        return StopPlan(stop, "present", handler)
    masked = name.startswith(tuple(f"{opcode}." for opcode in _MASKED))
    return StopPlan(stop, kind, handler, instruction.operands[-1] if masked else Immediate(_ALL_LANES))


class Scheduler:
    """Runs the lanes of one wave from the first piece until all have ended.

    Raises KernelFault (a fatal finding, a deadlock) and EndlessLoop. `steps` are those of Settings.step_limit, and may
    start above 0: they count over all waves of a launch.
    """

    def __init__(
        self, wave: Wave, native: NativeCode, settings: Settings, plans: tuple[StopPlan, ...], steps: int = 0
    ) -> None:
        self.wave = wave
        self.steps = steps
        self.warps = WarpMap(wave)
        self.waiting = LaneGroups()
        self._ready = LaneGroups()
        self._native = native
        self._settings = settings
        self.plans = plans
        self._barriers = Barriers(wave, self.warps)
        self._fuel = settings.fuel
        self._impatient_rounds = 0

    def run(self) -> None:
        """Run until every lane has ended."""
        self._ready.add(0, np.arange(self.wave.lane_count, dtype=np.int32))
        while self._ready or self.waiting:
            ran = self._run_ready()
            moved = self._execute_stops()
            self._check()
            self._impatient_rounds *= not moved
            if not (ran or moved) and not self._lose_patience():
                raise self._deadlock()

    def _lose_patience(self) -> bool:
        """Let those give up who wait only for some time; False when that has led nowhere."""
        self._impatient_rounds += 1
        self.wave.patient = False
        moved = self._impatient_rounds <= _MOST_IMPATIENT_ROUNDS and self._execute_stops()
        self.wave.patient = True
        return moved

    def _run_ready(self) -> bool:
        """Run every lane that can run until it stops; False when there was none."""
        groups = self._ready.take_all()
        context = self.wave.context
        context[Context.FUEL] = self._fuel
        only_preempted = bool(groups)
        for piece, lanes in groups:
            self._native.run(piece, context, lanes)
            only_preempted &= self._sort(lanes)
            context[Context.CLOCK] += _CLOCKS_PER_ROUND
        self._fuel = min(2 * self._fuel, _MOST_FUEL) if only_preempted else self._settings.fuel
        return bool(groups)

    def _sort(self, lanes: Array) -> bool:
        """Put lanes that have run where their stop codes say; True when all of them merely gave way."""
        codes = self.wave.stops[lanes]
        first = int(codes[0])
        if (codes == first).all():
            return self._put(first, lanes)
        gave_way = [self._put(int(code), lanes[codes == code]) for code in np.unique(codes)]
        return all(gave_way)

    def _put(self, code: int, lanes: Array) -> bool:
        if code >= 0:
            self.waiting.add(code, lanes)
        elif code in (EXITED, FAULTED):
            self.warps.end(lanes)
        else:
            self._ready.add(resume_of(code), lanes)
            self.steps += self._fuel * len(lanes)
            return True
        return False

    def _execute_stops(self) -> bool:
        """Execute the stops that are complete; whether any lane may go on."""
        moved, late = False, []
        for number in self.waiting.numbers():
            plan = self.plans[number]
            if plan.kind == "lane":
                moved |= self._execute_lanes(plan)
            elif plan.kind == "warp":
                moved |= self._execute_warps(plan)
            else:
                late.append(plan)
        barriers = {plan.stop.number: plan for plan in late if plan.kind == "barrier"}
        if barriers:
            moved |= self._execute_barriers(barriers)
        for plan in late:
            if plan.kind == "present":
                moved |= self._execute_present(plan)
        return moved

    def _release(self, plan: StopPlan, lanes: Array) -> None:
        self.steps += len(lanes)
        self._ready.add(plan.stop.resume, lanes)

    def _execute_lanes(self, plan: StopPlan) -> bool:
        assert plan.handler is not None
        lanes = self.waiting.take(plan.stop.number)
        done = plan.handler(Lanes(self.wave, plan.instruction, lanes.astype(np.int64)))
        if done is None or done.all():
            self._release(plan, lanes)
            return True
        self.waiting.add(plan.stop.number, lanes[~done])
        if done.any():
            self._release(plan, lanes[done])
        return bool(done.any())

    def _execute_warps(self, plan: StopPlan) -> bool:
        """Execute a stop for every warp whose lanes of the membermask have all arrived."""
        lanes = self.waiting.take(plan.stop.number)
        assert plan.mask is not None
        if isinstance(plan.mask, Immediate):
            return self._execute_masked(plan, lanes, plan.mask.value & _ALL_LANES)
        masks = self.wave.read(plan.mask, lanes, np.dtype(np.uint32))
        first = int(masks[0])
        if (masks == first).all():
            return self._execute_masked(plan, lanes, first)
        moved = [self._execute_masked(plan, lanes[masks == mask], int(mask)) for mask in np.unique(masks)]
        return any(moved)

    def _execute_masked(self, plan: StopPlan, lanes: Array, mask: int) -> bool:
        if len(lanes) == self.warps.slots and mask == _ALL_LANES:
            self._run_warps(plan, self.wave.members, np.ones(self.wave.members.shape, bool), lanes)
            return True
        present = self.warps.spread(lanes)
        rows = np.flatnonzero(present.any(axis=1))
        present = present[rows]
        needed = self.warps.live[rows] & _bits(mask)
        complete = ~(needed & ~present).any(axis=1)
        self._check_mask(plan, rows, present, mask)
        if not complete.all():
            self.waiting.add(plan.stop.number, self.wave.members[rows[~complete]][present[~complete]].astype(np.int32))
        if not complete.any():
            return False
        rows, present = rows[complete], present[complete]
        members = self.wave.members[rows]
        self._run_warps(plan, members, present, members[present].astype(np.int32))
        return True

    def _run_warps(self, plan: StopPlan, members: Array, active: Array, lanes: Array) -> None:
        assert plan.handler is not None
        plan.handler(Warps(self.wave, plan.instruction, members, active))
        self._release(plan, lanes)

    def _check_mask(self, plan: StopPlan, rows: Array, present: Array, mask: int) -> None:
        outside = present & ~_bits(mask)
        if outside.any():
            lanes = self.wave.members[rows][outside]
            message = f"`{plan.instruction.full_opcode}` by a thread that its own membermask {mask:#010x} leaves out"
            self.wave.report("invalid_operand", message, lanes, plan.instruction)

    def _execute_present(self, plan: StopPlan) -> bool:
        """Execute a stop for the lanes that are there, in warps of which no other lane can run."""
        lanes = self.waiting.take(plan.stop.number)
        busy = np.zeros(len(self.wave.members), bool)
        for ready in self._ready.arrays():
            busy[self.warps.warp_of_lane[ready]] = True
        held = busy[self.warps.warp_of_lane[lanes]]
        self.waiting.add(plan.stop.number, lanes[held])
        lanes = lanes[~held]
        if not len(lanes):
            return False
        present = self.warps.spread(lanes)
        rows = np.flatnonzero(present.any(axis=1))
        self._run_warps(plan, self.wave.members[rows], present[rows], lanes)
        return True

    def _execute_barriers(self, plans: dict[int, StopPlan]) -> bool:
        waiting = {number: self.waiting.take(number) for number in plans}
        released = self._barriers.execute({number: (plans[number].instruction, waiting[number]) for number in plans})
        moved = False
        for number, lanes in waiting.items():
            done = released[number]
            self.waiting.add(number, lanes[~done])
            if done.any():
                self._release(plans[number], lanes[done])
                moved = True
        return moved

    def _check(self) -> None:
        """Stop at a fatal finding and at the step limit."""
        self.wave.memory.drain()
        fatal = self.wave.findings.fatal
        if fatal:
            raise KernelFault(fatal[0].message, self.wave.findings.all)
        if self.steps > self._settings.step_limit:
            raise self._endless_loop()

    def _endless_loop(self) -> EndlessLoop:
        piece, lanes = max(self._ready.items(), key=lambda item: len(item[1]))
        lane, location = int(lanes[0]), waiting_line(self.wave.program, piece)
        thread, block = self.wave.thread(lane), self.wave.block(lane)
        blocks = len(np.unique(self.wave.block_of_lane[lanes]))
        text = f"{len(lanes)} threads of {blocks} blocks still run after {self._settings.step_limit} steps"
        self.wave.findings.add(Finding("endless_loop", text, location, thread, block, count=len(lanes)), -piece)
        return EndlessLoop(
            f"{where(location)}: {text}, thread {thread} of block {block} first",
            hint="A loop that waits for what never comes, or one too long to emulate: use smaller inputs.",
        )

    def _deadlock(self) -> KernelFault:
        waiting = [
            deadlock.Waiting(self.plans[number].instruction, self.plans[number].kind, lanes)
            for number, lanes in self.waiting.items()
        ]
        for finding, site in deadlock.explain(self.wave, self.warps, self._barriers, waiting):
            self.wave.findings.add(finding, site)
        findings = self.wave.findings.all
        return KernelFault(next(f.message for f in findings if f.kind == "deadlock"), findings)


def _bits(mask: int) -> Array:
    """A membermask as bool (32,)."""
    return np.array([mask >> lane & 1 for lane in range(WARP)], bool)
