"""Blackwell persistent GEMM by pairs of blocks: x @ weight.T + bias, two accumulators in tensor memory, TMA stores.

Verified on the emulated GPU alone (`scripts/verify_kernel.py --arch sm_100a`): no Blackwell GPU has run it here.
Shows how a Blackwell GEMM hides its epilogue. Two blocks of a cluster make one product of 256 x 256: each loads half of
both operands, the leader issues, and each holds half of the rows in its own tensor memory (TMEM). TMEM holds two such
accumulators: while four warps write out one tile, the next is summed in the other. So loads, products and stores are
three loops over the same tiles, which meet only at barriers. Which tiles those are the hardware says (cluster launch
control): the grid has a cluster for each tile, and a running one asks for the next that has not started, which then
never starts. One warp of the leader asks a tile ahead; the answer comes to both blocks. So clusters stay, and yet the
work is balanced when others use the GPU too. Tiles are taken in an order that L2 serves.
Prediction, not measured, for bf16 8192 x 4096 by 8192 x 4096 on a B200: 550 GFLOP, 0.34 ms at 1600 TFLOP/s; 268 MB.

Arch: sm_100a
Operation: gemm
Features: tma, tma_store, tcgen05, tmem, two_cta, warp_specialization, persistent, dynamic_scheduler, cluster, bias
Start here when a matrix product on Blackwell (SM100) is large, and has to run at the rate of the tensor cores.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100
import torch
from cutlass import Float32, Int32, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator, TmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
TILE = (256, 256, 64)  # M, N, K of a pair of blocks
TM, BN, BK = TILE
PAIR = 2
BM = TM // PAIR  # rows of the result that a block holds
STAGES = 6  # of 32 KB a block: its halves of both operands
EPI_N = 64  # columns that leave at once: a swizzled row of 128 bytes
VECTOR = 8
ACCUMULATORS = 2  # of BN columns of TMEM: all 512
EPILOGUE_WARPS = 4  # warp i reads the lanes 32 i … 32 i + 31 of TMEM: the hardware allows no others
LOAD_WARP, MMA_WARP, TICKET_WARP = 4, 5, 6
THREADS = 224
GROUP = 8  # tiles down before one to the right: L2 serves more of a square
TMEM_BARRIER, EPILOGUE_BARRIER = 1, 2  # 0 is sync_threads


@cute.jit
def tile_of(index: Int32, tiles_m: Int32, tiles_n: Int32):
    """(m, n) of tile `index`: down GROUP tiles, one to the right, …, then the next group of rows."""
    group, within = index // (GROUP * tiles_n), index % (GROUP * tiles_n)
    height = cutlass.min(GROUP, tiles_m - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


def next_tile(tickets: pipeline.PipelineClcFetchAsync, state: pipeline.PipelineState, answer: cute.Pointer):
    """(tile, 0 if there was none left, state): what the hardware answered; called by whole warps."""
    tickets.consumer_wait(state)
    block, _, _, valid = cute.arch.clc_response(answer)  # the first block of the cluster that does not start now
    cute.arch.fence_proxy("async.shared", space="cta")  # read before the hardware writes the next answer
    tickets.consumer_release(state)
    state.advance()
    return block // PAIR, valid, state


@cute.kernel
def gemm_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (M, K), coordinates for TMA
    tma_B: cute.CopyAtom,
    mB: cute.Tensor,  # (N, K), the same
    tma_C: cute.CopyAtom,
    mC: cute.Tensor,  # (M, N), the same
    mBias: cute.Tensor,  # (N,)
    tiled_mma: cute.TiledMma,
    pair_layout: cute.Layout,  # (blocks of an MMA, M, N, K) of the cluster
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    sC_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())  # 0 leads
    dtype = mBias.element_type
    if warp == LOAD_WARP:
        for atom in (tma_A, tma_B, tma_C):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    sC = smem.allocate_tensor(dtype, sC_layout.outer, byte_alignment=1024, swizzle=sC_layout.inner)
    one_thread = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    ring = pipeline.PipelineTmaUmma.create(
        num_stages=STAGES,
        producer_group=one_thread,
        consumer_group=one_thread,  # tcgen05.commit arrives in both blocks when the products have read the stage
        tx_count=(TM + BN) * BK * dtype.width // 8,  # of both blocks: they arrive at the leader's barrier
        cta_layout_vmnk=pair_layout,
        defer_sync=True,
    )
    ready = pipeline.PipelineUmmaAsync.create(
        num_stages=ACCUMULATORS,
        producer_group=one_thread,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, PAIR * 32 * EPILOGUE_WARPS),
        cta_layout_vmnk=pair_layout,
        defer_sync=True,
    )
    answer = smem.allocate_array(Int32, 4, byte_alignment=16)
    tickets = pipeline.PipelineClcFetchAsync.create(
        num_stages=1,
        producer_group=one_thread,
        # The warp that asks, the one that multiplies, and those that load and write out in both blocks.
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 32 * (2 + PAIR * (1 + EPILOGUE_WARPS))),
        tx_count=16,
        cta_layout_vmnk=pair_layout,
        defer_sync=True,
    )
    # Who needs the address: not the loading warp.
    receivers = pipeline.NamedBarrier(barrier_id=TMEM_BARRIER, num_threads=32 * (EPILOGUE_WARPS + 1))
    tmem = TmemAllocator(barrier_for_retrieve=receivers, is_two_cta=True)
    pipeline.pipeline_init_arrive(cluster_shape_mn=(PAIR, 1), is_relaxed=True)

    # What this block loads: its halves of the pair's tiles.
    thr_mma = tiled_mma.get_slice(rank)
    gA = thr_mma.partition_A(cute.local_tile(mA, (TM, BK), (None, None)))  # (MMA, 1, BK / 16, tiles in M, k_tiles)
    gB = thr_mma.partition_B(cute.local_tile(mB, (BN, BK), (None, None)))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(tma_A, 0, one, cute.group_modes(sA, 0, 3), cute.group_modes(gA, 0, 3))
    tBsB, tBgB = cpasync.tma_partition(tma_B, 0, one, cute.group_modes(sB, 0, 3), cute.group_modes(gB, 0, 3))
    k_tiles = cute.size(gA, mode=[4])
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (TM, BN))
    tile, valid = block // PAIR, Int32(1)  # the first one; others come as answers
    turn = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
    shape = cute.append(tiled_mma.partition_shape_C((TM, BN)), ACCUMULATORS)
    layout = tiled_mma.make_fragment_C(shape).layout  # ((128, 256), 1, 1, 2) of this block's TMEM
    pipeline.pipeline_init_wait(cluster_shape_mn=(PAIR, 1))  # the peer's barriers are ready too

    if warp == TICKET_WARP and rank == 0:
        asked = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        while valid != 0:  # a tile ahead of the others: an answer comes while they work
            tickets.producer_acquire(asked)  # both blocks have read the answer before
            with cute.arch.elect_one():
                cute.arch.issue_clc_query(tickets.producer_get_barrier(asked), answer)  # to both blocks
            asked.advance()
            tile, valid, turn = next_tile(tickets, turn, answer)
        tickets.producer_tail(asked)

    if warp == LOAD_WARP:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        while valid != 0:
            m, n = tile_of(tile, tiles_m, tiles_n)
            for k in cutlass.range(k_tiles, unroll=1):
                ring.producer_acquire(state)
                full = ring.producer_get_barrier(state)
                cute.copy(tma_A, tAgA[None, m, k], tAsA[None, state.index], tma_bar_ptr=full)
                cute.copy(tma_B, tBgB[None, n, k], tBsB[None, state.index], tma_bar_ptr=full)
                state.advance()
            tile, valid, turn = next_tile(tickets, turn, answer)
        ring.producer_tail(state)

    if warp == MMA_WARP:
        tmem.wait_for_alloc()
        tCtC = cute.make_tensor(tmem.retrieve_ptr(Float32), layout)
        if rank == 0:
            tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
            done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, ACCUMULATORS)
            while valid != 0:
                ready.producer_acquire(done)  # both blocks' epilogues have read what this accumulator held
                acc = tCtC[None, None, None, done.index]
                tiled_mma.set(tcgen05.Field.ACCUMULATE, False)  # the first product overwrites
                for _k in cutlass.range(k_tiles, unroll=1):
                    ring.consumer_wait(state)
                    for block_k in range_constexpr(cute.size(tCrA, mode=[2])):
                        at = (None, None, block_k, state.index)
                        cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
                        tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
                    ring.consumer_release(state)
                    state.advance()
                ready.producer_commit(done)
                done.advance()
                tile, valid, turn = next_tile(tickets, turn, answer)
            ready.producer_tail(done)  # the peer's last releases must find this block's barriers alive

    if warp < EPILOGUE_WARPS:
        tmem.allocate(ACCUMULATORS * BN)  # by warp 0
        tmem.wait_for_alloc()
        address = tmem.retrieve_ptr(Float32)
        tmem.relinquish_alloc_permit()
        tCtC = cute.make_tensor(address, layout)
        slices = cute.flat_divide(tCtC[(None, None), 0, 0, None], (BM, EPI_N))  # (BM, EPI_N, 1, BN / EPI_N, 2)
        load_atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(EPI_N)), Float32)
        copy_T = tcgen05.make_tmem_copy(load_atom, slices[None, None, 0, 0, 0])
        thr_copy = copy_T.get_slice(thread)
        tTtC, tTsC = thr_copy.partition_S(slices), thr_copy.partition_D(sC)  # a thread has a row of each slice
        acc = cute.make_rmem_tensor(tTsC[None, None, None, 0].shape, Float32)
        rD = cute.make_rmem_tensor(acc.shape, dtype)
        rBias = cute.make_rmem_tensor((VECTOR, EPI_N // VECTOR), dtype)
        vectors = cute.zipped_divide(mBias, (VECTOR,))
        gC = cute.local_tile(mC, (BM, EPI_N), (None, None))
        tSsC, tSgC = cpasync.tma_partition(tma_C, 0, one, cute.group_modes(sC, 0, 2), cute.group_modes(gC, 0, 2))
        barrier = pipeline.NamedBarrier(barrier_id=EPILOGUE_BARRIER, num_threads=32 * EPILOGUE_WARPS)
        full = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, ACCUMULATORS)
        while valid != 0:
            m, n = tile_of(tile, tiles_m, tiles_n)
            ready.consumer_wait(full)
            for j in range_constexpr(BN // EPI_N):
                cute.copy(copy_T, tTtC[None, None, None, 0, j, full.index], acc)
                cute.arch.fence_view_async_tmem_load()
                if j == BN // EPI_N - 1:
                    ready.consumer_release(full)  # all of the accumulator is in registers or on its way out
                rBias.fill(0)
                for v in range_constexpr(EPI_N // VECTOR):
                    at = (n * BN + j * EPI_N) // VECTOR + v
                    if at < cute.size(vectors, mode=[1]):  # all threads read the same: one access
                        cute.autovec_copy(vectors[None, at], rBias[None, v])
                rD.store((acc.load() + rBias.load().reshape(acc.shape).to(Float32)).to(dtype))
                if warp == 0:
                    cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read the buffer
                barrier.arrive_and_wait()
                cute.autovec_copy(rD, tTsC[None, None, None, 0])
                cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
                barrier.arrive_and_wait()
                if warp == 0:
                    column_tile = n * (BN // EPI_N) + j
                    cute.copy(tma_C, tSsC[None, 0], tSgC[None, m * PAIR + rank, column_tile])
                    cute.arch.cp_async_bulk_commit_group()
            full.advance()
            tile, valid, turn = next_tile(tickets, turn, answer)
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader
        barrier.arrive_and_wait()
        tmem.free(address)  # after the last read of all four warps; waits for the peer


@cute.jit
def gemm(mA: cute.Tensor, mB: cute.Tensor, mBias: cute.Tensor, mC: cute.Tensor, stream):
    dtype, major, two = mA.element_type, OperandMajorMode.K, tcgen05.CtaGroup.TWO
    op = tcgen05.MmaF16BF16Op(dtype, Float32, (TM, BN, 16), two, tcgen05.OperandSource.SMEM, major, major)
    tiled_mma = cute.make_tiled_mma(op)
    pair_layout = cute.tiled_divide(cute.make_layout((PAIR, 1, 1)), (tiled_mma.thr_id.shape,))
    sA_layout = sm100.make_smem_layout_a(tiled_mma, TILE, dtype, STAGES)
    sB_layout = sm100.make_smem_layout_b(tiled_mma, TILE, dtype, STAGES)
    atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, dtype)
    sC_layout = cute.tile_to_shape(atom, (BM, EPI_N, 1), order=(0, 1, 2))
    load, one = cpasync.CopyBulkTensorTileG2SOp(two), (None, None, None, 0)
    tma_A, tA = cute.nvgpu.make_tiled_tma_atom_A(
        load, mA, cute.slice_(sA_layout, one), TILE, tiled_mma, pair_layout.shape
    )
    tma_B, tB = cute.nvgpu.make_tiled_tma_atom_B(
        load, mB, cute.slice_(sB_layout, one), TILE, tiled_mma, pair_layout.shape
    )
    tma_C, tC = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), mC, cute.slice_(sC_layout, (None, None, 0)), (BM, EPI_N)
    )
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (TM, BN))
    gemm_kernel(
        tma_A, tA, tma_B, tB, tma_C, tC, mBias, tiled_mma, pair_layout, sA_layout, sB_layout, sC_layout
    ).launch(
        grid=(PAIR * tiles_m * tiles_n, 1, 1), block=(THREADS, 1, 1), cluster=(PAIR, 1, 1), stream=stream,
    )  # fmt: skip


@functools.cache
def compiled(dtype: torch.dtype):
    """One kernel for all shapes: M is free, N and K are multiples of 8, as TMA wants strides of 16 bytes."""
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=8), cute.sym_int(divisibility=8)

    def fake(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=order, assumed_align=16)

    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = fake(m, k), fake(n, k), fake(n), fake(m, n)
    return cute.compile(gemm, *tensors, stream, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias):
    (m, k), n = x.shape, weight.shape[0]
    if k % 8 or n % 8 or not k:
        raise ValueError(f"K = {k} and N = {n}: pad with zeros to multiples of 8 (TMA wants strides of 16 bytes)")
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if out.numel():
        compiled(x.dtype)(x, weight, bias, out)
    return out


def reference_fn(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)


def get_inputs(m=8192, n=8192, k=4096, dtype=torch.bfloat16):
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    weight = torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5
    return [x, weight, torch.randn(n, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(4608, 1280, 256)  # more tiles than clusters
    yield get_inputs(1000, 1096, 200, torch.float16)
    yield get_inputs(1, 8, 8)
