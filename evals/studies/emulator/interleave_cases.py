"""Copies with interleaved tensor maps, and im2col with three and five dimensions: what the first recordings left open.

Channels lie in slices of 16 or 32 bytes. The dimensions of such a map are width, height, depth (as many as it has),
slices and images; a slice is an inner dimension that has neither size, stride nor coordinate. The first recordings told
that a box holds one slice of channels, whatever it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evals.studies.emulator.copy_cases import CopyCase, MapArguments, load, store, tensor

_UNITS = ((1, "none"), (2, "32B"))  # codes of the driver: interleave and the swizzle that goes with it
_SIZES = (10, 6, 5, 3, 2)


def sliced(kind: str, sizes: tuple[int, ...], box: tuple[int, ...], interleave: int, **more: object) -> MapArguments:
    """A map of a tensor whose slices lie one after another, with a gap after each line."""
    unit = 16 * interleave
    strides, reach = [], sizes[0] * unit
    for size in sizes[1:]:
        strides.append(reach + unit)
        reach = strides[-1] * size
    swizzle = dict(_UNITS)[interleave]
    given = {"steps": (1,) * len(sizes), "swizzle": swizzle, **more}
    return MapArguments(kind, sizes, tuple(strides), box, interleave=interleave, **given)  # type: ignore[arg-type]


def _starts(rank: int) -> tuple[tuple[int, ...], ...]:
    edges = ((0, 0, 0, 0, 0), (1, -1, 0, 1, 0), (-2, 1, 2, 0, 1), (7, 4, -1, 1, 0), (3, 2, 3, 2, -1), (9, 0, 1, -1, 1))
    firsts = tuple(edge[: rank - 2] for edge in edges)
    return tuple((*first, *edge[3:]) for first, edge in zip(firsts, edges))


def _loaded(name: str, map: MapArguments, starts: tuple[tuple[int, ...], ...], **more: object) -> CopyCase:
    case = load(f"interleaved {name}", map, starts, room=map.tile_bytes, **more)
    return replace(case, data=1 << 16)


def _tiled() -> Iterator[CopyCase]:
    for interleave, _ in _UNITS:
        unit = 16 * interleave
        for rank in (3, 4, 5):
            sizes, box = (*_SIZES[: rank - 2], 3, 2), (*(4, 3, 2)[: rank - 2], 1, 2)
            yield _loaded(f"{unit} rank {rank}", sliced("u16", sizes, box, interleave), _starts(rank))
        sizes, box, starts = (10, 6, 3, 2), (4, 3, 1, 2), _starts(4)
        for kind in ("u8", "f32", "bf16", "tf32"):
            yield _loaded(f"{unit} {kind}", sliced(kind, sizes, box, interleave), starts)
        yield _loaded(f"{unit} f16 NaN", sliced("f16", sizes, box, interleave, fill=1), starts)
        yield _loaded(f"{unit} slices 3", sliced("u16", sizes, (4, 3, 3, 2), interleave), starts)
        for steps in ((2, 1, 1, 1), (1, 2, 1, 1), (3, 2, 1, 2), (1, 1, 2, 1)):
            map = sliced("u16", sizes, (7, 3, 1, 2), interleave, steps=steps)
            yield _loaded(f"{unit} steps {steps}", map, starts)
    sizes, box, starts = (10, 6, 3, 2), (4, 3, 1, 2), _starts(4)
    for swizzle in ("32B", "64B", "128B"):
        map = sliced("u16", sizes, box, 1, swizzle=swizzle)
        yield _loaded(f"16 swizzle {swizzle}", map, starts)
    yield _loaded("32 swizzle none", sliced("u16", sizes, box, 2, swizzle="none"), starts)


def _stored() -> Iterator[CopyCase]:
    starts = ((0, 0, 0, 0), (4, 3, 1, 0), (8, 5, 2, 1))
    for interleave, _ in _UNITS:
        map = sliced("u32", (10, 6, 3, 2), (4, 3, 1, 1), interleave)
        yield store(f"interleaved {16 * interleave}", map, starts)
        yield store(f"interleaved add {16 * interleave}", map, starts, "add")


def _windows() -> Iterator[CopyCase]:
    """im2col of interleaved images: one, two and three spatial dimensions; and of further plain ones."""
    for interleave, _ in _UNITS:
        unit, channels = 16 * interleave, 8 * interleave
        line = sliced("f16", (9, 3, 2), (channels, 8), interleave, corners=((-1,), (-1,)))
        yield _loaded(f"{unit} im2col 3d", line, ((0, 0, 0, 0), (-1, 1, 0, 1), (5, 2, 1, 2)))
        square = sliced("f16", (7, 6, 3, 2), (channels, 12), interleave, corners=((-1, -1), (-1, -1)))
        yield _loaded(f"{unit} im2col 4d", square, ((-1, -1, 0, 0, 0, 0), (3, 2, 1, 0, 1, 1), (5, 4, 2, 1, 2, 2)))
    line = {"corners": ((-2,), (0,)), "steps": (1, 2, 1)}
    points = ((0, -2, 0, 0), (8, 2, 0, 1), (0, 6, 1, 2), (-8, 0, 0, 0))
    yield load("im2col 3d strides", tensor("f16", (32, 9, 3), (16, 8), **line), points)
    yield load("im2col 3d 128B f32 NaN", tensor("f32", (32, 9, 3), (32, 8), swizzle="128B", fill=1, **line), points)
    cube = {"corners": ((-2, 1, 0), (0, -1, -1)), "steps": (1, 1, 2, 1, 1)}
    solid = ((0, -2, 1, 0, 0, 0, 0, 0), (8, 3, 1, 1, 0, 2, 1, 0), (-8, 0, 2, 1, 1, 1, 2, 2))
    yield load("im2col 5d uneven corners", tensor("f16", (32, 5, 5, 3, 2), (16, 40), **cube), solid)
    yield load("im2col 5d 64B", tensor("f16", (32, 5, 5, 3, 2), (32, 20), swizzle="64B", **cube), solid)
    plain = {"corners": ((0,), (0,))}
    yield store("im2col 3d", tensor("u16", (32, 9, 3), (16, 6), **plain), ((0, 0, 0), (16, 3, 1), (8, 8, 2)))
    cube = {"corners": ((0, 0, 0), (0, 0, 0))}
    yield store("im2col 5d", tensor("u16", (32, 5, 4, 3, 2), (16, 12), **cube), ((0, 0, 0, 0, 0), (16, 3, 1, 1, 0)))


INTERLEAVE_CASES = (*_tiled(), *_stored(), *_windows())
