"""`cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`: boxes of tensors that a tensor map describes.

PTX ISA, "Tensor copy instructions". Tiled mode, four rows of it (`tile::gather4`, `tile::scatter4`) and im2col.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cutesmith.emulator.engines.copy_engine import Combine, Landing
from cutesmith.emulator.engines.places import Box, GlobalRows, boxes_at, outside, rows_at, swizzled_order, windows_at
from cutesmith.emulator.engines.reductions import can_reduce, reduced
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.engines.tensor_maps import MAP_ALIGN, TensorMap, TensorMapError, UnknownTensorMap, decode
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
    Wanted,
    address_operand,
    landings,
    lane_requests,
    once_a_warp,
    shared_addresses,
    shared_tiles,
    warp_requests,
)
from cutesmith.emulator.operations.tensor_map_updates import ChangedMaps
from cutesmith.emulator.program.abi import PARAMETER_WINDOW, WINDOW_BYTES, Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Vector
from cutesmith.emulator.sanitizer.actors import Asked, Request

_SHARED_ALIGN = 128
_ROW_UNIT = 16
_SHARED = ("shared::cluster", "shared::cta")
_PAIR = "cta_group::2"
_SIGNED = {"u32": "s32", "u64": "s64"}


_GATHER, _SCATTER = "tile::gather4", "tile::scatter4"
_ROWS = 4
_GROUP_CHANNELS = ("bulk groups", "reads of bulk groups")
_LOAD_WORDS = ("tile", _GATHER, "im2col", MBARRIER, MULTICAST, HINT, "cta_group::1", _PAIR)
_STORE_WORDS = ("tile", _SCATTER, "im2col_no_offs", GROUP, HINT)
_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def _refuses(instruction: Instruction) -> str | None:
    """The first modifier that is not executed, such as `.im2col::w`."""
    reduces = instruction.modifiers[0] == "reduce"
    _, target, source, *rest = instruction.modifiers[3 + reduces :]
    known: tuple[str, ...]
    if (target, source) == ("global", "shared::cta"):
        known = ("tile", *_STORE_WORDS[2:], *_OPERATIONS) if reduces else _STORE_WORDS
    elif target in _SHARED and source == "global":
        known = _LOAD_WORDS
    else:
        return f"from {source} to {target}"
    return next((f".{word}" for word in rest if word not in known), None)


@lane_operation("cp.async.bulk.tensor", refuses=_refuses)
def copy(batch: LaneBatch) -> Array | None:
    """`cp.async.bulk.tensor.Nd.target.source{.mode}.completion… ` from global to shared memory, or back."""
    _, _, _, dimensions, target, source, *rest = batch.instruction.modifiers
    if (target, source) == ("global", "shared::cta"):
        return once_a_warp(partial(_store, dimensions=int(dimensions[0])), batch)
    _load(batch, int(dimensions[0]), multicast=MULTICAST in rest, pair=_PAIR in rest)
    return None


@lane_operation("cp.reduce.async.bulk.tensor", refuses=_refuses)
def reduce(batch: LaneBatch) -> Array:
    """`cp.reduce.async.bulk.tensor.Nd.global.shared::cta.op{.mode}.bulk_group [map, coordinates], [source]`."""
    _, _, _, _, dimensions, _, _, operation, *_ = batch.instruction.modifiers
    return once_a_warp(partial(_store, dimensions=int(dimensions[0]), operation=operation), batch)


@lane_operation("cp.async.bulk.prefetch.tensor")
def prefetch(batch: LaneBatch) -> None:
    """Caches are not modelled; the map must be one."""
    maps = batch.address(address_operand(batch.instruction, batch.instruction.operands[0]))
    for lane in lane_requests(batch):
        _map_of(lane, maps)


def _load(batch: LaneBatch, dimensions: int, *, multicast: bool, pair: bool) -> None:
    """`[target], [map, {coordinates}], [mbarrier]{, {offsets}}{, mask}{, policy}`; a `pair` may share an mbarrier."""
    target, tensor, barrier, *rest = batch.instruction.operands
    windows = rest.pop(0) if "im2col" in batch.instruction.modifiers else None
    source = address_operand(batch.instruction, tensor)
    targets, barriers = shared_addresses(batch, target), shared_addresses(batch, barrier)
    masks = batch.read(rest[0], np.uint16) if multicast else None
    coordinates, offsets = _coordinates(batch, source, dimensions), _offsets(batch, windows, dimensions)
    given = zip(targets.tolist(), barriers.tolist(), coordinates.tolist(), strict=True)
    described_for, loads = _maps_of(batch, source, dimensions, windows=windows is not None), []
    for lane, (to, counter, where) in zip(lane_requests(batch), given, strict=True):
        described = described_for(lane)
        lane.need_aligned(to, _SHARED_ALIGN, "the target")
        if described is None or not _begins_well(lane, described, where):
            continue
        mask = None if masks is None else int(masks[lane.index])
        places = lane.blocks_of(mask, to, counter, pair=pair)
        shape = (described.tile_bytes, swizzled_order(described, to), described.shared_bytes)
        wanted = [Wanted(lane, place, *shape, mbarrier, described.chunk) for place, mbarrier in places]
        loads.append((lane, described, wanted))
    found = iter(landings(every, Access.WRITE) if (every := [want for *_, wanted in loads for want in wanted]) else ())
    ends = [[next(found) for _ in wanted] for *_, wanted in loads]
    readings = [lane.reading(landed[0] if landed else None) for (lane, *_), landed in zip(loads, ends, strict=True)]
    asking = [(lane, described) for lane, described, _ in loads]
    rows = _rows(batch, readings, asking, (coordinates, offsets), Access.READ)
    maps, changed = batch.address(source), batch.machine.unit(ChangedMaps)
    for (lane, *_), reading, landed in zip(loads, readings, ends, strict=True):
        changed.use(int(maps[lane.index]), (reading, *(landing.request for landing in landed if landing is not None)))
    for (lane, *_), tile, reading, landed in zip(loads, rows, readings, ends, strict=True):
        lane.begin(tile, reading, landed)


def _store(batch: LaneBatch, dimensions: int, operation: str | None = None) -> None:
    """`[map, {coordinates}], [source]{, policy}`, with a reduction where `operation` names one."""
    tensor, source, *_ = batch.instruction.operands
    target = address_operand(batch.instruction, tensor)
    sources, coordinates = shared_addresses(batch, source), _coordinates(batch, target, dimensions)
    described_for = _maps_of(batch, target, dimensions, windows="im2col_no_offs" in batch.instruction.modifiers)
    lanes = warp_requests(batch, batch.address(target), sources, *coordinates.T)
    indices, stores = [lane.index for lane in lanes], []
    for lane, start, where in zip(lanes, sources[indices].tolist(), coordinates[indices].tolist(), strict=True):
        described = described_for(lane)
        if described is not None and described.padded:
            raise UnsupportedInstruction(batch.instruction, "a tensor map whose elements have padding")
        lane.need_aligned(start, _SHARED_ALIGN, "the source")
        if described is None or not _begins_well(lane, described, where, stores=True):
            continue
        shape = (described.tile_bytes, swizzled_order(described, start), described.shared_bytes)
        stores.append((Wanted(lane, start, *shape), described, _combination(lane, described, operation)))
    if not stores:
        return
    wanted = [want for want, *_ in stores]
    requests, readings = ([want.lane.named((key, want.lane.lane)) for want in wanted] for key in _GROUP_CHANNELS)
    asking = [(want.lane, described) for want, described, _ in stores]
    rows = _rows(
        batch, requests, asking, (coordinates, coordinates[:, :0]), Access.WRITE if operation is None else Access.ATOMIC
    )
    tiles = shared_tiles(wanted, readings, Access.READ)
    maps, changed = batch.address(target), batch.machine.unit(ChangedMaps)
    for want, reading in zip(wanted, readings, strict=True):
        changed.use(int(maps[want.lane.index]), (reading,))
    for (want, _, combine), request, reading, target_rows, tile in zip(
        stores, requests, readings, rows, tiles, strict=True
    ):
        want.lane.begin(tile, reading, [Landing(target_rows, request)], combine)


def _combination(lane: LaneRequest, described: TensorMap, operation: str | None) -> Combine | None:
    """What a reduction does with two tiles; None for a plain store."""
    if operation is None:
        return None
    return partial(reduced, operation=operation, kind=_reduced_type(lane, described, operation))


def _reduced_type(lane: LaneRequest, described: TensorMap, operation: str) -> str:
    """The element type that a reduction works on: that of the map."""
    kind = str(described.element.value[2])
    kind = kind.replace("u", "b") if operation in ("and", "or", "xor") else kind
    if not can_reduce(operation, kind):
        raise UnsupportedInstruction(lane.batch.instruction, f"a tensor map of {kind}")
    return kind


def _coordinates(batch: LaneBatch, operand: Address, dimensions: int) -> Array:
    """int64 (n, dimensions); the column and four rows where it gathers or scatters."""
    expected = 1 + _ROWS if _by_rows(batch.instruction) else dimensions
    if len(operand.coordinates) != expected:
        raise UnsupportedInstruction(batch.instruction, f"{len(operand.coordinates)} coordinates")
    return np.stack([batch.read(part, np.int32).astype(np.int64) for part in operand.coordinates], axis=1)


def _offsets(batch: LaneBatch, operand: Operand | None, dimensions: int) -> Array:
    """int64 (n, dimensions - 2): the offsets of an im2col load; (n, 0) in tiled mode."""
    if operand is None:
        return np.zeros((len(batch.lanes), 0), np.int64)
    if not isinstance(operand, Vector) or len(operand.elements) != dimensions - 2:
        raise UnsupportedInstruction(batch.instruction, f"offsets other than {dimensions - 2}")
    return np.stack([batch.read(part, np.uint16).astype(np.int64) for part in operand.elements], axis=1)


def _begins_well(lane: LaneRequest, described: TensorMap, coordinates: list[int], *, stores: bool = False) -> bool:
    """Whether the lane's request is sound: where a box may not begin, a GPU ends the launch (recorded on Hopper)."""
    ends = "a GPU ends the launch with an illegal instruction"
    begin = 0 if described.interleaved else described.byte_of(coordinates[0])
    if described.padded and begin % described.tile[0]:
        lane.refuse(f"a box with padding begins at element {coordinates[0]} of a row, which is not a multiple of 128")
    elif begin % _ROW_UNIT:
        what = f"its box begins {begin} bytes into the rows of the tensor, which is not a multiple of {_ROW_UNIT}"
        lane.refuse(f"{what}: {ends}", FaultKind.MISALIGNED)
    elif stores and min(coordinates) < 0:
        what = f"a store begins before the tensor, at {tuple(coordinates)}"
        lane.refuse(f"{what}: {ends}; beyond the end it is clipped", FaultKind.OUT_OF_BOUNDS)
    elif described.corners is not None and not described.holds_window(_whole(described, coordinates)):
        pixel = tuple(_whole(described, coordinates)[1:-1])
        what = f"its first pixel {pixel} is outside of the corners of the im2col map"
        lane.refuse(f"{what}: {ends}", FaultKind.OUT_OF_BOUNDS)
    return lane.sound


