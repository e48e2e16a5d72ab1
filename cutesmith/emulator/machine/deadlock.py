"""Why no lane can go on, or only some that spin: which warps are at which line, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cutesmith.emulator.faults import FaultKind, Finding
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.machine.suspensions import Suspension, Waiting
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Location


def explain(machine: Machine, waiting: Sequence[tuple[Suspension, Waiting]]) -> Iterator[tuple[Finding, int]]:
    """Findings with their instruction numbers: a deadlock for each suspension point, and barriers of parts of warps."""
    scene = Scene(machine, [(entry.instruction.location, entry.lanes) for _, entry in waiting])
    for suspension, entry in waiting:
        yield _deadlock(scene, suspension, entry), entry.instruction.number
    for suspension, entry in waiting:
        if suspension.whole_warps:
            yield from ((finding, entry.instruction.number) for finding in _divergence(scene, entry))


def explain_spinning(
    machine: Machine, running: Sequence[tuple[Location | None, Array]], waiting: Sequence[tuple[Suspension, Waiting]]
) -> Iterator[Finding]:
    """Findings for lanes that do not leave their loops, the largest group first, then for those that wait meanwhile."""
    wave = machine.wave
    scene = Scene(machine, [*running, *((entry.instruction.location, entry.lanes) for _, entry in waiting)])
    for location, lanes in sorted(running, key=lambda group: -len(group[1])):
        mine, others = _of_one_block(scene, lanes)
        lane, blocks = int(lanes[0]), len(np.unique(wave.block_of_lane[lanes]))
        who = f"{scene.who(mine)} of block {wave.block(lane)}{others}"
        text = f"{len(lanes)} threads of {blocks} blocks still run: {who}"
        yield Finding(FaultKind.ENDLESS_LOOP, text, location, wave.thread(lane), wave.block(lane), count=len(lanes))
    for suspension, entry in waiting:
        mine, _ = _of_one_block(scene, entry.lanes)
        text = f"meanwhile {_waits(scene, suspension, entry)}"
        yield _finding(scene, FaultKind.ENDLESS_LOOP, text, entry, mine, len(entry.lanes))


def _deadlock(scene: Scene, suspension: Suspension, entry: Waiting) -> Finding:
    mine, _ = _of_one_block(scene, entry.lanes)
    return _finding(scene, FaultKind.DEADLOCK, _waits(scene, suspension, entry), entry, mine, len(entry.lanes))


def _waits(scene: Scene, suspension: Suspension, entry: Waiting) -> str:
    """What the lanes of one suspension point wait for; one block is described for all."""
    mine, others = _of_one_block(scene, entry.lanes)
    who = f"{scene.who(mine)} of block {scene.machine.wave.block(int(mine[0]))}"
    why = suspension.reason(scene, entry.instruction, mine)
    return f"{who} wait at `{entry.instruction.full_opcode}`{others} {why}"


def _of_one_block(scene: Scene, lanes: Array) -> tuple[Array, str]:
    """The lanes of the block of the first, and words for the other blocks."""
    block_of_lane = scene.machine.wave.block_of_lane[lanes]
    blocks = len(np.unique(block_of_lane))
    return lanes[block_of_lane == block_of_lane[0]], f" ({blocks - 1} more blocks do too)" if blocks > 1 else ""


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
