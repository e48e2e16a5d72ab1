"""What is recorded of the copy engine: one small kernel a case, the tensor map that it uses, and its inputs.

A *set* is one block. Its header of 16 words holds the coordinates of its box (5), im2col offsets (3), where in shared
memory its tile begins, and a mask of blocks; the data of all sets follow the headers. What a set wrote is a part of
the output, or the output is the tensor itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from cutesmith.emulator.program.abi import Array
from evals.studies.emulator import copy_kernels as kernels
from evals.studies.emulator.copy_kernels import CLUSTER_SPACE, HEADER_WORDS, HEADERS
from evals.studies.emulator.mma_inputs import Stream

TYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9,
         "f32_ftz": 10, "tf32": 11, "tf32_ftz": 12}  # fmt: skip
"""Element types of a tensor map by the driver's codes."""
SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
_ROWS = {"none": 256, "32B": 32, "64B": 64, "128B": 128}
_EXPONENTS = {"f16": (10, 5), "bf16": (7, 8), "f32": (23, 8), "f64": (52, 11)}  # bits of mantissa and exponent


def width(kind: str) -> int:
    """Bytes of an element: "b32", "f32_ftz", "tf32"."""
    return int("".join(letter for letter in kind.split("_")[0] if letter.isdigit())) // 8


def draw(stream: Stream, kind: str, count: int) -> Array:
    """`count` elements as uint8: all bits random, of floats most of moderate size and some special."""
    words, family = stream.bits(count), kind.split("_")[0].removeprefix("t")
    if family in _EXPONENTS:
        mantissa, exponent = _EXPONENTS[family]
        bias, ones = (1 << (exponent - 1)) - 1, (1 << exponent) - 1
        biased = np.where(stream.chance(0.8, count), bias - 4 + stream.below(8, count), stream.below(ones + 1, count))
        biased = np.where(stream.chance(0.1, count), np.array((0, 0, 1, ones))[stream.below(4, count)], biased)
        fraction = words & np.uint64((1 << mantissa) - 1)
        fraction = np.where(stream.chance(0.05, count), np.uint64(0), fraction)
        sign = words >> np.uint64(63) << np.uint64(mantissa + exponent)
        words = sign | biased.astype(np.uint64) << np.uint64(mantissa) | fraction
    return np.ascontiguousarray(words.astype(f"u{width(kind)}")).view(np.uint8)


