"""`cuTensorMapEncodeTiled` and `…Im2col` without a driver: what host code asks for is kept in the map's 128 bytes.

The driver's own encoding is opaque. Ours begins with the global address, as the DSL's inline encoding does, and has a
mark where that one leaves bytes unused.
"""

from __future__ import annotations

import ctypes
import enum
import struct
from dataclasses import dataclass

MAP_BYTES = 128
MOST_DIMENSIONS = 5
_MARK = 0x6375_7465_736D_6974
_HEAD = struct.Struct("<Q5I4B5B5B")  # address; sizes - 1; type, rank, swizzle, fill; boxes - 1; steps
_MARK_AT = 64
_STRIDES = struct.Struct("<Q4Q")
_IM2COL = struct.Struct("<BH6h")  # 1, pixels, corners: lower of each dimension, then upper
_IM2COL_AT = 48
_INTERLEAVE_AT = 44
_MOST_INTERLEAVE = 2
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE


@dataclass(frozen=True)
class TiledMapCall:
    """The arguments, by the names and codes of the driver's manual; `fill` is 1 for NaN outside of the tensor.

    `sizes`, `box` and `steps` have an element for each dimension, the contiguous one first, `strides` (bytes) one less.
    With `corners` (lower and upper ones of the pixels, each of rank - 2 dimensions) it is a map for im2col, whose `box`
    are the channels and the pixels of a copy. `interleave`: 1 or 2 where channels lie in slices of 16 or 32 bytes.
    """

    address: int
    data_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: int = 0
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    interleave: int = 0

    def pack(self) -> bytes:
        """The map's 128 bytes; raises struct.error for what does not fit."""

        def padded(values: tuple[int, ...], less: int = 0) -> tuple[int, ...]:
            return (*(value - less for value in values), *[0] * (MOST_DIMENSIONS - len(values)))

        codes = (self.data_type, len(self.sizes), self.swizzle, self.fill)
        box = self.box if self.corners is None else self.box[:1]
        head = _HEAD.pack(self.address, *padded(self.sizes, 1), *codes, *padded(box, 1), *padded(self.steps))
        head = head.ljust(_INTERLEAVE_AT, b"\0") + bytes([self.interleave])
        if self.corners is not None:
            corners = (value for corner in self.corners for value in padded(corner)[:3])
            head = head.ljust(_IM2COL_AT, b"\0") + _IM2COL.pack(1, self.box[1], *corners)
        tail = _STRIDES.pack(_MARK, *padded(self.strides)[:4])
        return (head.ljust(_MARK_AT, b"\0") + tail).ljust(MAP_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> TiledMapCall | None:
        """The arguments in the bytes of a map; None for one that was encoded otherwise."""
        mark, *strides = _STRIDES.unpack_from(data, _MARK_AT)
        if mark != _MARK:
            return None
        address, *rest = _HEAD.unpack_from(data)
        data_type, rank, swizzle, fill = rest[5:9]
        sizes, box = (tuple(value + 1 for value in rest[start : start + rank]) for start in (0, 9))
        steps, corners = tuple(rest[14 : 14 + rank]), None
        windows, pixels, *found = _IM2COL.unpack_from(data, _IM2COL_AT)
        if windows:
            box, corners = (box[0], pixels), (tuple(found[: rank - 2]), tuple(found[3 : 1 + rank]))
        shape = (sizes, tuple(strides[: rank - 1]), box, steps)
        return cls(address, data_type, *shape, swizzle, fill, corners, data[_INTERLEAVE_AT])


class MapField(enum.Enum):
    """A field that `tensormap.replace` sets, by its name in PTX: where its slots begin among the packed ones, how many.

    `less` is taken off a value before it is kept.
    """

    GLOBAL_ADDRESS = ("global_address", 0, 1, 0)
    GLOBAL_DIM = ("global_dim", 1, MOST_DIMENSIONS, 1)
    ELEMTYPE = ("elemtype", 6, 1, 0)
    RANK = ("rank", 7, 1, -1)
    SWIZZLE_MODE = ("swizzle_mode", 8, 1, 0)
    FILL_MODE = ("fill_mode", 9, 1, 0)
    BOX_DIM = ("box_dim", 10, MOST_DIMENSIONS, 1)
    ELEMENT_STRIDE = ("element_stride", 15, MOST_DIMENSIONS, 0)
    GLOBAL_STRIDE = ("global_stride", 20, MOST_DIMENSIONS - 1, 0)


_PTX_TYPES = {8: 10, 9: 8, 10: 9}  # f32.ftz, f64, bf16: where PTX counts otherwise than the driver


def replaced(data: bytes, field: MapField, index: int, value: int) -> bytes:
    """A packed map with one field set, as `tensormap.replace` takes it; raises ValueError for what does not fit."""
    name, start, count, less = field.value
    if not 0 <= index < count:
        raise ValueError(f"{name} {index}: 0 to {count - 1}")
    if field is MapField.ELEMTYPE:
        value = _PTX_TYPES.get(value, value)
    head, (mark, *strides) = _HEAD.unpack_from(data), _STRIDES.unpack_from(data, _MARK_AT)
    slots = [*head, *strides]
    slots[start + index] = value - less
    try:
        between = data[_HEAD.size : _MARK_AT]
        packed = _HEAD.pack(*slots[: len(head)]) + between + _STRIDES.pack(mark, *slots[len(head) :])
    except struct.error:
        raise ValueError(f"{name} cannot be {value}") from None
    return packed.ljust(MAP_BYTES, b"\0")


def encode_tiled(
    target: int, data_type: int, rank: int, address: int | None, sizes: int, strides: int, box: int, steps: int,
    interleave: int, swizzle: int, promotion: int, fill: int,
) -> int:  # fmt: skip
    """`cuTensorMapEncodeTiled` by the addresses of its arrays: a CUresult."""
    if not (3 if interleave else 1) <= rank <= MOST_DIMENSIONS or not 0 <= interleave <= _MOST_INTERLEAVE:
        return _INVALID_VALUE
    given = _read(ctypes.c_uint32, steps, rank)
    return _write(target, TiledMapCall(
        address=address or 0,
        data_type=data_type,
        sizes=_read(ctypes.c_uint64, sizes, rank),
        strides=_read(ctypes.c_uint64, strides, rank - 1),
        box=_read(ctypes.c_uint32, box, rank),
        steps=given if interleave else (1, *given[1:]),  # the contiguous dimension has no step
        swizzle=swizzle,
        fill=fill,
        interleave=interleave,
    ))  # fmt: skip


def encode_im2col(
    target: int, data_type: int, rank: int, address: int | None, sizes: int, strides: int, lower: int, upper: int,
    channels: int, pixels: int, steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
) -> int:  # fmt: skip
    """`cuTensorMapEncodeIm2col` by the addresses of its arrays: a CUresult."""
    if not 3 <= rank <= MOST_DIMENSIONS or not 0 <= interleave <= _MOST_INTERLEAVE:
        return _INVALID_VALUE
    given = _read(ctypes.c_uint32, steps, rank)
    return _write(target, TiledMapCall(
        address=address or 0,
        data_type=data_type,
        sizes=_read(ctypes.c_uint64, sizes, rank),
        strides=_read(ctypes.c_uint64, strides, rank - 1),
        box=(channels, pixels),
        steps=given if interleave else (1, *given[1:]),
        swizzle=swizzle,
        fill=fill,
        interleave=interleave,
        corners=(_read(ctypes.c_int32, lower, rank - 2), _read(ctypes.c_int32, upper, rank - 2)),
    ))  # fmt: skip


def _read(kind: type[ctypes.c_uint32] | type[ctypes.c_uint64] | type[ctypes.c_int32], where: int, count: int) -> tuple[int, ...]:  # noqa: E501  # fmt: skip
    return tuple((kind * count).from_address(where)) if count else ()


def _write(target: int, call: TiledMapCall) -> int:
    try:
        ctypes.memmove(target, call.pack(), MAP_BYTES)
    except struct.error:
        return _INVALID_VALUE
    return 0
