"""Blackwell attention forward: TMA, tcgen05, scores and result in tensor memory, a row for each thread; causal, GQA.

Verified on the emulated GPU alone (`scripts/verify_kernel.py --arch sm_100a`): no Blackwell GPU has run it here.
Shows how attention changes from Hopper. Scores and result lie in tensor memory (TMEM): one warp issues all products,
and a thread of a warpgroup reads a whole row, so that maximum and sum need no shuffles. The probabilities overwrite the
scores and are the second product's left operand from there. One barrier a tile says that scores are there and that the
result before is complete, as products finish in order; its answer says that probabilities are there. While one of two
warpgroups computes exponentials, the tensor cores work for the other. The result is scaled down only when a maximum
grew by more than 2^8: that costs a way through registers and back.
Prediction, not measured, for batch 4, 16 heads, 4096 x 4096, dimension 128, causal, on a B200: 0.28 ms, 1000 TFLOP/s.
A step of both tiles takes the tensor cores 2048 clocks, the exponentials as many: half of the rate remains.

Arch: sm_100a
Operation: attention
Features: tma, tma_store, tcgen05, tmem, warp_specialization, online_softmax, causal, gqa, strided, swizzle
Start here when you write attention for Blackwell (SM100), or when a product takes its left operand from tensor memory.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100
import torch
from cutlass import Float32, Int32, const_expr, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator, TmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN = 128, 128  # query rows of a tile, keys of a step
TILES = 2  # of queries, each with a warpgroup; the diagonal crosses the first two tiles of keys
STAGES = 2  # of K and of V: with Q they take 192 KB for a head dimension of 128
LOAD_WARP, MMA_WARP = 4 * TILES, 4 * TILES + 1
THREADS = 128 * (TILES + 1)  # registers are handed over by whole warpgroups
OTHER_REGISTERS, SOFTMAX_REGISTERS = 64, 216
TMEM_COLUMNS = 512  # scores of both tiles, results of both
SLICE = 32  # columns of TMEM in an access
GROWTH = 8.0  # log2 of what a probability may exceed 1 by before the result is scaled down
LOG2_E = 1.4426950408889634
LOWEST = -1e30  # a finite stand-in for the maximum of a row that has seen -inf alone
TMEM_BARRIER, END_BARRIER = 1, 2  # 0 is sync_threads


def turn_of(tile: Int32, phase: Int32):
    """A warpgroup's place in the pipeline of scores: always the stage of its tile."""
    return pipeline.PipelineState(TILES, Int32(0), tile, phase)


def tmem_copy(op: type, tensor_memory: cute.Tensor, thread: Int32):
    """(copy, this thread's part) between a row of (128, columns) of TMEM and registers."""
    copy = tcgen05.make_tmem_copy(cute.make_copy_atom(op(tcgen05.Repetition(SLICE)), Float32), tensor_memory)
    return copy, copy.get_slice(thread)


