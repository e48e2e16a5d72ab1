"""Tensor maps: the 128 bytes that tell the copy engine where a tensor lies, and in what boxes it is copied.

The layout of the words is the one that host code of the DSL writes, found by encoding tensors of known shape, stride,
box, swizzle and type with nvidia-cutlass-dsl 4.8 (tests/emulator/engines/test_tensor_maps.py repeats that):

| word | bits |
|---|---|
| 0 | global address |
| 1 | [0:4) 2; [4:7) rank - 1; [7:11) type; [13:15) swizzle, [19:21) its atoms; [16] tf32; [32:64) stride 1 |
| | [17:19) L2 promotion; [21] set where the tensor has 128 KB or more |
| 2, 3 | strides 2, 3, 4 in units of 16 bytes, 32 bits each, then four bits more of strides 1 to 4 |
| 4, 5, 6 | sizes 0 to 4 less one, 32 bits each |
| 6, 7 | word 6 [56:64) box 0 less one; word 7 [0:32) boxes 1 to 4 less one, 8 bits each |

Of a map for im2col word 1 begins with 3. Word 6 has the steps less one from bit 32 on, 3 bits each. Word 7 has the
lower corner of windows in its first 16 bits and the upper one in the next 16: one number of 16 bits, two of 8, or three
of 5. [32:42) of it has the pixels less one.

Whatever else is set is refused. Of maps that the driver encodes the arguments are kept (recording/tensor_map_calls.py).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.program.abi import Array
from cutesmith.recording.tensor_map_calls import MOST_DIMENSIONS, MapField, TiledMapCall, replaced

MAP_ALIGN = 64
_SWIZZLES = (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128, Swizzle.B128_ATOM_32B)  # codes of the driver
_MOST_PIXELS = 1024
_TILED, _IM2COL = 2, 3  # of word 1
_PACKED_HALVES = 11  # the code of e2m1 in pairs
_CHUNK = 16
_PACKED = {13: (4, 16), 14: (4, 8), 15: (6, 12)}
"""Codes of the driver for packed elements, `b4x16`, `b4x16_p64`, `b6x16_p32` of PTX: bits, bytes of a chunk."""
_PADDED_BOX, _PADDED_ALIGN = 128, 32  # elements of a row, and bytes, where a chunk has padding
_ADDRESSES = 1 << 57  # of the virtual memory of a GPU
_KNOWN_BITS = 0xFFFF_FFFF_003F_67FF


class TensorMapError(Exception):
    """Bytes that are not a tensor map, or one that the driver would refuse to encode; the text says why."""


class UnknownTensorMap(TensorMapError):
    """A tensor map that is not understood here: a GPU may take it."""


class Element(enum.Enum):
    """(code of word 1, bytes, name in PTX, code of the driver) of an element type; -1 where there is no such code."""

    U8 = (0, 1, "u8", 0)
    U16 = (1, 2, "u16", 1)
    U32 = (2, 4, "u32", 2)
    U64 = (4, 8, "u64", 4)
    F16 = (6, 2, "f16", 6)
    F32 = (7, 4, "f32", 7)
    F64 = (9, 8, "f64", 8)
    BF16 = (10, 2, "bf16", 9)
    S32 = (-1, 4, "s32", 3)  # the DSL encodes signed integers as unsigned ones
    S64 = (-1, 8, "s64", 5)
    F32_FTZ = (-1, 4, "f32_ftz", 10)
    TF32 = (-1, 4, "tf32", 11)
    TF32_FTZ = (-1, 4, "tf32_ftz", 12)

    @property
    def bytes(self) -> int:
        """Bytes of an element in memory."""
        return int(self.value[1])

    @property
    def rounds(self) -> bool:
        """Whether loads round to tf32; stores do not. No copy flushes subnormals, those of `.ftz` types neither."""
        return self in (Element.TF32, Element.TF32_FTZ)


_FLOATS = (Element.F16, Element.BF16, Element.F32, Element.F64, Element.F32_FTZ, Element.TF32, Element.TF32_FTZ)


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box that one copy moves; the first dimension is the contiguous one.

    `strides`: bytes between neighbours along every dimension but the first. `box`: elements along each dimension as
    they are counted in the tensor, of which every `steps`-th is copied. `packed`: bits of an element where elements
    share bytes; sizes and boxes count bytes then, the coordinates of a copy elements. `chunk`: how many bytes of the
    tensor go to 16 bytes of shared memory, of which the others stay as they are. `corners`: a map for im2col, whose box
    are the channels and the pixels of a copy; how far the first and the last pixel of a window's corner lie from those
    of the image, along each dimension between channels and images. `interleaved`: its first dimension is a slice of
    channels, for which the 128 bytes have no size, and a copy has no coordinate.
    """

    address: int
    element: Element
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: Swizzle = Swizzle.NONE
    fill_nan: bool = False
    packed: int = 8
    chunk: int = _CHUNK
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    interleaved: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of a copy."""
        return self.rank - self.interleaved

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """Elements that a copy moves along each dimension."""
        if self.corners is not None:
            return self.box
        return tuple(-(-box // step) for box, step in zip(self.box, self.steps, strict=True))

    @property
    def padded(self) -> bool:
        """Whether chunks of shared memory have padding."""
        return self.chunk < _CHUNK

    def byte_of(self, coordinate: int) -> int:
        """The byte of a row of the tensor where an element begins."""
        return coordinate * self.packed // 8 * self.element.bytes

    @cached_property
    def tile_bytes(self) -> int:
        """Bytes that a copy moves, those outside of the tensor included; an mbarrier counts so many."""
        return int(np.prod(self.tile)) * self.element.bytes

    @cached_property
    def inner_bytes(self) -> int:
        """Bytes of shared memory that a row of a tile takes, the padding of its chunks included."""
        return (
            self.tile[0] * self.element.bytes // self.chunk * _CHUNK
            if self.padded
            else self.tile[0] * self.element.bytes
        )

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of shared memory from one row of a tile to the next: narrower rows leave gaps in those of a swizzle."""
        return self.inner_bytes if self.swizzle is Swizzle.NONE else max(self.inner_bytes, self.swizzle.row)

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a tile spans, gaps included."""
        return int(np.prod(self.tile[1:])) * self.row_bytes

    @cached_property
    def row_offsets(self) -> Array:
        """uint64: bytes from the first element of a box to that of each of its rows."""
        offsets = np.zeros(1, np.uint64)
        for stride, step, tile in zip(self.strides, self.steps[1:], self.tile[1:], strict=True):
            positions = np.arange(tile, dtype=np.uint64) * np.uint64(step * stride)
            offsets = (positions[:, None] + offsets).ravel()
        return offsets

    @cached_property
    def row_numbers(self) -> Array:
        """0, 1, … for each row of a box."""
        return np.arange(len(self.row_offsets))

    @cached_property
    def first_beyond(self) -> Array:
        """int64 (rank,): the first places along each dimension where a box does not fit any more."""
        reach = [
            self.tile[0],
            *((tile - 1) * step + 1 for tile, step in zip(self.tile[1:], self.steps[1:], strict=True)),
        ]
        return np.array(self.sizes, np.int64) - np.array(reach, np.int64) + 1

    @cached_property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return self.element.bytes

    def holds_window(self, coordinates: Sequence[int]) -> bool:
        """Whether an im2col copy from there begins within the corners of an image."""
        assert self.corners is not None
        parts = zip(coordinates[1:], self.sizes[1:], *self.corners, strict=False)
        return all(lower <= at < size + upper for at, size, lower, upper in parts)

    def check(self) -> TensorMap:
        """The map itself; raises TensorMapError for what `cuTensorMapEncodeTiled` refuses."""
        inner = self.tile[0] * self.element.bytes
        if self.padded:
            self._check_padded()
        if self.address % 16:
            raise TensorMapError(f"its tensor begins at {self.address:#x}, not at a multiple of 16")
        if wrong := [stride for stride in self.strides if stride % 16 or not 0 <= stride < 1 << 40]:
            raise TensorMapError(f"a stride of {wrong[0]} bytes is not a multiple of 16 below 2^40")
        if not all(1 <= size <= 1 << 32 for size in self.sizes):
            raise TensorMapError(f"sizes {self.sizes}: 1 to 2^32")
        most = (256,) * self.rank if self.corners is None else (256, _MOST_PIXELS)
        box = (self.box[0] * 8 // self.packed, *self.box[1:])
        if not all(1 <= size <= limit for size, limit in zip(box, most)) or not all(
            1 <= step <= 8 for step in self.steps
        ):
            raise TensorMapError(f"a box of {box} elements in steps of {self.steps}: 1 to 256, steps of 1 to 8")
        if inner % 16:
            raise TensorMapError(f"rows of {inner} bytes in its box: a multiple of 16 is needed")
        if self.swizzle is not Swizzle.NONE and self.inner_bytes > self.swizzle.row:
            what = f"rows of {self.inner_bytes} bytes in its box"
            raise TensorMapError(f"{what}: its swizzle takes at most {self.swizzle.row}")
        return self

    def _check_padded(self) -> None:
        """PTX ISA, "Restriction on Tensor Copy instructions"."""
        elements = (self.box[0] * 8 // self.packed, self.sizes[0] * 8 // self.packed)
        if elements[0] != _PADDED_BOX or elements[1] % _PADDED_BOX:
            what = f"{elements[1]} elements of {self.packed} bits in boxes of {elements[0]}"
            raise TensorMapError(f"{what}: with padding a box has {_PADDED_BOX}, the tensor a multiple of it")
        if wrong := [value for value in (self.address, *self.strides) if value % _PADDED_ALIGN]:
            raise TensorMapError(f"an address or stride of {wrong[0]:#x}: with padding a multiple of {_PADDED_ALIGN}")
        if self.swizzle not in (Swizzle.NONE, Swizzle.B128, Swizzle.B128_ATOM_32B):
            raise TensorMapError(f"a swizzle of {self.swizzle.row} bytes: with padding none or one of 128")

    def encode(self) -> bytes:
        """128 bytes for a map that the driver was asked for; `decode` understands them."""
        code, swizzle = int(self.element.value[3]), _SWIZZLES.index(self.swizzle)
        code = next((known for known, kind in _PACKED.items() if kind == (self.packed, self.chunk)), code)
        sizes, box = ((each[0] * 8 // self.packed, *each[1:]) for each in (self.sizes, self.box))
        shape = (sizes, self.strides, box, self.steps)
        return TiledMapCall(self.address, code, *shape, swizzle, int(self.fill_nan), self.corners).pack()


@cache
def decode(data: bytes) -> TensorMap:
    """The tensor map in 128 bytes; raises TensorMapError."""
    call = TiledMapCall.unpack(data)
    return (_decode_inline(data) if call is None else _of_call(call)).check()


def replace_field(data: bytes, field: MapField, index: int, value: int) -> bytes:
    """128 bytes with one field of the map changed, which may be sound only once others are; raises TensorMapError.

    A map of zeros is one whose fields are still to be set.
    """
    if TiledMapCall.unpack(data) is None:
        data = TiledMapCall(0, 0, (1,), (), (1,), (1,)).pack() if not any(data) else _decode_inline(data).encode()
    try:
        return replaced(data, field, index, value)
    except ValueError as error:
        raise TensorMapError(str(error)) from None


def _of_call(call: TiledMapCall) -> TensorMap:
    packed, chunk = _PACKED.get(call.data_type, (8, _CHUNK))
    code = Element.U8.value[3] if packed < 8 else call.data_type
    element = next((element for element in Element if element.value[3] == code), None)
    if element is None or call.swizzle >= len(_SWIZZLES):
        raise UnknownTensorMap(f"type {call.data_type} or swizzle {call.swizzle} of the driver is not understood")
    fill, swizzle = bool(call.fill), _SWIZZLES[call.swizzle]
    if fill and element not in _FLOATS:
        raise TensorMapError(f"NaN outside of a tensor of {element.value[2]}, which has none")
    if call.sizes[0] * packed % 8 or call.box[0] * packed % 8:
        raise TensorMapError(f"{call.sizes[0]} elements of {packed} bits in boxes of {call.box[0]}: no whole bytes")
    sizes, box = ((each[0] * packed // 8, *each[1:]) for each in (call.sizes, call.box))
    shape = (sizes, call.strides, box, call.steps)
    described = TensorMap(call.address, element, *shape, swizzle, fill, packed, chunk, call.corners)
    return _unfolded(described, 16 * call.interleave) if call.interleave else described


def _unfolded(folded: TensorMap, unit: int) -> TensorMap:
    """An interleaved map with its slices of `unit` bytes of channels as a dimension: width, height, … follow it.

    Of the slices, the last dimension but one, a box holds one, whatever it is asked for (recorded on an H100).
    """
    if folded.swizzle is not (Swizzle.B32 if unit == 32 else Swizzle.NONE):
        raise TensorMapError("slices of 32 bytes of channels need a swizzle of 32 bytes, slices of 16 bytes none")
    if wrong := [stride for stride in folded.strides if stride % unit]:
        raise TensorMapError(f"a stride of {wrong[0]} bytes is not a multiple of its slices of {unit} bytes")
    if folded.box[0] * folded.element.bytes % 16:  # refused by the driver beside an H100, though it counts the width
        raise TensorMapError(f"its box is {folded.box[0]} elements wide: a multiple of 16 bytes is needed")
    channels = unit // folded.element.bytes
    box = folded.box if folded.corners is not None else (channels, *folded.box[:-2], 1, folded.box[-1])
    if box[0] != channels:
        raise UnknownTensorMap(f"im2col of {box[0]} channels in slices of {channels}, which is not settled")
    return replace(
        folded,
        sizes=(channels, *folded.sizes),
        strides=(unit, *folded.strides),
        box=box,
        steps=(1, *folded.steps),
        interleaved=True,
    )


def _corner(packed: int, dimensions: int) -> tuple[int, ...]:
    """The numbers of a corner, which share 16 bits."""
    width = 16 // dimensions
    numbers = (packed >> width * dim & (1 << width) - 1 for dim in range(dimensions))
    return tuple(number - (number >> width - 1 << width) for number in numbers)


def _decode_inline(data: bytes) -> TensorMap:
    words = [int(word) for word in np.frombuffer(data, np.uint64)]
    kind, rank, code = words[1] & 0xF, (words[1] >> 4 & 7) + 1, words[1] >> 7 & 0xF
    if rank > MOST_DIMENSIONS or not 0 < words[0] < _ADDRESSES:
        raise TensorMapError("these 128 bytes are not a tensor map")
    windows = kind == _IM2COL
    if not windows and kind != _TILED:
        raise UnknownTensorMap("these 128 bytes are not a tensor map of a tiled tensor")
    if windows and not 3 <= rank <= MOST_DIMENSIONS:
        raise UnknownTensorMap(f"it is for im2col with {rank} dimensions, not with 3 to {MOST_DIMENSIONS}")
    if strange := words[1] & ~_KNOWN_BITS:
        raise UnknownTensorMap(f"bits {strange:#x} of its second word are not understood (interleave or fill)")
    known = ((1 << 3 * rank) - 1, 0x3FF) if windows else (0, 0)
    if words[6] >> 32 & 0xFF_FFFF & ~known[0] or words[7] >> 32 & ~known[1]:
        raise UnknownTensorMap("its last words are not understood (steps between elements, or im2col)")
    packed = 4 if code == _PACKED_HALVES else 8
    element = Element.U8 if packed < 8 else next((one for one in Element if one.value[0] == code), None)
    if element is None:
        raise UnknownTensorMap(f"its element type {code} is not understood")
    if words[1] >> 16 & 1:
        element = Element.TF32
    swizzle, atoms = _SWIZZLES[words[1] >> 13 & 3], words[1] >> 19 & 3
    if atoms:
        if (swizzle, atoms) != (Swizzle.B128, 1):
            raise UnknownTensorMap(f"its swizzle has atoms of code {atoms}, which is not understood")
        swizzle = Swizzle.B128_ATOM_32B
    low = [words[1] >> 32, words[2] & 0xFFFF_FFFF, words[2] >> 32, words[3] & 0xFFFF_FFFF]
    high = [words[3] >> shift & 0xF for shift in (32, 36, 40, 44)]
    sizes = [half + 1 for word in words[4:7] for half in (word & 0xFFFF_FFFF, word >> 32)]
    box = [part + 1 for part in (words[6] >> 56, *words[7].to_bytes(8, "little"))]
    sizes[0], box[0] = sizes[0] * packed // 8, box[0] * packed // 8
    steps = (1,) * rank
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    if windows:
        corners = _corner(words[7] & 0xFFFF, rank - 2), _corner(words[7] >> 16 & 0xFFFF, rank - 2)
        steps = tuple((words[6] >> 32 + 3 * dim & 7) + 1 for dim in range(rank))
        box = [box[0], (words[7] >> 32) + 1]
    return TensorMap(
        address=words[0],
        element=element,
        sizes=tuple(sizes[:rank]),
        strides=tuple((more << 32 | units) << 4 for units, more in zip(low, high, strict=True))[: rank - 1],
        box=tuple(box[:rank]),
        steps=steps,
        swizzle=swizzle,
        packed=packed,
        corners=corners,
    )
