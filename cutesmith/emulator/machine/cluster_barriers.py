"""The barrier of a cluster: `barrier.cluster.arrive` and `barrier.cluster.wait`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.instructions import table
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.machine.suspensions import Suspension, Waiting
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Instruction


class ClusterBarriers(Unit):
    """How often each lane has arrived at the barrier of its cluster, and waited for it."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.arrivals = np.zeros(machine.wave.lane_count, np.int64)
        self.waits = np.zeros(machine.wave.lane_count, np.int64)

    def arrive(self, instruction: Instruction, lanes: Array) -> None:
        """Count arrivals, which release unless they are `.relaxed`."""
        twice = lanes[self.arrivals[lanes] > self.waits[lanes]]
        if len(twice):
            message = "barrier.cluster.arrive twice without barrier.cluster.wait between"
            self.machine.wave.report(FaultKind.INVALID_OPERAND, message, twice, instruction)
        self.arrivals[lanes] += 1
        if "relaxed" not in instruction.modifiers:
            self.machine.memory.release_cluster(lanes)

    def phases(self) -> Array:
        """int64 (lanes,): how often the barrier of each lane's cluster has completed; the slowest live lane decides."""
        wave, warps, arrivals = self.machine.wave, self.machine.warps, self.arrivals
        if warps.ended:
            arrivals = np.full(wave.lane_count, np.iinfo(np.int64).max)
            live = wave.members[warps.live]
            arrivals[live] = self.arrivals[live]
        width = wave.threads_per_block * wave.cluster_blocks
        return np.repeat(arrivals.reshape(-1, width).min(axis=1), width)

    def wait(self, lanes: Array, phases: Array) -> Array:
        """Which of the lanes have waited long enough; a lane that has not arrived itself waits forever."""
        own = self.arrivals[lanes]
        done: Array = (phases[lanes] >= own) & (own > self.waits[lanes])
        self.waits[lanes[done]] += 1
        if done.any():
            self.machine.memory.acquire_cluster(lanes[done])
        return done


class ClusterBarrierSuspension(Suspension):
    """Arrivals come first, then waits."""

    turn: ClassVar[int] = 2
    together: ClassVar[bool] = True

    def version(self, machine: Machine) -> int | None:
        return machine.warps.ended

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        barriers = machine.unit(ClusterBarriers)
        for waiting in group:
            if _arrives(waiting.instruction):
                barriers.arrive(waiting.instruction, waiting.lanes)
        phases = barriers.phases()
        return [None if _arrives(w.instruction) else barriers.wait(w.lanes, phases) for w in group]

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        wave, barriers = scene.machine.wave, scene.machine.unit(ClusterBarriers)
        own = barriers.arrivals[lanes[0]]
        if own == barriers.waits[lanes[0]]:
            return "without barrier.cluster.arrive before"
        cluster = np.flatnonzero(wave.cluster_of_lane == wave.cluster_of_lane[lanes[0]])
        late = cluster[(barriers.arrivals[cluster] < own) & scene.waits(cluster)]
        blocks = sorted({wave.block(int(lane)) for lane in late[:: max(1, len(late) // 64)]})
        names = ", ".join(map(str, blocks))
        return f"for the cluster, of which threads of {names} have not arrived: {scene.places(late)}"


def _arrives(instruction: Instruction) -> bool:
    return "arrive" in instruction.modifiers


table.register(ClusterBarrierSuspension(), "barrier.cluster.arrive", "barrier.cluster.wait")
