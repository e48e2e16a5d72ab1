"""`cp.async.bulk` and `cp.reduce.async.bulk` of contiguous bytes, bulk groups, and stores that an mbarrier counts.

PTX ISA, "Non-tensor copy instructions". A copy ends at an mbarrier or in the bulk group of the thread that asked.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from cutesmith.emulator.emitters.memory import VECTORS
from cutesmith.emulator.engines.copy_engine import Combine, CopyEngine, Landing
from cutesmith.emulator.engines.places import GlobalRows, Sent
from cutesmith.emulator.engines.reductions import can_reduce, reduced
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.bulk_requests import (
    GROUP,
    HINT,
    MBARRIER,
    MULTICAST,
    Form,
    LaneRequest,
    Wanted,
    address_operand,
    landings,
    lane_requests,
    once_a_warp,
    shared_addresses,
    shared_tiles,
    take_words,
    warp_requests,
)
from cutesmith.emulator.program.abi import Access, Array, Space
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Vector
from cutesmith.emulator.sanitizer.actors import Asked, Request

_UNIT = 16
_SHARED = ("shared::cluster", "shared::cta")


def _form(instruction: Instruction, target: str, source: str, rest: tuple[str, ...], *known: str) -> Form:
    form = Form(target, source, take_words(instruction, rest, *known))
    ends = [(MBARRIER, target in _SHARED), (GROUP, target == "global")]
    if any((word in form.words) != needed for word, needed in ends) or target == source == "global":
        raise UnsupportedInstruction(instruction, "no such form")
    return form


@lane_operation("cp.async.bulk")
def copy(batch: LaneBatch) -> Array | None:
    """`cp.async.bulk.target.source.completion [target], [source], size{, [mbarrier]}{, mask}{, policy}`."""
    instruction = batch.instruction
    _, _, target, source, *rest = instruction.modifiers
    form = _form(instruction, target, source, tuple(rest), MBARRIER, GROUP, MULTICAST, HINT)
    if MULTICAST in form.words and source != "global":
        raise UnsupportedInstruction(instruction, "no such form")
    return _copy_bytes(batch, form, None)


@lane_operation("cp.reduce.async.bulk")
def reduce(batch: LaneBatch) -> Array | None:
    """`cp.reduce.async.bulk.target.shared::cta.completion{.noftz}.op.type [target], [source], size{, [mbarrier]}`."""
    instruction = batch.instruction
    _, _, _, target, source, *rest, operation, kind = instruction.modifiers
    form = _form(instruction, target, source, tuple(rest), MBARRIER, GROUP, HINT, "noftz")
    if source != "shared::cta" or not can_reduce(operation, kind):
        raise UnsupportedInstruction(instruction, f".{operation}.{kind} from {source}")
    return _copy_bytes(batch, form, partial(reduced, operation=operation, kind=kind))


def _copy_bytes(batch: LaneBatch, form: Form, combine: Combine | None) -> Array | None:
    ask = partial(_ask_for_bytes, form=form, combine=combine)
    return ask(batch) if form.counted else once_a_warp(ask, batch)


def _ask_for_bytes(batch: LaneBatch, form: Form, combine: Combine | None) -> None:
    target, source, count, *rest = batch.instruction.operands
    sizes = batch.read(count, np.uint32)
    barriers = shared_addresses(batch, rest.pop(0)) if form.counted else np.zeros(len(sizes), np.int64)
    masks = batch.read(rest.pop(0), np.uint16) if MULTICAST in form.words else None
    targets, sources = (
        shared_addresses(batch, operand)
        if space in _SHARED
        else batch.address(address_operand(batch.instruction, operand)).astype(np.int64)
        for space, operand in ((form.target, target), (form.source, source))
    )
    kind = Access.WRITE if combine is None else Access.ATOMIC
    for lane in lane_requests(batch) if form.counted else warp_requests(batch, targets, sources, sizes):
        to, source_address, size = (int(values[lane.index]) for values in (targets, sources, sizes))
        if size % _UNIT:
            lane.refuse(f"{size} bytes: a multiple of {_UNIT} is needed")
        lane.need_aligned(to, _UNIT, "the target")
        lane.need_aligned(source_address, _UNIT, "the source")
        if not lane.sound or not size:
            continue
        landings: list[Landing | None]
        if form.counted:
            mask = None if masks is None else int(masks[lane.index])
            places = lane.blocks_of(mask, to, int(barriers[lane.index]))
            landings = [lane.landing(place, mbarrier, size, kind) for place, mbarrier in places]
        else:
            request = lane.named(("bulk groups", lane.lane))
            rows = _global_bytes(lane, request, to, size, kind)
            landings = [Landing(rows, request) if rows else None]
        reading = lane.reading(landings[0] if landings else None)
        if form.source == "global":
            lane.begin(_global_bytes(lane, reading, source_address, size, Access.READ), reading, landings, combine)
        else:
            (tile,) = shared_tiles([Wanted(lane, source_address, size)], [reading], Access.READ)
            lane.begin(tile, reading, landings, combine)


def _global_bytes(lane: LaneRequest, request: Request, address: int, size: int, kind: Access) -> GlobalRows | None:
    """Contiguous bytes in global memory as a tile of one row; None where refused."""
    asked = [Asked(request, np.array([address], np.uint64), size)]
    (pointers,) = lane.batch.memory.requested(asked, Space.GLOBAL, kind)
    return GlobalRows(pointers, np.zeros(1, np.int64), 0, size, (1, size)) if pointers[0] else None


@lane_operation("cp.async.bulk.prefetch.L2.global")
def prefetch(batch: LaneBatch) -> None:
    """Caches are not modelled: nothing is fetched, and nothing is checked, as a GPU faults on no prefetch."""


@lane_operation("cp.async.bulk.commit_group")
def commit(batch: LaneBatch) -> None:
    """What the thread has asked for since the last one is a bulk group."""
    batch.machine.unit(CopyEngine).commit(batch.lanes)


def _waits_for(machine: Machine, instruction: Instruction, lane: int) -> str:
    reads = "read" in instruction.modifiers
    missing = machine.unit(CopyEngine).missing(lane, reads=reads)
    return f"for its bulk groups, of which {missing} copies are under way"


def _progress(machine: Machine) -> int:
    return machine.unit(CopyEngine).progress


@lane_operation("cp.async.bulk.wait_group", waits_for=_waits_for, changes=_progress)
def wait_group(batch: LaneBatch) -> Array:
    """`cp.async.bulk.wait_group{.read} N`: all but the last N groups are complete, or have read their sources."""
    allowed = batch.instruction.operands[0]
    if not isinstance(allowed, Immediate):
        raise UnsupportedInstruction(batch.instruction, "the number of groups is not a constant")
    engine, reads = batch.machine.unit(CopyEngine), "read" in batch.instruction.modifiers
    return engine.wait(batch.lanes, allowed.value, reads=reads)


# ------------------------------------------------------------------------------------ st.async and red.async

_DTYPES = {f"{letter}{bits}": np.dtype(f"u{bits // 8}") for letter in "busf" for bits in (32, 64)}
_SENT_WORDS = ("async", "weak", "relaxed", "cluster", "shared::cluster", MBARRIER, "v2", "v4")


@lane_operation("st.async")
def store(batch: LaneBatch) -> None:
    """`st.async.shared::cluster.mbarrier::complete_tx::bytes{.v2,.v4}.type [a], b, [mbarrier]`."""
    *words, kind = batch.instruction.modifiers
    _send(batch, frozenset(words), kind, None)


@lane_operation("red.async")
def update(batch: LaneBatch) -> None:
    """`red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b, [mbarrier]`."""
    *words, operation, kind = batch.instruction.modifiers
    if not can_reduce(operation, kind):
        raise UnsupportedInstruction(batch.instruction, f".{operation}.{kind}")
    _send(batch, frozenset(words), kind, partial(reduced, operation=operation, kind=kind))


def _send(batch: LaneBatch, words: frozenset[str], kind: str, combine: Combine | None) -> None:
    """Registers of each lane to shared memory of its cluster; the mbarrier beside them counts the bytes."""
    instruction = batch.instruction
    take_words(instruction, tuple(words), *_SENT_WORDS)
    if MBARRIER not in words or kind not in _DTYPES:
        raise UnsupportedInstruction(instruction, f".{kind}" if kind not in _DTYPES else "no mbarrier counts it")
    target, value, barrier = instruction.operands
    parts = value.elements if isinstance(value, Vector) else (value,)
    count = next((VECTORS[word] for word in words if word in VECTORS), 1)
    if len(parts) != count:
        raise UnsupportedInstruction(instruction, f"{len(parts)} registers for {count} elements")
    values = np.stack([batch.read(part, _DTYPES[kind]) for part in parts], axis=1)
    data = np.ascontiguousarray(values).view(np.uint8).reshape(len(batch.lanes), -1)
    targets, barriers = shared_addresses(batch, target), shared_addresses(batch, barrier)
    size, access = data.shape[1], Access.WRITE if combine is None else Access.ATOMIC
    lanes = lane_requests(batch)
    for lane in lanes:
        lane.need_aligned(int(targets[lane.index]), size, "the target")
    sound = [lane for lane in lanes if lane.sound]
    wanted = [Wanted(lane, int(targets[lane.index]), size, mbarrier=int(barriers[lane.index])) for lane in sound]
    for lane, landing in zip(sound, landings(wanted, access) if wanted else (), strict=True):
        if landing is not None:
            lane.begin(Sent(data[lane.index]), landing.request, [landing], combine)
