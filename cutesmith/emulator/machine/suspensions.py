"""Kinds of suspension: what the lanes that wait at an instruction need before it is executed.

A kind is a class; the instruction table holds one instance for each form of an instruction. State that lasts longer
than one execution belongs to a `Unit` of the machine, one a wave. Barriers are kinds of their own in `barriers.py` and
`cluster_barriers.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.instructions import table
from cutesmith.emulator.machine.lanes import LaneBatch, Warps
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.program.basic_blocks import SuspensionPoint
from cutesmith.emulator.ptx.syntax import Immediate, Instruction

_ALL_LANES = 0xFFFF_FFFF

LaneHandler: TypeAlias = Callable[[LaneBatch], "Array | None"]  # bool (n,): the lanes that are done; None: all are
WarpHandler: TypeAlias = Callable[[Warps], None]
Reason: TypeAlias = Callable[[Machine, Instruction, int], str]  # what a lane waits for, in a deadlock
Refusal: TypeAlias = Callable[[Instruction], "str | None"]  # why a form is not executed


@dataclass(frozen=True)
class Waiting:
    """The lanes (int32, ascending) that wait at one suspension point."""

    point: SuspensionPoint
    lanes: Array

    @property
    def instruction(self) -> Instruction:
        """The instruction of the suspension point."""
        return self.point.instruction


class Suspension(table.Suspension, ABC):
    """A kind of suspension.

    In each round of the scheduler kinds of a lower `turn` come first, then points by their number. With `together`, all
    points of the kind where lanes wait are executed as one group, else each by itself. `whole_warps`: a part of a warp
    must never get there without the rest.
    """

    turn: ClassVar[int] = 0
    together: ClassVar[bool] = False
    whole_warps: ClassVar[bool] = False

    def refused(self, instruction: Instruction) -> str | None:
        """Why this form is not executed; None where it is."""
        return None

    @abstractmethod
    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        """Execute the instructions for the lanes that can go on: for each point bool (n,), or None for all lanes."""

    def version(self, machine: Machine) -> int | None:
        """A number that changes with whatever lanes may wait for besides other lanes at the point.

        While it stands and no lane joins them, those that could not go on are not asked again. None: always ask.
        """
        return None

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        """What these lanes of one block wait for, when no lane can go on: "for the rest of their warp"."""
        return "for what never happens"


@dataclass(frozen=True)
class LaneSuspension(Suspension):
    """Executed for any lanes that have arrived; those that the handler does not call done are asked again later."""

    handler: LaneHandler
    waits_for: Reason | None = None
    refuses: Refusal | None = None
    changes: Callable[[Machine], int] | None = None

    def refused(self, instruction: Instruction) -> str | None:
        return self.refuses(instruction) if self.refuses else None

    def version(self, machine: Machine) -> int | None:
        return None if self.changes is None else self.changes(machine)

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        return [
            self.handler(LaneBatch(machine, waiting.instruction, waiting.lanes.astype(np.int64))) for waiting in group
        ]

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        if self.waits_for is None:
            return super().reason(scene, instruction, lanes)
        return self.waits_for(scene.machine, instruction, int(lanes[0]))


UNIFORM = "; `cute.arch.warp_idx()` and `make_warp_uniform` are such a shuffle: call them before the branch"


@dataclass(frozen=True)
class WarpSuspension(Suspension):
    """Executed for a warp once all its live lanes are there; `masked`: those of the last operand, a membermask."""

    handler: WarpHandler
    masked: bool = False
    refuses: Refusal | None = None

    def refused(self, instruction: Instruction) -> str | None:
        return self.refuses(instruction) if self.refuses else None

    def version(self, machine: Machine) -> int | None:
        return machine.warps.ended

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        return [self._execute(machine, waiting.instruction, waiting.lanes) for waiting in group]

    def _execute(self, machine: Machine, instruction: Instruction, lanes: Array) -> Array | None:
        mask = instruction.operands[-1] if self.masked else Immediate(_ALL_LANES)
        if isinstance(mask, Immediate):
            return self._execute_masked(machine, instruction, lanes, mask.value & _ALL_LANES)
        masks = machine.wave.read(mask, lanes)
        if (masks == masks[0]).all():
            return self._execute_masked(machine, instruction, lanes, int(masks[0]))
        done = np.zeros(len(lanes), bool)
        for value in np.unique(masks):
            mine = masks == value
            passed = self._execute_masked(machine, instruction, lanes[mine], int(value))
            done[mine] = True if passed is None else passed
        return done

    def _execute_masked(self, machine: Machine, instruction: Instruction, lanes: Array, mask: int) -> Array | None:
        """Execute the instruction for the warps of which all lanes of the mask have arrived."""
        warps, members = machine.warps, machine.wave.members
        if len(lanes) == warps.slots and mask == _ALL_LANES:
            self.handler(Warps(machine, instruction, members, np.ones(members.shape, bool)))
            return None
        in_mask = np.array([mask >> lane & 1 for lane in range(WARP)], bool)
        present = warps.spread(lanes)
        rows = np.flatnonzero(present.any(axis=1))
        present = present[rows]
        outside = present & ~in_mask
        if outside.any():
            message = f"`{instruction.full_opcode}` by a thread that its own membermask {mask:#010x} leaves out"
            machine.wave.report(FaultKind.INVALID_OPERAND, message, members[rows][outside], instruction)
        complete = ~(warps.live[rows] & in_mask & ~present).any(axis=1)
        if complete.any():
            self.handler(Warps(machine, instruction, members[rows[complete]], present[complete]))
        done_warps = np.zeros(len(members), bool)
        done_warps[rows[complete]] = True
        done: Array = done_warps[warps.warp_of_lane[lanes]]
        return done

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        hint = UNIFORM if instruction.full_opcode.startswith("shfl.sync.idx") else ""
        return f"for the rest of their warp: {scene.places(scene.rest_of_warps(lanes))}{hint}"


@dataclass(frozen=True)
class PresentSuspension(Suspension):
    """Executed for the lanes that are there, in warps of which no other lane can run (`activemask`)."""

    turn: ClassVar[int] = 3
    handler: WarpHandler

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        (waiting,) = group
        warps, members = machine.warps, machine.wave.members
        free = machine.converged(waiting.lanes)
        if free.any():
            present = warps.spread(waiting.lanes[free])
            rows = np.flatnonzero(present.any(axis=1))
            self.handler(Warps(machine, waiting.instruction, members[rows], present[rows]))
        return [free]


_Handler = TypeVar("_Handler", LaneHandler, WarpHandler)


def _registered(
    kind: Callable[[_Handler], table.Suspension], patterns: tuple[str, ...]
) -> Callable[[_Handler], _Handler]:
    def enter(handler: _Handler) -> _Handler:
        table.register(kind(handler), *patterns)
        return handler

    return enter


def lane_operation(
    *patterns: str,
    waits_for: Reason | None = None,
    refuses: Refusal | None = None,
    changes: Callable[[Machine], int] | None = None,
) -> Callable[[LaneHandler], LaneHandler]:
    """Register a handler that executes these opcodes for any lanes that have arrived, in any combination.

    `changes`: the version of what lanes wait for (Suspension.version), where the handler leaves some waiting.
    """
    return _registered(partial(LaneSuspension, waits_for=waits_for, refuses=refuses, changes=changes), patterns)


def warp_operation(
    *patterns: str, masked: bool = False, refuses: Refusal | None = None
) -> Callable[[WarpHandler], WarpHandler]:
    """Register a handler that needs the lanes of a warp together: all live ones, or all of the membermask."""
    return _registered(partial(WarpSuspension, masked=masked, refuses=refuses), patterns)


def present_operation(*patterns: str) -> Callable[[WarpHandler], WarpHandler]:
    """Register a handler that takes the lanes of a warp that are there."""
    return _registered(PresentSuspension, patterns)
