"""Hopper attention backward: dQ, dK and dV by wgmma and TMA from the forward's log-sum-exp; causal, GQA, any strides.

Shows how five products a tile keep all but one operand out of shared memory. A block owns 128 keys and walks over the
queries of all heads that share them. Scores are computed transposed, keys down: the probabilities and their gradient
are then, register for register, the left operands of dV and dK, which stay in registers to the end. Only dQ needs the
gradient from shared memory, where stmatrix puts it and wgmma reads it transposed (MN-major). Every block adds its part
of dQ in float32 by TMA: the order of these sums varies. A small kernel before sums dout * out over each row, one behind
rounds dQ. bf16 4 x 16 x 2048 x 128 causal on an H100: 479 us. Predicted: 183
GFLOP, 0.37 ms at 500 TFLOP/s; 0.24 GB for both small kernels, 0.08 ms.

Arch: sm_90a
Operation: attention_backward
Features: tma, tma_reduce, wgmma, warp_specialization, backward, causal, gqa, strided, swizzle
Start here when you write the backward of attention for Hopper, or of anything with two products and a map between them.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int32, const_expr, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
PART = 64  # rows of one wgmma: the keys of a warpgroup, and rows and columns of its part of dQ
MATH_WARPGROUPS = 2
BN = PART * MATH_WARPGROUPS  # keys of a block
STEP = PART * PART * MATH_WARPGROUPS  # elements of Q in a step: 64 queries of 128 elements, 128 queries of 64
STAGES = 2  # of Q, of dout and of dS; with K, V and both parts of dQ they take 193 KB
BLOCK = (128 * (1 + MATH_WARPGROUPS), 1, 1)  # a warp loads, two warpgroups do the arithmetic
LOAD_REGISTERS, MATH_REGISTERS = 24, 240
ROW_THREADS, VECTOR = 256, 8  # of the small kernels: threads, and elements of a thread
LOG2_E = 1.4426950408889634


def smem_tiles(dtype, rows, columns, stages=1):
    """The layout of tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


