"""Hopper gated product: silu(x @ gate) * (x @ up), both weights as PyTorch multiplies them, (K, N) with N contiguous.

Shows how two products share everything but their weights. A stage holds 96 columns of each weight side by side, so
that one wide wgmma makes both, and a thread holds gate and up of the same element: the activation needs no exchange.
Of a cluster of two blocks one loads the gates and the other the ups, each for both (multicast). The weights are read
as they lie, MN-major: rows of 32 columns with the 64-byte swizzle, since 64, as the 128-byte one has, do not divide 96.
The rest is the skeleton of gemm_sm90_bias_gelu: TMA ring, ping-pong of two warpgroups, persistent blocks.

Arch: sm_90a
Operation: gated_mlp
Features: tma, tma_multicast, wgmma, warp_specialization, pingpong, persistent, cluster, epilogue_fusion, activation
Start here when two products share an operand, or when a weight has its output dimension contiguous.
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

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BH, BK = 128, 96, 64  # a tile of the result
BN = 2 * BH  # gates and ups: 192 accumulators a thread of its warpgroup, near the limit of 240 registers
STAGES = 5  # of 40 KB each: all of the shared memory but 27 KB
CLUSTER = 2  # blocks side by side in M: they need the same weights, and each loads one of the two
EPI_N = 32  # columns of the tile that leave at once
MATH_WARPGROUPS = 2
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240  # 128 * 24 + 256 * 240 of the 65536 of a multiprocessor
GROUP = (
    8  # cluster tiles down before one to the right: what runs at the same time is a square, and L2 serves more of it
)
EPILOGUE_BARRIER, TURN_BARRIER = 1, 3  # and 2, 4: one a warpgroup; 0 is sync_threads


@cute.jit
def silu(x: Float32):
    """x / (1 + exp(-x)) by ex2.approx and rcp.approx."""
    return x * cute.arch.rcp_approx(1.0 + cute.math.exp2(x * -1.4426950408889634, fastmath=True))


@cute.jit
def tile_of(index: Int32, tiles_m: Int32, tiles_n: Int32):
    """(m, n) of the cluster tile `index`: down GROUP tiles, one to the right, …, then the next group of rows."""
    group, within = index // (GROUP * tiles_n), index % (GROUP * tiles_n)
    height = cutlass.min(GROUP, tiles_m - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


def stage_of(count: Int32, flip: int):
    """Where the ring stands after `count` k-tiles; the producer starts with flip=1: all stages are empty."""
    return pipeline.PipelineState(STAGES, count, count % STAGES, ((count // STAGES) & 1) ^ flip)


@cute.kernel
def gated_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (M, K), coordinates for TMA
    tma_G: cute.CopyAtom,
    mG: cute.Tensor,  # gate: (N, K), the same
    tma_U: cute.CopyAtom,
    mU: cute.Tensor,  # up: (N, K), the same
    tma_C: cute.CopyAtom,
    mC: cute.Tensor,  # (M, N), the same
    tiled_mma: cute.TiledMma,
    epi_mma: cute.TiledMma,
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
    if warp_index == 0:
        for atom in (tma_A, tma_G, tma_U, tma_C):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    sC = smem.allocate_tensor(dtype, sC_layout.outer, byte_alignment=1024, swizzle=sC_layout.inner)
    stage_bytes = (BM + BN) * BK * dtype.width // 8
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # A stage is read by the four warps of one warpgroup, here and in the other block: its weights come from both.
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CLUSTER),
        tx_count=stage_bytes,
        cta_layout_vmnk=cute.make_layout((1, CLUSTER, 1, 1)),
        defer_sync=True,
    )
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER, 1), is_relaxed=True)

    # Cluster tiles: CLUSTER tiles on top of each other. This cluster does first, first + clusters, …
    tiles_m = cute.ceil_div(mC.shape[0], CLUSTER * BM)
    tiles_n = cute.ceil_div(mC.shape[1], BH)
    first, tiles = block // CLUSTER, tiles_m * tiles_n
    mine = (tiles - first + clusters - 1) // clusters
    k_tiles = cute.ceil_div(mA.shape[1], BK)
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER, 1))  # the peer's barriers are ready too

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            gA = cute.local_tile(mA, (BM, BK), (None, None))  # (BM, BK, tiles in M, k_tiles)
            gG = cute.local_tile(mG, (BH, BK), (None, None))
            gU = cute.local_tile(mU, (BH, BK), (None, None))
            one = cute.make_layout(1)
            sG, sU = (cute.local_tile(sB, (BH, BK), (half, 0, None)) for half in range(2))
            tAsA, tAgA = cpasync.tma_partition(tma_A, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
            tGsG, tGgG = cpasync.tma_partition(tma_G, 0, one, cute.group_modes(sG, 0, 2), cute.group_modes(gG, 0, 2))
            tUsU, tUgU = cpasync.tma_partition(tma_U, 0, one, cute.group_modes(sU, 0, 2), cute.group_modes(gU, 0, 2))
            both = Int16((1 << CLUSTER) - 1)
            state = stage_of(Int32(0), 1)
            for i in cutlass.range(mine, unroll=1):
                m, n = tile_of(first + i * clusters, tiles_m, tiles_n)
                m = m * CLUSTER + rank
                for k in cutlass.range(k_tiles, unroll=1):
                    ring.producer_acquire(state)  # waits until the stage is free, and announces stage_bytes
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(tma_A, tAgA[None, m, k], tAsA[None, state.index], tma_bar_ptr=barrier)
                    if rank == 0:
                        cute.copy(
                            tma_G, tGgG[None, n, k], tGsG[None, state.index], tma_bar_ptr=barrier, mcast_mask=both
                        )
                    else:
                        cute.copy(
                            tma_U, tUgU[None, n, k], tUsU[None, state.index], tma_bar_ptr=barrier, mcast_mask=both
                        )
                    state.advance()
            ring.producer_tail(state)  # the peer's last releases must find this block's barriers alive

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        turn = warpgroup_index - 1
        lane = thread % 128
        thr_mma = tiled_mma.get_slice(0)  # operands belong to the warpgroup: only the accumulators differ by thread
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2, BN / 8), BM / 64, 1)
        # The accumulators of a 64 x BN wgmma are those of 64 x EPI_N ones side by side: gates first, then ups.
        slices = cute.make_tensor(
            acc.iterator,
            cute.make_layout(
                ((2, 2, EPI_N // 8), BM // 64, 1, BN // EPI_N), stride=((1, 2, 4), BN // 2, 0, EPI_N // 2)
            ),
        )
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        copy_C = cute.make_tiled_copy_C(stmatrix, epi_mma).get_slice(lane)
        sC_mine = sC[None, None, turn]  # a buffer for each warpgroup
        tDsC = copy_C.partition_D(sC_mine)
        gC = cute.local_tile(mC, (BM, EPI_N), (None, None))
        tSsC, tSgC = cpasync.tma_partition(
            tma_C, 0, cute.make_layout(1), cute.group_modes(sC_mine, 0, 2), cute.group_modes(gC, 0, 2)
        )
        barrier = pipeline.NamedBarrier(barrier_id=EPILOGUE_BARRIER + turn, num_threads=128)
        # Turns are more than a matter of speed. A wait for a stage looks at one bit of its barrier's phase: a warpgroup
        # that came while the other still waits for the tile before would take an older phase for its own.
        my_turn = pipeline.NamedBarrier(barrier_id=TURN_BARRIER + turn, num_threads=256)
        their_turn = pipeline.NamedBarrier(barrier_id=TURN_BARRIER + 1 - turn, num_threads=256)
        if turn == 1:
            their_turn.arrive()  # the first warpgroup begins

        for i in cutlass.range(turn, mine, MATH_WARPGROUPS, unroll=1):
            m, n = tile_of(first + i * clusters, tiles_m, tiles_n)
            m = m * CLUSTER + rank
            read, released = stage_of(i * k_tiles, 0), stage_of(i * k_tiles, 0)  # past the other warpgroup's stages
            acc.fill(0.0)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            my_turn.arrive_and_wait()
            for k in cutlass.range(k_tiles, unroll=1):
                ring.consumer_wait(read)
                warpgroup.fence()
                for block_k in range_constexpr(cute.size(tCrA, mode=[2])):
                    at = (None, None, block_k, read.index)
                    cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
                warpgroup.commit_group()
                warpgroup.wait_group(1)  # one group stays in flight; the one before it has read its stage
                if k > 0:
                    ring.consumer_release(released)
                    released.advance()
                read.advance()
            their_turn.arrive()
            warpgroup.wait_group(0)
            ring.consumer_release(released)

            # Epilogue, EPI_N columns at a time. The other warpgroup's wgmma run meanwhile: latencies here cost little.
            for j in range_constexpr(BH // EPI_N):
                gate, up = slices[None, None, None, j], slices[None, None, None, BH // EPI_N + j]
                rD = cute.make_rmem_tensor(gate.shape, dtype)
                for v in range_constexpr(cute.size(gate)):
                    gate[v] = silu(gate[v]) * up[v]
                rD.store(gate.load().to(dtype))

                if lane < 32:
                    cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read the buffer
                barrier.arrive_and_wait()
                cute.copy(copy_C, copy_C.retile(rD), tDsC)
                cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
                barrier.arrive_and_wait()
                if lane < 32:
                    cute.copy(tma_C, tSsC, tSgC[None, m, n * (BH // EPI_N) + j])  # one store a warp, without elect_one
                    cute.arch.cp_async_bulk_commit_group()
        if lane < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


def row_major_smem(rows, columns, stages, dtype):
    """Tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


