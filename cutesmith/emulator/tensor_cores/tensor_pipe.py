"""The tensor core of each thread that asks it for products and copies: done in order, later than they could be.

`tcgen05.commit` is a mark in the queue: when all before it is done, mbarriers are told. Queues of different threads
advance in any order (engines/completion_orders.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.engines.completion_orders import CompletionOrder
from cutesmith.emulator.engines.mbarrier_state import NOT_ONE, Mbarrier, MbarrierError
from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer.actors import Channel, Engine, Request


@dataclass
class Work(ABC):
    """What one instruction asked for in the name of `lane`; `blocks` of the wave take part."""

    lane: int
    instruction: Instruction
    blocks: tuple[int, ...]

    @abstractmethod
    def carry_out(self, machine: Machine) -> None:
        """Do it, with what memory holds now."""


@dataclass
class Commit(Work):
    """Tell mbarriers (host addresses) that all before is done; `request`, the last of it, came after `known`."""

    mbarriers: tuple[int, ...]
    request: Request | None
    known: Array | None

    def carry_out(self, machine: Machine) -> None:
        """Arrive once at each."""
        for pointer in self.mbarriers:
            if self.request is not None:
                machine.memory.finished(self.request, pointer, self.known)
            barrier = Mbarrier.read(pointer)
            try:
                if barrier is None:
                    raise MbarrierError(f"{machine.wave.shared_place(pointer)} {NOT_ONE}")
                barrier.arrive()
            except MbarrierError as error:
                message = f"`{self.instruction.full_opcode}`: {error}"
                machine.wave.report(FaultKind.INVALID_OPERAND, message, np.array([self.lane]), self.instruction)
                continue
            barrier.write(pointer)
            if barrier.phases:
                machine.memory.phase_over(self.lane, pointer)


class TensorPipe(Unit):
    """What the threads of a wave have asked tensor cores for, by thread."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._order = CompletionOrder(machine.order)
        self._queues: dict[int, deque[Work]] = {}
        self._requests: dict[int, Request] = {}
        self._asked: dict[int, int] = {}  # how much work each thread has asked for, and how much of it is done
        self._done: dict[int, int] = {}
        self._after: dict[int, dict[int, int]] = {}  # by thread: how much of others' must be done before

    def request(self, lane: int, instruction: Instruction) -> Request:
        """A thread asks for something: how the race check names it."""
        channel = Channel(Engine.TENSOR_CORE, ("tcgen05", lane))
        self._requests[lane] = self.machine.memory.request(lane, channel, instruction.number)
        return self._requests[lane]

    def last_request(self, lane: int) -> Request | None:
        """What the thread has asked for last."""
        return self._requests.get(lane)

    def submit(self, work: Work) -> None:
        """Put work behind all that its thread has asked for."""
        self._queues.setdefault(work.lane, deque()).append(work)
        self._asked[work.lane] = self._asked.get(work.lane, 0) + 1

    def fence_after(self, lanes: Array) -> None:
        """What these threads ask for from now on comes after what others have asked for until now."""
        for lane in lanes.tolist():
            others = {other: count for other, count in self._asked.items() if other != lane}
            if others:
                self._after.setdefault(lane, {}).update(others)

    def _may_advance(self, lane: int) -> bool:
        return all(self._done.get(other, 0) >= count for other, count in self._after.get(lane, {}).items())

    def step(self) -> bool:
        """Let some threads' work go on to the next commit."""
        lanes = [lane for lane, queue in self._queues.items() if queue and self._may_advance(lane)]
        if not lanes:
            return False
        clusters = [int(self.machine.wave.cluster_of_lane[lane]) for lane in lanes]
        chosen = self._order.advancing(clusters, stalled=self.machine.stalled)
        for index in chosen:
            self._advance(self._queues[lanes[index]])
        return bool(chosen)

    def finish(self) -> None:
        """All lanes have ended."""
        while waiting := [lane for lane, queue in self._queues.items() if queue]:
            for lane in [lane for lane in waiting if self._may_advance(lane)] or waiting:
                self._advance(self._queues[lane])

    def _advance(self, queue: deque[Work]) -> None:
        alive = self.machine.warps.live.any(axis=1)
        living = set(self.machine.warps.block_of_warp[alive].tolist())
        while queue:
            work = queue.popleft()
            self._done[work.lane] = self._done.get(work.lane, 0) + 1
            if not living.issuperset(work.blocks):
                self._report_end(work)
            work.carry_out(self.machine)
            if isinstance(work, Commit):
                return

    def _report_end(self, work: Work) -> None:
        what = "a block ended before the tensor core had done what was asked of it: wait for a `tcgen05.commit`"
        message = f"`{work.instruction.full_opcode}`: {what}"
        self.machine.wave.report(FaultKind.MISSING_WAIT, message, np.array([work.lane]), work.instruction)