def _whole(described: TensorMap, coordinates: list[int]) -> list[int]:
    """Coordinates with that of the channels of a slice, which a copy does not give."""
    return [0, *coordinates] if described.interleaved else coordinates


def _by_rows(instruction: Instruction) -> bool:
    return _GATHER in instruction.modifiers or _SCATTER in instruction.modifiers


def _rows_of(lane: LaneRequest, described: TensorMap | None) -> TensorMap | None:
    """The map with a box four rows high."""
    if described is None:
        return None
    if described.rank != 2 or described.box[1] != 1 or described.corners is not None:
        lane.refuse(f"rows of a box of {described.box} elements: two dimensions are needed, and one row")
        return None
    return replace(described, box=(described.box[0], _ROWS))


def _boxes(described: TensorMap, coordinates: Array, offsets: Array) -> list[Box]:
    """What lanes with the same map touch: int64 coordinates (n, …) and offsets of im2col (n, …)."""
    if coordinates.shape[1] > described.rank:
        return [rows_at(described, int(where[0]), where[1:]) for where in coordinates]
    if described.interleaved:
        coordinates = np.insert(coordinates, 0, 0, axis=1)
    if described.corners is None:
        return boxes_at(described, coordinates)
    pairs = zip(coordinates.tolist(), offsets.tolist(), strict=True)
    return [windows_at(described, tuple(where), tuple(offset)) for where, offset in pairs]


