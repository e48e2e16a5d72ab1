"""Hopper attention forward: TMA, wgmma, two warpgroups of arithmetic, probabilities kept in registers; causal, GQA.

Shows how the two products of attention overlap with the softmax between them. One warp loads Q once, and K and V into
rings of two stages. Each of two warpgroups owns 64 query rows. In a step it starts the product of the next scores and,
behind it, that of the last probabilities with V; while the tensor cores do the second, it computes the softmax of the
first. The probabilities of a warpgroup are, register for register, the left operand of its second product. V is read
as it lies, with the head dimension contiguous (MN-major). The diagonal is in the tile that comes first: no other one
needs a mask.

Arch: sm_90a
Operation: attention
Features: tma, wgmma, warp_specialization, online_softmax, causal, gqa, warp_shuffle, strided, swizzle
Start here when you write attention for Hopper, or when a product on wgmma takes its left operand from registers.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int32, const_expr, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN = 64, 128  # query rows of a warpgroup, keys of a step
MATH_WARPGROUPS = 2  # their 128 rows are as many as a step's keys: the diagonal crosses one tile of keys
STAGES = 2  # of K and of V: with Q they take 160 KB for a head dimension of 128
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240
LOG2_E = 1.4426950408889634
LOWEST = -1e30  # a finite stand-in for the maximum of a row that has seen -inf alone
WARPGROUP_BARRIER = 1  # and 2; 0 is sync_threads


def stage_of(count: Int32, flip: int):
    """Where a ring stands after `count` tiles; the producer starts with flip=1: all stages are empty."""
    return pipeline.PipelineState(STAGES, count, count % STAGES, ((count // STAGES) & 1) ^ flip)


@cute.jit
def multiply(first_mma: cute.TiledMma, mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor):
    """acc (+)= a b, started and not awaited; a in registers or shared memory, b in shared memory."""
    cute.gemm(first_mma, acc, a[None, None, 0], b[None, None, 0], acc)
    for k in range_constexpr(1, cute.size(b, mode=[2])):
        cute.gemm(mma, acc, a[None, None, k], b[None, None, k], acc)
    warpgroup.commit_group()


@cute.jit
def mask_scores(scores: cute.Tensor, coordinates: cute.Tensor, keys: Int32, causal: cutlass.Constexpr):
    """-inf where the key does not exist or, if causal, comes after the query."""
    for r in range_constexpr(2):
        row_scores, row_coordinates = scores[(None, r, None), 0, 0], coordinates[(None, r, None), 0, 0]
        last = keys - 1
        if const_expr(causal):
            last = cutlass.min(last, row_coordinates[0][0])
        for i in range_constexpr(cute.size(row_scores)):
            if row_coordinates[i][1] > last:
                row_scores[i] = -Float32.inf


@cute.jit
def softmax_step(
    scores: cute.Tensor, row_max: cute.Tensor, row_sum: cute.Tensor, shrink: cute.Tensor, scale_log2: Float32
):
    """The scores become powers of 2 beneath the new maximum; `shrink` is what everything before it must be scaled by.

    A row lies in four lanes of one warp. A row of -inf alone becomes 0: -inf - LOWEST is -inf, not NaN.
    """
    for r in range_constexpr(2):
        row = scores[(None, r, None), 0, 0].load()
        highest = row.reduce(cute.ReductionOp.MAX, row_max[r], 0)
        highest = cute.arch.fmax(cute.arch.warp_reduction_max(highest, threads_in_group=4), LOWEST)
        shrink[r] = cute.math.exp2((row_max[r] - highest) * scale_log2, fastmath=True)
        powers = cute.math.exp2(row * scale_log2 - highest * scale_log2, fastmath=True)
        row_sum[r] = powers.reduce(cute.ReductionOp.ADD, row_sum[r] * shrink[r], 0)
        row_max[r] = highest
        scores[(None, r, None), 0, 0].store(powers)


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
    first_mma: cute.TiledMma,  # of the scores: the first of 16 columns of Q overwrites, the others add
    score_mma: cute.TiledMma,
    value_mma: cute.TiledMma,
    sQ_layout: cute.ComposedLayout,
    sK_layout: cute.ComposedLayout,
    sV_layout: cute.ComposedLayout,
    dtype: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, head, batch = cute.arch.block_idx()
    blocks, heads, _ = cute.arch.grid_dim()
    m = blocks - 1 - block  # causal: the last rows have the most keys, and start first
    kv_head = head // (heads // mK.shape[2])
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    dim, keys = const_expr(mQ.shape[1]), mK.shape[0]
    first_mma.set(warpgroup.Field.ACCUMULATE, False)
    score_mma.set(warpgroup.Field.ACCUMULATE, True)
    value_mma.set(warpgroup.Field.ACCUMULATE, True)
    if warp_index == 0:
        for atom in (tma_Q, tma_K, tma_V, tma_O):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sQ = smem.allocate_tensor(dtype, sQ_layout.outer, byte_alignment=1024, swizzle=sQ_layout.inner)
    sK = smem.allocate_tensor(dtype, sK_layout.outer, byte_alignment=1024, swizzle=sK_layout.inner)
    sV = smem.allocate_tensor(dtype, sV_layout.outer, byte_alignment=1024, swizzle=sV_layout.inner)

    def ring(stages, elements):
        """Filled by one thread, emptied by the warps of both warpgroups."""
        return pipeline.PipelineTmaAsync.create(
            num_stages=stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * MATH_WARPGROUPS),
            tx_count=elements * dtype.width // 8,
            defer_sync=True,
        )

    ring_Q = ring(1, MATH_WARPGROUPS * BM * dim)
    ring_K, ring_V = ring(STAGES, BN * dim), ring(STAGES, BN * dim)
    pipeline.pipeline_init_arrive(is_relaxed=True)

    reach = keys
    if const_expr(causal):
        reach = cutlass.min(keys, (m + 1) * MATH_WARPGROUPS * BM)
    steps = cute.ceil_div(reach, BN)  # keys from the last tile to the first
    pipeline.pipeline_init_wait()

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            one = cute.make_layout(1)
            gQ = cute.local_tile(mQ[None, None, head, batch], (BM, dim), (None, 0))
            gK = cute.local_tile(mK[None, None, kv_head, batch], (BN, dim), (None, 0))
            gV = cute.local_tile(mV[None, None, kv_head, batch], (dim, BN), (0, None))
            tQsQ, tQgQ = cpasync.tma_partition(tma_Q, 0, one, cute.group_modes(sQ, 0, 2), cute.group_modes(gQ, 0, 2))
            tKsK, tKgK = cpasync.tma_partition(tma_K, 0, one, cute.group_modes(sK, 0, 2), cute.group_modes(gK, 0, 2))
            tVsV, tVgV = cpasync.tma_partition(tma_V, 0, one, cute.group_modes(sV, 0, 2), cute.group_modes(gV, 0, 2))
            begin = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
            ring_Q.producer_acquire(begin)
            for i in range_constexpr(MATH_WARPGROUPS):
                cute.copy(
                    tma_Q,
                    tQgQ[None, m * MATH_WARPGROUPS + i],
                    tQsQ[None, i],
                    tma_bar_ptr=ring_Q.producer_get_barrier(begin),
                )
            state = stage_of(Int32(0), 1)
            for step in cutlass.range(steps, unroll=1):
                n = steps - 1 - step
                ring_K.producer_acquire(state)
                barrier = ring_K.producer_get_barrier(state)
                cute.copy(tma_K, tKgK[None, n], tKsK[None, state.index], tma_bar_ptr=barrier)
                ring_V.producer_acquire(state)
                barrier = ring_V.producer_get_barrier(state)
                cute.copy(tma_V, tVgV[None, n], tVsV[None, state.index], tma_bar_ptr=barrier)
                state.advance()

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        mine, lane = warpgroup_index - 1, thread % 128
        row_tile = m * MATH_WARPGROUPS + mine
        sQ_mine = sQ[None, None, mine]
        score_thr, value_thr = score_mma.get_slice(0), value_mma.get_slice(0)
        tSrQ = score_mma.make_fragment_A(score_thr.partition_A(sQ_mine))
        tSrK = score_mma.make_fragment_B(score_thr.partition_B(sK))
        tOrV = value_mma.make_fragment_B(value_thr.partition_B(sV))
        scores = cute.make_rmem_tensor(score_mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2 rows, BN / 8), 1, 1)
        out = cute.make_rmem_tensor(value_mma.partition_shape_C((BM, dim)), Float32)
        rP = cute.make_rmem_tensor(scores.layout, dtype)
        # Two neighbouring groups of 8 columns are one left operand of 16.
        tOrP = cute.make_tensor(rP.iterator, cute.make_layout(((2, 2, 2), 1, BN // 16)))
        row_max, row_sum, shrink = (cute.make_rmem_tensor((2,), Float32) for _ in range(3))
        row_max.fill(-Float32.inf)
        row_sum.fill(0.0)  # of this lane's columns: combined at the end
        out.fill(0.0)
        scale_log2 = scale * LOG2_E

        # The first step: every row sees a key of this tile, or all rows see none.
        ring_Q.consumer_wait(pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1))
        state_K, state_V = stage_of(Int32(0), 0), stage_of(Int32(0), 0)
        ring_K.consumer_wait(state_K)
        warpgroup.fence()
        multiply(first_mma, score_mma, scores, tSrQ, tSrK[None, None, None, state_K.index])
        warpgroup.wait_group(0)
        ring_K.consumer_release(state_K)
        state_K.advance()
        cS = cute.make_identity_tensor((mQ.shape[0], keys))
        coordinates = score_mma.get_slice(lane).partition_C(cute.local_tile(cS, (BM, BN), (row_tile, steps - 1)))
        mask_scores(scores, coordinates, keys, causal)
        softmax_step(scores, row_max, row_sum, shrink, scale_log2)
        rP.store(scores.load().to(dtype))

        for _ in cutlass.range(steps - 1, unroll=1):
            ring_K.consumer_wait(state_K)
            warpgroup.fence()
            multiply(first_mma, score_mma, scores, tSrQ, tSrK[None, None, None, state_K.index])
            ring_V.consumer_wait(state_V)
            multiply(value_mma, value_mma, out, tOrP, tOrV[None, None, None, state_V.index])
            warpgroup.wait_group(1)  # the scores are here; the product with V goes on
            ring_K.consumer_release(state_K)
            state_K.advance()
            softmax_step(scores, row_max, row_sum, shrink, scale_log2)
            warpgroup.wait_group(0)
            ring_V.consumer_release(state_V)
            state_V.advance()
            for r in range_constexpr(2):
                row = out[(None, r, None), 0, 0]
                row.store(row.load() * shrink[r])
            rP.store(scores.load().to(dtype))

        ring_V.consumer_wait(state_V)
        warpgroup.fence()
        multiply(value_mma, value_mma, out, tOrP, tOrV[None, None, None, state_V.index])
        warpgroup.wait_group(0)

        # The warpgroup's rows of Q are not needed any more: the result leaves through them, and TMA clips it.
        rO = cute.make_rmem_tensor(out.layout, dtype)
        for r in range_constexpr(2):
            total = cute.arch.warp_reduction_sum(row_sum[r], threads_in_group=4)
            inverse = 1.0 / total
            if total == 0.0:
                inverse = Float32(0.0)
            rO[(None, r, None), 0, 0].store((out[(None, r, None), 0, 0].load() * inverse).to(dtype))
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        copy_O = cute.make_tiled_copy_C(stmatrix, value_mma).get_slice(lane)
        barrier = pipeline.NamedBarrier(barrier_id=WARPGROUP_BARRIER + mine, num_threads=128)
        barrier.arrive_and_wait()  # no warp of the warpgroup multiplies with Q any more
        cute.copy(copy_O, copy_O.retile(rO), copy_O.partition_D(sQ_mine))
        cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
        barrier.arrive_and_wait()
        if lane < 32:
            gO = cute.local_tile(mO[None, None, head, batch], (BM, dim), (None, 0))
            tOsO, tOgO = cpasync.tma_partition(
                tma_O, 0, cute.make_layout(1), cute.group_modes(sQ_mine, 0, 2), cute.group_modes(gO, 0, 2)
            )
            cute.copy(tma_O, tOsO, tOgO[None, row_tile])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


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
    row_major, column_major = LayoutEnum.ROW_MAJOR, LayoutEnum.COL_MAJOR
    sQ_layout = sm90.make_smem_layout_a(row_major, (BM, BN, dim), dtype, MATH_WARPGROUPS)
    sK_layout = sm90.make_smem_layout_b(row_major, (BM, BN, dim), dtype, STAGES)
    sV_layout = sm90.make_smem_layout_b(column_major, (BM, dim, BN), dtype, STAGES)
    k_major, mn_major = OperandMajorMode.K, OperandMajorMode.MN
    score_mma = sm90.make_trivial_tiled_mma(dtype, dtype, k_major, k_major, Float32, (1, 1, 1), (BM, BN))
    value_mma = sm90.make_trivial_tiled_mma(
        dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), (BM, dim), warpgroup.OperandSource.RMEM
    )
    load, one = cpasync.CopyBulkTensorTileG2SOp(), (None, None, 0)
    tma_Q, tQ = cpasync.make_tiled_tma_atom(load, mQ, cute.slice_(sQ_layout, one), (BM, dim))
    tma_K, tK = cpasync.make_tiled_tma_atom(load, mK, cute.slice_(sK_layout, one), (BN, dim))
    tma_V, tV = cpasync.make_tiled_tma_atom(load, mV, cute.slice_(sV_layout, one), (dim, BN))
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_O, tO = cpasync.make_tiled_tma_atom(store, mO, cute.slice_(sQ_layout, one), (BM, dim))
    attention_kernel(
        tma_Q, tQ, tma_K, tK, tma_V, tV, tma_O, tO, scale, causal, score_mma, score_mma, value_mma,
        sQ_layout, sK_layout, sV_layout, dtype,
    ).launch(
        grid=(cute.ceil_div(queries, MATH_WARPGROUPS * BM), heads, batch), block=(THREADS, 1, 1), stream=stream
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


def get_inputs(batch=4, heads=16, kv_heads=16, queries=2048, keys=2048, dim=128, causal=True, dtype=torch.bfloat16):
    q = torch.randn(batch, heads, queries, dim, device="cuda", dtype=dtype)
    k, v = (torch.randn(batch, kv_heads, keys, dim, device="cuda", dtype=dtype) for _ in range(2))
    return [q, k, v, causal]


def get_input_sets():
    yield get_inputs(1, 2, 1, 300, 300, 64)
    yield get_inputs(1, 1, 1, 40, 277, 128, causal=False, dtype=torch.float16)
