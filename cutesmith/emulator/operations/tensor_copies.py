"""`cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`: boxes of tensors that a tensor map describes.

PTX ISA, "Tensor copy instructions". Tiled mode; im2col, gather and scatter are refused by name.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from cutesmith.emulator.engines.copy_engine import Landing
from cutesmith.emulator.engines.places import GlobalRows, box_at, outside, swizzled_order
from cutesmith.emulator.engines.reductions import can_reduce, reduced
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.engines.tensor_maps import MAP_ALIGN, Element, TensorMap, TensorMapError, decode
from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.bulk_requests import (
    GROUP,
    HINT,
    MBARRIER,
    MULTICAST,
    LaneRequest,
    address_operand,
    lane_requests,
    once_a_warp,
    shared_addresses,
    take_words,
    warp_requests,
)
from cutesmith.emulator.operations.tensor_map_updates import ChangedMaps
from cutesmith.emulator.program.abi import PARAMETER_WINDOW, WINDOW_BYTES, Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address
from cutesmith.emulator.sanitizer.actors import Request

_SHARED_ALIGN = 128
_SHARED = ("shared::cluster", "shared::cta")
_PAIR = "cta_group::2"
_SIGNED = {"u32": "s32", "u64": "s64"}


@lane_operation("cp.async.bulk.tensor")
def copy(batch: LaneBatch) -> Array | None:
    """`cp.async.bulk.tensor.Nd.target.source{.tile}.completion… ` from global to shared memory, or back."""
    _, _, _, dimensions, target, source, *rest = batch.instruction.modifiers
    if (target, source) == ("global", "shared::cta"):
        take_words(batch.instruction, tuple(rest), "tile", GROUP, HINT)
        return once_a_warp(partial(_store, dimensions=int(dimensions[0])), batch)
    if target in _SHARED and source == "global":
        words = take_words(batch.instruction, tuple(rest), "tile", MBARRIER, MULTICAST, HINT, "cta_group::1", _PAIR)
        _load(batch, int(dimensions[0]), multicast=MULTICAST in words, pair=_PAIR in words)
        return None
    raise UnsupportedInstruction(batch.instruction, f"from {source} to {target}")


@lane_operation("cp.reduce.async.bulk.tensor")
def reduce(batch: LaneBatch) -> Array:
    """`cp.reduce.async.bulk.tensor.Nd.global.shared::cta.op{.tile}.bulk_group [map, coordinates], [source]`."""
    instruction = batch.instruction
    _, _, _, _, dimensions, target, source, operation, *rest = instruction.modifiers
    take_words(instruction, (target, source, *rest), "global", "shared::cta", "tile", GROUP, HINT)
    return once_a_warp(partial(_store, dimensions=int(dimensions[0]), operation=operation), batch)


@lane_operation("cp.async.bulk.prefetch.tensor")
def prefetch(batch: LaneBatch) -> None:
    """Caches are not modelled; the map must be one."""
    for lane in lane_requests(batch):
        _map_of(lane, address_operand(batch.instruction, batch.instruction.operands[0]))


def _load(batch: LaneBatch, dimensions: int, *, multicast: bool, pair: bool) -> None:
    """`[target], [map, {coordinates}], [mbarrier]{, mask}{, policy}`; a `pair` of blocks may share an mbarrier."""
    target, tensor, barrier, *rest = batch.instruction.operands
    source = address_operand(batch.instruction, tensor)
    targets, barriers = shared_addresses(batch, target), shared_addresses(batch, barrier)
    masks = batch.read(rest[0], np.uint16) if multicast else None
    coordinates = _coordinates(batch, source, dimensions)
    for lane in lane_requests(batch):
        described = _map_of(lane, source, dimensions)
        to = int(targets[lane.index])
        lane.need_aligned(to, _SHARED_ALIGN, "the target")
        if described is None or not lane.sound:
            continue
        order = swizzled_order(described, to)
        mask = None if masks is None else int(masks[lane.index])
        places = lane.blocks_of(mask, to, int(barriers[lane.index]), pair=pair)
        landings = [lane.landing(place, mbarrier, described.tile_bytes, Access.WRITE, order) for place, mbarrier in places]  # noqa: E501  # fmt: skip
        reading = lane.reading(landings[0] if landings else None)
        rows = _rows(lane, reading, described, tuple(coordinates[lane.index].tolist()), Access.READ)
        lane.begin(rows, reading, landings)


def _store(batch: LaneBatch, dimensions: int, operation: str | None = None) -> None:
    """`[map, {coordinates}], [source]{, policy}`, with a reduction where `operation` names one."""
    tensor, source, *_ = batch.instruction.operands
    target = address_operand(batch.instruction, tensor)
    sources, coordinates = shared_addresses(batch, source), _coordinates(batch, target, dimensions)
    maps = batch.address(target)
    for lane in warp_requests(batch, maps, sources, *coordinates.T):
        described = _map_of(lane, target, dimensions)
        start = int(sources[lane.index])
        lane.need_aligned(start, _SHARED_ALIGN, "the source")
        if described is None or not lane.sound:
            continue
        combine = None
        if operation is not None:
            kind = _reduced_type(lane, described, operation)
            combine = partial(reduced, operation=operation, kind=kind)
        request = lane.named(("bulk groups", lane.lane))
        kind_of_access = Access.WRITE if combine is None else Access.ATOMIC
        rows = _rows(lane, request, described, tuple(coordinates[lane.index].tolist()), kind_of_access)
        reading, order = lane.reading(None), swizzled_order(described, start)
        tile = lane.shared_tile(reading, start, described.tile_bytes, Access.READ, order)
        lane.begin(tile, reading, [Landing(rows, request)], combine)


def _reduced_type(lane: LaneRequest, described: TensorMap, operation: str) -> str:
    """The element type that a reduction works on: that of the map."""
    kind = str(described.element.value[2])
    kind = kind.replace("u", "b") if operation in ("and", "or", "xor") else kind
    if not can_reduce(operation, kind):
        raise UnsupportedInstruction(lane.batch.instruction, f"a tensor map of {kind}")
    return kind


def _coordinates(batch: LaneBatch, operand: Address, dimensions: int) -> Array:
    """int64 (n, dimensions)."""
    if len(operand.coordinates) != dimensions:
        raise UnsupportedInstruction(batch.instruction, f"{len(operand.coordinates)} coordinates")
    return np.stack([batch.read(part, np.int32).astype(np.int64) for part in operand.coordinates], axis=1)


class _ParameterMaps(Unit):
    """The tensor maps of a wave that are parameters of its kernel, and so never change, by address and dimensions."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.known: dict[tuple[int, int | None], TensorMap] = {}