class _ParameterMaps(Unit):
    """The tensor maps of a wave that are parameters of its kernel, and so never change, by address and use."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.known: dict[tuple[int, int | None, bool], TensorMap] = {}


def _maps_of(
    batch: LaneBatch, operand: Address, dimensions: int, *, windows: bool
) -> Callable[[LaneRequest], TensorMap | None]:
    """What gives the map of a lane, as `_map_of` does; its box four rows high where rows are gathered or scattered."""
    maps, known = batch.address(operand), batch.machine.unit(_ParameterMaps).known
    by_rows = _by_rows(batch.instruction)

    def described(lane: LaneRequest) -> TensorMap | None:
        found = known.get((int(maps[lane.index]), dimensions, windows))
        found = found or _map_of(lane, maps, dimensions, windows=windows)
        return _rows_of(lane, found) if by_rows else found

    return described


def _map_of(
    lane: LaneRequest, addresses: Array, dimensions: int | None = None, *, windows: bool = False
) -> TensorMap | None:
    """The tensor map at the lane's address, for im2col if `windows`; None and a finding where it is not sound.

    Raises UnsupportedInstruction for a map that is not understood.
    """
    batch, lanes = lane.batch, lane.batch.lanes[[lane.index]]
    start = addresses[[lane.index]]
    lane.need_aligned(int(start[0]), MAP_ALIGN, "the tensor map")
    if not lane.sound:
        return None
    if missing := batch.machine.unit(ChangedMaps).missing_fence(lane.lane, int(start[0])):
        batch.wave.report(
            FaultKind.MISSING_FENCE, f"`{batch.instruction.full_opcode}`: {missing}", lanes, batch.instruction
        )
    site = batch.instruction.number
    halves = [batch.memory.load(lanes, Space.GENERIC, start + np.uint64(part), MAP_ALIGN, site) for part in (0, 64)]
    data = np.concatenate(halves, axis=1).tobytes()
    try:
        described = decode(data)
    except UnknownTensorMap as error:
        raise UnsupportedInstruction(batch.instruction, f"its tensor map: {error}") from None
    except TensorMapError as error:
        lane.refuse(f"its tensor map is malformed: {error}")
        return None
    if dimensions is not None and described.coordinates != dimensions:
        lane.refuse(f"a tensor map of {described.coordinates} dimensions")
        return None
    if dimensions is not None and (described.corners is not None) != windows:
        lane.refuse("a tensor map for im2col is needed" if windows else "its tensor map is for im2col")
        return None
    inner = described.tile[0] * described.element.bytes
    if described.swizzle is Swizzle.B128_ATOM_32B and inner != described.row_bytes:
        raise UnsupportedInstruction(
            batch.instruction, f"rows of {inner} bytes in a swizzle of 128 with atoms of 32, which is not settled"
        )
    if int(start[0]) - PARAMETER_WINDOW in range(WINDOW_BYTES):
        batch.machine.unit(_ParameterMaps).known[int(start[0]), dimensions, windows] = described
    return described


def _rows(
    batch: LaneBatch,
    requests: Sequence[Request],
    asking: Sequence[tuple[LaneRequest, TensorMap]],
    where: tuple[Array, Array],
    kind: Access,
) -> list[GlobalRows]:
    """The rows of a box for each request, checked; refused ones are left out. `where`: coordinates and offsets."""
    indices = np.array([lane.index for lane, _ in asking], np.int64)
    rows: dict[int, GlobalRows] = {}
    for described in {id(each): each for _, each in asking}.values():
        mine = [number for number, (_, each) in enumerate(asking) if each is described]
        boxes = _boxes(described, *(values[indices[mine]] for values in where))
        there = [(number, box) for number, box in zip(mine, boxes, strict=True) if box.length and len(box.addresses)]
        asked = [Asked(requests[number], box.addresses, box.length) for number, box in there]
        found = batch.memory.requested(asked, Space.GLOBAL, kind) if asked else []
        pointers = dict(zip((number for number, _ in there), found, strict=True))
        fill, rounds = outside(described), described.element.rounds
        for number, box in zip(mine, boxes, strict=True):
            where_from = pointers.get(number, np.zeros(len(box.addresses), np.uint64))
            rows[number] = GlobalRows(where_from, box.rows, box.left, box.length, box.shape, fill, rounds)
    return [rows[number] for number in range(len(asking))]
