"""Hopper attention backward: dQ, dK and dV by wgmma and TMA from the forward's log-sum-exp; causal, GQA, any strides.

Shows how five products a tile keep all but one operand out of shared memory. A block owns 128 keys and walks over the
queries, of all heads that share the keys. Scores are computed transposed, keys down: the probabilities and their
gradient are then, register for register, the left operands of dV and dK, which stay in registers to the end. Only dQ
needs the gradient of the scores from shared memory, where stmatrix puts it: its rows there are keys, and wgmma reads it
transposed (MN-major). Every block adds its part of dQ in float32 by a TMA reduction: the order of these sums varies
from run to run. A small kernel before sums dout * out over each row and clears those sums, one behind rounds them.
bf16 4 x 16 x 2048 x 128 causal on an H100: 488 us. Predicted: 5 products of 136 tiles of 128 x 128 a head, 183 GFLOP,
0.37 ms at 500 TFLOP/s; 570 MB of reductions in L2; 0.24 GB of memory for both small kernels, 0.08 ms.

Arch: sm_90a
Operation: attention_backward
Features: tma, tma_reduce, wgmma, warp_specialization, backward, causal, gqa, strided, swizzle
Start here when you write the backward of attention for Hopper, or of anything with two products and a map between them.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int32, const_expr, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
PART = 64  # rows of one wgmma: the keys of a warpgroup, and rows and columns of its part of dQ
MATH_WARPGROUPS = 2
BN = PART * MATH_WARPGROUPS  # keys of a block
STAGES = 2  # of Q and of dout; with K, V, two buffers of dS and one of dQ they take 193 KB
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240
ROW_THREADS, VECTOR = 256, 8  # of the small kernels: threads, and elements of a thread
LOG2_E = 1.4426950408889634
BOTH_BARRIER, OWN_BARRIER = 1, 2  # and 3: one a warpgroup; 0 is sync_threads


def query_rows(dim: int) -> int:
    """Queries of a step: 64 or 128. Both warpgroups' parts of dQ together have as many rows and `dim` columns."""
    return MATH_WARPGROUPS * PART * PART // dim


@cute.jit
def multiply(first_mma: cute.TiledMma, mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor):
    """acc (+)= a b, started and not awaited; a in registers or shared memory, b in shared memory."""
    warpgroup.fence()
    cute.gemm(first_mma, acc, a[None, None, 0], b[None, None, 0], acc)
    for k in range_constexpr(1, cute.size(b, mode=[2])):
        cute.gemm(mma, acc, a[None, None, k], b[None, None, k], acc)
    warpgroup.commit_group()


@cute.jit
def pin(operand: cute.Tensor):
    """16-bit registers are written before what follows: else conversions may move behind the fence of a product."""
    words = cute.recast_tensor(operand, Int32)
    for i in range_constexpr(cute.size(words)):
        words[i] = cute.arch.inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[words[i]])


@cute.jit
def mask(probabilities: cute.Tensor, coordinates: cute.Tensor, keys: Int32, causal: cutlass.Constexpr):
    """0 where the key does not exist or, if causal, comes after the query; also where its query's lse is NaN."""
    for i in cutlass.range(cute.size(probabilities), unroll_full=True):
        key, query = coordinates[i]
        last = keys - 1
        if const_expr(causal):
            last = cutlass.min(last, query)
        if key > last:
            probabilities[i] = Float32(0.0)


