"""Why no lane can go on: which warps wait at which line for what, and where the warps are that they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cutesmith.emulator.faults import FaultKind, Finding
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.machine.suspensions import Suspension, Waiting
from cutesmith.emulator.program.abi import Array


def explain(machine: Machine, waiting: Sequence[tuple[Suspension, Waiting]]) -> Iterator[tuple[Finding, int]]:
    """Findings with their instruction numbers: a deadlock for each suspension point, and barriers of parts of warps."""
    scene = Scene(machine, [(entry.instruction, entry.lanes) for _, entry in waiting])
    for suspension, entry in waiting:
        yield _deadlock(scene, suspension, entry), entry.instruction.number
    for suspension, entry in waiting:
        if suspension.whole_warps:
            yield from ((finding, entry.instruction.number) for finding in _divergence(scene, entry))


def _deadlock(scene: Scene, suspension: Suspension, entry: Waiting) -> Finding:
    """What the lanes of one suspension point wait for; one block is described for all."""
    wave, instruction = scene.machine.wave, entry.instruction
    block_of_lane = wave.block_of_lane[entry.lanes]
    mine = entry.lanes[block_of_lane == block_of_lane[0]]
    blocks = len(np.unique(block_of_lane))
    others = f" ({blocks - 1} more blocks do too)" if blocks > 1 else ""
    who = f"{scene.who(mine)} of block {wave.block(int(mine[0]))}"
    text = f"deadlock: {who} wait at `{instruction.full_opcode}`{others} {suspension.reason(scene, instruction, mine)}"
    return _finding(scene, FaultKind.DEADLOCK, text, entry, mine, len(entry.lanes))


def _divergence(scene: Scene, entry: Waiting) -> Iterator[Finding]:
    """The first warp that waits in part at this barrier and in part elsewhere."""
    warps = scene.machine.warps
    here = warps.spread(entry.lanes)
    elsewhere = warps.live & ~here
    split = np.flatnonzero(here.any(axis=1) & elsewhere.any(axis=1))
    if len(split):
        lanes, others = (scene.machine.wave.members[split[0]][part[split[0]]] for part in (here, elsewhere))
        text = f"`{entry.instruction.full_opcode}` by a part of a warp: {scene.places(others)}"
        yield _finding(scene, FaultKind.DIVERGENT_BARRIER, text, entry, lanes, len(split))


def _finding(scene: Scene, kind: FaultKind, text: str, entry: Waiting, lanes: Array, count: int) -> Finding:
    wave, lane = scene.machine.wave, int(lanes[0])
    return Finding(kind, text, entry.instruction.location, wave.thread(lane), wave.block(lane), count=count)