def column_major_smem(columns, stages, dtype):
    """(columns, BK, stages), columns contiguous: rows of 32 of them swizzled by 64 bytes, all k of them first."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW64, dtype)
    return cute.tile_to_shape(atom, (columns, BK, stages), order=(1, 0, 2))


def wgmma(dtype, columns):
    """A tiled MMA of one warpgroup: 64 x columns an instruction, x K-major, the weights MN-major."""
    k_major, mn_major = OperandMajorMode.K, OperandMajorMode.MN
    return sm90.make_trivial_tiled_mma(dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), tiler_mn=(64, columns))


@cute.jit
def gated(mA: cute.Tensor, mG: cute.Tensor, mU: cute.Tensor, mC: cute.Tensor, clusters: cutlass.Constexpr, stream):
    dtype = mA.element_type
    mG, mU = (cute.make_tensor(w.iterator, cute.select(w.layout, mode=[1, 0])) for w in (mG, mU))  # (N, K)
    sA_layout = row_major_smem(BM, BK, STAGES, dtype)
    sB_layout = column_major_smem(BN, STAGES, dtype)
    sC_layout = row_major_smem(BM, EPI_N, MATH_WARPGROUPS, dtype)
    one = (None, None, 0)
    tma_A, tA = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), mA, cute.slice_(sA_layout, one), (BM, BK)
    )
    to_both, half = cpasync.CopyBulkTensorTileG2SMulticastOp(), cute.slice_(column_major_smem(BH, 1, dtype), one)
    tma_G, tG = cpasync.make_tiled_tma_atom(to_both, mG, half, (BH, BK))
    tma_U, tU = cpasync.make_tiled_tma_atom(to_both, mU, half, (BH, BK))
    tma_C, tC = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), mC, cute.slice_(sC_layout, one), (BM, EPI_N)
    )
    gated_kernel(
        tma_A, tA, tma_G, tG, tma_U, tU, tma_C, tC, wgmma(dtype, BN), wgmma(dtype, EPI_N),
        sA_layout, sB_layout, sC_layout, clusters, dtype,
    ).launch(
        grid=(clusters * CLUSTER, 1, 1), block=(THREADS, 1, 1), cluster=(CLUSTER, 1, 1), stream=stream,
    )  # fmt: skip


@functools.cache
def compiled(dtype: torch.dtype, clusters: int):
    """One kernel for all shapes: M is free, N and K are multiples of 8, as TMA wants strides of 16 bytes."""
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=8), cute.sym_int(divisibility=8)

    def fake(*shape):
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=(1, 0), assumed_align=16)

    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = (fake(m, k), fake(k, n), fake(k, n), fake(m, n))
    return cute.compile(gated, *tensors, clusters, stream, options="--enable-tvm-ffi")


@functools.cache
def resident_clusters(device):
    return torch.cuda.get_device_properties(device).multi_processor_count // CLUSTER


def kernel_fn(x, gate, up):
    out = torch.empty(x.shape[0], gate.shape[1], dtype=x.dtype, device=x.device)
    if out.numel():
        compiled(x.dtype, resident_clusters(x.device))(x, gate, up, out)
    return out


def reference_fn(x, gate, up):
    return torch.nn.functional.silu(x @ gate) * (x @ up)


def get_inputs(m=8192, n=14336, k=4096, dtype=torch.bfloat16):
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    gate, up = (torch.randn(k, n, device="cuda", dtype=dtype) * k**-0.5 for _ in range(2))
    return [x, gate, up]


def get_input_sets():
    yield get_inputs(300, 200, 448)
    yield get_inputs(1000, 1096, 200, torch.float16)
    yield get_inputs(1, 8, 8)
