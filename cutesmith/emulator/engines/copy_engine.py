"""The copy engine (TMA): copies that threads have asked for, done some rounds later, in an order that the rules allow.

A copy goes through two steps, of which either may come late: its source is read, then its bytes land. Until then the
shared memory that it fills holds a pattern, so that a missing wait gives wrong numbers as well as a finding.
Completion is told to an mbarrier, byte by byte counted, or to the bulk group of the thread that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.engines.completion_orders import CompletionOrder
from cutesmith.emulator.engines.mbarrier_state import Mbarrier, MbarrierError
from cutesmith.emulator.engines.places import GlobalRows, Place, SharedTile
from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer.actors import Request

_POISON = 0xFF
Combine = Callable[[Array, Array], Array]  # what is held, what is given: what is held then


@dataclass(slots=True)
class Landing:
    """One destination, the host address of the mbarrier that counts its bytes (0: none), and how it is named."""

    place: Place
    request: Request
    mbarrier: int = 0


@dataclass(slots=True)
class Copy:
    """What one instruction asked for in the name of `lane`; `sharers` are lanes of its warp that asked for the same.

    `reading`: how the race check names the reads of its source.
    """

    lane: int
    instruction: Instruction
    source: Place
    reading: Request
    landings: list[Landing]
    combine: Combine | None = None
    sharers: tuple[int, ...] = ()
    tile: Array | None = field(init=False, default=None)
    has_read: bool = field(init=False, default=False)
    landed: bool = field(init=False, default=False)

    def take(self, tile: Array) -> None:
        """The source has been read, and may be overwritten."""
        self.tile, self.has_read = tile, True

    def land(self) -> None:
        """The bytes are there, and kept no longer: groups keep the copy itself until a wait."""
        self.tile, self.landed = None, True


@dataclass
class _Groups:
    """The bulk groups of a lane, the oldest first, and the copies of the open one; `lanes` have the same until now.

    `number`: which of the engine's they are.

    Groups that have landed and were waited for leave the list; `landed` keeps their last request of each channel until
    a wait for it.
    """

    lanes: set[int]
    number: int
    committed: list[list[Copy]] = field(default_factory=list)
    open: list[Copy] = field(default_factory=list)
    landed: dict[int, Request] = field(default_factory=dict)

    def without(self, lanes: Iterable[int], number: int) -> _Groups:
        """The groups of these lanes, which go their own way from now on."""
        self.lanes.difference_update(lanes)
        return _Groups({*lanes}, number, [*self.committed], [*self.open], {**self.landed})

    def waited(self, allowed: int) -> list[Copy]:
        """The copies of all committed groups but the last `allowed`."""
        return [copy for group in self.committed[: max(0, len(self.committed) - allowed)] for copy in group]

    def drop_landed(self, allowed: int) -> None:
        """Forget the oldest groups that have landed, but not the last `allowed`, which were not waited for."""
        while len(self.committed) > allowed and all(copy.landed for copy in self.committed[0]):
            for copy in self.committed.pop(0):
                self.landed.update({landing.request.channel: landing.request for landing in copy.landings})


class CopyEngine(Unit):
    """All copies under way in a wave, and the bulk groups of its lanes."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._wave, self._memory = machine.wave, machine.memory
        self._order = CompletionOrder(machine.order)
        self._under_way: list[Copy] = []
        self._groups: list[_Groups] = []
        self._number = np.full(self._wave.lane_count, -1, np.int64)  # by lane: which of them, -1 for none
        self._ended = 0
        self.progress = 0  # how many times something was read or has landed

    # ------------------------------------------------------------------------------------------ asked by handlers

    def begin(self, copy: Copy, *, grouped: bool) -> None:
        """Take a copy on; `grouped` ones belong to the open bulk group of the lane."""
        for landing in copy.landings:
            if isinstance(landing.place, SharedTile) and copy.combine is None:
                landing.place.fill(self._memory, _POISON)
        self._under_way.append(copy)
        if grouped:
            number = int(self._number[copy.lane])
            if number >= 0 and self._groups[number].lanes == {copy.lane, *copy.sharers}:
                self._groups[number].open.append(copy)
                return
            lanes = np.array([copy.lane, *copy.sharers])
            if (self._number[lanes] < 0).all():  # the first copy of lanes of one warp
                self._given(_Groups({copy.lane, *copy.sharers}, len(self._groups)), lanes).open.append(copy)
                return
            for groups in self._groups_of(lanes):
                groups.open.append(copy)

    def commit(self, lanes: Array) -> None:
        """What these lanes asked for since their last commits are groups; those before the first copy never count."""
        for groups in self._groups_of(lanes[self._number[lanes] >= 0]):
            groups.committed.append(groups.open)
            groups.open = []

    def _groups_of(self, lanes: Array) -> list[_Groups]:
        """The groups of these lanes and no others; new lanes begin together, by warp."""
        if not len(lanes):
            return []
        numbers = self._number[lanes]
        if numbers.min() >= 0:
            counts = np.bincount(numbers)
            found = [(self._groups[number], int(counts[number])) for number in np.flatnonzero(counts).tolist()]
            if all(len(groups.lanes) == count for groups, count in found):
                return [groups for groups, _ in found]
        owners = np.where(numbers < 0, -1 - self.machine.warps.warp_of_lane[lanes], numbers)
        order = np.argsort(owners, kind="stable")
        starts = np.flatnonzero(np.diff(owners[order], prepend=-1 - len(self._wave.members)))
        result = []
        for mine in np.split(lanes[order], starts[1:]):
            number = int(self._number[mine[0]])
            if number < 0:
                result.append(self._given(_Groups(set(mine.tolist()), len(self._groups)), mine))
            elif len(mine) < len(self._groups[number].lanes):
                result.append(self._given(self._groups[number].without(mine.tolist(), len(self._groups)), mine))
            else:
                result.append(self._groups[number])
        return result

    def _given(self, groups: _Groups, lanes: Array) -> _Groups:
        """The groups, which these lanes have from now on."""
        self._number[lanes] = groups.number
        self._groups.append(groups)
        return groups

    def wait(self, lanes: Array, allowed: int, *, reads: bool) -> Array:
        """bool (n,): whether all committed groups of lanes but the last `allowed` are complete, or their reads."""
        asking = self._groups_of(lanes[self._number[lanes] >= 0])
        waiting = np.zeros(len(self._groups) + 1, bool)  # the last: lanes that have none
        for groups in asking:
            waited = groups.waited(allowed)
            if not all(copy.has_read if reads else copy.landed for copy in waited):
                waiting[groups.number] = True
                continue
            requests = {copy.reading.channel: copy.reading for copy in waited}
            if not reads:
                requests |= groups.landed
                requests |= {landing.request.channel: landing.request for copy in waited for landing in copy.landings}
                groups.landed.clear()
            knowing = np.array(sorted(groups.lanes))
            for request in requests.values():
                self._memory.awaited(knowing, request)
            groups.drop_landed(allowed)
        done: Array = ~waiting[self._number[lanes]]
        return done

    def missing(self, lane: int, *, reads: bool) -> int:
        """How many copies of the lane's committed groups are under way."""
        number = int(self._number[lane])
        copies = [copy for group in self._groups[number].committed for copy in group] if number >= 0 else []
        return sum(not (copy.has_read if reads else copy.landed) for copy in copies)

    # ------------------------------------------------------------------------------------------------------- work

    def step(self) -> bool:
        """Let some copies read or land."""
        if not self._under_way:
            return False
        self._abandon()
        blocks = self._wave.block_of_lane[[copy.lane for copy in self._under_way]].tolist()
        chosen = self._order.advancing(blocks, stalled=self.machine.stalled)
        for index in chosen:
            self._advance(self._under_way[index])
        self._under_way = [copy for copy in self._under_way if not copy.landed]
        return bool(chosen)

    def finish(self) -> None:
        """All lanes have ended."""
        while self._under_way:
            self._abandon()
            for copy in self._under_way:
                self._advance(copy)
            self._under_way = [copy for copy in self._under_way if not copy.landed]

    def _advance(self, copy: Copy) -> None:
        self.progress += 1
        if copy.tile is None:
            if copy.combine is None and len(copy.landings) == 1 and isinstance(copy.source, GlobalRows):
                (landing,) = copy.landings
                if isinstance(landing.place, SharedTile) and copy.source.move(self._memory, landing.place):
                    copy.has_read = True
                    self._arrive(copy, landing, landing.place)
                    copy.land()
                    return
            copy.take(copy.source.read(self._memory))
            if len(copy.landings) and not isinstance(copy.landings[0].place, SharedTile):
                return
        for landing in copy.landings:
            tile = copy.tile
            assert tile is not None
            if copy.combine is not None:
                tile = copy.combine(landing.place.read(self._memory), tile)
            landing.place.write(self._memory, tile)
            if isinstance(landing.place, SharedTile):
                self._arrive(copy, landing, landing.place)
        copy.land()

    def _arrive(self, copy: Copy, landing: Landing, place: SharedTile) -> None:
        """The bytes are there: say so to the race check and to the mbarrier."""
        if copy.combine is None:
            self._memory.landed(landing.request, place.pointer, place.span or place.size)
        if not landing.mbarrier:
            return
        self._memory.completes(landing.request, landing.mbarrier)
        barrier = Mbarrier.read(landing.mbarrier)
        try:
            if barrier is None:
                raise MbarrierError("its mbarrier is gone")
            barrier.expect_bytes(-place.size)
        except MbarrierError as error:
            message = f"`{copy.instruction.full_opcode}` brings {place.size} bytes: {error}"
            self._report(FaultKind.INVALID_OPERAND, message, copy)
            return
        barrier.write(landing.mbarrier)
        if barrier.phases:
            self._memory.phase_over(copy.lane, landing.mbarrier)

    # ------------------------------------------------------------------------------------------- blocks that ended

    def _abandon(self) -> None:
        """Blocks that have ended take their shared memory with them: report what still reads or fills it."""
        warps = self.machine.warps
        if warps.ended == self._ended:
            return
        self._ended = warps.ended
        alive = np.zeros(len(self._wave.blocks), bool)
        alive[warps.block_of_warp[warps.live.any(axis=1)]] = True
        for copy in self._under_way:
            if isinstance(copy.source, SharedTile) and not copy.has_read and not alive[self._block(copy.source)]:
                what = "that a copy reads ended with its block: wait for the bulk group before"
                self._report(FaultKind.MISSING_WAIT, f"`{copy.instruction.full_opcode}`: shared memory {what}", copy)
                copy.take(np.full(copy.source.size, _POISON, np.uint8))
            for landing in copy.landings:
                if isinstance(landing.place, SharedTile) and not alive[self._block(landing.place)]:
                    what = "that a copy fills ended with its block: wait for the mbarrier before"
                    self._report(
                        FaultKind.MISSING_WAIT, f"`{copy.instruction.full_opcode}`: shared memory {what}", copy
                    )
                    landing.mbarrier = 0

    def _block(self, tile: SharedTile) -> int:
        return (tile.pointer - int(self._wave.shared.ctypes.data)) // int(self._wave.shared.shape[1])

    def _report(self, kind: FaultKind, message: str, copy: Copy) -> None:
        self._wave.report(kind, message, np.array([copy.lane]), copy.instruction)