def _map_of(lane: LaneRequest, operand: Address, dimensions: int | None = None) -> TensorMap | None:
    """The tensor map that the operand points to; None and a finding where it is not sound.

    Raises UnsupportedInstruction for a map that is not understood.
    """
    batch, lanes = lane.batch, lane.batch.lanes[[lane.index]]
    start = batch.wave.address(operand, lanes)
    lane.need_aligned(int(start[0]), MAP_ALIGN, "the tensor map")
    if not lane.sound:
        return None
    if (known := batch.machine.unit(_ParameterMaps).known.get((int(start[0]), dimensions))) is not None:
        return known
    if missing := batch.machine.unit(ChangedMaps).missing_fence(lane.lane, int(start[0])):
        batch.wave.report(
            FaultKind.MISSING_FENCE, f"`{batch.instruction.full_opcode}`: {missing}", lanes, batch.instruction
        )
    site = batch.instruction.number
    halves = [batch.memory.load(lanes, Space.GENERIC, start + np.uint64(part), MAP_ALIGN, site) for part in (0, 64)]
    data = np.concatenate(halves, axis=1).tobytes()
    try:
        described = decode(data)
    except TensorMapError as error:
        raise UnsupportedInstruction(batch.instruction, f"its tensor map: {error}") from None
    if dimensions is not None and described.rank != dimensions:
        lane.refuse(f"a tensor map of {described.rank} dimensions")
        return None
    if described.element is Element.TF32:
        raise UnsupportedInstruction(batch.instruction, "a tensor map of tf32, whose rounding is not settled")
    inner = described.tile[0] * described.element.bytes
    if described.swizzle is not Swizzle.NONE and inner != described.swizzle.row:
        raise UnsupportedInstruction(
            batch.instruction, f"rows of {inner} bytes in a swizzle of {described.swizzle.row}, which is not settled"
        )
    if int(start[0]) - PARAMETER_WINDOW in range(WINDOW_BYTES):
        batch.machine.unit(_ParameterMaps).known[int(start[0]), dimensions] = described
    return described


def _rows(
    lane: LaneRequest, request: Request, described: TensorMap, coordinates: tuple[int, ...], kind: Access
) -> GlobalRows:
    """The rows of a box, checked; refused ones are left out."""
    box = box_at(described, coordinates)
    pointers = np.zeros(len(box.addresses), np.uint64)
    if box.length and len(box.addresses):
        pointers = lane.batch.memory.requested(request, Space.GLOBAL, box.addresses, box.length, kind)
    return GlobalRows(pointers, box.rows, box.left, box.length, box.shape, outside(described))
