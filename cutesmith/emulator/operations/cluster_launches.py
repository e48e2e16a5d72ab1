"""`clusterlaunchcontrol`: a block takes over the work of a cluster that has not started.

PTX ISA, "clusterlaunchcontrol". The response is opaque there. Ours, from the lowest of its four words: whether a
cluster was taken, then x, y, z of its first block.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.engines.places import Sent
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.operations.bulk_requests import lane_requests, shared_addresses
from cutesmith.emulator.program.abi import Access
from cutesmith.emulator.ptx.syntax import Instruction, Vector

_RESPONSE_BYTES = 16
_AXES = {"x": 32, "y": 64, "z": 96}
_ALL_BLOCKS = "multicast::cluster::all"


@lane_operation("clusterlaunchcontrol.try_cancel.async")
def try_cancel(batch: LaneBatch) -> None:
    """`…try_cancel.async….mbarrier::complete_tx::bytes{.multicast::cluster::all}.b128 [response], [mbarrier]`.

    The response comes as a copy that the mbarrier counts, to all blocks of the cluster where it is multicast.
    """
    target, barrier = batch.instruction.operands
    targets, barriers = shared_addresses(batch, target), shared_addresses(batch, barrier)
    mask = (1 << batch.wave.cluster_blocks) - 1 if _ALL_BLOCKS in batch.instruction.modifiers else None
    for lane in lane_requests(batch):
        to = int(targets[lane.index])
        lane.need_aligned(to, _RESPONSE_BYTES, "the response")
        if not lane.sound:
            continue
        waiting = batch.wave.waiting_clusters
        words = (1, *waiting.popleft()) if waiting else (0, 0, 0, 0)
        landings = [
            lane.landing(place, mbarrier, _RESPONSE_BYTES, Access.WRITE)
            for place, mbarrier in lane.blocks_of(mask, to, int(barriers[lane.index]))
        ]
        lane.begin(Sent(np.array(words, np.uint32).view(np.uint8)), lane.reading(landings[0]), landings)


@native("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128")
def is_canceled(emitter: Emitter, instruction: Instruction) -> None:
    """Whether a cluster was taken."""
    destination, response = instruction.operands
    emitter.assign(destination, emitter.op("trunc i128 {} to i1", emitter.value(response, 128)), 1)


@native("clusterlaunchcontrol.query_cancel.get_first_ctaid::{x,y,z}.b32.b128")
def first_block(emitter: Emitter, instruction: Instruction) -> None:
    """One coordinate of the first block of the cluster."""
    destination, response = instruction.operands
    axis = instruction.modifiers[1].rpartition("::")[2]
    emitter.assign(destination, _word(emitter, emitter.value(response, 128), _AXES[axis]), 32)


@native("clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128")
def first_block_as_vector(emitter: Emitter, instruction: Instruction) -> None:
    """All coordinates; the fourth register has no meaning."""
    destination, response = instruction.operands
    assert isinstance(destination, Vector)
    value = emitter.value(response, 128)
    for register, place in zip(destination.elements, (*_AXES.values(), 0), strict=True):
        emitter.assign(register, _word(emitter, value, place), 32)


def _word(emitter: Emitter, value: str, place: int) -> str:
    return emitter.op("trunc i128 {} to i32", emitter.op(f"lshr i128 {{}}, {place}", value))
