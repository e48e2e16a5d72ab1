"""Which lanes run next: all that can, then the complete suspension points; a deadlock when no lane can move.

The loop is that of docs/emulator.md. Lanes that can run are kept by the basic block where they start, lanes that wait
by their suspension point, so that a round costs a few array operations however many lanes take part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Protocol

import numpy as np

from cutesmith.emulator.errors import EndlessLoop
from cutesmith.emulator.faults import FaultKind, KernelFault
from cutesmith.emulator.instructions.table import execution_of
from cutesmith.emulator.machine.deadlock import explain, explain_spinning
from cutesmith.emulator.machine.groups import LaneGroups
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.rings import Mbarriers
from cutesmith.emulator.machine.schedules import Schedule
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.machine.suspensions import Suspension, Waiting
from cutesmith.emulator.program.abi import EXITED, FAULTED, Array, Context, resume_of
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.spinning import waiting_line
from cutesmith.emulator.ptx.syntax import Location
from cutesmith.emulator.state.findings import where
from cutesmith.emulator.state.wave import Wave
from cutesmith.verdicts import MbarrierRing

_CLOCKS_PER_ROUND = 1024
_MOST_FUEL = 1 << 20
_POLLING_FUEL = 1 << 16  # lanes that use so much of it in one loop wait there for an engine, as a rule
_MOST_IMPATIENT_ROUNDS = 64


class NativeCode(Protocol):
    """The machine code of a program (native/jit.py)."""

    def run(self, basic_block: int, context: Array, lanes: Array) -> None:
        """Run int32 `lanes` from a basic block until each is suspended; the wave's `status` says where."""


def suspensions_of(program: Program) -> tuple[Suspension, ...]:
    """How each suspension point of the program is executed; raises UnsupportedInstruction."""
    kinds = [execution_of(point.instruction) for point in program.suspension_points]
    assert all(isinstance(kind, Suspension) for kind in kinds), "native code executes no suspension point"
    return tuple(kind for kind in kinds if isinstance(kind, Suspension))


