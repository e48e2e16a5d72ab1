"""A wave with what executes it: its memory, the places of its lanes in warps, and the units that work beside them."""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np

from cutesmith.emulator.machine.groups import LaneGroups, WarpMap
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.state.wave import Wave


class Unit:
    """State of a wave beside its lanes: barriers, or an engine that copies or multiplies while lanes run."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def step(self) -> bool:
        """Work for a round on what was asked for; False where nothing could be done. Most units only keep state."""
        return False

    def finish(self) -> None:
        """All lanes have ended: do what is left to do."""


_UnitKind = TypeVar("_UnitKind", bound=Unit)


class Machine:
    """What suspensions and their handlers work with.

    `ready`: the lanes that can run, by basic block. `patient`: whether an instruction that waits for some time
    (`mbarrier.try_wait`) goes on waiting; False when no lane can move. `order`: in which order asynchronous work
    completes (engines/completion_orders.py). `fill`: the byte that on-chip memory holds before it is written.
    `polling`: every lane that can run has been in one loop for long, and may wait there for an engine.
    """

    def __init__(self, wave: Wave, memory: Memory, order: int = 0, fill: int = 0) -> None:
        self.wave, self.memory, self.order, self.fill = wave, memory, order, fill
        self.warps = WarpMap(wave)
        self.ready = LaneGroups()
        self.patient = True
        self.polling = False
        self._units: dict[type[Unit], Unit] = {}

    @property
    def stalled(self) -> bool:
        """Whether no lane can go on but by what the engines do."""
        return self.polling or not self.ready

    def unit(self, kind: type[_UnitKind]) -> _UnitKind:
        """The wave's unit of that kind, made when it is first asked for."""
        if kind not in self._units:
            self._units[kind] = kind(self)
        return cast("_UnitKind", self._units[kind])

    def converged(self, lanes: Array) -> Array:
        """bool (n,): these lanes, which wait, where no other lane of their warp can run."""
        busy = np.zeros(len(self.wave.members), bool)
        for ready in self.ready.arrays():
            busy[self.warps.warp_of_lane[ready]] = True
        free: Array = ~busy[self.warps.warp_of_lane[lanes]]
        return free

    def finish_units(self) -> None:
        """All lanes have ended."""
        for unit in self._units.values():
            unit.finish()

    def step_units(self) -> bool:
        """Let every unit work for a round; whether any of them did something."""
        moved = [unit.step() for unit in self._units.values()]
        return any(moved)
