"""Warpgroups: four consecutive warps of a block, the first a multiple of four, that execute `wgmma` together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.instructions import table
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.machine.suspensions import Suspension, Waiting
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.program.basic_blocks import SuspensionPoint
from cutesmith.emulator.ptx.syntax import Instruction, Operand

WARPS = 4
THREADS = WARPS * WARP


class Warpgroups(Unit):
    """Where the lanes of a wave sit in warpgroups.

    `members`: int64 (warpgroups, 128), -1 where the block has no such thread. `of_lane`: int64 (lanes,).
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        wave = machine.wave
        block_warps = -(-wave.threads_per_block // WARP)
        block_groups = -(-block_warps // WARPS)
        warps = np.arange(len(wave.members))
        self._slot_of_warp = warps // block_warps * block_groups * WARPS + warps % block_warps
        members = np.full((len(wave.blocks) * block_groups * WARPS, WARP), -1, np.int64)
        members[self._slot_of_warp] = wave.members
        self.members = members.reshape(-1, THREADS)
        self.of_lane = np.empty(wave.lane_count, np.int64)
        rows, columns = np.nonzero(self.members >= 0)
        self.of_lane[self.members[rows, columns]] = rows
        self.whole = (self.members >= 0).all(axis=1)

    @property
    def live(self) -> Array:
        """bool (warpgroups, 128): the threads that have not ended."""
        live = np.zeros((self.members.size // WARP, WARP), bool)
        live[self._slot_of_warp] = self.machine.warps.live
        return live.reshape(-1, THREADS)

    def exactly(self, lanes: Array) -> Array | None:
        """The warpgroups whose threads these lanes (ascending) are, all of each; None where a part is missing."""
        if len(lanes) % THREADS:
            return None
        rows = lanes.reshape(-1, THREADS)
        found: Array = self.of_lane[rows[:, 0]]
        return found if np.array_equal(self.members[found], rows) else None

    def present(self, lanes: Array) -> Array:
        """bool (warpgroups, 128): where these lanes are."""
        here = np.zeros(self.machine.wave.lane_count + 1, bool)
        here[lanes] = True
        there: Array = here[self.members]
        return there


@dataclass
class WarpgroupBatch:
    """Whole warpgroups at one suspension point: int64 `groups` (w,), their numbers, and `lanes` (w, 128)."""

    machine: Machine
    point: SuspensionPoint
    groups: Array
    lanes: Array

    @property
    def instruction(self) -> Instruction:
        """The instruction of the suspension point."""
        return self.point.instruction

    def uniform(self, operand: Operand, dtype: type[np.generic]) -> Array:
        """The operand's value in each warpgroup, (w,); a finding where its threads do not have the same."""
        wave = self.machine.wave
        values = wave.read(operand, self.lanes.ravel(), dtype).reshape(self.lanes.shape)
        apart = (values != values[:, :1]).any(axis=1)
        if apart.any():
            message = (
                f"`{self.instruction.full_opcode}` with an operand that differs between the threads of a warpgroup"
            )
            wave.report(FaultKind.INVALID_OPERAND, message, self.lanes[apart][0], self.instruction)
        first: Array = values[:, 0]
        return first

    def select(self, chosen: Array) -> WarpgroupBatch:
        """Some of the warpgroups."""
        return WarpgroupBatch(self.machine, self.point, self.groups[chosen], self.lanes[chosen])


WarpgroupHandler: TypeAlias = Callable[[WarpgroupBatch], None]


@dataclass(frozen=True)
class WarpgroupSuspension(Suspension):
    """Executed for a warpgroup once all its threads are there; one that has lost threads is reported and goes on."""

    whole_warps: ClassVar[bool] = True
    handler: WarpgroupHandler

    def version(self, machine: Machine) -> int | None:
        return machine.warps.ended

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        return [self._execute(machine, waiting) for waiting in group]

    def _execute(self, machine: Machine, waiting: Waiting) -> Array | None:
        groups = machine.unit(Warpgroups)
        if (chosen := groups.exactly(waiting.lanes)) is not None:
            self.handler(WarpgroupBatch(machine, waiting.point, chosen, groups.members[chosen]))
            return None
        present, live = groups.present(waiting.lanes), groups.live
        complete = present.any(axis=1) & (present == live).all(axis=1)
        whole = complete & present.all(axis=1)
        broken = np.flatnonzero(complete & ~whole)
        if len(broken):
            instruction, lanes = waiting.instruction, groups.members[broken][present[broken]]
            message = f"`{instruction.full_opcode}` must be executed by all {THREADS} threads of a warpgroup together"
            machine.wave.report(FaultKind.INVALID_OPERAND, message, lanes, instruction)
        chosen = np.flatnonzero(whole)
        if len(chosen):
            self.handler(WarpgroupBatch(machine, waiting.point, chosen, groups.members[chosen]))
        if complete.all():
            return None
        done: Array = complete[groups.of_lane[waiting.lanes]]
        return done

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        groups = scene.machine.unit(Warpgroups)
        members = groups.members[np.unique(groups.of_lane[lanes])]
        rest = np.setdiff1d(members[members >= 0], lanes)
        return f"for the rest of their warpgroup: {scene.places(rest)}"


def warpgroup_operation(*patterns: str) -> Callable[[WarpgroupHandler], WarpgroupHandler]:
    """Register a handler that needs all threads of a warpgroup together."""

    def enter(handler: WarpgroupHandler) -> WarpgroupHandler:
        table.register(WarpgroupSuspension(handler), *patterns)
        return handler

    return enter