def transposed(tensor):
    """The same memory with rows and columns exchanged; the stages stay last."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 0, 2]))


def copy_tile(atom, tensor, shared, row, column, head, batch, **barrier):
    """Load a tile of (rows, columns, heads, batch) by TMA, to be announced at a barrier; without one, store it."""
    tile = cute.local_tile(tensor[None, None, head, batch], cute.product_each(shared.shape), (row, column))
    sides = (cute.group_modes(each, 0, 2) for each in (shared, tile))
    inside, outside = cpasync.tma_partition(atom, 0, cute.make_layout(1), *sides)
    cute.copy(atom, *((outside, inside) if barrier else (inside, outside)), **barrier)


def multiply(mma, acc, a, b, adds=False):
    """acc (+)= a b, started and not awaited: b is a tile in shared memory, a as well, or accumulators in 16 bits."""
    if a.memspace == cute.AddressSpace.rmem:  # two neighbouring groups of 8 columns are one left operand of 16
        a = cute.make_tensor(a.iterator, cute.make_layout(((2, 2, 2), 1, cute.size(a) // 8)))
    else:
        a = mma.make_fragment_A(mma.partition_A(a))
    b = mma.make_fragment_B(mma.partition_B(b))
    warpgroup.fence()
    for k in range(cute.size(b, mode=[2])):
        mma.set(warpgroup.Field.ACCUMULATE, adds or k > 0)
        cute.gemm(mma, acc, a[None, None, k], b[None, None, k], acc)
    warpgroup.commit_group()


def rounded(acc, dtype):
    """16-bit registers, written before what follows: else conversions may move behind the fence of a product."""
    result = cute.make_rmem_tensor(acc.layout, dtype)
    result.store(acc.load().to(dtype))
    words = cute.recast_tensor(result, Int32)
    for i in range(cute.size(words)):
        words[i] = cute.arch.inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[words[i]])
    return result


def place_of_thread(dim):
    """(batch, head, row, vector) of this thread of a small kernel."""
    thread, (block, head, batch), lanes = cute.arch.thread_idx()[0], cute.arch.block_idx(), dim // VECTOR
    return batch, head, block * (ROW_THREADS // lanes) + thread // lanes, thread % lanes


@cute.kernel
def prepare_kernel(mdO: cute.Tensor, mO: cute.Tensor, mLse: cute.Tensor, mStats: cute.Tensor, mSums: cute.Tensor):
    """Statistics of rows, and zeros where dQ is summed. Rows behind the last get an lse of inf: probabilities of 0."""
    dim, tiler, place = const_expr(mO.shape[3]), (1, 1, 1, VECTOR), place_of_thread(mO.shape[3])
    batch, head, row, vector = place
    lse, total = Float32.inf, Float32(0.0)
    if row < mO.shape[2]:
        dO, out = (cute.local_tile(x, tiler, place).load().to(Float32) for x in (mdO, mO))
        lse, total = mLse[batch, head, row] * LOG2_E, (dO * out).reduce(cute.ReductionOp.ADD, total, 0)
    total = cute.arch.warp_reduction_sum(total, threads_in_group=dim // VECTOR)
    if vector == 0:
        tile, local = row // (STEP // dim), row % (STEP // dim)
        mStats[batch, head, tile, local], mStats[batch, head, tile, STEP // dim + local] = lse, total
    cute.local_tile(mSums, tiler, place).fill(0.0)


@cute.kernel
def finish_kernel(mSums: cute.Tensor, mdQ: cute.Tensor, scale: Float32):
    place = place_of_thread(mdQ.shape[3])
    if place[2] < mdQ.shape[2]:
        sums, dQ = (cute.local_tile(x, (1, 1, 1, VECTOR), place) for x in (mSums, mdQ))
        dQ.store((sums.load() * scale).to(mdQ.element_type))


@cute.kernel
def backward_kernel(
    tma_Q: cute.CopyAtom, mQ: cute.Tensor, tma_dO: cute.CopyAtom, mdO: cute.Tensor,  # (queries, dim, heads, batch)
    tma_stats: cute.CopyAtom, mStats: cute.Tensor,  # (tiles, 2 BQ, heads, batch), coordinates for TMA like all here
    tma_K: cute.CopyAtom, mK: cute.Tensor, tma_V: cute.CopyAtom, mV: cute.Tensor,  # (keys, dim, heads of keys, batch)
    tma_dQ: cute.CopyAtom, mdQ: cute.Tensor,  # (tiles * BQ, dim, heads, batch), float32
    tma_dK: cute.CopyAtom, mdK: cute.Tensor, tma_dV: cute.CopyAtom, mdV: cute.Tensor,
    scale: Float32, causal: cutlass.Constexpr, dtype: cutlass.Constexpr,
):  # fmt: skip
    thread, (n, kv_head, batch) = cute.arch.thread_idx()[0], cute.arch.block_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    dim, queries, keys, tiles = const_expr(mK.shape[1]), mQ.shape[0], mK.shape[0], mStats.shape[0]
    group = mQ.shape[2] // mK.shape[2]
    bq = const_expr(STEP // dim)
    if warp_index == 0:
        for atom in (tma_Q, tma_dO, tma_stats, tma_K, tma_V, tma_dQ, tma_dK, tma_dV):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    keys_by_dim, queries_by_dim = smem_tiles(dtype, BN, dim), smem_tiles(dtype, bq, dim, STAGES)
    layouts = keys_by_dim, keys_by_dim, queries_by_dim, queries_by_dim, smem_tiles(dtype, BN, bq, STAGES)
    sK, sV, sQ, sdO, sdS = (smem.allocate_tensor(dtype, x.outer, 1024, swizzle=x.inner) for x in layouts)
    parts = smem_tiles(Float32, PART, PART, MATH_WARPGROUPS)
    sdQ = smem.allocate_tensor(Float32, parts.outer, 1024, swizzle=parts.inner)
    sStats = smem.allocate_tensor(Float32, cute.make_layout((1, 2 * bq, STAGES)), 128)
    # A ring is filled by one thread, and emptied by the warps of both warpgroups.
    fills, empties = (pipeline.CooperativeGroup(pipeline.Agent.Thread, n) for n in (1, 4 * MATH_WARPGROUPS))
    ring = functools.partial(pipeline.PipelineTmaAsync.create, producer_group=fills, consumer_group=empties)
    load_KV, read_KV = ring(num_stages=1, tx_count=2 * BN * dim * dtype.width // 8).make_participants()
    ring_Q = ring(num_stages=STAGES, tx_count=STEP * dtype.width // 8 + 2 * bq * Float32.width // 8)
    ring_dO = ring(num_stages=STAGES, tx_count=STEP * dtype.width // 8)
    first = cutlass.min(n * BN // bq, tiles) if const_expr(causal) else Int32(0)  # no query before a key sees it

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            free = load_KV.acquire_and_advance()
            for atom, tensor, shared in ((tma_K, mK, sK), (tma_V, mV, sV)):
                copy_tile(atom, tensor, shared[None, None, 0], n, 0, kv_head, batch, tma_bar_ptr=free.barrier)
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for head in cutlass.range(kv_head * group, (kv_head + 1) * group, unroll=1):
                for tile in cutlass.range(first, tiles, unroll=1):
                    stage, place = (None, None, state.index), (tile, 0, head, batch)
                    ring_Q.producer_acquire(state)
                    copy_tile(tma_Q, mQ, sQ[stage], *place, tma_bar_ptr=ring_Q.producer_get_barrier(state))
                    copy_tile(tma_stats, mStats, sStats[stage], *place, tma_bar_ptr=ring_Q.producer_get_barrier(state))
                    ring_dO.producer_acquire(state)
                    copy_tile(tma_dO, mdO, sdO[stage], *place, tma_bar_ptr=ring_dO.producer_get_barrier(state))
                    state.advance()

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        mine, lane, scale_log2 = warpgroup_index - 1, thread % 128, scale * LOG2_E
        k_major, mn_major, both = OperandMajorMode.K, OperandMajorMode.MN, (MATH_WARPGROUPS, 1, 1)
        wgmma = functools.partial(sm90.make_trivial_tiled_mma, dtype, dtype)
        score_mma = wgmma(k_major, k_major, Float32, both, (PART, bq))  # keys x queries
        key_mma = wgmma(k_major, mn_major, Float32, both, (PART, dim), warpgroup.OperandSource.RMEM)  # keys x dim
        part_mma = wgmma(mn_major, mn_major, Float32, (1, 1, 1), (PART, PART))  # a warpgroup's part of dQ
        my_scores, my_keys, my_part = (mma.get_slice(mine * 128) for mma in (score_mma, key_mma, part_mma))
        # A part of dQ has all columns, or all rows: a warpgroup takes its share of the other.
        row_part, column_part = (mine, 0) if const_expr(dim == PART) else (0, mine)
        sdS_part = cute.local_tile(transposed(sdS), (PART, BN), (row_part, 0, None))
        sK_part = cute.local_tile(transposed(sK), (PART, BN), (column_part, 0, 0))
        scores, dscores = (cute.make_rmem_tensor(score_mma.partition_shape_C((BN, bq)), Float32) for _ in range(2))
        dK, dV = (cute.make_rmem_tensor(key_mma.partition_shape_C((BN, dim)), Float32) for _ in range(2))
        dQ = cute.make_rmem_tensor(part_mma.partition_shape_C((PART, PART)), Float32)
        dK.fill(0.0)
        dV.fill(0.0)
        # What is known of a query is the same for all keys, and partitioned like the scores.
        score_thr = score_mma.get_slice(thread - 128)
        over_keys = cute.make_layout((BN, bq, STAGES), stride=(0, 1, 2 * bq))
        tSsLse, tSsTotal = (score_thr.partition_C(cute.make_tensor(sStats.iterator + i, over_keys)) for i in (0, bq))
        tScS = score_thr.partition_C(cute.make_identity_tensor((BN, bq)))
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        copy_dS = cute.make_tiled_copy_C(stmatrix, score_mma).get_slice(thread - 128)
        tSsdS = copy_dS.partition_D(sdS)
        tQsdQ = part_mma.get_slice(lane).partition_C(sdQ[None, None, mine])
        both_wait = pipeline.NamedBarrier(barrier_id=1, num_threads=128 * MATH_WARPGROUPS)
        own_wait = pipeline.NamedBarrier(barrier_id=2 + mine, num_threads=128)

        read_KV.wait_and_advance()
        step = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for head in cutlass.range(kv_head * group, (kv_head + 1) * group, unroll=1):
            for tile in cutlass.range(first, tiles, unroll=1):
                stage, fragment = (None, None, step.index), (None, None, None, step.index)
                lse, total = tSsLse[fragment], tSsTotal[fragment]
                ring_Q.consumer_wait(step)
                multiply(my_scores, scores, sK[None, None, 0], sQ[stage])
                ring_dO.consumer_wait(step)
                multiply(my_scores, dscores, sV[None, None, 0], sdO[stage])
                warpgroup.wait_group(1)  # the scores are here
                for i in cutlass.range(cute.size(scores), unroll_full=True):
                    power = scores[i] * scale_log2 - lse[i]
                    power = cute.arch.fmin(power, Float32(0.0), nan=True)  # it is above 0 only by rounding
                    scores[i] = cute.math.exp2(power, fastmath=True)
                # 0 where there is no key or query or, if causal, the key comes after it: also where NaN was multiplied.
                whole = (n + 1) * BN <= (cutlass.min(keys, tile * bq + 1) if const_expr(causal) else keys)
                if not (whole & ((tile + 1) * bq <= queries)):
                    for i in cutlass.range(cute.size(scores), unroll_full=True):
                        key, query = n * BN + tScS[i][0], tile * bq + tScS[i][1]
                        seen = cutlass.min(keys, query + 1) if const_expr(causal) else keys
                        if (key >= seen) | (query >= queries):
                            scores[i] = Float32(0.0)
                P = rounded(scores, dtype)
                warpgroup.wait_group(0)
                for i in cutlass.range(cute.size(scores), unroll_full=True):
                    dscores[i] = (dscores[i] - total[i]) * scores[i]
                dS = rounded(dscores, dtype)
                # A warpgroup that passes `both_wait` has finished dQ of the step before, which read the other buffer.
                cute.copy(copy_dS, copy_dS.retile(dS), tSsdS[fragment])
                cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by wgmma next
                multiply(my_keys, dV, P, transposed(sdO)[stage], adds=True)
                both_wait.arrive_and_wait()
                multiply(my_part, dQ, sdS_part[stage], sK_part)
                warpgroup.wait_group(1)  # dV has read its tile
                ring_dO.consumer_release(step)
                multiply(my_keys, dK, dS, transposed(sQ)[stage], adds=True)
                warpgroup.wait_group(1)  # dQ is here; dK goes on
                if lane < 32:
                    cute.arch.cp_async_bulk_wait_group(0, read=True)  # the reduction before has read the buffer
                own_wait.arrive_and_wait()
                cute.autovec_copy(dQ, tQsdQ)
                cute.arch.fence_proxy("async.shared", space="cta")
                own_wait.arrive_and_wait()
                if lane < 32:
                    row = tile * (bq // PART) + row_part
                    copy_tile(tma_dQ, mdQ, sdQ[None, None, mine], row, column_part, head, batch)
                    cute.arch.cp_async_bulk_commit_group()
                warpgroup.wait_group(0)
                ring_Q.consumer_release(step)
                step.advance()

        # dV and dK leave through the rows of V and K; TMA clips what lies behind the last key.
        dK.store(dK.load() * scale)
        copy_out = cute.make_tiled_copy_C(stmatrix, key_mma).get_slice(thread - 128)
        both_wait.arrive_and_wait()  # the other warpgroup multiplies with K no more
        for acc, shared in ((dV, sV), (dK, sK)):
            cute.copy(copy_out, copy_out.retile(rounded(acc, dtype)), copy_out.partition_D(shared[None, None, 0]))
        cute.arch.fence_proxy("async.shared", space="cta")
        both_wait.arrive_and_wait()
        if warp_index == 4:
            for atom, tensor, shared in ((tma_dK, mdK, sK), (tma_dV, mdV, sV)):
                copy_tile(atom, tensor, shared[None, None, 0], n, 0, kv_head, batch)
            cute.arch.cp_async_bulk_commit_group()
        if lane < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


@cute.jit
def attention_backward(
    mdO: cute.Tensor, mQ: cute.Tensor, mK: cute.Tensor, mV: cute.Tensor, mO: cute.Tensor,  # (batch, heads, length, dim)
    mLse: cute.Tensor,  # (batch, heads, queries)
    mStats: cute.Tensor,  # (batch, heads, tiles, 2 BQ): of a tile's rows lse in powers of 2, then sum(dout * out)
    mSums: cute.Tensor,  # (batch, heads, tiles * BQ, dim)
    mdQ: cute.Tensor, mdK: cute.Tensor, mdV: cute.Tensor,
    scale: Float32, causal: cutlass.Constexpr, stream,
):  # fmt: skip
    dtype, (batch, heads, rows, dim) = mQ.element_type, mSums.shape

    def tma(op, tensor, tiles):
        """For one of the tiles in shared memory; rows and columns of the tensor come first."""
        tensor = cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[2, 3, 1, 0]))
        tile = cute.slice_(tiles, (None, None, 0))
        return cpasync.make_tiled_tma_atom(op, tensor, tile, cute.product_each(tile.shape))

    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    add = cpasync.CopyReduceBulkTensorTileS2GOp(cute.ReductionKind.ADD)
    queries, keys = smem_tiles(dtype, STEP // dim, dim), smem_tiles(dtype, BN, dim)
    stats, part = cute.make_layout((1, 2 * STEP // dim, 1)), smem_tiles(Float32, PART, PART)
    row_grid, row_block = (rows * dim // (VECTOR * ROW_THREADS), heads, batch), (ROW_THREADS, 1, 1)
    prepare_kernel(mdO, mO, mLse, mStats, mSums).launch(grid=row_grid, block=row_block, stream=stream)
    backward_kernel(
        *tma(load, mQ, queries), *tma(load, mdO, queries), *tma(load, mStats, stats),
        *tma(load, mK, keys), *tma(load, mV, keys),
        *tma(add, mSums, part), *tma(store, mdK, keys), *tma(store, mdV, keys), scale, causal, dtype,
    ).launch(grid=(cute.ceil_div(mK.shape[2], BN), mK.shape[1], batch), block=BLOCK, stream=stream)  # fmt: skip
    finish_kernel(mSums, mdQ, scale).launch(grid=row_grid, block=row_block, stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, dim: int, causal: bool):
    """One kernel for all lengths, heads and strides; the rows' elements are contiguous and begin at 16 bytes."""
    batch, heads, kv_heads, queries, keys, tiles, rows = (cute.sym_int() for _ in range(7))

    def tensor(dtype, unit, *shape):
        strides = (cute.sym_int64(divisibility=unit) for _ in shape[1:])
        return make_fake_tensor(dtype, shape, (*strides, 1), assumed_align=unit * dtype.width // 8)

    dout, q, out, dq = (tensor(DTYPES[dtype], 8, batch, heads, queries, dim) for _ in range(4))
    k, v, dk, dv = (tensor(DTYPES[dtype], 8, batch, kv_heads, keys, dim) for _ in range(4))
    lse, stats = tensor(Float32, 1, batch, heads, queries), tensor(Float32, 4, batch, heads, tiles, 2 * STEP // dim)
    tensors = dout, q, k, v, out, lse, stats, tensor(Float32, 4, batch, heads, rows, dim), dq, dk, dv
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(attention_backward, *tensors, Float32(1.0), causal, stream, options="--enable-tvm-ffi")


def kernel_fn(dout, q, k, v, out, lse, causal):
    """dQ, dK, dV for (batch, heads, length, dim); lse (batch, heads, queries) float32 is the forward's, in e."""
    batch, heads, queries, dim = q.shape
    if dim not in (64, 128) or k.shape[1] == 0 or heads % k.shape[1] or k.shape[2] == 0:
        raise ValueError(f"{heads} query heads over {k.shape[1]} heads of {k.shape[2]} keys, head dimension {dim}")
    kernel = compiled(q.dtype, dim, causal)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    if not q.numel():
        return dq, dk.zero_(), dv.zero_()
    tiles = -(-queries * dim // STEP)
    stats = torch.empty(batch, heads, tiles, 2 * STEP // dim, dtype=torch.float32, device=q.device)
    sums = torch.empty(batch, heads, tiles * STEP // dim, dim, dtype=torch.float32, device=q.device)
    kernel(dout, q, k, v, out, lse, stats, sums, dq, dk, dv, dim**-0.5)
    return dq, dk, dv


def reference_fn(dout, q, k, v, out, lse, causal):
    """As PyTorch differentiates attention: probabilities and their gradient are rounded to the inputs' type."""
    scale, group = q.shape[-1] ** -0.5, q.shape[1] // k.shape[1]
    key, value = (x.float().repeat_interleave(group, 1) for x in (k, v))
    later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1) & causal
    powers = (q.float() @ key.mT * scale - lse.float()[..., None]).clamp(max=0)  # above 0 only by rounding
    p = powers.masked_fill(later, -torch.inf).exp()  # 0 where lse is NaN too
    ds = p * (dout.float() @ value.mT - (dout.float() * out.float()).sum(-1, keepdim=True))
    p, ds = (x.to(q.dtype).float() for x in (p, ds))
    dk, dv = ds.mT @ q.float() * scale, p.mT @ dout.float()
    dk, dv = (x.unflatten(1, (k.shape[1], group)).sum(2) for x in (dk, dv))
    return (ds @ key * scale).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def get_inputs(batch=4, heads=16, kv_heads=16, queries=2048, keys=2048, dim=128, causal=True, dtype=torch.bfloat16):
    q, dout = (torch.randn(batch, heads, queries, dim, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(batch, kv_heads, keys, dim, device="cuda", dtype=dtype) for _ in range(2))
    key, value = (x.float().repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    later = torch.ones(queries, keys, dtype=torch.bool, device="cuda").triu(1) & causal
    scores = (q.float() @ key.mT * dim**-0.5).masked_fill_(later, -torch.inf)
    return [dout, q, k, v, (scores.softmax(-1) @ value).to(dtype), scores.logsumexp(-1), causal]


def get_input_sets():
    yield get_inputs(1, 2, 1, 150, 150, 64)
    yield get_inputs(1, 1, 1, 40, 177, 128, causal=False, dtype=torch.float16)
    yield get_inputs(1, 2, 2, 200, 140, 128)
