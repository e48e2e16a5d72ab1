"""Layer norm backward: dx, dweight and dbias in two stages, the weight gradients without atomics.

Shows how a sum over rows and sums along rows share one pass. A block takes rows b, b + blocks, … and each thread owns
the same columns of all of them, so that its part of the weight gradients stays in registers in float32; it is written
once, one line a block. The second kernel adds these lines, always in the same order: results are the same every time.
Prediction for bf16 16384 x 4096 on an H200: x and dy are read and dx is written once, 403 MB, 94 us at 4.26 TB/s; the
lines of partial sums add 2 x 132 x 4096 x 4 bytes, 4 MB.

Arch: sm_80+
Operation: layer_norm
Features: vectorized_copy, warp_shuffle, block_reduction, smem, backward, multiple_outputs
Start here when a gradient is needed along rows and over rows: norms, biases, scales of columns.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
ELEMENTS_PER_THREAD = 8  # aimed at; up to MAX_ELEMENTS_PER_THREAD where a row is long: five rows of them are held
MAX_ELEMENTS_PER_THREAD = 16
MOST_BLOCKS = 264  # that share the rows: two an SM of an H200, and as many lines of partial sums
SUMS = 4  # block reductions of a row, each with a place of its own in shared memory
COLUMN_THREADS = 128  # of a block of the second kernel, one column each


@cute.jit
def sum_over_block(value: Float32, sPartial: cute.Tensor):
    """The sum of `value` over all threads of the block, for every thread."""
    value = cute.arch.warp_reduction_sum(value)
    warps = const_expr(cute.size(sPartial))
    if const_expr(warps > 1):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()  # warp_idx shuffles: all lanes must call it
        if lane == 0:
            sPartial[warp] = value
        cute.arch.sync_threads()  # also keeps the next row out of a place that is still read: SUMS of them alternate
        value = Float32(0.0)
        if lane < warps:
            value = sPartial[lane]
        value = cute.arch.warp_reduction_sum(value)
    return value


@cute.kernel
def rows_kernel(
    mDy: cute.Tensor,
    mX: cute.Tensor,
    mW: cute.Tensor,
    mDx: cute.Tensor,
    mSums: cute.Tensor,
    eps: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """dx of every row, and this block's line of the sums over rows: mSums is (2, blocks, columns)."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    sPartial = SmemAllocator().allocate_tensor(Float32, cute.make_layout((threads // 32, SUMS)), byte_alignment=16)
    columns, dtype = const_expr(mW.shape[0]), mX.element_type
    vectors = const_expr(columns // vector)
    chunks = const_expr(-(-vectors // threads))
    rX, rDy, rW, rDx = (cute.make_rmem_tensor((vector, chunks), dtype) for _ in range(4))
    rDw, rDb, rValid = (cute.make_rmem_tensor((vector, chunks), Float32) for _ in range(3))
    for r in (rX, rDy, rW):
        r.fill(0)
    for r in (rDw, rDb, rValid):
        r.fill(0.0)
    gW = cute.zipped_divide(mW, (vector,))
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(gW[None, index], rW[None, chunk])
            for k in range_constexpr(vector):
                rValid[k, chunk] = Float32(1.0)  # what lies beyond the row must not add its share of the mean
    w, valid = rW.load().to(Float32), rValid.load()

    rows = cute.size(mX, mode=[0])
    for turn in range(cute.ceil_div(rows - block, blocks)):
        row = block + turn * blocks
        gX, gDy, gDx = (cute.zipped_divide(m[row, None], (vector,)) for m in (mX, mDy, mDx))
        for chunk in range_constexpr(chunks):
            index = chunk * threads + thread
            if index < vectors:
                cute.autovec_copy(gX[None, index], rX[None, chunk])
                cute.autovec_copy(gDy[None, index], rDy[None, chunk])
        x, dy = rX.load().to(Float32), rDy.load().to(Float32)
        mean = sum_over_block(x.reduce(cute.ReductionOp.ADD, Float32(0.0), 0), sPartial[None, 0]) / columns
        centred = cute.where(valid > 0.5, x - mean, cute.zeros_like(x))
        square = (centred * centred).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        scale = cute.math.rsqrt(sum_over_block(square, sPartial[None, 1]) / columns + eps)
        normal, g = centred * scale, dy * w
        along = sum_over_block(g.reduce(cute.ReductionOp.ADD, Float32(0.0), 0), sPartial[None, 2]) / columns
        across = (g * normal).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        across = sum_over_block(across, sPartial[None, 3]) / columns
        rDx.store(((g - along - normal * across) * scale).to(dtype))
        for chunk in range_constexpr(chunks):
            index = chunk * threads + thread
            if index < vectors:
                cute.autovec_copy(rDx[None, chunk], gDx[None, index])
        rDw.store(rDw.load() + dy * normal)
        rDb.store(rDb.load() + dy)

    for place, r in ((0, rDw), (1, rDb)):
        gSums = cute.zipped_divide(mSums[place, block, None], (vector,))
        for chunk in range_constexpr(chunks):
            index = chunk * threads + thread
            if index < vectors:
                cute.autovec_copy(r[None, chunk], gSums[None, index])


@cute.kernel
def columns_kernel(mSums: cute.Tensor, mDw: cute.Tensor, mDb: cute.Tensor):
    """A thread adds the blocks' lines of one column; neighbouring threads read neighbouring columns."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    column = block * COLUMN_THREADS + thread
    if column < cute.size(mDw):
        dw, db = Float32(0.0), Float32(0.0)
        for line in range(cute.size(mSums, mode=[1]), unroll=8):
            dw += mSums[0, line, column]
            db += mSums[1, line, column]
        mDw[column] = dw.to(mDw.element_type)
        mDb[column] = db.to(mDb.element_type)


@cute.jit
def layer_norm_backward(
    mDy: cute.Tensor,
    mX: cute.Tensor,
    mW: cute.Tensor,
    mDx: cute.Tensor,
    mSums: cute.Tensor,
    mDw: cute.Tensor,
    mDb: cute.Tensor,
    eps: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    stream,
):
    blocks = cute.size(mSums, mode=[1])
    rows_kernel(mDy, mX, mW, mDx, mSums, eps, vector, threads).launch(
        grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
    )
    columns_kernel(mSums, mDw, mDb).launch(
        grid=(cute.ceil_div(cute.size(mDw), COLUMN_THREADS), 1, 1), block=(COLUMN_THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernels for rows of `columns` elements; raises ValueError where a row is too long for a block's registers."""
    vector = math.gcd(columns, 16 // dtype.itemsize)
    threads = min(1024, max(32, 1 << (columns // ELEMENTS_PER_THREAD - 1).bit_length()))
    if columns > threads * MAX_ELEMENTS_PER_THREAD:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a block")
    rows, blocks = cute.sym_int(), cute.sym_int()

    def matrix():
        return make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)

    def line():
        return make_fake_compact_tensor(DTYPES[dtype], (columns,), assumed_align=16)

    sums = make_fake_compact_tensor(Float32, (2, blocks, columns), stride_order=(2, 1, 0), assumed_align=16)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = (matrix(), matrix(), line(), matrix(), sums, line(), line())
    return cute.compile(
        layer_norm_backward, *tensors, Float32(0.0), vector, threads, stream, options="--enable-tvm-ffi"
    )


def kernel_fn(dy, x, weight, eps):
    dx, dw, db = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    columns = x.shape[-1]
    if columns:
        blocks = max(1, min(x.numel() // columns, MOST_BLOCKS))
        sums = torch.empty(2, blocks, columns, device=x.device, dtype=torch.float32)
        rows = [t.view(-1, columns) for t in (dy, x)]
        compiled(x.dtype, columns)(*rows, weight, dx.view(-1, columns), sums, dw, db, eps)
    return dx, dw, db


def reference_fn(dy, x, weight, eps):
    g, value = dy.float(), x.float()
    centred = value - value.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    normal, h = centred * scale, g * weight.float()
    dx = (h - h.mean(-1, keepdim=True) - normal * (h * normal).mean(-1, keepdim=True)) * scale
    over_rows = tuple(range(x.dim() - 1))
    dw, db = (g * normal).sum(over_rows), g.sum(over_rows)
    return dx.to(x.dtype), dw.to(weight.dtype), db.to(weight.dtype)


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16):
    dy, x = (torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2))
    return [dy, x, torch.randn(columns, device="cuda", dtype=dtype), 1e-5]


def get_input_sets():
    yield get_inputs(37, 1000, torch.float16)
    yield get_inputs(5, 65, torch.float32)
