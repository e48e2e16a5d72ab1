"""Hopper GEMM of float8 with a scale for each 1 x 128 block of x and 128 x 128 block of the weight: bf16 x @ weight.T.

Shows scales along K, which no epilogue can apply. The sum over 128 of K is a product of its own, and is multiplied by
both scales as it is added to the total in float32: that also cures Hopper's short float8 accumulators. A warpgroup has
64 rows, so that two partial sums and the total fit its registers: the product of one block of K runs while the block
before is added. Scales come straight from global memory, a step ahead: eight steps of a row lie in one sector of L1.
Two warpgroups share what is loaded, and two blocks of a cluster the weights (multicast); blocks are persistent, and
load the next tile's operands during the epilogue. The rest is gemm_sm90_bias_gelu.
8192 x 4096 by 7168 x 4096 on an H100: 419 us. Predicted were 481 GFLOP, 0.40 ms at 1200 TFLOP/s; its 180 MB
would take 60 us. 64 multiply-adds a thread and step take a quarter of the issue slots.

Arch: sm_90a
Operation: blockwise_gemm
Features: tma, tma_multicast, wgmma, warp_specialization, persistent, cluster, fp8_accumulation, dequantization
Start here when float8 operands have scales along K: DeepSeek's 1 x 128 and 128 x 128 blocks.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int16, Int32, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

OUT = cutlass.BFloat16
ROWS = 64  # of a warpgroup
MATH_WARPGROUPS = 2
BM, BN, BK = ROWS * MATH_WARPGROUPS, 128, 128  # BN and BK are those of a block of scales
STAGES = 5  # of 32 KB each; the result takes 32 KB more
CLUSTER = 2  # blocks side by side in M: they need the same weights
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240
GROUP = 8  # cluster tiles down before one to the right: L2 serves more of a square
OWN_BARRIER = 1  # and 2: one a warpgroup; 0 is sync_threads
LARGEST = 448.0  # of float8_e4m3fn


@cute.jit
def tile_of(index: Int32, tiles_m: Int32, tiles_n: Int32):
    """(m, n) of the cluster tile `index`: down GROUP tiles, one to the right, …, then the next group of rows."""
    group, within = index // (GROUP * tiles_n), index % (GROUP * tiles_n)
    height = cutlass.min(GROUP, tiles_m - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


@cute.jit
def multiply(first_mma: cute.TiledMma, mma: cute.TiledMma, partial: cute.Tensor, a: cute.Tensor, b: cute.Tensor):
    """partial = a b over 128 of K, started and not awaited."""
    warpgroup.fence()
    cute.gemm(first_mma, partial, a[None, None, 0], b[None, None, 0], partial)
    for k in range_constexpr(1, cute.size(b, mode=[2])):
        cute.gemm(mma, partial, a[None, None, k], b[None, None, k], partial)
    warpgroup.commit_group()


@cute.jit
def scales_of(mScaleA: cute.Tensor, scales_b: cute.Tensor, row: Int32, k: Int32, scales: cute.Tensor):
    """Both factors of this thread's rows, `row` and `row + 8`, for block `k` of K; 0 for rows that do not exist."""
    b = scales_b[k]
    for high in range_constexpr(2):
        scales[high] = Float32(0.0)
        if row + 8 * high < mScaleA.shape[0]:
            scales[high] = mScaleA[row + 8 * high, k] * b


@cute.jit
def promote(total: cute.Tensor, partial: cute.Tensor, scales: cute.Tensor):
    for high in range_constexpr(2):
        rows = (None, high, None), 0, 0
        total[rows].store(total[rows].load() + partial[rows].load() * scales[high])


