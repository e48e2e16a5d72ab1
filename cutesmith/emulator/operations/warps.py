"""Exchange and agreement between the lanes of a warp: `shfl vote match redux elect activemask bar.warp`.

PTX ISA, "Data movement: shfl.sync" and "Parallel synchronization". The scheduler brings the lanes of a membermask
together and reports a lane that its own mask leaves out; here the lanes that execute are `warps.active`. A value from a
lane that does not execute reads as 0, which is what an H200 gives where the ISA leaves it open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from cutesmith.emulator.emitters.formats import F32
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import present_operation, warp_operation
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Immediate, Operand, Pair, Sink

_LANES = np.arange(WARP, dtype=np.int64)


def require_modifiers(warps: Warps, *allowed: tuple[str, ...]) -> None:
    """Raise UnsupportedInstruction unless the modifiers are one of `allowed`."""
    if warps.instruction.modifiers not in allowed:
        raise UnsupportedInstruction(warps.instruction, "no such form")


def lane_mask(lanes: Array) -> Array:
    """uint32 (w,) masks of bool (w, 32)."""
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint32).ravel()


def _destinations(operand: Operand) -> tuple[Operand, Operand]:
    """`d|p`; a lone d has nowhere to put the predicate."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


@warp_operation("shfl.sync", masked=True)
def shuffle(warps: Warps) -> None:
    """`shfl.sync.mode.b32 d|p, a, b, c, membermask`: a of the lane that b names within the segments and clamp of c."""
    modes = ("up", "down", "bfly", "idx")
    require_modifiers(warps, *(("sync", mode, "b32") for mode in modes))
    destination, predicate = _destinations(warps.instruction.operands[0])
    mode, (value, shift, control, *_) = warps.instruction.modifiers[1], warps.instruction.operands[1:]
    values = warps.read(value)
    if isinstance(shift, Immediate) and isinstance(control, Immediate):  # as compiled code has it
        source, inside = _constant_source_lanes(mode, shift.value, control.value)
        warps.write(destination, values.take(source, axis=1))
    else:
        source, inside = _source_lanes(mode, *(warps.read(operand).astype(np.int64) for operand in (shift, control)))
        warps.write(destination, np.take_along_axis(values, source, axis=1))
    warps.write(predicate, inside)


@cache
def _constant_source_lanes(mode: str, shift: int, control: int) -> tuple[Array, Array]:
    """The same for all warps, (32,)."""
    return _source_lanes(mode, np.array(shift), np.array(control))


def _source_lanes(mode: str, shift: Array, control: Array) -> tuple[Array, Array]:
    """The lane each lane reads, its own where that would leave the segment, and whether it did not; both (w, 32)."""
    shift, clamp, segment = shift & 31, control & 31, control >> 8 & 31
    least = _LANES & segment
    most = least | clamp & ~segment
    sources = {"up": _LANES - shift, "down": _LANES + shift, "bfly": _LANES ^ shift, "idx": least | shift & ~segment}
    source = sources[mode]
    inside = source >= most if mode == "up" else source <= most
    return np.where(inside, source, _LANES), inside


@warp_operation("vote.sync", masked=True)
def vote(warps: Warps) -> None:
    """`vote.sync.all|any|uni.pred p, {!}a, membermask` and `vote.sync.ballot.b32 d, {!}a, membermask`."""
    require_modifiers(warps, *(("sync", mode, "pred") for mode in ("all", "any", "uni")), ("sync", "ballot", "b32"))
    destination, operand = warps.instruction.operands[:2]
    yes = warps.read(operand, np.bool_) & warps.active
    no = warps.active & ~yes
    mode = warps.instruction.modifiers[1]
    if mode == "ballot":
        warps.write(destination, lane_mask(yes)[:, None])
        return
    some, others = (np.asarray(lanes.any(axis=1))[:, None] for lanes in (yes, no))
    warps.write(destination, {"all": ~others, "any": some, "uni": ~(some & others)}[mode])


@warp_operation("match.any.sync", "match.all.sync", masked=True)
def match(warps: Warps) -> None:
    """`match.any|all.sync.b32|b64 d{|p}, a, membermask`: the lanes with the same value; or all lanes if all have it."""
    require_modifiers(warps, *((mode, "sync", kind) for mode in ("any", "all") for kind in ("b32", "b64")))
    destination, predicate = _destinations(warps.instruction.operands[0])
    mode, _, kind = warps.instruction.modifiers
    value = warps.read(warps.instruction.operands[1], f"u{int(kind[1:]) // 8}")
    if mode == "any":
        same = (value[:, :, None] == value[:, None, :]) & warps.active[:, None, :]
        warps.write(destination, lane_mask(same.reshape(-1, WARP)).reshape(value.shape))
        return
    first = np.take_along_axis(value, warps.active.argmax(axis=1)[:, None], axis=1)
    agreed = ((value == first) | ~warps.active).all(axis=1)
    warps.write(destination, np.where(agreed, lane_mask(warps.active), np.uint32(0))[:, None])
    warps.write(predicate, agreed[:, None])


