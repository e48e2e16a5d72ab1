"""What the hardware would refuse of a recorded launch: compiling accepts far more than any GPU runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from cutesmith.devices import (
    MAX_BLOCK_DIM,
    MAX_GRID_DIM,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    SmVersion,
    occupancy,
    registers_per_block,
)

if TYPE_CHECKING:
    from cutesmith.recording.cubin import CubinKernel
    from cutesmith.recording.sessions import Launch

Triple = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class LaunchShape:
    """A launch as the hardware sees it: bytes of shared memory, registers a thread, what host code asked for.

    `required_block` is the block that the kernel was compiled for, (0, 0, 0) for any. `smem_limit` is what host code
    raised the dynamic shared memory to.
    """

    grid: Triple
    block: Triple
    cluster: Triple
    registers: int
    static_smem: int
    dynamic_smem: int
    smem_limit: int
    nonportable_cluster: bool
    cooperative: bool = False
    required_block: Triple = (0, 0, 0)


def launch_shape(launch: Launch, kernel: CubinKernel) -> LaunchShape:
    """The shape of a recorded launch of a compiled kernel."""
    return LaunchShape(
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        registers=kernel.registers,
        static_smem=kernel.static_smem_bytes,
        dynamic_smem=launch.dynamic_smem,
        smem_limit=launch.smem_limit,
        nonportable_cluster=launch.nonportable_cluster,
        cooperative=bool(launch.attributes.get("cooperative")),
        required_block=kernel.required_block,
    )


def refusals(shape: LaunchShape, sm: SmVersion) -> tuple[str, ...]:
    """One sentence for everything about the launch that a GPU of this SM version refuses; empty when it runs."""
    return (
        *_size_refusals(shape),
        *_smem_refusals(shape, sm),
        *_register_refusals(shape, sm),
        *_cluster_refusals(shape, sm),
        *_cooperative_refusals(shape, sm),
    )


def _size_refusals(shape: LaunchShape) -> Iterator[str]:
    threads = prod(shape.block)
    if threads > MAX_THREADS_PER_BLOCK:
        yield f"{threads} threads a block: at most {MAX_THREADS_PER_BLOCK}"
    for axis, size, most in zip("xyz", shape.block, MAX_BLOCK_DIM, strict=True):
        if not 1 <= size <= most:
            yield f"block {axis} is {size}: it must be 1 to {most}"
    if any(shape.required_block) and shape.required_block != shape.block:
        yield f"block {shape.block}: the kernel was compiled for exactly {shape.required_block}"
    for axis, size, most in zip("xyz", shape.grid, MAX_GRID_DIM, strict=True):
        if not 1 <= size <= most:
            yield f"grid {axis} is {size}: it must be 1 to {most}"


def _smem_refusals(shape: LaunchShape, sm: SmVersion) -> Iterator[str]:
    total = shape.static_smem + shape.dynamic_smem
    if total > sm.smem_per_block:
        yield (
            f"{total} bytes of shared memory a block ({shape.static_smem} static, {shape.dynamic_smem} dynamic): "
            f"sm_{sm.number} has {sm.smem_per_block}"
        )
    elif shape.dynamic_smem > shape.smem_limit:
        yield f"{shape.dynamic_smem} bytes of dynamic shared memory: host code set the limit to {shape.smem_limit}"


def _register_refusals(shape: LaunchShape, sm: SmVersion) -> Iterator[str]:
    threads, taken = prod(shape.block), registers_per_block(shape.registers, prod(shape.block))
    if shape.registers > MAX_REGISTERS_PER_THREAD:
        yield f"{shape.registers} registers a thread: at most {MAX_REGISTERS_PER_THREAD}"
    elif threads <= MAX_THREADS_PER_BLOCK and taken > sm.registers_per_sm:
        yield (
            f"{threads} threads of {shape.registers} registers take {taken} registers a block: "
            f"a multiprocessor has {sm.registers_per_sm}"
        )


def _cluster_refusals(shape: LaunchShape, sm: SmVersion) -> Iterator[str]:
    blocks = prod(shape.cluster)
    if blocks == 1:
        return
    if sm.max_cluster == 1:
        yield f"a cluster of {blocks} blocks: sm_{sm.number} has no clusters"
    elif blocks > sm.max_cluster_nonportable:
        yield f"a cluster of {blocks} blocks: sm_{sm.number} takes at most {sm.max_cluster_nonportable}"
    elif blocks > sm.max_cluster and not shape.nonportable_cluster:
        yield f"a cluster of {blocks} blocks: more than {sm.max_cluster} need the non-portable attribute"
    for axis, size, cluster in zip("xyz", shape.grid, shape.cluster, strict=True):
        if cluster and size % cluster:
            yield f"grid {axis} is {size}: it must be a multiple of the cluster's {cluster}"


def _cooperative_refusals(shape: LaunchShape, sm: SmVersion) -> Iterator[str]:
    if not shape.cooperative or prod(shape.block) > MAX_THREADS_PER_BLOCK:
        return
    smem = shape.static_smem + shape.dynamic_smem
    held = occupancy(sm, threads=prod(shape.block), registers=shape.registers, smem=smem).blocks * sm.multiprocessors
    if prod(shape.grid) > held:
        yield f"a cooperative grid of {prod(shape.grid)} blocks: {sm.products[0]} holds {held} at once"