@cute.jit
def mask_scores(scores: cute.Tensor, coordinates: cute.Tensor, keys: Int32, causal: cutlass.Constexpr):
    """-inf where the key does not exist or, if causal, comes after the query."""
    last = keys - 1
    if const_expr(causal):
        last = cutlass.min(last, coordinates[0][0])
    for j in range_constexpr(BN // SLICE):
        for i in range_constexpr(j * SLICE, (j + 1) * SLICE):
            scores[i] = cutlass.select_(coordinates[i][1] > last, -Float32.inf, scores[i])


@cute.kernel
def attention_kernel(
    tma_Q: cute.CopyAtom,
    mQ: cute.Tensor,  # (queries, dim, heads, batch), coordinates for TMA, as the next three
    tma_K: cute.CopyAtom,
    mK: cute.Tensor,  # (keys, dim, heads of keys, batch)
    tma_V: cute.CopyAtom,
    mV: cute.Tensor,  # (dim, keys, heads of keys, batch)
    tma_O: cute.CopyAtom,
    mO: cute.Tensor,  # like mQ
    scale: Float32,
    causal: cutlass.Constexpr,
    score_mma: cute.TiledMma,
    value_mma: cute.TiledMma,
    sQ_layout: cute.ComposedLayout,
    sK_layout: cute.ComposedLayout,
    sV_layout: cute.ComposedLayout,
    tP_layout: cute.ComposedLayout,
    sO_layout: cute.ComposedLayout,
    dtype: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, head, batch = cute.arch.block_idx()
    blocks, heads, _ = cute.arch.grid_dim()
    m = blocks - 1 - block  # causal: the last rows have the most keys, and start first
    kv_head = head // (heads // mK.shape[2])
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    dim, keys = const_expr(mQ.shape[1]), mK.shape[0]
    if warp == LOAD_WARP:
        for atom in (tma_Q, tma_K, tma_V, tma_O):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sQ = smem.allocate_tensor(dtype, sQ_layout.outer, byte_alignment=1024, swizzle=sQ_layout.inner)
    sK = smem.allocate_tensor(dtype, sK_layout.outer, byte_alignment=1024, swizzle=sK_layout.inner)
    sV = smem.allocate_tensor(dtype, sV_layout.outer, byte_alignment=1024, swizzle=sV_layout.inner)
    sO = cute.make_tensor(sQ.iterator, sO_layout.outer)  # the result leaves through the queries
    one_thread = pipeline.CooperativeGroup(pipeline.Agent.Thread)

    # Filled by TMA, emptied when products have read it.
    ring = functools.partial(pipeline.PipelineTmaUmma.create, producer_group=one_thread, consumer_group=one_thread)
    ring_Q = ring(num_stages=1, tx_count=TILES * BM * dim * dtype.width // 8)
    ring_K, ring_V = (ring(num_stages=STAGES, tx_count=BN * dim * dtype.width // 8) for _ in range(2))
    # A stage for each tile. Full: scores are in TMEM, and the result is complete. Empty: probabilities are there.
    turns = pipeline.PipelineUmmaAsync.create(
        num_stages=TILES,
        producer_group=one_thread,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, BM),
    )
    receivers = pipeline.NamedBarrier(barrier_id=TMEM_BARRIER, num_threads=BM * TILES + 32)
    tmem = TmemAllocator(barrier_for_retrieve=receivers)
    reach = keys
    if const_expr(causal):
        reach = cutlass.min(keys, (m + 1) * TILES * BM)
    steps = cute.ceil_div(reach, BN)  # keys from the last tile to the first
    layout_S = score_mma.make_fragment_C(score_mma.partition_shape_C((BM, BN))).layout  # ((128, 128), 1, 1) of TMEM
    layout_O = value_mma.make_fragment_C(value_mma.partition_shape_C((BM, dim))).layout

    if warp >= LOAD_WARP:
        cute.arch.setmaxregister_decrease(OTHER_REGISTERS)
    if warp == LOAD_WARP:
        one, score_thr = cute.make_layout(1), score_mma.get_slice(0)
        gQ = score_thr.partition_A(cute.local_tile(mQ[None, None, head, batch], (BM, dim), (None, 0)))
        gK = score_thr.partition_B(cute.local_tile(mK[None, None, kv_head, batch], (BN, dim), (None, 0)))
        gV = value_mma.get_slice(0).partition_B(cute.local_tile(mV[None, None, kv_head, batch], (dim, BN), (0, None)))
        tQsQ, tQgQ = cpasync.tma_partition(tma_Q, 0, one, cute.group_modes(sQ, 0, 3), cute.group_modes(gQ, 0, 3))
        tKsK, tKgK = cpasync.tma_partition(tma_K, 0, one, cute.group_modes(sK, 0, 3), cute.group_modes(gK, 0, 3))
        tVsV, tVgV = cpasync.tma_partition(tma_V, 0, one, cute.group_modes(sV, 0, 3), cute.group_modes(gV, 0, 3))
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        ring_Q.producer_acquire(state)
        barrier = ring_Q.producer_get_barrier(state)
        for tile in range_constexpr(TILES):
            cute.copy(tma_Q, tQgQ[None, m * TILES + tile], tQsQ[None, tile], tma_bar_ptr=barrier)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for step in cutlass.range(steps, unroll=1):
            n = steps - 1 - step
            ring_K.producer_acquire(state)
            cute.copy(tma_K, tKgK[None, n], tKsK[None, state.index], tma_bar_ptr=ring_K.producer_get_barrier(state))
            ring_V.producer_acquire(state)
            cute.copy(tma_V, tVgV[None, n], tVsV[None, state.index], tma_bar_ptr=ring_V.producer_get_barrier(state))
            state.advance()

    if warp == MMA_WARP:
        tmem.wait_for_alloc()
        address = tmem.retrieve_ptr(Float32)
        tSrQ, tSrK = score_mma.make_fragment_A(sQ), score_mma.make_fragment_B(sK)
        tOrV = value_mma.make_fragment_B(sV)
        layout_P = value_mma.make_fragment_A(cute.make_tensor(address, tP_layout.outer)).layout
        state_K = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        state_V = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        turn = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, TILES)
        ring_Q.consumer_wait(pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1))
        for step in cutlass.range(steps + 1, unroll=1):  # the values of step - 1, then the scores of this step
            if step > 0:
                ring_V.consumer_wait(state_V)
            if step < steps:
                ring_K.consumer_wait(state_K)
            for tile in range_constexpr(TILES):
                tS = cute.make_tensor(address + tile * BN, layout_S)
                tO = cute.make_tensor(address + TILES * BN + tile * dim, layout_O)
                tOrP = cute.make_tensor(cute.recast_ptr(address + tile * BN, dtype=dtype), layout_P)
                turns.producer_acquire(turn)
                if step > 0:
                    value_mma.set(tcgen05.Field.ACCUMULATE, step > 1)
                    for k in range_constexpr(BN // 16):
                        cute.gemm(value_mma, tO, tOrP[None, None, k, 0], tOrV[None, None, k, state_V.index], tO)
                        value_mma.set(tcgen05.Field.ACCUMULATE, True)
                if step < steps:
                    score_mma.set(tcgen05.Field.ACCUMULATE, False)
                    for k in range_constexpr(dim // 16):
                        cute.gemm(score_mma, tS, tSrQ[None, None, k, tile], tSrK[None, None, k, state_K.index], tS)
                        score_mma.set(tcgen05.Field.ACCUMULATE, True)
                turns.producer_commit(turn)
                turn.advance()
            if step > 0:
                ring_V.consumer_release(state_V)
                state_V.advance()
            if step < steps:
                ring_K.consumer_release(state_K)
                state_K.advance()

    if warp < LOAD_WARP:
        cute.arch.setmaxregister_increase(SOFTMAX_REGISTERS)
        tmem.allocate(TMEM_COLUMNS)  # by warp 0
        tmem.wait_for_alloc()
        address = tmem.retrieve_ptr(Float32)
        tmem.relinquish_alloc_permit()
        tile, row = cute.arch.make_warp_uniform(thread // BM), thread % BM
        row_tile = m * TILES + tile
        tS = cute.make_tensor(address + tile * BN, layout_S)[(None, None), 0, 0]  # (128, 128)
        tP = cute.make_tensor(
            tS.iterator, cute.composition(tS.layout, cute.make_layout((BM, BN // 2)))
        )  # two in 32 bits
        tO = cute.make_tensor(address + TILES * BN + tile * dim, layout_O)[(None, None), 0, 0]
        slices_O = cute.flat_divide(tO, (BM, SLICE))  # (128, SLICE, 1, dim / SLICE)
        copy_S, thr_S = tmem_copy(tcgen05.Ld32x32bOp, tS, row)
        copy_P, thr_P = tmem_copy(tcgen05.St32x32bOp, tP, row)
        load_O, thr_load = tmem_copy(tcgen05.Ld32x32bOp, slices_O[None, None, 0, 0], row)
        store_O, thr_store = tmem_copy(tcgen05.St32x32bOp, slices_O[None, None, 0, 0], row)
        tTtS, tTtP = thr_S.partition_S(tS), thr_P.partition_D(tP)
        tTtO_load, tTtO_store = thr_load.partition_S(slices_O), thr_store.partition_D(slices_O)
        cS = cute.local_tile(cute.make_identity_tensor((mQ.shape[0], keys)), (BM, BN), (row_tile, None))
        tTcS = thr_S.partition_D(cS)  # coordinates of this thread's row, for each tile of keys
        scores = cute.make_rmem_tensor(tTcS[None, None, None, 0].shape, Float32)
        # Probabilities as TMEM holds them: two in 32 bits.
        pairs = cute.make_rmem_tensor(thr_P.partition_S(cute.make_identity_tensor((BM, BN // 2))).shape, Float32)
        rP = cute.make_tensor(cute.recast_ptr(pairs.iterator, dtype=dtype), scores.layout)
        part = cute.make_rmem_tensor(thr_load.partition_D(slices_O)[None, None, None, 0, 0].shape, Float32)
        scale_log2 = scale * LOG2_E
        base, total, phase = Float32(LOWEST), Float32(0.0), Int32(0)  # powers are of 2^(score - base)

        for step in cutlass.range(steps, unroll=1):
            turns.consumer_wait(turn_of(tile, phase))
            cute.copy(copy_S, tTtS, scores)
            cute.arch.fence_view_async_tmem_load()
            if step < TILES:  # the diagonal, and the end of the keys
                mask_scores(scores, tTcS[None, None, None, steps - 1 - step], keys, causal)
            highest = scores.load().reduce(cute.ReductionOp.MAX, base, 0)
            if cute.arch.vote_any_sync((highest - base) * scale_log2 > GROWTH):
                shrink = cute.math.exp2((base - highest) * scale_log2, fastmath=True)
                total *= shrink
                base = highest
                if step > 0:
                    for j in range_constexpr(dim // SLICE):
                        cute.copy(load_O, tTtO_load[None, None, None, 0, j], part)
                        cute.arch.fence_view_async_tmem_load()
                        part.store(part.load() * shrink)
                        cute.copy(store_O, part, tTtO_store[None, None, None, 0, j])
            powers = cute.math.exp2(scores.load() * scale_log2 - base * scale_log2, fastmath=True)
            total = powers.reduce(cute.ReductionOp.ADD, total, 0)
            rP.store(powers.to(dtype))
            cute.copy(copy_P, pairs, tTtP)
            cute.arch.fence_view_async_tmem_store()
            turns.consumer_release(turn_of(tile, phase))
            phase ^= 1

        turns.consumer_wait(turn_of(tile, phase))  # all products are done: the queries are not needed any more
        inverse = cutlass.select_(total == 0.0, Float32(0.0), 1.0 / total)
        slices_sO = cute.flat_divide(sO[None, None, tile], (BM, SLICE))
        tTsO = thr_load.partition_D(slices_sO)
        rO = cute.make_rmem_tensor(part.shape, dtype)
        for j in range_constexpr(dim // SLICE):
            cute.copy(load_O, tTtO_load[None, None, None, 0, j], part)
            cute.arch.fence_view_async_tmem_load()
            rO.store((part.load() * inverse).to(dtype))
            cute.autovec_copy(rO, tTsO[None, None, None, 0, j])
        cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
        pipeline.NamedBarrier(barrier_id=END_BARRIER, num_threads=BM * TILES).arrive_and_wait()
        if row < 32:
            gO = cute.local_tile(mO[None, None, head, batch], (BM, dim), (None, 0))
            tOsO, tOgO = cpasync.tma_partition(
                tma_O, 0, cute.make_layout(1), cute.group_modes(sO, 0, 2), cute.group_modes(gO, 0, 2)
            )
            cute.copy(tma_O, tOsO[None, tile], tOgO[None, row_tile])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader
        tmem.free(address)  # all eight warps have read what they need


@cute.jit
def attention(
    mQ: cute.Tensor,  # (batch, heads, queries, dim)
    mK: cute.Tensor,
    mV: cute.Tensor,
    mO: cute.Tensor,
    scale: Float32,
    causal: cutlass.Constexpr,
    stream,
):
    dtype = mQ.element_type
    batch, heads, queries, dim = mQ.shape
    # Rows and columns first: what a block works on is then mX[None, None, head, batch].
    mQ, mK, mO = (cute.make_tensor(x.iterator, cute.select(x.layout, mode=[2, 3, 1, 0])) for x in (mQ, mK, mO))
    mV = cute.make_tensor(mV.iterator, cute.select(mV.layout, mode=[3, 2, 1, 0]))
    k_major, mn_major, one_block = OperandMajorMode.K, OperandMajorMode.MN, tcgen05.CtaGroup.ONE
    smem, in_tmem = tcgen05.OperandSource.SMEM, tcgen05.OperandSource.TMEM
    score_op = tcgen05.MmaF16BF16Op(dtype, Float32, (BM, BN, 16), one_block, smem, k_major, k_major)
    value_op = tcgen05.MmaF16BF16Op(dtype, Float32, (BM, dim, 16), one_block, in_tmem, k_major, mn_major)
    score_mma, value_mma = cute.make_tiled_mma(score_op), cute.make_tiled_mma(value_op)
    scores, values = (BM, BN, dim), (BM, dim, BN)  # M, N, K of both products
    sQ_layout = sm100.make_smem_layout_a(score_mma, scores, dtype, TILES)
    sK_layout = sm100.make_smem_layout_b(score_mma, scores, dtype, STAGES)
    sV_layout = sm100.make_smem_layout_b(value_mma, values, dtype, STAGES)
    tP_layout = sm100.make_smem_layout_a(value_mma, values, dtype, 1)
    atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, dtype)
    sO_layout = cute.tile_to_shape(atom, (BM, dim, TILES), order=(0, 1, 2))
    blocks = cute.tiled_divide(cute.make_layout((1, 1, 1)), (score_mma.thr_id.shape,)).shape
    load, one = cpasync.CopyBulkTensorTileG2SOp(), (None, None, None, 0)
    atom_A, atom_B = cute.nvgpu.make_tiled_tma_atom_A, cute.nvgpu.make_tiled_tma_atom_B
    tma_Q, tQ = atom_A(load, mQ, cute.slice_(sQ_layout, one), scores, score_mma, blocks)
    tma_K, tK = atom_B(load, mK, cute.slice_(sK_layout, one), scores, score_mma, blocks)
    tma_V, tV = atom_B(load, mV, cute.slice_(sV_layout, one), values, value_mma, blocks)
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_O, tO = cpasync.make_tiled_tma_atom(store, mO, cute.slice_(sO_layout, (None, None, 0)), (BM, dim))
    attention_kernel(
        tma_Q, tQ, tma_K, tK, tma_V, tV, tma_O, tO, scale, causal, score_mma, value_mma,
        sQ_layout, sK_layout, sV_layout, tP_layout, sO_layout, dtype,
    ).launch(
        grid=(cute.ceil_div(queries, TILES * BM), heads, batch), block=(THREADS, 1, 1), stream=stream,
        min_blocks_per_mp=1, preferred_smem_carveout=100,  # or ptxas drops setmaxnreg, and spills
    )  # fmt: skip


@functools.cache
def compiled(dtype: torch.dtype, dim: int, causal: bool):
    """One kernel for all lengths, heads and strides; the rows' elements are contiguous and begin at 16 bytes."""
    if dim not in (64, 128):
        raise ValueError(f"head dimension {dim}: the tiles are for 64 and 128")
    batch, heads, kv_heads, queries, keys = (cute.sym_int() for _ in range(5))

    def fake(heads, rows):
        strides = tuple(cute.sym_int64(divisibility=8) for _ in range(3))
        return make_fake_tensor(DTYPES[dtype], (batch, heads, rows, dim), (*strides, 1), assumed_align=16)

    tensors = (fake(heads, queries), fake(kv_heads, keys), fake(kv_heads, keys), fake(heads, queries))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(attention, *tensors, Float32(1.0), causal, stream, options="--enable-tvm-ffi")


def kernel_fn(q, k, v, causal):
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] or k.shape[2] == 0:
        raise ValueError(f"{q.shape[1]} query heads over {k.shape[1]} heads of {k.shape[2]} keys")
    out = torch.empty_like(q)
    if out.numel():
        compiled(q.dtype, q.shape[-1], causal)(q, k, v, out, q.shape[-1] ** -0.5)
    return out


def reference_fn(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def get_inputs(batch=4, heads=16, kv_heads=16, queries=4096, keys=4096, dim=128, causal=True, dtype=torch.bfloat16):
    q = torch.randn(batch, heads, queries, dim, device="cuda", dtype=dtype)
    k, v = (torch.randn(batch, kv_heads, keys, dim, device="cuda", dtype=dtype) for _ in range(2))
    return [q, k, v, causal]


EMULATED_SIZES = {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 200, "keys": 200}  # several steps, two heads


def get_input_sets():
    yield get_inputs(1, 2, 1, 300, 300, 64, dtype=torch.float16)
    yield get_inputs(1, 1, 1, 40, 277, 128, causal=False)
