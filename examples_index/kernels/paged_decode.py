"""Decoding of one new token over a paged cache of keys and values, split over the keys, with grouped query heads.

Shows tensor cores fed from global memory alone. The heads that share a key head are the rows of an mma, so that keys
and values are read once for all. The sum over the head dimension may run in any order: a lane's 16 bytes of a key are
the operands of two mma as they lie. The columns of the second product may stand in any order too: a lane loads 16
bytes of four values and pairs them up in registers. Nothing passes through shared memory, and no barrier is needed.
Every warp owns a run of keys and writes its part of the result; a second kernel weighs the parts. Lengths are read on
the device; rows of a page behind the end are never loaded, so that what lies there does no harm.
A cache of int8 with a float32 scale for each key and value goes the same way: scales leave the sums, so they multiply
scores and weights. There all is multiplied in bfloat16, which holds every int8 and has the range that weights times
scales need. Scales lie as (pages, key heads, rows): neighbouring keys share a sector.
Prediction, not measured, for bf16 16 sequences of 8192 keys, 8 key heads of 128, on an H200: 537 MB, 126 us at 4.26
TB/s, and 4 MB of parts; half of that in int8.

Arch: sm_80+
Operation: attention
Features: mma_sync, vectorized_copy, online_softmax, gqa, decode, paged_kv, gather, predication, warp_shuffle, int8
Start here when one query meets many keys, or an index table decides what a tile loads.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int8, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import warp
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.int8: Int8}
KEYS = 16  # of a step: they lie in one page
HEADS = 16  # rows of an mma: the query heads that share a key head, and rows of zeros
WARPS = 4  # of a block; each has keys of its own
BLOCKS_PER_SM = 2  # aimed at: as many as registers allow, 202 a thread for a dimension of 128
LEAST_STEPS = 8  # of a warp: its part of the result is 1/8 of what it reads, or less
LOG2_E = 1.4426950408889634
LOWEST = -1e30  # a finite stand-in for the maximum of a row that has seen -inf alone


@cute.kernel
def decode_kernel(
    mQ: cute.Tensor,  # (batch, heads, dim)
    mK: cute.Tensor,  # (pages, rows of a page, key heads, dim)
    mV: cute.Tensor,
    mKs: cute.Tensor | None,  # (pages, key heads, rows of a page): scales of a cache of int8
    mVs: cute.Tensor | None,
    mTable: cute.Tensor,  # (batch, pages of a sequence)
    mLengths: cute.Tensor,  # (batch,)
    mParts: cute.Tensor,  # (splits, batch, heads, dim)
    mLse: cute.Tensor,  # (splits, batch, heads), to base 2
    scale: Float32,
    mma: cute.TiledMma,
    group: cutlass.Constexpr,
):
    lane, warp_index = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    kv_head, sequence, block = cute.arch.block_idx()
    split, splits = block * WARPS + warp_index, mParts.shape[0]
    dim, page_rows, dtype = mQ.shape[2], mK.shape[1], mQ.element_type
    row, quad = lane // 4, lane % 4  # of the accumulators: rows `row` and `row + 8`, columns 2 quad and 2 quad + 1
    length = cutlass.min(cutlass.max(mLengths[sequence], 0), mTable.shape[1] * page_rows)
    steps = cute.ceil_div(length, KEYS)

    # 16 bytes of every 64: element e of a lane's vector is the same place of the sum in queries and keys.
    vector = const_expr(128 // mK.element_type.width)
    wide = const_expr(min(vector, dim // 8))  # of values: 8 lanes share a row
    rQ = cute.make_rmem_tensor((vector, dim // (4 * vector), 2), dtype)
    rQ.fill(0)
    for high in range_constexpr(2):
        if row + 8 * high < group:
            gQ = cute.zipped_divide(mQ[sequence, kv_head * group + row + 8 * high, None], (vector,))
            for chunk in range_constexpr(dim // (4 * vector)):
                cute.autovec_copy(gQ[None, 4 * chunk + quad], rQ[None, chunk, high])
    rK = cute.make_rmem_tensor((vector, dim // (4 * vector), KEYS // 8), mK.element_type)
    rV = cute.make_rmem_tensor((wide, dim // (8 * wide), 2, 2), mV.element_type)
    rKd, rVd = rK, rV  # as they are multiplied
    if const_expr(mKs is not None):
        rKd, rVd = cute.make_rmem_tensor(rK.shape, dtype), cute.make_rmem_tensor(rV.shape, dtype)
    rVt = cute.make_rmem_tensor(((2, 2), dim // 8, 1), dtype)
    fQ = cute.make_tensor(rQ.iterator, cute.make_layout(((2, 2, 2), 1, dim // 16), stride=((1, dim // 4, 2), 0, 4)))
    fK = cute.make_tensor(rKd.iterator, cute.make_layout(((2, 2), KEYS // 8, dim // 16), stride=((1, 2), dim // 4, 4)))
    acc = cute.make_rmem_tensor(((2, 2), 1, dim // 8), Float32)
    acc.fill(0.0)
    scores = cute.make_rmem_tensor(((2, 2), 1, KEYS // 8), Float32)
    weights = cute.make_rmem_tensor(((2, 2), 1, KEYS // 8), dtype)
    fP = cute.make_tensor(weights.iterator, cute.make_layout(((2, 2, 2), 1, 1)))  # accumulators are an operand A
    top, total = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
    rKs, rVs = (cute.make_rmem_tensor((2, KEYS // 8), Float32) for _ in range(2))
    top.fill(-Float32.inf)
    total.fill(0.0)

    for step in cutlass.range(split * steps // splits, (split + 1) * steps // splits, unroll=1):
        key = step * KEYS
        page, first = mTable[sequence, key // page_rows], key % page_rows
        for n in range_constexpr(KEYS // 8):
            if key + 8 * n + row < length:
                gK = cute.zipped_divide(mK[page, first + 8 * n + row, kv_head, None], (vector,))
                for chunk in range_constexpr(dim // (4 * vector)):
                    cute.autovec_copy(gK[None, 4 * chunk + quad], rK[None, chunk, n])
        rV.fill(0)  # a weight of zero times what lies behind the end may be NaN
        for high in range_constexpr(2):
            for odd in range_constexpr(2):
                if key + 8 * high + 2 * quad + odd < length:
                    gV = cute.zipped_divide(mV[page, first + 8 * high + 2 * quad + odd, kv_head, None], (wide,))
                    for chunk in range_constexpr(dim // (8 * wide)):
                        cute.autovec_copy(gV[None, 8 * chunk + row], rV[None, chunk, odd, high])

        if const_expr(mKs is not None):
            rKd.store(rK.load().to(dtype))
            rVd.store(rV.load().to(dtype))
            for n in range_constexpr(KEYS // 8):
                for odd in range_constexpr(2):
                    place = 8 * n + 2 * quad + odd
                    here = key + place < length
                    rKs[odd, n] = mKs[page, kv_head, first + place] if here else Float32(0.0)
                    rVs[odd, n] = mVs[page, kv_head, first + place] if here else Float32(0.0)
        scores.fill(0.0)
        cute.gemm(mma, scores, fQ, fK, scores)
        if const_expr(mKs is not None):
            for high in range_constexpr(2):
                scores[(None, high), 0, None].store(scores[(None, high), 0, None].load() * rKs.load())
        for n in range_constexpr(KEYS // 8):
            for odd in range_constexpr(2):
                if key + 8 * n + 2 * quad + odd >= length:
                    for high in range_constexpr(2):
                        scores[(odd, high), 0, n] = -Float32.inf
        for high in range_constexpr(2):
            s = scores[(None, high), 0, None].load() * (scale * LOG2_E)
            peak = cute.arch.warp_reduction_max(s.reduce(cute.ReductionOp.MAX, top[high], 0), threads_in_group=4)
            base = cute.arch.fmax(peak, Float32(LOWEST))  # exp2(-inf - base) is 0, -inf + inf would be NaN
            shrink = cute.math.exp2(top[high] - base, fastmath=True)
            p = cute.math.exp2(s - base, fastmath=True)
            total[high] = p.reduce(cute.ReductionOp.ADD, total[high] * shrink, 0)  # this lane's keys only
            top[high] = peak
            if const_expr(mVs is not None):
                p = p * rVs.load()
            weights[(None, high), 0, None].store(p.to(dtype))
            acc[(None, high), 0, None].store(acc[(None, high), 0, None].load() * shrink)
        for chunk in range_constexpr(dim // (8 * wide)):
            for e in range_constexpr(wide):
                for high in range_constexpr(2):
                    for odd in range_constexpr(2):
                        rVt[(odd, high), wide * chunk + e, 0] = rVd[e, chunk, odd, high]
        cute.gemm(mma, acc, fP, rVt, acc)

    # Column c of product wide * chunk + e is dimension wide * (8 * chunk + c) + e: `wide` products are neighbours.
    for high in range_constexpr(2):
        whole = cute.arch.warp_reduction_sum(total[high], threads_in_group=4)
        head = kv_head * group + row + 8 * high
        if row + 8 * high < group:
            any_key = whole != 0.0
            factor = 1.0 / whole if any_key else Float32(0.0)
            gO = cute.zipped_divide(mParts[split, sequence, head, None], (wide,))
            for chunk in range_constexpr(dim // (8 * wide)):
                for odd in range_constexpr(2):
                    out = cute.make_rmem_tensor(wide, Float32)
                    for e in range_constexpr(wide):
                        out[e] = acc[(odd, high), 0, wide * chunk + e] * factor
                    cute.autovec_copy(out, gO[None, 8 * chunk + 2 * quad + odd])
            if quad == 0:
                lse = top[high] + cute.math.log2(whole, fastmath=True) if any_key else -Float32.inf
                mLse[split, sequence, head] = lse


@cute.kernel
def combine_kernel(mParts: cute.Tensor, mLse: cute.Tensor, mLengths: cute.Tensor, mO: cute.Tensor):
    """A block a head of a sequence, a thread a dimension: the parts by the weights of their sums."""
    column, _, _ = cute.arch.thread_idx()
    head, sequence, _ = cute.arch.block_idx()
    splits, top = mParts.shape[0], Float32(LOWEST)
    for split in cutlass.range(splits, unroll=4):
        top = cute.arch.fmax(top, mLse[split, sequence, head])
    total, acc = Float32(0.0), Float32(0.0)
    for split in cutlass.range(splits, unroll=4):
        weight = cute.math.exp2(mLse[split, sequence, head] - top, fastmath=True)
        total += weight
        if weight != 0.0:
            acc += weight * mParts[split, sequence, head, column]
    out = acc / total  # NaN where all keys have scores of -inf, as in PyTorch
    if mLengths[sequence] <= 0:
        out = Float32(0.0)
    mO[sequence, head, column] = out.to(mO.element_type)


@cute.jit
def decode(
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    mKs: cute.Tensor | None,
    mVs: cute.Tensor | None,
    mTable: cute.Tensor,
    mLengths: cute.Tensor,
    mParts: cute.Tensor,
    mLse: cute.Tensor,
    mO: cute.Tensor,
    scale: Float32,
    group: cutlass.Constexpr,
    stream,
):
    mma = cute.make_tiled_mma(warp.MmaF16BF16Op(mQ.element_type, Float32, (16, 8, 16)))
    grid = (mK.shape[2], mQ.shape[0], mParts.shape[0] // WARPS)
    decode_kernel(mQ, mK, mV, mKs, mVs, mTable, mLengths, mParts, mLse, scale, mma, group).launch(
        grid=grid, block=(32 * WARPS, 1, 1), stream=stream
    )
    combine_kernel(mParts, mLse, mLengths, mO).launch(
        grid=(mQ.shape[1], mQ.shape[0], 1), block=(mQ.shape[2], 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, cached: torch.dtype, dim: int, page_rows: int, group: int):
    """One kernel for all numbers of sequences, key heads, pages and splits."""
    batch, heads, kv_heads, pages, table, splits = (cute.sym_int() for _ in range(6))

    def fake(element, *shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(element, shape, stride_order=order, assumed_align=16)

    element, cache = DTYPES[dtype], fake(DTYPES[cached], pages, page_rows, kv_heads, dim)
    scales = fake(Float32, pages, kv_heads, page_rows) if cached == torch.int8 else None
    integers = make_fake_compact_tensor(Int32, (batch, table), stride_order=(1, 0))
    lengths = make_fake_compact_tensor(Int32, (batch,))
    lse = make_fake_compact_tensor(Float32, (splits, batch, heads), stride_order=(2, 1, 0))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    q, o = fake(element, batch, heads, dim), fake(element, batch, heads, dim)
    tensors = (q, cache, cache, scales, scales, integers, lengths)
    parts = fake(Float32, splits, batch, heads, dim)
    return cute.compile(decode, *tensors, parts, lse, o, Float32(0.0), group, stream, options="--enable-tvm-ffi")


@functools.cache
def multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def kernel_fn(q, k, v, table, lengths, k_scales=None, v_scales=None):
    """q (batch, heads, dim); k, v (pages, rows, key heads, dim), of q's type or int8 with float32 scales (pages, key
    heads, rows); table (batch, pages) and lengths (batch,) int32."""
    (batch, heads, dim), (_, page_rows, kv_heads, _) = q.shape, k.shape
    if dim not in (64, 128):
        raise ValueError(f"a head dimension of {dim}: 64 and 128 are written for; pad q, k and v with zeros")
    if page_rows % KEYS or not page_rows:
        raise ValueError(f"pages of {page_rows} rows: make them a multiple of {KEYS}")
    if not kv_heads or heads % kv_heads or heads > HEADS * kv_heads:
        raise ValueError(f"{heads} heads on {kv_heads} key heads: 1 to {HEADS} whole ones must share each")
    if (k_scales is not None) != (k.dtype == torch.int8) or (k.dtype == torch.int8 and q.dtype != torch.bfloat16):
        raise ValueError(f"a cache of {k.dtype} for queries of {q.dtype}: int8 comes with scales, for bfloat16 alone")
    out = torch.empty_like(q)
    if out.numel():
        warps = multiprocessors(q.device) * BLOCKS_PER_SM * WARPS // (batch * kv_heads)
        steps = table.shape[1] * page_rows // KEYS
        splits = max(1, min(warps, steps // LEAST_STEPS) // WARPS) * WARPS
        parts = torch.empty(splits, batch, heads, dim, dtype=torch.float32, device=q.device)
        lse = torch.empty(splits, batch, heads, dtype=torch.float32, device=q.device)
        kernel = compiled(q.dtype, k.dtype, dim, page_rows, heads // kv_heads)
        kernel(q, k, v, k_scales, v_scales, table, lengths, parts, lse, out, dim**-0.5)
    return out


def reference_fn(q, k, v, table, lengths, k_scales=None, v_scales=None):
    if table.numel() and (int(table.min()) < 0 or int(table.max()) >= k.shape[0]):
        raise ValueError("the table names a page that is not there")
    group = q.shape[1] // k.shape[2]
    out = torch.zeros_like(q)
    for one, (pages, length) in enumerate(zip(table, lengths.tolist())):
        keys, values = (t[pages.long()].flatten(0, 1)[: max(length, 0)].float() for t in (k, v))
        if k_scales is not None:
            scales = (s[pages.long()].mT.flatten(0, 1)[: max(length, 0), :, None] for s in (k_scales, v_scales))
            keys, values = (t * s for t, s in zip((keys, values), scales))
        if len(keys):
            keys, values = (t.repeat_interleave(group, 1) for t in (keys, values))
            scores = torch.einsum("hd,nhd->hn", q[one].float(), keys) * q.shape[2] ** -0.5
            weights = scores.softmax(-1).to(q.dtype).float()  # rounded, as attention in PyTorch does
            out[one] = torch.einsum("hn,nhd->hd", weights, values).to(q.dtype)
    return out


def get_inputs(batch=16, heads=32, kv_heads=8, dim=128, page_rows=128, lengths=8192, dtype=torch.bfloat16):
    lengths = [lengths] * batch if isinstance(lengths, int) else lengths
    most = max(-(-length // page_rows) for length in lengths)
    pages = torch.randperm(batch * most, device="cuda").int().view(batch, most)
    k, v = (torch.randn(batch * most, page_rows, kv_heads, dim, device="cuda", dtype=dtype) for _ in range(2))
    q = torch.randn(batch, heads, dim, device="cuda", dtype=dtype)
    return [q, k, v, pages, torch.tensor(lengths, device="cuda", dtype=torch.int32)]


def get_input_sets():
    yield get_inputs(3, 8, 2, 128, 128, [70, 1, 130])
    yield get_inputs(2, 6, 1, 64, 16, [300, 47], torch.float16)
    yield get_inputs(1, 16, 1, 64, 48, [5])
    for q, k, v, *rest in (get_inputs(3, 8, 2, 128, 32, [70, 1, 130]), get_inputs(2, 6, 1, 64, 16, [300, 47])):
        scales = [torch.rand(k.shape[0], k.shape[2], k.shape[1], device="cuda") * 0.02 for _ in range(2)]
        yield [q, *((t * 32).round().clamp(-127, 127).to(torch.int8) for t in (k, v)), *rest, *scales]
