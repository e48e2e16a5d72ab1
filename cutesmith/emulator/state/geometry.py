"""Where the threads of a launch are: blocks and clusters of a wave, and the special registers that a thread reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from cutesmith.emulator.program.abi import SPECIAL_REGISTERS, WARP, Array
from cutesmith.emulator.program.basic_blocks import Program

Triple = tuple[int, int, int]

_ALWAYS_NEEDED = ("%tid.x", "%tid.y", "%tid.z", "%cluster_ctarank", "%gridid_lo", "%gridid_hi")
"""To name a thread in a message, to give shared addresses their rank, and the halves of `%gridid`."""
_FARTHEST = 17  # clusters 2^0 to 2^16 before the last: those that an index of 16 bits confuses with it
_BETWEEN = 8


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Grid, block and cluster of a launch as (x, y, z), and what else special registers tell; sizes in bytes."""

    grid: Triple
    block: Triple
    cluster: Triple
    dynamic_shared: int
    total_shared: int
    multiprocessors: int
    warps_per_multiprocessor: int
    reserved_shared: int
    grid_id: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster."""
        return prod(self.cluster)

    @property
    def clusters(self) -> int:
        """Clusters of the grid."""
        return prod(self.grid) // self.cluster_blocks

    @property
    def cluster_grid(self) -> Triple:
        """The grid in clusters."""
        x, y, z = (size // cluster for size, cluster in zip(self.grid, self.cluster, strict=True))
        return (x, y, z)


def some_clusters(geometry: Geometry) -> Array:
    """int64 numbers of 20 to 60 clusters: corners of the grid, some between, those 2^n before the last of each axis."""
    x, y, z = geometry.cluster_grid
    last = np.array([x - 1, y - 1, z - 1])
    places = {tuple(int(i) for i in last * corner) for corner in product((0, 1), repeat=3)}
    places |= {tuple(int(i) for i in last * part // _BETWEEN) for part in range(_BETWEEN)}
    for axis, power in product(range(3), range(_FARTHEST)):
        before = last.copy()
        before[axis] -= 1 << power
        places |= {tuple(int(i) for i in before)} if before[axis] >= 0 else set()
    return np.array(sorted(i + x * (j + y * k) for i, j, k in places), np.int64)


def blocks_of(geometry: Geometry, numbers: Array) -> Array:
    """int64 (blocks, 3): the blocks of clusters of those numbers, those of a cluster in order of rank."""
    ranks = _unflatten(np.arange(geometry.cluster_blocks), geometry.cluster)
    clusters = _unflatten(numbers, geometry.cluster_grid)
    coordinates: Array = (clusters[:, None, :] * np.array(geometry.cluster) + ranks).reshape(-1, 3)
    return coordinates


def members(blocks: int, threads: int) -> Array:
    """int64 (warps, 32): the lanes of each warp of `blocks` blocks, -1 behind the last thread of a block."""
    warps = -(-threads // WARP)
    slots = np.arange(warps * WARP)
    in_block = np.where(slots < threads, slots, -1).reshape(1, warps, WARP)
    lanes = in_block + threads * np.arange(blocks).reshape(-1, 1, 1)
    return np.where(in_block >= 0, lanes, -1).reshape(-1, WARP)


def special_registers(geometry: Geometry, blocks: Array, names: Collection[str]) -> Array:
    """uint32 (len(SPECIAL_REGISTERS), lanes) for the blocks (x, y, z) of a wave; rows of others than `names` are 0."""
    table = np.zeros((len(SPECIAL_REGISTERS), len(blocks), geometry.threads), np.uint32)
    values: dict[str, Array | int] = {
        **_of_threads(geometry),
        **{name: column[:, None] for name, column in _of_blocks(geometry, blocks).items()},
        **_of_launch(geometry),
    }
    for row, name in zip(table, SPECIAL_REGISTERS, strict=True):
        if name in names:
            row[:] = values[name]
    return table.reshape(len(SPECIAL_REGISTERS), -1)


def registers_read(program: Program) -> frozenset[str]:
    """The special registers that the program reads, and those that the machine needs itself."""
    return program.special_registers | frozenset(_ALWAYS_NEEDED)


def _unflatten(index: Array, shape: Triple) -> Array:
    x, y, _ = shape
    return np.stack([index % x, index // x % y, index // (x * y)], axis=1)


def _triple(name: str, values: Array) -> dict[str, Array]:
    return {f"{name}.{axis}": values[:, number] for number, axis in enumerate("xyz")}


def _of_threads(geometry: Geometry) -> dict[str, Array]:
    thread = np.arange(geometry.threads)
    lane = (thread % WARP).astype(np.uint64)
    bit = np.uint64(1) << lane
    return {
        **_triple("%tid", _unflatten(thread, geometry.block)),
        "%laneid": lane,
        "%warpid": thread // WARP,
        "%lanemask_eq": bit,
        "%lanemask_le": 2 * bit - 1,
        "%lanemask_lt": bit - np.uint64(1),
        "%lanemask_ge": 2**32 - bit,
        "%lanemask_gt": 2**32 - 2 * bit,
    }


def _of_blocks(geometry: Geometry, blocks: Array) -> dict[str, Array]:
    inside = blocks % np.array(geometry.cluster)
    x, y, _ = geometry.cluster
    flat = blocks @ np.array([1, geometry.grid[0], geometry.grid[0] * geometry.grid[1]])
    return {
        **_triple("%ctaid", blocks),
        **_triple("%clusterid", blocks // np.array(geometry.cluster)),
        **_triple("%cluster_ctaid", inside),
        "%cluster_ctarank": inside @ np.array([1, x, x * y]),
        "%smid": flat % geometry.multiprocessors,
    }


def _of_launch(geometry: Geometry) -> dict[str, int]:
    triples = {
        "%ntid": geometry.block,
        "%nctaid": geometry.grid,
        "%nclusterid": geometry.cluster_grid,
        "%cluster_nctaid": geometry.cluster,
    }
    return {
        **{f"{name}.{axis}": size for name, sizes in triples.items() for axis, size in zip("xyz", sizes, strict=True)},
        "%nwarpid": geometry.warps_per_multiprocessor,
        "%nsmid": geometry.multiprocessors,
        "%cluster_nctarank": geometry.cluster_blocks,
        "%is_explicit_cluster": int(geometry.cluster_blocks > 1),
        "%dynamic_smem_size": geometry.dynamic_shared,
        "%total_smem_size": geometry.total_shared,
        "%aggr_smem_size": geometry.total_shared + geometry.reserved_shared,
        "%gridid_lo": geometry.grid_id & 0xFFFF_FFFF,
        "%gridid_hi": geometry.grid_id >> 32,
    }