class Scheduler:
    """Runs the lanes of one wave from the first basic block until all have ended.

    Raises KernelFault (a fatal finding, a deadlock) and EndlessLoop. `steps` are those of Settings.step_limit, and may
    start above 0: they count over all waves of a launch.
    """

    def __init__(
        self,
        wave: Wave,
        memory: Memory,
        native: NativeCode,
        settings: Settings,
        suspensions: tuple[Suspension, ...],
        steps: int = 0,
    ) -> None:
        self.steps = steps
        self._wave = wave
        self._machine = Machine(wave, memory, settings.order, settings.fill)
        self._ready = self._machine.ready
        self._waiting = LaneGroups()
        self._asleep: dict[int, int] = {}  # points whose lanes asked in vain, and the version that they saw
        self._native = native
        self._settings = settings
        self._suspensions = suspensions
        self._fuel = settings.fuel
        self._impatient_rounds = 0
        self._schedule = Schedule(settings.order, wave)
        self._spinning = False
        self._faulted = False

    def run(self) -> None:
        """Run until every lane has ended."""
        self._ready.add(0, np.arange(self._wave.lane_count, dtype=np.int32))
        while self._ready or self._waiting:
            ran = self._run_ready()
            if self._faulted:  # before a barrier misses the threads that it ended
                self._end_if_fatal()
            moved = self._execute_suspension_points()
            moved |= self._machine.step_units()
            self._end_if_fatal()
            if self.steps > self._settings.step_limit:
                raise self._endless_loop()
            self._impatient_rounds *= not moved
            if moved:
                self._fuel = self._settings.fuel
            if not (ran or moved) and not self._lose_patience():
                raise self._deadlock()
        self._machine.finish_units()
        self._machine.memory.drain()
        self._machine.memory.blocks_ended()

    def _end_if_fatal(self) -> None:
        self._machine.memory.drain()
        fatal = self._wave.findings.fatal
        if fatal:
            raise KernelFault(fatal[0], self._wave.findings.all)

    @property
    def rings(self) -> tuple[MbarrierRing, ...]:
        """The rings of mbarriers that the wave has used so far."""
        return tuple(self._machine.unit(Mbarriers).rings())

    def _lose_patience(self) -> bool:
        """Let instructions that wait for a limited time give up; False when that has led nowhere."""
        self._impatient_rounds += 1
        self._machine.patient = False
        self._asleep.clear()
        moved = self._impatient_rounds <= _MOST_IMPATIENT_ROUNDS and self._execute_suspension_points()
        self._machine.patient = True
        return moved

    def _run_ready(self) -> bool:
        """Run every lane that can run until it is suspended; False when there was none."""
        groups, held = self._schedule.choose(self._ready.take_all(), fair=self._spinning)
        context = self._wave.context
        context[Context.FUEL] = self._fuel
        only_preempted = bool(groups)
        for basic_block, lanes in groups:
            self._native.run(basic_block, context, lanes)
            only_preempted &= self._sort(lanes)
            context[Context.CLOCK] += _CLOCKS_PER_ROUND
        for basic_block, lanes in held:
            self._ready.add(basic_block, lanes)
        self._spinning = only_preempted
        self._machine.polling = only_preempted and (self._machine.polling or self._fuel >= _POLLING_FUEL)
        self._fuel = min(2 * self._fuel, _MOST_FUEL) if only_preempted else self._settings.fuel
        return bool(groups)

    def _sort(self, lanes: Array) -> bool:
        """Sort lanes that have run by their status codes; True when all of them only ran out of fuel."""
        codes, gave_way = self._wave.status[lanes], True
        while len(lanes):
            first = int(codes[0])
            others = codes != first
            if not others.any():
                return self._put(first, lanes) and gave_way
            gave_way &= self._put(first, lanes[~others])
            codes, lanes = codes[others], lanes[others]
        return gave_way

    def _put(self, code: int, lanes: Array) -> bool:
        if code >= 0:
            self._waiting.add(code, lanes)
            self._asleep.pop(code, None)
        elif code in (EXITED, FAULTED):
            self._faulted |= code == FAULTED
            self._machine.warps.end(lanes)
        else:
            self._ready.add(resume_of(code), lanes)
            self.steps += self._fuel * len(lanes)
            return True
        return False

    def _execute_suspension_points(self) -> bool:
        """Execute the suspension points that are complete; whether any lane may go on."""
        moved = False
        points = self._wave.program.suspension_points
        for group in self._groups():
            version = self._suspensions[group[0]].version(self._machine)
            if version is not None and all(self._asleep.get(number) == version for number in group):
                continue
            waiting = [Waiting(points[number], self._waiting.take(number)) for number in group]
            results = self._suspensions[group[0]].execute(self._machine, waiting)
            for entry, done in zip(waiting, results, strict=True):
                lanes = entry.lanes
                if done is not None and not done.all():
                    self._waiting.add(entry.point.number, lanes[~done])
                    lanes = lanes[done]
                    if version is not None:
                        self._asleep[entry.point.number] = version
                self.steps += len(lanes)
                self._ready.add(entry.point.resume, lanes)
                moved |= bool(len(lanes))
        return moved

    def _groups(self) -> Iterator[list[int]]:
        """Numbers of the points where lanes wait, those that are executed together in one group, in order."""
        order: dict[int, tuple[int, str, int]] = {}
        for number in self._waiting.numbers():
            kind = type(self._suspensions[number])
            order[number] = (kind.turn, kind.__name__, 0) if kind.together else (kind.turn, "", number)
        ordered = sorted(order, key=lambda number: (order[number], number))
        return (list(group) for _, group in groupby(ordered, key=order.__getitem__))

    def _endless_loop(self) -> EndlessLoop:
        running: dict[Location | None, list[Array]] = {}
        for basic_block, lanes in self._ready.items():
            running.setdefault(waiting_line(self._wave.program, basic_block), []).append(lanes)
        groups = [(location, np.sort(np.concatenate(lanes))) for location, lanes in running.items()]
        found = list(explain_spinning(self._machine, groups, self._stuck()))
        for number, finding in enumerate(found):
            self._wave.findings.add(finding, -1 - number)
        first = found[0]
        return EndlessLoop(
            f"{where(first.location)}: {first.message}, after {self._settings.step_limit} steps; "
            f"thread {first.thread} of block {first.block} first",
            hint="A loop that waits for what never comes, or one too long to emulate: use smaller inputs.",
        )

    def _stuck(self) -> list[tuple[Suspension, Waiting]]:
        points = self._wave.program.suspension_points
        return [(self._suspensions[n], Waiting(points[n], lanes)) for n, lanes in self._waiting.items()]

    def _deadlock(self) -> KernelFault:
        findings = self._wave.findings
        for finding, site in explain(self._machine, self._stuck()):
            findings.add(finding, site)
        return KernelFault(next(f for f in findings.all if f.kind == FaultKind.DEADLOCK), findings.all)