@cute.kernel
def gemm_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (M, K), coordinates for TMA
    tma_B: cute.CopyAtom,
    mB: cute.Tensor,  # (N, K), the same
    tma_C: cute.CopyAtom,
    mC: cute.Tensor,  # (M, N), the same
    mScaleA: cute.Tensor,  # (M, K / 128)
    mScaleB: cute.Tensor,  # (N / 128, K / 128)
    first_mma: cute.TiledMma,  # overwrites the accumulators; the other adds
    tiled_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    sC_layout: cute.ComposedLayout,
    clusters: cutlass.Constexpr,
    dtype: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    first_mma.set(warpgroup.Field.ACCUMULATE, False)
    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    if warp_index == 0:
        for atom in (tma_A, tma_B, tma_C):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    sC = smem.allocate_tensor(OUT, sC_layout.outer, byte_alignment=1024, swizzle=sC_layout.inner)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # Both warpgroups read a stage, and so do those of the other block: its weights come from both.
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * MATH_WARPGROUPS * CLUSTER),
        tx_count=(BM + BN) * BK,
        cta_layout_vmnk=cute.make_layout((1, CLUSTER, 1, 1)),
        defer_sync=True,
    )
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER, 1), is_relaxed=True)

    # Cluster tiles: CLUSTER tiles on top of each other. This cluster does first, first + clusters, …
    tiles_m, tiles_n = cute.ceil_div(mC.shape[0], CLUSTER * BM), cute.ceil_div(mC.shape[1], BN)
    first, tiles = block // CLUSTER, tiles_m * tiles_n
    mine = (tiles - first + clusters - 1) // clusters
    k_tiles = cute.ceil_div(mA.shape[1], BK)
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER, 1))  # the peer's barriers are ready too

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            gA = cute.local_tile(mA, (BM, BK), (None, None))  # (BM, BK, tiles in M, k_tiles)
            gB = cute.local_tile(mB, (BN, BK), (None, None))
            one, pair = cute.make_layout(1), cute.make_layout(CLUSTER)
            tAsA, tAgA = cpasync.tma_partition(tma_A, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
            # Each block of the cluster loads its part of B and sends it to both.
            tBsB, tBgB = cpasync.tma_partition(
                tma_B, rank, pair, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
            )
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for i in cutlass.range(mine, unroll=1):
                m, n = tile_of(first + i * clusters, tiles_m, tiles_n)
                for k in cutlass.range(k_tiles, unroll=1):
                    ring.producer_acquire(state)
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(tma_A, tAgA[None, m * CLUSTER + rank, k], tAsA[None, state.index], tma_bar_ptr=barrier)
                    cute.copy(
                        tma_B,
                        tBgB[None, n, k],
                        tBsB[None, state.index],
                        tma_bar_ptr=barrier,
                        mcast_mask=Int16((1 << CLUSTER) - 1),
                    )
                    state.advance()
            ring.producer_tail(state)  # the peer's last releases must find this block's barriers alive

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        own, lane = warpgroup_index - 1, thread % 128
        thr_mma = tiled_mma.get_slice(0)  # operands belong to the warpgroup: only the accumulators differ by thread
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(cute.local_tile(sA, (ROWS, BK), (own, 0, None))))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        shape = tiled_mma.partition_shape_C((ROWS, BN))  # ((2, 2 rows, BN / 8), 1, 1)
        total, even, odd = (cute.make_rmem_tensor(shape, Float32) for _ in range(3))
        scales, later = (cute.make_rmem_tensor((2,), Float32) for _ in range(2))
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), OUT)
        copy_C = cute.make_tiled_copy_C(stmatrix, tiled_mma).get_slice(lane)
        sC_own = sC[None, None, own]
        tDsC = copy_C.partition_D(sC_own)
        gC = cute.local_tile(mC, (ROWS, BN), (None, None))
        tSsC, tSgC = cpasync.tma_partition(
            tma_C, 0, cute.make_layout(1), cute.group_modes(sC_own, 0, 2), cute.group_modes(gC, 0, 2)
        )
        barrier = pipeline.NamedBarrier(barrier_id=OWN_BARRIER + own, num_threads=128)
        read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        released = read.clone()

        for i in cutlass.range(mine, unroll=1):
            m, n = tile_of(first + i * clusters, tiles_m, tiles_n)
            row_tile = (m * CLUSTER + rank) * MATH_WARPGROUPS + own
            row = row_tile * ROWS + lane // 32 * 16 + lane % 32 // 4
            scales_b = mScaleB[n, None]
            total.fill(0.0)
            scales_of(mScaleA, scales_b, row, Int32(0), scales)
            ring.consumer_wait(read)
            multiply(first_mma, tiled_mma, even, tCrA[None, None, None, read.index], tCrB[None, None, None, read.index])
            read.advance()
            for pair in cutlass.range((k_tiles - 1) // 2, unroll=1):
                scales_of(mScaleA, scales_b, row, 2 * pair + 1, later)
                ring.consumer_wait(read)
                at = (None, None, None, read.index)
                multiply(first_mma, tiled_mma, odd, tCrA[at], tCrB[at])
                warpgroup.wait_group(1)  # this block of K is on its way, the one before is here
                ring.consumer_release(released)
                promote(total, even, scales)
                read.advance()
                released.advance()
                scales_of(mScaleA, scales_b, row, 2 * pair + 2, scales)
                ring.consumer_wait(read)
                at = (None, None, None, read.index)
                multiply(first_mma, tiled_mma, even, tCrA[at], tCrB[at])
                warpgroup.wait_group(1)
                ring.consumer_release(released)
                promote(total, odd, later)
                read.advance()
                released.advance()
            if k_tiles % 2 == 0:
                scales_of(mScaleA, scales_b, row, k_tiles - 1, later)
                ring.consumer_wait(read)
                at = (None, None, None, read.index)
                multiply(first_mma, tiled_mma, odd, tCrA[at], tCrB[at])
                warpgroup.wait_group(1)
                ring.consumer_release(released)
                promote(total, even, scales)
                read.advance()
                released.advance()
                warpgroup.wait_group(0)
                promote(total, odd, later)
            else:
                warpgroup.wait_group(0)
                promote(total, even, scales)
            ring.consumer_release(released)
            released.advance()

            rD = cute.make_rmem_tensor(shape, OUT)
            rD.store(total.load().to(OUT))
            if lane < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read the buffer
            barrier.arrive_and_wait()
            cute.copy(copy_C, copy_C.retile(rD), tDsC)
            cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
            barrier.arrive_and_wait()
            if lane < 32:
                cute.copy(tma_C, tSsC, tSgC[None, row_tile, n])  # one store a warp, without elect_one
                cute.arch.cp_async_bulk_commit_group()
        if lane < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


def row_major_smem(rows, columns, stages, dtype):
    """Tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


@cute.jit
def gemm(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mScaleA: cute.Tensor,
    mScaleB: cute.Tensor,
    mC: cute.Tensor,
    clusters: cutlass.Constexpr,
    stream,
):
    dtype, major, one = mA.element_type, OperandMajorMode.K, (None, None, 0)
    sA_layout, sB_layout = row_major_smem(BM, BK, STAGES, dtype), row_major_smem(BN, BK, STAGES, dtype)
    sC_layout = row_major_smem(ROWS, BN, MATH_WARPGROUPS, OUT)
    tma_A, tA = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), mA, cute.slice_(sA_layout, one), (BM, BK)
    )
    tma_B, tB = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp(), mB, cute.slice_(sB_layout, one), (BN, BK), num_multicast=CLUSTER
    )
    tma_C, tC = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), mC, cute.slice_(sC_layout, one), (ROWS, BN)
    )
    wgmma = sm90.make_trivial_tiled_mma(dtype, dtype, major, major, Float32, (1, 1, 1), tiler_mn=(ROWS, BN))
    gemm_kernel(
        tma_A, tA, tma_B, tB, tma_C, tC, mScaleA, mScaleB, wgmma, wgmma, sA_layout, sB_layout, sC_layout, clusters,
        dtype,
    ).launch(
        grid=(clusters * CLUSTER, 1, 1), block=(THREADS, 1, 1), cluster=(CLUSTER, 1, 1), stream=stream,
    )  # fmt: skip


@functools.cache
def compiled(clusters: int):
    """One kernel for all shapes: M is free, K a multiple of 16 and N of 8, as TMA wants strides of 16 bytes."""
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=8), cute.sym_int(divisibility=16)
    blocks_n, blocks_k = cute.sym_int(), cute.sym_int()

    def fake(dtype, *shape, align=16):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(dtype, shape, stride_order=order, assumed_align=align)

    e4m3 = cutlass.Float8E4M3FN
    scales = fake(Float32, m, blocks_k, align=4), fake(Float32, blocks_n, blocks_k, align=4)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = fake(e4m3, m, k), fake(e4m3, n, k), *scales, fake(OUT, m, n)
    return cute.compile(gemm, *tensors, clusters, stream, options="--enable-tvm-ffi")


@functools.cache
def resident_clusters(device):
    return torch.cuda.get_device_properties(device).multi_processor_count // CLUSTER


def kernel_fn(x, weight, x_scale, weight_scale):
    """bf16 (M, N) of e4m3 x (M, K), weight (N, K); float32 scales (M, K / 128) and (N / 128, K / 128), rounded up."""
    (m, k), n = x.shape, weight.shape[0]
    if k % 16 or n % 8:
        raise ValueError(f"K = {k} must be a multiple of 16 and N = {n} of 8 (TMA strides of 16 bytes): pad with zeros")
    out = torch.empty(m, n, dtype=torch.bfloat16, device=x.device)
    if not k:
        return out.zero_()
    if out.numel():
        compiled(resident_clusters(x.device))(x, weight, x_scale, weight_scale, out)
    return out


def widened(blocks, like, rows, columns):
    """Each block's scale at every element of it."""
    return blocks.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[: like.shape[0], : like.shape[1]]


def reference_fn(x, weight, x_scale, weight_scale):
    """Scales multiply the sums of blocks: one of Inf that multiplied the values first would give NaN beside a 0."""
    total = torch.zeros((), device=x.device)
    for block, first in enumerate(range(0, x.shape[1], BK)):
        values, weights = (side[:, first : first + BK].float() for side in (x, weight))
        columns = weight_scale[:, block].float().repeat_interleave(BN)[: weight.shape[0]]
        total = total + values @ weights.T * (x_scale[:, block, None].float() * columns)
    return total.to(torch.bfloat16)


def quantized(values, rows, columns):
    """(e4m3, scale of each block of `rows` x `columns`): the largest of a block becomes LARGEST."""
    padded = torch.nn.functional.pad(values, (0, -values.shape[1] % columns, 0, -values.shape[0] % rows))
    scale = padded.abs().unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3)) / LARGEST
    return (values / widened(scale, values, rows, columns)).to(torch.float8_e4m3fn), scale


def get_inputs(m=8192, n=7168, k=4096):
    x, x_scale = quantized(torch.randn(m, k, device="cuda"), 1, BK)
    weight, weight_scale = quantized(torch.randn(n, k, device="cuda") * k**-0.5, BN, BK)
    return [x, weight, x_scale, weight_scale]


def get_input_sets():
    yield get_inputs(2560, 1024, 256)  # more tiles than clusters
    yield get_inputs(300, 264, 400)
    yield get_inputs(130, 136, 640)
    yield get_inputs(3, 8, 16)