_INTEGER_REDUCTIONS: dict[tuple[str, str], tuple[Callable[..., Array], int]] = {
    ("add", "u32"): (np.add.reduce, 0),
    ("add", "s32"): (np.add.reduce, 0),
    ("min", "u32"): (np.minimum.reduce, 0xFFFF_FFFF),
    ("max", "u32"): (np.maximum.reduce, 0),
    ("min", "s32"): (np.minimum.reduce, 0x7FFF_FFFF),
    ("max", "s32"): (np.maximum.reduce, -0x8000_0000),
    ("and", "b32"): (np.bitwise_and.reduce, 0xFFFF_FFFF),
    ("or", "b32"): (np.bitwise_or.reduce, 0),
    ("xor", "b32"): (np.bitwise_xor.reduce, 0),
}
"""By operation and type: the reduction, and what inactive lanes add to it."""


@warp_operation("redux.sync", masked=True)
def reduce(warps: Warps) -> None:
    """`redux.sync.op.type d, a, membermask` of integers, and `min`/`max{.abs}{.NaN}.f32` of sm_100."""
    _, operation, *_, kind = warps.instruction.modifiers
    if kind == "f32":
        _reduce_floats(warps)
        return
    require_modifiers(warps, *(("sync", *key) for key in _INTEGER_REDUCTIONS))
    function, neutral = _INTEGER_REDUCTIONS[operation, kind]
    dtype = np.dtype(np.int32 if kind == "s32" else np.uint32)
    value = warps.read(warps.instruction.operands[1], dtype)
    value[~warps.active] = neutral
    warps.write(warps.instruction.operands[0], function(value, axis=1, dtype=dtype)[:, None])


def _reduce_floats(warps: Warps) -> None:
    """The smallest or largest number, -0 below +0; NaN counts only with `.NaN`, or where nothing else is there."""
    suffixes = (("f32",), ("abs", "f32"), ("NaN", "f32"), ("abs", "NaN", "f32"))
    require_modifiers(warps, *(("sync", mode, *rest) for mode in ("min", "max") for rest in suffixes))
    modifiers = warps.instruction.modifiers
    bits = warps.read(warps.instruction.operands[1]) & np.uint32(0x7FFF_FFFF if "abs" in modifiers else 0xFFFF_FFFF)
    nan = np.isnan(bits.view(np.float32)) & warps.active
    counted = warps.active & ~nan
    order = _in_order(bits.view(np.int32))
    smallest = "min" in modifiers
    order[~counted] = 0x7FFF_FFFF if smallest else -0x8000_0000
    chosen = _in_order(order.min(axis=1) if smallest else order.max(axis=1)).view(np.uint32)
    is_nan = nan.any(axis=1) if "NaN" in modifiers else ~counted.any(axis=1)
    warps.write(warps.instruction.operands[0], np.where(is_nan, np.uint32(F32.nan), chosen)[:, None])


def _in_order(bits: Array) -> Array:
    """int32 bits of float32 numbers to integers in the same order, and back."""
    ordered: Array = bits ^ ((bits >> 31) & 0x7FFF_FFFF)
    return ordered


@warp_operation("elect.sync", masked=True)
def elect(warps: Warps) -> None:
    """`elect.sync d|p, membermask`: the lowest lane leads; d is its number, p is true for it alone."""
    require_modifiers(warps, ("sync",))
    destination, predicate = _destinations(warps.instruction.operands[0])
    leader = warps.active.argmax(axis=1)[:, None]
    warps.write(destination, leader.astype(np.uint32))
    warps.write(predicate, leader == _LANES)


@present_operation("activemask")
def active_mask(warps: Warps) -> None:
    """`activemask.b32 d`: the lanes that execute it together."""
    require_modifiers(warps, ("b32",))
    warps.write(warps.instruction.operands[0], lane_mask(warps.active)[:, None])


@warp_operation("bar.warp.sync", masked=True)
def synchronise(warps: Warps) -> None:
    """`bar.warp.sync membermask`: accesses before it happen before those after it, among its lanes."""
    require_modifiers(warps, ("warp", "sync"))
    warps.memory.synchronise_warps(warps.members, warps.active)
