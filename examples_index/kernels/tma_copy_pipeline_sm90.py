"""A TMA pipeline without matrix products: y = alpha * x + z tile by tile, one warp loads, four warps compute.

Shows the producer-consumer pattern of Hopper by itself: a ring of stages in shared memory, a pair of barriers for each
(full, empty), TMA loads that complete on a barrier, and TMA stores that leave from the stage where the tile came in.
Edges need no predicates: TMA fills with zeros and clips. Blocks are persistent, and the ring never drains in between.
For a function as simple as this, plain 16-byte loads are as fast; the pattern pays where tiles feed tensor cores.

Arch: sm_90a
Operation: elementwise
Features: tma, tma_store, warp_specialization, pipeline, mbarrier, named_barrier, persistent
Start here when you need TMA and its barriers, before a GEMM around them hides how they work.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
TILE_M, TILE_N = 32, 128  # 8 KB of 16-bit elements
STAGES = 4
CONSUMERS = 128  # threads; the warp after them is the producer
VECTOR = 8
CONSUMER_BARRIER = 1  # 0 is sync_threads


@cute.kernel
def scaled_add_kernel(
    tma_X: cute.CopyAtom,
    mX: cute.Tensor,  # coordinates for TMA, as mZ and mY
    tma_Z: cute.CopyAtom,
    mZ: cute.Tensor,
    tma_Y: cute.CopyAtom,
    mY: cute.Tensor,
    alpha: Float32,
    layout: cute.Layout,
    dtype: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    sX = smem.allocate_tensor(dtype, layout, byte_alignment=128)  # TMA wants 128
    sZ = smem.allocate_tensor(dtype, layout, byte_alignment=128)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMERS // 32),  # a release comes per warp
        tx_count=2 * TILE_M * TILE_N * dtype.width // 8,  # bytes of both tiles complete a stage
    )

    gX, gZ, gY = (cute.local_tile(m, (TILE_M, TILE_N), (None, None)) for m in (mX, mZ, mY))
    one = cute.make_layout(1)
    tXsX, tXgX = cpasync.tma_partition(tma_X, 0, one, cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2))
    tZsZ, tZgZ = cpasync.tma_partition(tma_Z, 0, one, cute.group_modes(sZ, 0, 2), cute.group_modes(gZ, 0, 2))
    tYsY, tYgY = cpasync.tma_partition(tma_Y, 0, one, cute.group_modes(sX, 0, 2), cute.group_modes(gY, 0, 2))
    tiles_m, tiles_n = cute.ceil_div(mY.shape, (TILE_M, TILE_N))
    mine = (tiles_m * tiles_n - block + blocks - 1) // blocks  # tiles block, block + blocks, …

    if warp == CONSUMERS // 32:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for i in cutlass.range(mine, unroll=1):
            tile = block + i * blocks
            m, n = tile // tiles_n, tile % tiles_n
            ring.producer_acquire(state)  # waits for "empty", then announces the bytes to "full"
            full = ring.producer_get_barrier(state)
            cute.copy(tma_X, tXgX[None, m, n], tXsX[None, state.index], tma_bar_ptr=full)
            cute.copy(tma_Z, tZgZ[None, m, n], tZsZ[None, state.index], tma_bar_ptr=full)
            state.advance()

    if warp < CONSUMERS // 32:
        read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        freed = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        barrier = pipeline.NamedBarrier(barrier_id=CONSUMER_BARRIER, num_threads=CONSUMERS)
        rX, rZ = (cute.make_rmem_tensor((VECTOR,), dtype) for _ in range(2))
        for i in cutlass.range(mine, unroll=1):
            tile = block + i * blocks
            m, n = tile // tiles_n, tile % tiles_n
            ring.consumer_wait(read)
            vX, vZ = (cute.zipped_divide(s[None, None, read.index], (1, VECTOR)) for s in (sX, sZ))
            for v in cutlass.range_constexpr(TILE_M * TILE_N // (VECTOR * CONSUMERS)):
                index = v * CONSUMERS + thread  # across a row first: neighbouring threads, neighbouring banks
                at = (index // (TILE_N // VECTOR), index % (TILE_N // VECTOR))
                cute.autovec_copy(vX[None, at], rX)
                cute.autovec_copy(vZ[None, at], rZ)
                rX.store((alpha * rX.load().to(Float32) + rZ.load().to(Float32)).to(dtype))
                cute.autovec_copy(rX, vX[None, at])
            cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
            barrier.arrive_and_wait()
            if warp == 0:
                cute.copy(tma_Y, tYsY[None, read.index], tYgY[None, m, n])  # one store a warp, without elect_one
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(1, read=True)  # the store before this one has left its stage
            # Stage i - 1 is free now; its producer may fill it while stage i is still on its way out.
            if i > 0:
                ring.consumer_release(freed)
                freed.advance()
            read.advance()
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


@cute.jit
def scaled_add(mX: cute.Tensor, mZ: cute.Tensor, mY: cute.Tensor, alpha: Float32, blocks: cutlass.Constexpr, stream):
    # (TILE_M, TILE_N, STAGES), row-major tiles. Rows are read whole, by neighbouring threads: no swizzle is needed.
    layout = cute.make_layout((TILE_M, TILE_N, STAGES), stride=(TILE_N, 1, TILE_M * TILE_N))
    tile = cute.select(layout, mode=[0, 1])
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    tma_X, tX = cpasync.make_tiled_tma_atom(load, mX, tile, (TILE_M, TILE_N))
    tma_Z, tZ = cpasync.make_tiled_tma_atom(load, mZ, tile, (TILE_M, TILE_N))
    tma_Y, tY = cpasync.make_tiled_tma_atom(store, mY, tile, (TILE_M, TILE_N))
    scaled_add_kernel(tma_X, tX, tma_Z, tZ, tma_Y, tY, alpha, layout, mX.element_type).launch(
        grid=(blocks, 1, 1), block=(CONSUMERS + 32, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, blocks: int):
    """One kernel for all shapes whose rows are multiples of 16 bytes apart, as TMA wants it."""
    rows, columns = cute.sym_int(), cute.sym_int(divisibility=VECTOR)
    x, z, y = (
        make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)
        for _ in range(3)
    )
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(scaled_add, x, z, y, Float32(0.0), blocks, stream, options="--enable-tvm-ffi")


@functools.cache
def resident_blocks(device):
    return 3 * torch.cuda.get_device_properties(device).multi_processor_count  # 64 KB of shared memory each


def kernel_fn(x, z, alpha):
    y = torch.empty_like(x)
    if x.numel():
        compiled(x.dtype, resident_blocks(x.device))(x, z, y, alpha)
    return y


def reference_fn(x, z, alpha):
    return (alpha * x.float() + z.float()).to(x.dtype)


def get_inputs(rows=16384, columns=8192, dtype=torch.bfloat16):
    return [*(torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2)), 0.75]


def get_input_sets():
    yield get_inputs(100, 520, torch.float16)
    yield get_inputs(3, 8)
    yield get_inputs(4096, 4096)