@cute.jit
def row_of_thread(row_pass: cutlass.Constexpr, dim: cutlass.Constexpr):
    """(row of the tile, vector of that row) of this thread of a small kernel."""
    thread, _, _ = cute.arch.thread_idx()
    lanes = const_expr(dim // VECTOR)
    return row_pass * (ROW_THREADS // lanes) + thread // lanes, thread % lanes


def transposed(tensor: cute.Tensor):
    """The same memory with rows and columns exchanged; the stages stay last."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 0, 2]))


def tiles_of(atom: cute.CopyAtom, shared: cute.Tensor, tensor: cute.Tensor, tiler: tuple[int, int]):
    """The stages in shared memory, and what TMA copies there: whole rows of (rows, dim, heads), by tile and head."""
    tiled = cute.local_tile(tensor, tiler, (None, 0, None))
    one = cute.make_layout(1)
    return cpasync.tma_partition(atom, 0, one, cute.group_modes(shared, 0, 2), cute.group_modes(tiled, 0, 2))


@cute.kernel
def prepare_kernel(
    mDout: cute.Tensor,  # (queries, dim, heads, batch)
    mOut: cute.Tensor,
    mLse: cute.Tensor,  # (queries, heads, batch)
    mStats: cute.Tensor,  # (2 BQ, tiles, heads, batch): of each row of a tile lse in powers of 2, then sum(dout * out)
    mSums: cute.Tensor,  # (tiles * BQ, dim, heads, batch)
):
    """Rows behind the last get a log-sum-exp of inf: their probabilities are zeros."""
    tile, head, batch = cute.arch.block_idx()
    queries, dim = mOut.shape[0], const_expr(mOut.shape[1])
    bq = const_expr(query_rows(dim))
    rDout, rOut = (cute.make_rmem_tensor((VECTOR,), mOut.element_type) for _ in range(2))
    zeros = cute.make_rmem_tensor((VECTOR,), Float32)
    zeros.fill(0.0)
    for row_pass in range_constexpr(bq * dim // VECTOR // ROW_THREADS):
        local, vector = row_of_thread(row_pass, dim)
        row = tile * bq + local
        rDout.fill(0.0)
        rOut.fill(0.0)
        lse = Float32.inf
        if row < queries:
            cute.autovec_copy(cute.zipped_divide(mDout[row, None, head, batch], (VECTOR,))[None, vector], rDout)
            cute.autovec_copy(cute.zipped_divide(mOut[row, None, head, batch], (VECTOR,))[None, vector], rOut)
            lse = mLse[row, head, batch] * LOG2_E
        product = rDout.load().to(Float32) * rOut.load().to(Float32)
        total = product.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        total = cute.arch.warp_reduction_sum(total, threads_in_group=dim // VECTOR)
        if vector == 0:
            mStats[local, tile, head, batch], mStats[bq + local, tile, head, batch] = lse, total
        cute.autovec_copy(zeros, cute.zipped_divide(mSums[row, None, head, batch], (VECTOR,))[None, vector])


@cute.kernel
def finish_kernel(mSums: cute.Tensor, mDq: cute.Tensor, scale: Float32):
    tile, head, batch = cute.arch.block_idx()
    queries, dim = mDq.shape[0], const_expr(mDq.shape[1])
    bq = const_expr(query_rows(dim))
    rSums, rDq = (cute.make_rmem_tensor((VECTOR,), t) for t in (Float32, mDq.element_type))
    for row_pass in range_constexpr(bq * dim // VECTOR // ROW_THREADS):
        local, vector = row_of_thread(row_pass, dim)
        row = tile * bq + local
        if row < queries:
            cute.autovec_copy(cute.zipped_divide(mSums[row, None, head, batch], (VECTOR,))[None, vector], rSums)
            rDq.store((rSums.load() * scale).to(mDq.element_type))
            cute.autovec_copy(rDq, cute.zipped_divide(mDq[row, None, head, batch], (VECTOR,))[None, vector])


@cute.kernel
def backward_kernel(
    tma_Q: cute.CopyAtom,
    mQ: cute.Tensor,  # (queries, dim, heads, batch), coordinates for TMA, as all that follow
    tma_dO: cute.CopyAtom,
    mdO: cute.Tensor,
    tma_stats: cute.CopyAtom,
    mStats: cute.Tensor,  # (2 BQ, tiles, heads, batch)
    tma_K: cute.CopyAtom,
    mK: cute.Tensor,  # (keys, dim, heads of keys, batch)
    tma_V: cute.CopyAtom,
    mV: cute.Tensor,
    tma_dQ: cute.CopyAtom,
    mdQ: cute.Tensor,  # (tiles * BQ, dim, heads, batch), float32
    tma_dK: cute.CopyAtom,
    mdK: cute.Tensor,  # like mK
    tma_dV: cute.CopyAtom,
    mdV: cute.Tensor,
    scale: Float32,
    causal: cutlass.Constexpr,
    first_score: cute.TiledMma,  # keys x queries; `first` overwrites, the others add
    score_mma: cute.TiledMma,
    key_mma: cute.TiledMma,  # keys x dim: dV and dK
    first_part: cute.TiledMma,  # a part of dQ
    part_mma: cute.TiledMma,
    sK_layout: cute.ComposedLayout,
    sQ_layout: cute.ComposedLayout,
    sdS_layout: cute.ComposedLayout,
    sdQ_layout: cute.ComposedLayout,
    dtype: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    n, kv_head, batch = cute.arch.block_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    dim, keys = const_expr(mQ.shape[1]), mK.shape[0]
    bq, tiles, group = const_expr(query_rows(dim)), mStats.shape[1], mQ.shape[2] // mK.shape[2]
    first_score.set(warpgroup.Field.ACCUMULATE, False)
    first_part.set(warpgroup.Field.ACCUMULATE, False)
    for mma in (score_mma, key_mma, part_mma):
        mma.set(warpgroup.Field.ACCUMULATE, True)
    if warp_index == 0:
        for atom in (tma_Q, tma_dO, tma_stats, tma_K, tma_V, tma_dQ, tma_dK, tma_dV):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sK, sV = (smem.allocate_tensor(dtype, sK_layout.outer, 1024, swizzle=sK_layout.inner) for _ in range(2))
    sQ, sdO = (smem.allocate_tensor(dtype, sQ_layout.outer, 1024, swizzle=sQ_layout.inner) for _ in range(2))
    sdS = smem.allocate_tensor(dtype, sdS_layout.outer, 1024, swizzle=sdS_layout.inner)
    sdQ = smem.allocate_tensor(Float32, sdQ_layout.outer, 1024, swizzle=sdQ_layout.inner)
    sStats = smem.allocate_tensor(Float32, cute.make_layout((2 * bq, STAGES)), 128)

    def ring(stages, tx_count):
        """Filled by one thread, emptied by the warps of both warpgroups."""
        return pipeline.PipelineTmaAsync.create(
            num_stages=stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * MATH_WARPGROUPS),
            tx_count=tx_count,
            defer_sync=True,
        )

    tile_bytes = const_expr(bq * dim * dtype.width // 8)
    ring_KV = ring(1, 2 * BN * dim * dtype.width // 8)
    ring_Q, ring_dO = ring(STAGES, tile_bytes + 2 * bq * 4), ring(STAGES, tile_bytes)
    pipeline.pipeline_init_arrive(is_relaxed=True)

    # Step i has the head kv_head * group + i // per_head, and of it the queries of tile first + i % per_head.
    first = Int32(0)
    if const_expr(causal):
        first = cutlass.min(n * BN // bq, tiles)  # no query before a key sees it
    per_head = tiles - first
    pipeline.pipeline_init_wait()

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            tKsK, tKgK = tiles_of(tma_K, sK, mK[None, None, None, batch], (BN, dim))
            tVsV, tVgV = tiles_of(tma_V, sV, mV[None, None, None, batch], (BN, dim))
            tQsQ, tQgQ = tiles_of(tma_Q, sQ, mQ[None, None, None, batch], (bq, dim))
            tOsO, tOgO = tiles_of(tma_dO, sdO, mdO[None, None, None, batch], (bq, dim))
            tLsL, tLgL = cpasync.tma_partition(
                tma_stats, 0, cute.make_layout(1), sStats, mStats[None, None, None, batch]
            )
            begin = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
            ring_KV.producer_acquire(begin)
            barrier = ring_KV.producer_get_barrier(begin)
            cute.copy(tma_K, tKgK[None, n, kv_head], tKsK[None, 0], tma_bar_ptr=barrier)
            cute.copy(tma_V, tVgV[None, n, kv_head], tVsV[None, 0], tma_bar_ptr=barrier)
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for i in cutlass.range(group * per_head, unroll=1):
                head, tile = kv_head * group + i // per_head, first + i % per_head
                ring_Q.producer_acquire(state)
                barrier = ring_Q.producer_get_barrier(state)
                cute.copy(tma_Q, tQgQ[None, tile, head], tQsQ[None, state.index], tma_bar_ptr=barrier)
                cute.copy(tma_stats, tLgL[None, tile, head], tLsL[None, state.index], tma_bar_ptr=barrier)
                ring_dO.producer_acquire(state)
                barrier = ring_dO.producer_get_barrier(state)
                cute.copy(tma_dO, tOgO[None, tile, head], tOsO[None, state.index], tma_bar_ptr=barrier)
                state.advance()

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        mine, lane = warpgroup_index - 1, thread % 128
        sQt, sdOt, sdSt, sKt = transposed(sQ), transposed(sdO), transposed(sdS), transposed(sK)
        sK_mine, sV_mine = (cute.local_tile(s[None, None, 0], (PART, dim), (mine, 0)) for s in (sK, sV))
        # A part of dQ has all columns, or all rows: a warpgroup takes its share of the other.
        row_part, column_part = (mine, 0) if const_expr(dim == PART) else (0, mine)
        sdS_part = cute.local_tile(sdSt, (PART, BN), (row_part, 0, None))
        sK_part = cute.local_tile(sKt, (PART, BN), (column_part, 0, 0))
        score_thr, key_thr, part_thr = score_mma.get_slice(0), key_mma.get_slice(0), part_mma.get_slice(0)
        tSrK = score_mma.make_fragment_A(score_thr.partition_A(sK_mine))
        tSrV = score_mma.make_fragment_A(score_thr.partition_A(sV_mine))
        tSrQ = score_mma.make_fragment_B(score_thr.partition_B(sQ))
        tSrdO = score_mma.make_fragment_B(score_thr.partition_B(sdO))
        tKrQ = key_mma.make_fragment_B(key_thr.partition_B(sQt))
        tKrdO = key_mma.make_fragment_B(key_thr.partition_B(sdOt))
        tQrdS = part_mma.make_fragment_A(part_thr.partition_A(sdS_part))
        tQrK = part_mma.make_fragment_B(part_thr.partition_B(sK_part))
        # ((2, 2 keys, BQ / 8), 1, 1): a thread has pairs of neighbouring queries
        scores, dP = (cute.make_rmem_tensor(score_mma.partition_shape_C((PART, bq)), Float32) for _ in range(2))
        dK, dV = (cute.make_rmem_tensor(key_mma.partition_shape_C((PART, dim)), Float32) for _ in range(2))
        dQ = cute.make_rmem_tensor(part_mma.partition_shape_C((PART, PART)), Float32)
        rP, rdS = (cute.make_rmem_tensor(scores.layout, dtype) for _ in range(2))
        # Two neighbouring groups of 8 columns are one left operand of 16.
        tKrP, tKrdS = (cute.make_tensor(r.iterator, cute.make_layout(((2, 2, 2), 1, bq // 16))) for r in (rP, rdS))
        dK.fill(0.0)
        dV.fill(0.0)
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        copy_dS = cute.make_tiled_copy_C(stmatrix, score_mma).get_slice(lane)
        tSsdS = copy_dS.partition_D(cute.local_tile(sdS, (PART, bq), (mine, 0, None)))
        tQsdQ = part_mma.get_slice(lane).partition_C(sdQ[None, None, mine])
        gdQ = cute.local_tile(mdQ[None, None, None, batch], (PART, PART), (None, None, None))
        tRsdQ, tRgdQ = cpasync.tma_partition(
            tma_dQ, 0, cute.make_layout(1), cute.group_modes(sdQ, 0, 2), cute.group_modes(gdQ, 0, 2)
        )
        both = pipeline.NamedBarrier(barrier_id=BOTH_BARRIER, num_threads=128 * MATH_WARPGROUPS)
        own = pipeline.NamedBarrier(barrier_id=OWN_BARRIER + mine, num_threads=128)
        cS = cute.make_identity_tensor((cute.round_up(keys, BN), tiles * bq))
        scale_log2 = scale * LOG2_E
        pair = 2 * (lane % 4)  # this thread's first query of 8

        ring_KV.consumer_wait(pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1))
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for i in cutlass.range(group * per_head, unroll=1):
            head, tile = kv_head * group + i // per_head, first + i % per_head
            ring_Q.consumer_wait(state)
            multiply(first_score, score_mma, scores, tSrK, tSrQ[None, None, None, state.index])
            ring_dO.consumer_wait(state)
            multiply(first_score, score_mma, dP, tSrV, tSrdO[None, None, None, state.index])
            warpgroup.wait_group(1)  # the scores are here

            for v in range_constexpr(bq // 8):
                for odd in range_constexpr(2):
                    column = scores[(odd, None, v), 0, 0]
                    lse = sStats[8 * v + pair + odd, state.index]
                    for key in range_constexpr(2):  # no score is above its log-sum-exp but by rounding
                        power = cute.arch.fmin(column[key] * scale_log2 - lse, Float32(0.0), nan=True)
                        column[key] = cute.math.exp2(power, fastmath=True)
            whole = (n + 1) * BN <= keys
            if const_expr(causal):
                whole = whole & (tile * bq >= (n + 1) * BN - 1)
            if not whole:
                coordinates = cute.local_tile(cS, (PART, bq), (n * MATH_WARPGROUPS + mine, tile))
                mask(scores, score_mma.get_slice(lane).partition_C(coordinates), keys, causal)
            rP.store(scores.load().to(dtype))
            pin(rP)
            warpgroup.wait_group(0)
            for v in range_constexpr(bq // 8):
                for odd in range_constexpr(2):
                    column = dP[(odd, None, v), 0, 0]
                    total = sStats[bq + 8 * v + pair + odd, state.index]
                    column.store((column.load() - total) * scores[(odd, None, v), 0, 0].load())
            rdS.store(dP.load().to(dtype))
            pin(rdS)

            # Two buffers: a warpgroup that passes `both` has finished dQ of the step before, which read the other one.
            buffer = i % 2
            cute.copy(copy_dS, copy_dS.retile(rdS), tSsdS[None, None, None, buffer])
            cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by wgmma next
            multiply(key_mma, key_mma, dV, tKrP, tKrdO[None, None, None, state.index])
            both.arrive_and_wait()
            multiply(first_part, part_mma, dQ, tQrdS[None, None, None, buffer], tQrK)
            warpgroup.wait_group(1)  # dV has read its tile
            ring_dO.consumer_release(state)
            multiply(key_mma, key_mma, dK, tKrdS, tKrQ[None, None, None, state.index])
            warpgroup.wait_group(1)  # dQ is here; dK goes on
            if lane < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)  # the reduction before has read the buffer
            own.arrive_and_wait()
            cute.autovec_copy(dQ, tQsdQ)
            cute.arch.fence_proxy("async.shared", space="cta")
            own.arrive_and_wait()
            if lane < 32:
                row_tile = tile * (bq // PART) + row_part
                cute.copy(tma_dQ, tRsdQ[None, mine], tRgdQ[None, row_tile, column_part, head])
                cute.arch.cp_async_bulk_commit_group()
            warpgroup.wait_group(0)
            ring_Q.consumer_release(state)
            state.advance()

        # dV and dK leave through the rows of V and K; TMA clips what lies behind the last key.
        rdV, rdK = (cute.make_rmem_tensor(dK.layout, dtype) for _ in range(2))
        rdV.store(dV.load().to(dtype))
        rdK.store((dK.load() * scale).to(dtype))
        copy_out = cute.make_tiled_copy_C(stmatrix, key_mma).get_slice(lane)
        both.arrive_and_wait()  # the other warpgroup multiplies with K no more
        cute.copy(copy_out, copy_out.retile(rdV), copy_out.partition_D(sV_mine))
        cute.copy(copy_out, copy_out.retile(rdK), copy_out.partition_D(sK_mine))
        cute.arch.fence_proxy("async.shared", space="cta")
        both.arrive_and_wait()
        if warp_index == 4:
            for atom, shared, tensor in ((tma_dK, sK, mdK), (tma_dV, sV, mdV)):
                gX = cute.local_tile(tensor[None, None, kv_head, batch], (BN, dim), (n, 0))
                tXsX, tXgX = cpasync.tma_partition(
                    atom, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(gX, 0, 2)
                )
                cute.copy(atom, tXsX[None, 0], tXgX)
            cute.arch.cp_async_bulk_commit_group()
        if lane < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


def row_major_smem(rows, columns, stages, dtype):
    """Tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


@cute.jit
def attention_backward(
    mdO: cute.Tensor,  # (batch, heads, queries, dim), as Q, K, V, out and the three results
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    mO: cute.Tensor,
    mLse: cute.Tensor,  # (batch, heads, queries)
    mStats: cute.Tensor,  # (batch, heads, tiles, 2 BQ)
    mSums: cute.Tensor,  # (batch, heads, tiles * BQ, dim)
    mdQ: cute.Tensor,
    mdK: cute.Tensor,
    mdV: cute.Tensor,
    scale: Float32,
    causal: cutlass.Constexpr,
    stream,
):
    dtype, dim = mQ.element_type, mQ.shape[3]
    bq = query_rows(dim)
    # Rows and columns first: what a block works on is then mX[None, None, head, batch].
    mdO, mQ, mK, mV, mO, mSums, mdQ, mdK, mdV = (
        cute.make_tensor(x.iterator, cute.select(x.layout, mode=[2, 3, 1, 0]))
        for x in (mdO, mQ, mK, mV, mO, mSums, mdQ, mdK, mdV)
    )
    mStats = cute.make_tensor(mStats.iterator, cute.select(mStats.layout, mode=[3, 2, 1, 0]))
    mLse = cute.make_tensor(mLse.iterator, cute.select(mLse.layout, mode=[2, 1, 0]))
    _, tiles, heads, batch = mStats.shape
    sK_layout, sQ_layout = row_major_smem(BN, dim, 1, dtype), row_major_smem(bq, dim, STAGES, dtype)
    sdS_layout = row_major_smem(BN, bq, 2, dtype)
    sdQ_layout = row_major_smem(PART, PART, MATH_WARPGROUPS, Float32)
    load, store, one = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp(), (None, None, 0)
    query_tile, key_tile = cute.slice_(sQ_layout, one), cute.slice_(sK_layout, one)
    tma_Q, tQ = cpasync.make_tiled_tma_atom(load, mQ, query_tile, (bq, dim))
    tma_dO, tdO = cpasync.make_tiled_tma_atom(load, mdO, query_tile, (bq, dim))
    tma_stats, tStats = cpasync.make_tiled_tma_atom(load, mStats, cute.make_layout(2 * bq), (2 * bq,))
    tma_K, tK = cpasync.make_tiled_tma_atom(load, mK, key_tile, (BN, dim))
    tma_V, tV = cpasync.make_tiled_tma_atom(load, mV, key_tile, (BN, dim))
    tma_dK, tdK = cpasync.make_tiled_tma_atom(store, mdK, key_tile, (BN, dim))
    tma_dV, tdV = cpasync.make_tiled_tma_atom(store, mdV, key_tile, (BN, dim))
    add = cpasync.CopyReduceBulkTensorTileS2GOp(cute.ReductionKind.ADD)
    tma_dQ, tdQ = cpasync.make_tiled_tma_atom(add, mSums, cute.slice_(sdQ_layout, one), (PART, PART))

    def wgmma(a_major, b_major, columns, source=warpgroup.OperandSource.SMEM):
        return sm90.make_trivial_tiled_mma(dtype, dtype, a_major, b_major, Float32, (1, 1, 1), (PART, columns), source)

    k_major, mn_major = OperandMajorMode.K, OperandMajorMode.MN
    score_mma = wgmma(k_major, k_major, bq)
    key_mma = wgmma(k_major, mn_major, dim, warpgroup.OperandSource.RMEM)
    part_mma = wgmma(mn_major, mn_major, PART)
    prepare_kernel(mdO, mO, mLse, mStats, mSums).launch(
        grid=(tiles, heads, batch), block=(ROW_THREADS, 1, 1), stream=stream
    )
    backward_kernel(
        tma_Q, tQ, tma_dO, tdO, tma_stats, tStats, tma_K, tK, tma_V, tV, tma_dQ, tdQ, tma_dK, tdK, tma_dV, tdV,
        scale, causal, score_mma, score_mma, key_mma, part_mma, part_mma,
        sK_layout, sQ_layout, sdS_layout, sdQ_layout, dtype,
    ).launch(
        grid=(cute.ceil_div(mK.shape[0], BN), mK.shape[2], batch), block=(THREADS, 1, 1), stream=stream
    )  # fmt: skip
    finish_kernel(mSums, mdQ, scale).launch(grid=(tiles, heads, batch), block=(ROW_THREADS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, dim: int, causal: bool):
    """One kernel for all lengths, heads and strides; the rows' elements are contiguous and begin at 16 bytes."""
    if dim not in (64, 128):
        raise ValueError(f"head dimension {dim}: the tiles are for 64 and 128")
    batch, heads, kv_heads, queries, keys, tiles, rows = (cute.sym_int() for _ in range(7))

    def fake(heads, rows):
        strides = tuple(cute.sym_int64(divisibility=VECTOR) for _ in range(3))
        return make_fake_tensor(DTYPES[dtype], (batch, heads, rows, dim), (*strides, 1), assumed_align=16)

    def compact(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(Float32, shape, stride_order=order, assumed_align=16)

    query, key = functools.partial(fake, heads, queries), functools.partial(fake, kv_heads, keys)
    stats, sums = compact(batch, heads, tiles, 2 * query_rows(dim)), compact(batch, heads, rows, dim)
    tensors = (query(), query(), key(), key(), query(), compact(batch, heads, queries), stats, sums)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(
        attention_backward, *tensors, query(), key(), key(), Float32(1.0), causal, stream, options="--enable-tvm-ffi"
    )


def kernel_fn(dout, q, k, v, out, lse, causal):
    """dQ, dK, dV for (batch, heads, length, dim); lse (batch, heads, queries) float32 is the forward's, in e."""
    batch, heads, queries, dim = q.shape
    if k.shape[1] == 0 or heads % k.shape[1] or k.shape[2] == 0:
        raise ValueError(f"{heads} query heads over {k.shape[1]} heads of {k.shape[2]} keys")
    kernel = compiled(q.dtype, dim, causal)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if not q.numel():
        return dq, dk.zero_(), dv.zero_()
    rows = query_rows(dim)
    tiles = -(-queries // rows)
    stats = torch.empty(batch, heads, tiles, 2 * rows, dtype=torch.float32, device=q.device)
    sums = torch.empty(batch, heads, tiles * rows, dim, dtype=torch.float32, device=q.device)
    kernel(dout, q, k, v, out, lse, stats, sums, dq, dk, dv, dim**-0.5)
    return dq, dk, dv


def reference_fn(dout, q, k, v, out, lse, causal):
    """As PyTorch differentiates attention: probabilities and their gradient are rounded to the inputs' type."""
    scale, group = q.shape[-1] ** -0.5, q.shape[1] // k.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = (q.float() @ key.float().mT) * scale
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1) & causal
    scores = scores.masked_fill(later, -math.inf)
    probabilities = (scores - lse.float()[..., None]).clamp(max=0).exp()  # no score is above it but by rounding
    probabilities = probabilities.masked_fill(later, 0.0)  # where lse is NaN too
    total = (dout.float() * out.float()).sum(-1, keepdim=True)
    ds = (probabilities * (dout.float() @ value.float().mT - total)).to(q.dtype).float()
    dk, dv = ds.mT @ q.float() * scale, probabilities.to(q.dtype).float().mT @ dout.float()
    dk, dv = (x.unflatten(1, (k.shape[1], group)).sum(2) for x in (dk, dv))
    return (ds @ key.float() * scale).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def get_inputs(batch=4, heads=16, kv_heads=16, queries=2048, keys=2048, dim=128, causal=True, dtype=torch.bfloat16):
    q, dout = (torch.randn(batch, heads, queries, dim, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(batch, kv_heads, keys, dim, device="cuda", dtype=dtype) for _ in range(2))
    wide = [x.float().repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
    out, lse = torch.empty_like(q), torch.empty(batch, heads, queries, device="cuda")
    for b in range(batch):  # the scores of one image of the batch at a time
        scores = q[b].float() @ wide[0][b].mT * dim**-0.5
        if causal:
            scores.masked_fill_(torch.ones(queries, keys, dtype=torch.bool, device="cuda").triu(1), -math.inf)
        lse[b] = scores.logsumexp(-1)
        out[b] = scores.softmax(-1) @ wide[1][b]
    return [dout, q, k, v, out, lse, causal]


def get_input_sets():
    yield get_inputs(1, 2, 1, 150, 150, 64)
    yield get_inputs(1, 1, 1, 40, 177, 128, causal=False, dtype=torch.float16)
    yield get_inputs(1, 2, 2, 200, 140, 128)
