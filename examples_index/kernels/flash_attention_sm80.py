"""Attention forward in one pass over the keys (FlashAttention-2), causal or full, with grouped query heads.

Shows two chained matrix products with an online softmax between them, all in registers: the scores of a tile never
leave the warp that made them, and become the operand of the second product as they lie. K and V have one buffer each;
the next K is copied while P V is computed, the next V while Q K^T is. V is read transposed by ldmatrix.

Arch: sm_80+
Operation: attention
Features: cp_async, ldmatrix, mma_sync, swizzle, predication, online_softmax, causal, gqa, warp_shuffle, strided
Start here when two matrix products have something between them that works on rows.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Boolean, Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN = 128, 64  # query rows of a block, keys of a step
WARPS = 8  # one under another, 16 query rows each: a row's scores lie in four lanes of one warp
THREADS = WARPS * 32
VECTOR = 8  # 16-bit elements of one 16-byte access
LOG2_E = 1.4426950408889634
LOWEST = -1e30  # a finite stand-in for the maximum of a row that has seen -inf alone


def swizzled_layout(rows, dim):
    """A row-major tile in which the vectors of 8 rows at one column lie in different banks (swizzle in bytes)."""
    width = min(64, dim)
    atom = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, width), stride=(width, 1)))
    return cute.tile_to_shape(atom, (rows, dim), order=(0, 1))


def row_major_copy(atom, dim):
    across = dim // VECTOR
    threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, VECTOR)))


@cute.jit
def load_rows(copy: cute.TiledCopy, mX: cute.Tensor, sX: cute.Tensor, tile: Int32, rows: cutlass.Constexpr):
    """cp.async of `rows` rows from row `tile * rows` on; rows past the end of `mX` become zeros."""
    thread, _, _ = cute.arch.thread_idx()
    thr_copy = copy.get_slice(thread)
    dim = mX.shape[1]
    tXgX = thr_copy.partition_S(cute.local_tile(mX, (rows, dim), (tile, 0)))
    tXcX = thr_copy.partition_S(cute.local_tile(cute.make_identity_tensor(mX.shape), (rows, dim), (tile, 0)))
    tXsX = thr_copy.partition_D(sX)
    for m in range_constexpr(cute.size(tXgX, mode=[1])):
        pred = cute.make_rmem_tensor((1,), Boolean)
        pred[0] = tXcX[0, m, 0][0] < mX.shape[0]
        cute.copy(copy, tXgX[None, m, 0], tXsX[None, m, 0], pred=pred)
    cute.arch.cp_async_commit_group()


@cute.jit
def mask_scores(scores: cute.Tensor, coordinates: cute.Tensor, keys: Int32, causal: cutlass.Constexpr):
    """-inf where the key does not exist or, if causal, comes after the query."""
    for i in range_constexpr(cute.size(scores)):
        row, column = coordinates[i]
        last = keys - 1
        if const_expr(causal):
            last = cutlass.min(last, row)
        if column > last:
            scores[i] = -Float32.inf


@cute.kernel
def attention_kernel(
    mQ: cute.Tensor,  # (queries, dim, heads, batch)
    mK: cute.Tensor,  # (keys, dim, heads of keys, batch)
    mV: cute.Tensor,
    mO: cute.Tensor,  # like mQ
    scale: Float32,
    causal: cutlass.Constexpr,
    tiled_mma: cute.TiledMma,
    sQ_layout: cute.ComposedLayout,
    sK_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    block, head, batch = cute.arch.block_idx()
    blocks, heads, _ = cute.arch.grid_dim()
    m = blocks - 1 - block  # causal: the last rows have the most keys, and start first
    kv_head = head // (heads // mK.shape[2])
    gQ, gO = mQ[None, None, head, batch], mO[None, None, head, batch]
    gK, gV = mK[None, None, kv_head, batch], mV[None, None, kv_head, batch]
    dtype, dim, keys = mQ.element_type, const_expr(mQ.shape[1]), mK.shape[0]

    smem = SmemAllocator()
    sQ = smem.allocate_tensor(dtype, sQ_layout.outer, byte_alignment=1024, swizzle=sQ_layout.inner)
    sK = smem.allocate_tensor(dtype, sK_layout.outer, byte_alignment=1024, swizzle=sK_layout.inner)
    sV = smem.allocate_tensor(dtype, sK_layout.outer, byte_alignment=1024, swizzle=sK_layout.inner)
    sVt = cute.make_tensor(sV.iterator, cute.select(sV.layout, mode=[1, 0]))  # (dim, keys): N x K of P V

    async_atom = cute.make_copy_atom(
        cpasync.CopyG2SOp(cache_mode=cute.nvgpu.LoadCacheMode.GLOBAL), dtype, num_bits_per_copy=128
    )
    copy_rows = row_major_copy(async_atom, dim)
    load_rows(copy_rows, gQ, sQ, m, BM)
    load_rows(copy_rows, gK, sK, Int32(0), BN)

    thr_mma = tiled_mma.get_slice(thread)
    tSrQ = tiled_mma.make_fragment_A(thr_mma.partition_A(sQ))
    tSrK = tiled_mma.make_fragment_B(thr_mma.partition_B(sK))
    tOrV = tiled_mma.make_fragment_B(thr_mma.partition_B(sVt))
    tOrO = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, dim)), Float32)
    tSrS = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2 rows), 1, BN / 8)
    tSrP = cute.make_rmem_tensor(tSrS.layout, dtype)
    # Two neighbouring 16x8 accumulators are, register for register, one 16x16 operand.
    tOrP = cute.make_tensor(tSrP.iterator, cute.make_layout(((2, 2, 2), 1, BN // 16)))
    tOrO.fill(0.0)
    row_max = cute.make_rmem_tensor((2,), Float32)  # of raw scores
    row_sum = cute.make_rmem_tensor((2,), Float32)  # of this lane's columns: combined at the end
    row_max.fill(-Float32.inf)
    row_sum.fill(0.0)

    plain = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    transposing = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), dtype)
    copy_Q, copy_K = cute.make_tiled_copy_A(plain, tiled_mma), cute.make_tiled_copy_B(plain, tiled_mma)
    copy_V = cute.make_tiled_copy_B(transposing, tiled_mma)
    tXsQ, tXrQ = copy_Q.get_slice(thread).partition_S(sQ), copy_Q.get_slice(thread).retile(tSrQ)
    tXsK, tXrK = copy_K.get_slice(thread).partition_S(sK), copy_K.get_slice(thread).retile(tSrK)
    tXsV, tXrV = copy_V.get_slice(thread).partition_S(sVt), copy_V.get_slice(thread).retile(tOrV)

    reach = keys
    if const_expr(causal):
        reach = cutlass.min(keys, (m + 1) * BM)
    steps = cute.ceil_div(reach, BN)
    scale_log2 = scale * LOG2_E
    cS = cute.make_identity_tensor((mQ.shape[0], keys))
    for step in cutlass.range(steps, unroll=1):
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # K is here; everybody is done with the V before
        load_rows(copy_rows, gV, sV, step, BN)

        tSrS.fill(0.0)
        for k in range_constexpr(cute.size(tSrQ, mode=[2])):
            cute.copy(copy_Q, tXsQ[None, None, k], tXrQ[None, None, k])
            cute.copy(copy_K, tXsK[None, None, k], tXrK[None, None, k])
            cute.gemm(tiled_mma, tSrS, tSrQ[None, None, k], tSrK[None, None, k], tSrS)

        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # V is here; everybody is done with this K
        if step + 1 < steps:
            load_rows(copy_rows, gK, sK, step + 1, BN)

        whole = (step + 1) * BN <= keys
        if const_expr(causal):
            whole = whole & ((step + 1) * BN <= m * BM)
        if not whole:
            coordinates = thr_mma.partition_C(cute.local_tile(cS, (BM, BN), (m, step)))
            mask_scores(tSrS, coordinates, keys, causal)

        # Step 0 has key 0, which every row sees; a maximum of -inf then comes from the scores themselves, and such a
        # row is 0, as PyTorch's: -inf - LOWEST is -inf, where -inf - -inf would be NaN.
        for r in range_constexpr(2):
            scores = tSrS[(None, r), 0, None].load()
            highest = scores.reduce(cute.ReductionOp.MAX, row_max[r], 0)
            highest = cute.arch.fmax(cute.arch.warp_reduction_max(highest, threads_in_group=4), LOWEST)
            shrink = cute.math.exp2((row_max[r] - highest) * scale_log2, fastmath=True)
            powers = cute.math.exp2(scores * scale_log2 - highest * scale_log2, fastmath=True)
            row_sum[r] = powers.reduce(cute.ReductionOp.ADD, row_sum[r] * shrink, 0)
            row_max[r] = highest
            tSrP[(None, r), 0, None].store(powers.to(dtype))
            tOrO[(None, r), 0, None].store(tOrO[(None, r), 0, None].load() * shrink)

        for k in range_constexpr(BN // 16):
            cute.copy(copy_V, tXsV[None, None, k], tXrV[None, None, k])
            cute.gemm(tiled_mma, tOrO, tOrP[None, None, k], tOrV[None, None, k], tOrO)

    # A warp writes only rows of sQ that it alone has read: only its own lanes have to wait for each other.
    sO = sQ
    tOsO = thr_mma.partition_C(sO)
    tOrD = cute.make_rmem_tensor(tOrO.layout, dtype)
    for r in range_constexpr(2):
        total = cute.arch.warp_reduction_sum(row_sum[r], threads_in_group=4)
        inverse = 1.0 / total
        if total == 0.0:
            inverse = Float32(0.0)
        tOrD[(None, r), 0, None].store((tOrO[(None, r), 0, None].load() * inverse).to(dtype))
    cute.arch.sync_warp()
    cute.autovec_copy(tOrD, tOsO)
    cute.arch.sync_threads()  # the copy below spreads the tile over the threads in another way

    store_atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=128)
    thr_copy = row_major_copy(store_atom, dim).get_slice(thread)
    tDsO, tDgO = thr_copy.partition_S(sO), thr_copy.partition_D(cute.local_tile(gO, (BM, dim), (m, 0)))
    tDcO = thr_copy.partition_S(cute.local_tile(cute.make_identity_tensor(gO.shape), (BM, dim), (m, 0)))
    for i in range_constexpr(cute.size(tDgO, mode=[1])):
        if tDcO[0, i, 0][0] < gO.shape[0]:
            cute.autovec_copy(tDsO[None, i, 0], tDgO[None, i, 0])


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
    tiled_mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(mQ.element_type, Float32, (16, 8, 16)),
        cute.make_layout((WARPS, 1, 1)),
        permutation_mnk=(WARPS * 16, 16, 16),  # 16 columns: what one ldmatrix.x4 brings
    )
    batch, heads, queries, dim = mQ.shape
    # Rows and columns first: what a block works on is then mX[None, None, head, batch].
    rows_first = [cute.make_tensor(x.iterator, cute.select(x.layout, mode=[2, 3, 1, 0])) for x in (mQ, mK, mV, mO)]
    attention_kernel(*rows_first, scale, causal, tiled_mma, swizzled_layout(BM, dim), swizzled_layout(BN, dim)).launch(
        grid=(cute.ceil_div(queries, BM), heads, batch), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, dim: int, causal: bool):
    """One kernel for all lengths, heads and strides; the rows' elements are contiguous and begin at 16 bytes."""
    if dim not in (64, 128):
        raise ValueError(f"head dimension {dim}: the tiles are for 64 and 128")
    batch, heads, kv_heads, queries, keys = (cute.sym_int() for _ in range(5))

    def fake(heads, rows):
        strides = tuple(cute.sym_int64(divisibility=VECTOR) for _ in range(3))
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
    yield get_inputs(1, 2, 1, 150, 150, 64)
    yield get_inputs(1, 1, 1, 40, 77, 128, causal=False, dtype=torch.float16)
