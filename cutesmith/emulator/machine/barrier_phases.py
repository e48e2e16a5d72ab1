"""The phases of the barriers of blocks: which warps each has counted, and whether that can be what was meant.

A barrier counts 32 threads for every warp that arrives, whether the warp waits or not. With the last thread that was
asked for, the phase is over: the warps that wait go on, and the barrier counts from zero again (PTX ISA, "bar,
barrier"). No instruction says who takes part, so a wrong count shows only later: as a deadlock, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Instruction

BARRIERS = 16


@dataclass(frozen=True, slots=True)
class Arrival:
    """A warp, by its row in the wave, that arrives at a barrier; `count`: threads asked for, 0 for the whole block."""

    warp: int
    count: int
    waits: bool
    instruction: Instruction


@dataclass(slots=True)
class _Phase:
    """Of one barrier: the warps of the phase that is not over, for how many threads, and who ever took part."""

    count: int = 0
    waiting: list[int] = field(default_factory=list)
    passing_by: list[Arrival] = field(default_factory=list)
    took_part: set[int] = field(default_factory=set)

    @property
    def threads(self) -> int:
        """How many it has counted."""
        return WARP * (len(self.waiting) + len(self.passing_by))


class Phases:
    """The unfinished phases of a wave's barriers, by key: block * 16 + id.

    `waits`: bool (warps,), those that a phase has counted and that wait for its end.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._phases: dict[int, _Phase] = {}
        self.waits = np.zeros(len(machine.wave.members), bool)
        self.passed_by = 0  # arrivals of warps that did not wait, in phases that are not over

    def arrived_without_waiting(self, key: int) -> int:
        """Threads of warps that went on after they had arrived in the barrier's phase."""
        phase = self._phases.get(key)
        return WARP * len(phase.passing_by) if phase else 0

    def count(self, key: int, arrivals: list[Arrival], live_warps: int) -> list[int]:
        """Count arrivals, one after another; the warps that go on now. `live_warps`: how many the block has left."""
        phase, passing = self._phases.setdefault(key, _Phase()), list[int]()
        for arrival in arrivals:
            self._judge(key, phase, arrival)
            phase.count = max(phase.count, arrival.count)
            phase.took_part.add(arrival.warp)
            if arrival.waits:
                phase.waiting.append(arrival.warp)
                self.waits[arrival.warp] = True
            else:
                phase.passing_by.append(arrival)
                self.passed_by += 1
            if phase.threads >= (phase.count or WARP * live_warps):
                passing += self._end(key, phase, arrival)
        if not arrivals and not phase.count and phase.threads >= WARP * live_warps:  # others have exited
            passing += self._end(key, phase, None)
        return passing

    def all_pass(self) -> None:
        """All warps of the wave have met at barriers of their whole blocks."""
        if self.waits.any():
            self.waits[:] = False
            for phase in self._phases.values():
                phase.waiting.clear()

    def finish(self) -> None:
        """All lanes have ended. Arrivals may be left, as where warpgroups take turns; but not for lack of a count."""
        for key, phase in self._phases.items():
            if phase.passing_by and WARP * len(phase.took_part) > phase.count:
                arrived, warps = phase.threads, len(phase.took_part)
                self._report(
                    phase.passing_by[-1],
                    f"barrier {key % BARRIERS} ends with {arrived} of {phase.count} threads arrived: {warps} warps "
                    f"take part in it, which are {WARP * warps} threads",
                )

    def _judge(self, key: int, phase: _Phase, arrival: Arrival) -> None:
        number = key % BARRIERS
        if phase.threads and arrival.count != phase.count:
            counts = " and ".join(str(each) if each else "all" for each in (arrival.count, phase.count))
            self._report(arrival, f"warps ask for {counts} threads in one phase of barrier {number}")
        if not arrival.waits and any(earlier.warp == arrival.warp for earlier in phase.passing_by):
            again = "a warp arrives again before its last arrival has ended a phase"
            self._report(arrival, f"{again} of barrier {number}: let it wait between, or take two barriers in turn")

    def _end(self, key: int, phase: _Phase, last: Arrival | None) -> list[int]:
        """The phase is over: the warps that waited for it."""
        wave, live, waiting = self._machine.wave, self._machine.warps.live, phase.waiting
        if waiting:
            warps = [*waiting, *(arrival.warp for arrival in phase.passing_by)]
            self._machine.memory.synchronise_lanes(wave.members[warps][live[warps]])
        elif last is not None:
            self._report(
                last,
                f"{phase.threads} threads end a phase of barrier {key % BARRIERS} for which no warp waits: count every "
                "warp that arrives and every one that waits",
            )
        self.waits[waiting] = False
        self.passed_by -= len(phase.passing_by)
        phase.waiting, phase.passing_by, phase.count = [], [], 0
        return waiting

    def _report(self, arrival: Arrival, message: str) -> None:
        wave = self._machine.wave
        members: Array = wave.members[arrival.warp]
        text = f"`{arrival.instruction.full_opcode}`: {message}"
        wave.report(FaultKind.MISMATCHED_BARRIER, text, members[members >= 0], arrival.instruction)