@dataclass(frozen=True)
class MapArguments:
    """What `cuTensorMapEncodeTiled` is asked for, or with `corners` `cuTensorMapEncodeIm2col`.

    `box`: of im2col the channels and the pixels. `strides`: bytes. `corners`: lower and upper, innermost first.
    `expected`: bytes that a mbarrier is told of, where they are not those that a copy moves.
    """

    kind: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str = "none"
    interleave: int = 0
    fill: int = 0
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    expected: int = 0

    @property
    def tile_bytes(self) -> int:
        """Bytes that a copy moves; of an interleaved map one slice of channels."""
        if self.interleave and self.corners is None:
            taken = [-(-box // step) for box, step in zip(self.box, self.steps)]
            return int(np.prod(taken[:-2])) * taken[-1] * 16 * self.interleave
        steps = self.steps if self.corners is None else (1, 1)
        steps = (1, *steps[1:])
        return int(np.prod([-(-box // step) for box, step in zip(self.box, steps)])) * width(self.kind)

    @property
    def tensor_bytes(self) -> int:
        """Bytes from the first to behind the last element."""
        return self.strides[-1] * self.sizes[-1] if self.strides else self.sizes[0] * width(self.kind)


def tensor(kind: str, sizes: tuple[int, ...], box: tuple[int, ...], pad: int = 16, **more: object) -> MapArguments:
    """A map of a tensor whose rows are `pad` bytes and more apart than they are long."""
    strides, reach = [], sizes[0] * width(kind)
    for size in sizes[1:]:
        strides.append(-(-reach // 16) * 16 + pad)
        reach = strides[-1] * size
    given = {"steps": (1,) * len(sizes), **more}
    return MapArguments(kind, sizes, tuple(strides), box, **given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class CopyCase:
    """A kernel, what its sets are told, and the tensors.

    `tile`: bytes of shared memory of a set that are written out or read in. `results`: bytes of output of a set; 0
    where the output is the tensor of the map. `kind`: of the data.
    """

    name: str
    body: str
    headers: tuple[tuple[int, ...], ...]
    tile: int
    kind: str = "u8"
    map: MapArguments | None = None
    cluster: int = 1
    results: int = 0
    data: int = 0
    output_kind: str = field(default="")

    @property
    def sets(self) -> int:
        """Blocks."""
        return len(self.headers)

    @property
    def output_bytes(self) -> int:
        """Bytes of the output."""
        return self.results * self.sets if self.map is None or self.results else self.map.tensor_bytes

    def ptx(self) -> str:
        """The kernel `test(out, in, map)`."""
        return kernels.kernel(self.body, self.tile, self.results, self.cluster)

    def inputs(self) -> Array:
        """uint8: headers and data."""
        words = np.zeros((HEADERS // (4 * HEADER_WORDS), HEADER_WORDS), np.int32)
        for row, header in zip(words, self.headers):
            row[: len(header)] = header
        size = max(self.data, self.tile * self.sets, self.map.tensor_bytes if self.map and self.results else 0)
        data = draw(Stream(self.name), self.kind, -(-size // width(self.kind)))
        return np.concatenate([words.view(np.uint8).ravel(), data])

    def before(self) -> Array:
        """uint8: what the output holds before."""
        kind = self.output_kind or self.kind
        return draw(Stream(f"{self.name} before"), kind, -(-self.output_bytes // width(kind)))[: self.output_bytes]


Starts = tuple[tuple[int, ...], ...]


def load(name: str, map: MapArguments, starts: Starts, *, room: int = 0, **more: object) -> CopyCase:
    """A load of one box a set; a start is its coordinates, im2col offsets (padded to 8), place and mask."""
    tile = -(-(room or map.tile_bytes) // 512) * 512 + 1024
    rank, modes = len(map.sizes), "im2col" if map.corners else "tile"
    body = kernels.load_body(rank, modes, map.expected or map.tile_bytes, **more)  # type: ignore[arg-type]
    cluster = int(more.get("cluster", 1))  # type: ignore[call-overload]
    headers = tuple(_header(start, rank) for start in starts)
    return CopyCase(f"load {name}", body, headers, tile, map.kind, map, cluster, tile + 16)


def _header(start: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Coordinates are padded to five, what follows them is kept."""
    return (*start[:rank], *[0] * (5 - rank), *start[rank:])


def store(name: str, map: MapArguments, starts: Starts, operation: str = "") -> CopyCase:
    """A store, or a reduction, of one box a set."""
    rank, modes = len(map.sizes), "im2col_no_offs" if map.corners else "tile"
    tile = -(-map.tile_bytes // 512) * 512 + 1024
    body = kernels.store_body(rank, modes, operation)
    headers = tuple(_header(start, rank) for start in starts)
    return CopyCase(f"{'reduce' if operation else 'store'} {name}", body, headers, tile, map.kind, map)


# ----------------------------------------------------------------------------------------------------- tiled loads

_EDGES = ((0, 0), (16, 4), (-16, -3), (48, 10), (80, 14), (-40, 2), (96, 20), (8, 13))


def _typed() -> Iterator[CopyCase]:
    """Every type, in the middle and beyond every edge; NaN outside for those of floats."""
    for kind in TYPES:
        yield load(f"{kind} edges", tensor(kind, (96, 16), (32, 8)), _EDGES)
        if "f" in kind:
            yield load(f"{kind} edges NaN", tensor(kind, (96, 16), (32, 8), fill=1), _EDGES)


def _ranked() -> Iterator[CopyCase]:
    """One to five dimensions, boxes of odd sizes."""
    sizes, box = (80, 7, 5, 6, 4), (16, 3, 2, 3, 2)
    for rank in range(1, 6):
        starts = [(16 * (index % 7) - 16, *[(index * 7 + axis * 5) % (size + 4) - 2
                                            for axis, size in enumerate(sizes[1:rank], 1)])
                  for index in range(8)]  # fmt: skip
        yield load(f"rank {rank} u8", tensor("u8", sizes[:rank], box[:rank]), tuple(starts))
        yield load(f"rank {rank} f16", tensor("f16", sizes[:rank], box[:rank]), tuple(starts))


def _swizzled() -> Iterator[CopyCase]:
    """Rows as wide as the swizzle and narrower, tiles at places within the pattern."""
    kinds = itertools.cycle(("u8", "f16", "f32", "u64"))
    for swizzle, inners in (("32B", (32, 16)), ("64B", (64, 48, 32, 16)), ("128B", (128, 112, 96, 64, 32, 16))):
        row = _ROWS[swizzle]
        for inner, kind in zip(inners, kinds):
            elements = inner // width(kind)
            map = tensor(kind, (4 * elements, 24), (elements, 12), swizzle=swizzle)
            places = ((0, 0, 0), (2, 3, 128), (-1, -2, 256), (7, 17, 384), (1, 1, 512), (3, 22, 896))
            step = -(-inner // 2 // 16) * 16 // width(kind)  # rows start at multiples of 16 bytes
            starts = tuple((x * step, y, 0, 0, 0, place) for x, y, place in places)
            yield load(f"{swizzle} rows of {inner} {kind}", map, starts, room=row * 12)


def _stepped() -> Iterator[CopyCase]:
    """Strides between elements."""
    for steps in ((1, 2), (1, 3), (1, 8), (2, 1)):
        starts = ((0, 0), (8, 5), (-8, -4), (64, 30), (40, -7))
        yield load(f"steps {steps}", tensor("u16", (72, 40), (32, 17), steps=steps), starts)
    cube = ((0, 0, 0), (4, 1, 2), (-4, -4, -1), (20, 8, 5))
    yield load("steps (1, 2, 3)", tensor("f32", (40, 12, 9), (16, 5, 7), steps=(1, 2, 3)), cube)
    yield load("steps (1, 4, 2) 128B", tensor("f32", (40, 12, 9), (32, 9, 5), steps=(1, 4, 2), swizzle="128B"), cube)


def _multicast() -> Iterator[CopyCase]:
    """To several blocks of a cluster: masks of one, some and all."""
    map = tensor("f16", (64, 40), (64, 8), swizzle="128B")
    for cluster, masks in ((2, (1, 2, 3)), (4, (15, 5, 8, 6))):
        for mask in masks:
            asked = tuple((0, 4 * block - 2, 0, 0, 0, 0, mask) for block in range(2 * cluster))
            yield load(f"multicast {mask:#x} of {cluster}", map, asked, cluster=cluster, mask=mask)


# ------------------------------------------------------------------------------------------- stores and reductions


def _boxes(sets: int, tall: int) -> Starts:
    """Boxes one above the other, shifted to the sides."""
    return tuple(((index * 80) % 96, index * tall) for index in range(sets))


def _stores() -> Iterator[CopyCase]:
    for kind in TYPES:
        yield store(f"{kind}", tensor(kind, (96, 28), (32, 5)), _boxes(6, 5))
    sizes, box = (80, 6, 5, 4, 3), (16, 4, 3, 2, 2)
    for rank in range(1, 6):
        starts = tuple((24 * index, *[(index + axis) % 3 for axis in range(rank - 1)]) for index in range(4))
        yield store(f"rank {rank}", tensor("u16", sizes[:rank], box[:rank]), starts)
    for swizzle, inner in (("32B", 32), ("64B", 64), ("128B", 128), ("128B", 64), ("64B", 32)):
        map = tensor("u8", (2 * inner, 30), (inner, 6), swizzle=swizzle)
        yield store(f"{swizzle} rows of {inner}", map, tuple((inner * (i % 3) // 2, 6 * i) for i in range(5)))
    yield store("steps (1, 2)", tensor("u16", (72, 40), (32, 9), steps=(1, 2)), tuple((16 * i, 10 * i) for i in range(4)))  # noqa: E501  # fmt: skip
    yield store("steps (1, 3, 2)", tensor("u32", (24, 12, 12), (16, 6, 5), steps=(1, 3, 2)), ((0, 0, 0), (8, 6, 6), (20, 1, 7)))  # noqa: E501  # fmt: skip


def _tensor_reductions() -> Iterator[CopyCase]:
    for operation, kinds in (
        ("add", "u32 s32 u64 f16 bf16 f32 f32_ftz"), ("min", "u32 s32 u64 s64 f16 bf16"),
        ("max", "u32 s32 u64 s64 f16 bf16"), ("inc", "u32"), ("dec", "u32"), ("and", "u32 u64"), ("or", "u32 u64"),
        ("xor", "u32 u64"),
    ):  # fmt: skip
        for kind in kinds.split():
            yield store(f"{operation} {kind}", tensor(kind, (96, 28), (32, 5)), _boxes(6, 5), operation)


# -------------------------------------------------------------------------------------------------- im2col, interleave


def _image(kind: str, channels: int, spatial: tuple[int, ...], images: int, **more: object) -> MapArguments:
    return tensor(kind, (channels, *spatial, images), more.pop("box"), **more)  # type: ignore[arg-type]


def _im2col() -> Iterator[CopyCase]:
    """Windows of images: one to three spatial dimensions, offsets of the filter, strides, edges, swizzles."""
    line = {"corners": ((-1,), (-1,)), "box": (16, 8)}
    steps = ((0, -1, 0, 0), (8, 3, 0, 1), (0, 7, 1, 2), (16, 5, 2, 0), (24, 0, 0, 1), (-8, -1, 0, 0), (0, 6, 2, 1))
    yield load("im2col 3d", _image("f16", 32, (9,), 3, **line), steps)
    square = {"corners": ((-1, -1), (-1, -1)), "box": (16, 12)}
    points = ((0, -1, -1, 0, 0, 0), (0, -1, -1, 0, 2, 1), (16, 3, 2, 0, 1, 1), (0, 5, 4, 0, 2, 2), (8, 5, 4, 1, 0, 1),
              (0, 0, 4, 1, 1, 2), (-8, 2, 0, 0, 0, 0), (24, 5, -1, 0, 1, 0))  # fmt: skip
    yield load("im2col 4d", _image("f16", 32, (7, 6), 2, **square), points)
    yield load("im2col 4d 64B", _image("f16", 32, (7, 6), 2, **{**square, "box": (32, 12)}, swizzle="64B"), points)
    yield load(
        "im2col 4d 128B u8", _image("u8", 128, (7, 6), 2, **{**square, "box": (128, 10)}, swizzle="128B"), points
    )
    yield load("im2col 4d NaN", _image("f16", 32, (7, 6), 2, **square, fill=1), points)
    yield load("im2col 4d f32", _image("f32", 24, (7, 6), 2, **{**square, "box": (8, 20)}), points)
    strided = {**square, "steps": (1, 2, 2, 1)}
    yield load("im2col 4d strides 2", _image("f16", 32, (7, 6), 2, **strided), points)
    yield load("im2col 4d strides 2 3", _image("f16", 32, (9, 8), 2, **{**square, "steps": (1, 2, 3, 1)}), points)
    wide = {"corners": ((-2, -1), (0, -3)), "box": (16, 15)}
    yield load("im2col 4d uneven corners", _image("f16", 32, (8, 7), 2, **wide), points)
    inner = {"corners": ((1, 0), (-2, -1)), "box": (16, 9)}
    yield load("im2col 4d inner corners", _image("f16", 32, (8, 7), 2, **inner), tuple((c, max(w, 1), max(h, 0), n, a, b) for c, w, h, n, a, b in points))  # noqa: E501  # fmt: skip
    yield load("im2col 4d many images", _image("f16", 16, (3, 3), 5, **{**square, "box": (16, 64)}), points)
    cube = {"corners": ((-1, -1, -1), (-1, -1, -1)), "box": (16, 40)}
    solid = ((0, -1, -1, -1, 0, 0, 0, 0), (0, 2, 1, 1, 0, 2, 1, 0), (8, 3, 2, 1, 1, 1, 2, 2), (16, 0, 0, 0, 0, 1, 1, 1))
    yield load("im2col 5d", _image("f16", 32, (5, 4, 3), 2, **cube), solid)
    yield load("im2col 5d strides", _image("f16", 32, (5, 4, 5), 2, **cube, steps=(1, 2, 1, 2, 1)), solid)
    plain = {"corners": ((0, 0), (0, 0)), "box": (16, 12)}
    yield store("im2col 4d", _image("u16", 32, (7, 6), 2, **plain), ((0, 0, 0, 0), (16, 5, 1, 0), (8, 3, 4, 1)))
    yield store("im2col 4d corners", _image("u16", 32, (7, 6), 2, **square), ((0, -1, -1, 0), (16, 3, 1, 0), (0, 2, 4, 1)))  # noqa: E501  # fmt: skip


def _interleaved() -> Iterator[CopyCase]:
    """Slices of 16 and 32 bytes of channels; strides as for a tensor (channels, width, height, …) and others."""
    for interleave, swizzle, box in ((1, "none", 8), (2, "32B", 16)):
        for rank in (3, 4, 5):
            sizes, tile = (40, 6, 5, 3, 2)[:rank], (box, 4, 3, 2, 1)[:rank]
            starts = tuple((start, *[(index + axis) % 3 - 1 for axis in range(rank - 1)])
                           for index, start in enumerate((0, 1, 2, 8, 16, 4)))  # fmt: skip
            map = tensor("u16", sizes, tile, pad=32)
            strides = tuple(-(-stride // 32) * 32 for stride in map.strides)
            map = MapArguments("u16", sizes, strides, tile, (1,) * rank, swizzle, interleave, expected=2 * prod(tile))
            case = load(f"interleave {16 * interleave} rank {rank}", map, starts, room=4096)
            yield replace(case, data=1 << 17)  # where the slices of channels lie is what the recording tells


# ----------------------------------------------------------------------------------------------------------- bytes


def _bytes() -> Iterator[CopyCase]:
    """`cp.async.bulk` and its reductions; a header's words are sizes and places."""
    sizes = ((16,), (48,), (1024,), (4096,))
    yield CopyCase("bulk load", kernels.bulk_load_body(1), sizes, 4096, results=4112)
    yield CopyCase("bulk store", kernels.bulk_store_body(""), sizes, 4096, results=4112)
    for cluster, mask in ((2, 3), (4, 10), (4, 15)):
        asked = tuple((512, 0, 0, 0, 0, 0, 0, 0, 0, mask) for _ in range(2 * cluster))
        body = kernels.bulk_load_body(cluster, multicast=mask)
        yield CopyCase(f"bulk multicast {mask:#x} of {cluster}", body, asked, 4096, cluster=cluster, results=4112)
    to_peer = tuple((size,) for size in (16, 32, 2048, 4096))
    yield CopyCase("bulk to peer", kernels.bulk_peer_body(""), to_peer, 4096, cluster=2, results=4112)
    for operation, kinds in (("add", "u32 s32 u64"), ("min", "u32 s32"), ("max", "u32 s32"), ("inc", "u32"),
                             ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32")):  # fmt: skip
        for kind in kinds.split():
            body = kernels.bulk_peer_body(f".{operation}.{kind}")
            yield CopyCase(f"bulk reduce peer {operation} {kind}", body, to_peer, 4096, kind, cluster=2, results=4112)
    for operation, kinds in (("add", "u32 s32 u64 f32 f64 noftz.f16 noftz.bf16"), ("min", "u32 s32 u64 s64 f16 bf16"),
                             ("max", "u32 s32 u64 s64 f16 bf16"), ("inc", "u32"), ("dec", "u32"),
                             ("and", "b32 b64"), ("or", "b32 b64"), ("xor", "b32 b64")):  # fmt: skip
        for kind in kinds.split():
            noftz, plain = (".noftz", kind[6:]) if kind.startswith("noftz") else ("", kind)
            body = kernels.bulk_store_body(f"{noftz}.{operation}.{plain}")
            yield CopyCase(f"bulk reduce {operation} {kind}", body, sizes[:3], 4096, plain, results=4112)


def _sent() -> Iterator[CopyCase]:
    """`st.async` and `red.async` to the peer of a cluster of two."""
    sets = ((0,),) * 4
    for kind, vectors in itertools.product(("b32", "b64", "u32", "s64", "f32", "f64"), (1, 2, 4)):
        if vectors * width(kind) <= 16:
            body = kernels.sent_body(f"st.async.weak.{CLUSTER_SPACE}", "", kind, vectors)
            name = f"st.async {kind}{f' v{vectors}' if vectors > 1 else ''}"
            yield CopyCase(name, body, sets, 4096, kind, cluster=2, results=4112)
    for operation, kinds in (("add", "u32 s32 u64"), ("min", "u32 s32"), ("max", "u32 s32"), ("inc", "u32"),
                             ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32")):  # fmt: skip
        for kind in kinds.split():
            body = kernels.sent_body(f"red.async.relaxed.cluster.{CLUSTER_SPACE}", f".{operation}", kind, 1)
            yield CopyCase(f"red.async {operation} {kind}", body, sets, 4096, kind, cluster=2, results=4112)


CASES = (*_typed(), *_ranked(), *_swizzled(), *_stepped(), *_multicast(), *_stores(), *_tensor_reductions(),
         *_im2col(), *_interleaved(), *_bytes(), *_sent())  # fmt: skip
