"""RMS norm backward, with the gradient of a residual added: dx and dweight, the weight gradient without atomics.

Shows the backward of rms_norm_residual. Both sums of a row, of x * x and of dy * weight * x, depend on nothing but the
inputs, so one exchange over the block serves them, and its two buffers take turns: one barrier a row. The loads of the
next row are in flight meanwhile. A block takes rows b, b + blocks, …; each thread owns the same columns of all of them
and holds its part of dweight in float32 registers. A second kernel adds the blocks' lines, always in the same order.
Prediction, not measured, for bf16 16384 x 4096 with a residual on an H200: dy, x and dresidual are read and dx is
written once, 537 MB, and lines of partial sums of 4 MB twice: 128 us at 4.26 TB/s.

Arch: sm_80+
Operation: rms_norm
Features: vectorized_copy, warp_shuffle, block_reduction, smem, backward, residual, persistent, multiple_outputs
Start here when the gradient of a norm, a scale or a gate is needed along rows and over rows.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
ELEMENTS_PER_THREAD = 8  # aimed at; up to MAX_ELEMENTS_PER_THREAD where a row is long: six rows of them are held
MAX_ELEMENTS_PER_THREAD = 16
THREADS_PER_SM, MOST_BLOCKS_PER_SM = 1024, 16  # 64 registers a thread: 48 KB of loads in flight, without spills
COLUMNS, LINES = 32, 8  # of a block of the second kernel: a warp reads 128 bytes of a line, each warp every 8th line
UNROLL = 8  # lines that a warp loads before it adds the first


@cute.jit
def sums_over_block(a: Float32, b: Float32, sPartial: cute.Tensor):
    """The sums of `a` and of `b` over all threads of the block, for every thread; sPartial is (warps, 2)."""
    a, b = cute.arch.warp_reduction_sum(a), cute.arch.warp_reduction_sum(b)
    warps = const_expr(cute.size(sPartial, mode=[0]))
    if const_expr(warps > 1):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()  # warp_idx shuffles: all lanes must call it
        if lane == 0:
            sPartial[warp, 0], sPartial[warp, 1] = a, b
        cute.arch.sync_threads()
        a, b = Float32(0.0), Float32(0.0)
        if lane < warps:
            a, b = sPartial[lane, 0], sPartial[lane, 1]
        a, b = cute.arch.warp_reduction_sum(a), cute.arch.warp_reduction_sum(b)
    return a, b


@cute.jit
def load_row(mRow: cute.Tensor, r: cute.Tensor, threads: cutlass.Constexpr):
    """A row into registers (vector, chunks), neighbouring vectors by neighbouring threads; past its end r stays."""
    thread, _, _ = cute.arch.thread_idx()
    gRow = cute.zipped_divide(mRow, (r.shape[0],))
    for chunk in range_constexpr(r.shape[1]):
        index = chunk * threads + thread
        if index < cute.size(gRow, mode=[1]):
            cute.autovec_copy(gRow[None, index], r[None, chunk])


@cute.jit
def store_row(r: cute.Tensor, mRow: cute.Tensor, threads: cutlass.Constexpr):
    """The way back."""
    thread, _, _ = cute.arch.thread_idx()
    gRow = cute.zipped_divide(mRow, (r.shape[0],))
    for chunk in range_constexpr(r.shape[1]):
        index = chunk * threads + thread
        if index < cute.size(gRow, mode=[1]):
            cute.autovec_copy(r[None, chunk], gRow[None, index])


@cute.kernel
def rows_kernel(
    mDy: cute.Tensor,
    mX: cute.Tensor,
    mW: cute.Tensor,
    mDr: cute.Tensor,  # the residual's gradient, or None
    mDx: cute.Tensor,
    mLines: cute.Tensor,  # (blocks, columns): the sums of dweight of each block
    eps: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    sPartial = SmemAllocator().allocate_tensor(
        Float32, cute.make_layout((threads // 32, 2, 2), stride=(2, 1, threads // 16)), byte_alignment=16
    )
    columns, dtype = const_expr(mW.shape[0]), mX.element_type
    chunks = const_expr(-(-columns // (vector * threads)))
    rX, rDy, rDr, rW, rDx = (cute.make_rmem_tensor((vector, chunks), dtype) for _ in range(5))
    for r in (rX, rDy, rDr, rW):
        r.fill(0)  # what lies beyond the row adds nothing to the sums
    rDw = cute.make_rmem_tensor((vector, chunks), Float32)
    rDw.fill(0.0)
    rows = cute.size(mX, mode=[0])
    if block < rows:  # no rows: one block, whose line is zeros
        load_row(mX[block, None], rX, threads)
        load_row(mDy[block, None], rDy, threads)
    load_row(mW, rW, threads)

    turn = Int32(0)
    for row in cutlass.range(block, rows, blocks, unroll=1):
        x, dy = rX.load().to(Float32), rDy.load().to(Float32)
        if const_expr(mDr is not None):
            load_row(mDr[row, None], rDr, threads)  # wanted last
        following = row + blocks
        if following < rows:  # on their way while this row is reduced
            load_row(mX[following, None], rX, threads)
            load_row(mDy[following, None], rDy, threads)
        g = dy * rW.load().to(Float32)
        square = (x * x).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        across = (g * x).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        square, across = sums_over_block(square, across, sPartial[None, None, turn])
        turn = 1 - turn
        scale = cute.math.rsqrt(square / columns + eps)
        dx = (g - x * (scale * scale * (across / columns))) * scale
        if const_expr(mDr is not None):
            dx = dx + rDr.load().to(Float32)
        rDx.store(dx.to(dtype))
        store_row(rDx, mDx[row, None], threads)
        rDw.store(rDw.load() + dy * (x * scale))
    store_row(rDw, mLines[block, None], threads)


@cute.kernel
def columns_kernel(mLines: cute.Tensor, mDw: cute.Tensor):
    """Each warp adds every LINES-th line, a lane a column; the first warp adds the warps' sums, always in one order."""
    block, _, _ = cute.arch.block_idx()
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    sSums = SmemAllocator().allocate_tensor(Float32, cute.make_layout((COLUMNS, LINES)), byte_alignment=16)
    column, total = block * COLUMNS + lane, Float32(0.0)
    lines = cute.size(mLines, mode=[0])
    r = cute.make_rmem_tensor((UNROLL,), Float32)
    for base in cutlass.range(warp, lines, LINES * UNROLL, unroll=1):
        r.fill(0.0)
        for u in range_constexpr(UNROLL):
            if base + u * LINES < lines and column < cute.size(mDw):
                r[u] = mLines[base + u * LINES, column]
        total = r.load().reduce(cute.ReductionOp.ADD, total, 0)
    sSums[lane, warp] = total
    cute.arch.sync_threads()
    if warp == 0 and column < cute.size(mDw):
        for other in range_constexpr(1, LINES):
            total += sSums[lane, other]
        mDw[column] = total.to(mDw.element_type)


@cute.jit
def rms_norm_backward(
    mDy: cute.Tensor,
    mX: cute.Tensor,
    mW: cute.Tensor,
    mDr: cute.Tensor,
    mDx: cute.Tensor,
    mLines: cute.Tensor,
    mDw: cute.Tensor,
    eps: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    stream,
):
    rows_kernel(mDy, mX, mW, mDr, mDx, mLines, eps, vector, threads).launch(
        grid=(cute.size(mLines, mode=[0]), 1, 1),
        block=(threads, 1, 1),
        min_blocks_per_mp=THREADS_PER_SM // threads,
        preferred_smem_carveout=0,  # a hint: nearly none is used
        stream=stream,
    )
    columns_kernel(mLines, mDw).launch(
        grid=(cute.ceil_div(cute.size(mDw), COLUMNS), 1, 1), block=(32 * LINES, 1, 1), stream=stream
    )


def threads_of(columns: int) -> int:
    """Threads for a row; raises ValueError where one is too long for a block's registers."""
    threads = min(1024, max(32, 1 << (columns // ELEMENTS_PER_THREAD - 1).bit_length()))
    if columns > threads * MAX_ELEMENTS_PER_THREAD:
        most = 1024 * MAX_ELEMENTS_PER_THREAD
        raise ValueError(
            f"rows of {columns} elements do not fit a block's registers: at most {most}, else walk a row twice"
        )
    return threads


@functools.cache
def compiled(dtype: torch.dtype, columns: int, residual: bool):
    vector, threads = math.gcd(columns, 16 // dtype.itemsize), threads_of(columns)
    rows, blocks = cute.sym_int(), cute.sym_int()

    def matrix(count, element):
        return make_fake_compact_tensor(element, (count, columns), stride_order=(1, 0), assumed_align=16)

    def line():
        return make_fake_compact_tensor(DTYPES[dtype], (columns,), assumed_align=16)

    x, dy, dx = (matrix(rows, DTYPES[dtype]) for _ in range(3))
    dr = matrix(rows, DTYPES[dtype]) if residual else None
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = (dy, x, line(), dr, dx, matrix(blocks, Float32), line())
    return cute.compile(rms_norm_backward, *tensors, Float32(0.0), vector, threads, stream, options="--enable-tvm-ffi")


@functools.cache
def most_blocks(device, threads):
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return multiprocessors * min(MOST_BLOCKS_PER_SM, max(1, THREADS_PER_SM // threads))


def kernel_fn(dy, x, weight, eps, dresidual=None):
    dx, dw, columns = torch.empty_like(x), torch.empty_like(weight), x.shape[-1]
    if not columns:
        return dx, dw
    blocks = max(1, min(x.numel() // columns, most_blocks(x.device, threads_of(columns))))
    lines = torch.empty(blocks, columns, device=x.device, dtype=torch.float32)
    dr = None if dresidual is None else dresidual.view(-1, columns)
    rows = [t.view(-1, columns) for t in (dy, x, dx)]
    compiled(x.dtype, columns, dr is not None)(rows[0], rows[1], weight, dr, rows[2], lines, dw, eps)
    return dx, dw


def reference_fn(dy, x, weight, eps, dresidual=None):
    value, g = x.float(), dy.float() * weight.float()
    scale = torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    normal = value * scale
    dx = (g - normal * (g * normal).mean(-1, keepdim=True)) * scale
    dx = dx if dresidual is None else dx + dresidual.float()
    dw = (dy.float() * normal).sum(tuple(range(x.dim() - 1)))
    return dx.to(x.dtype), dw.to(weight.dtype)


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16, residual=True):
    dy, x, dresidual = (torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(3))
    weight = torch.randn(columns, device="cuda", dtype=dtype)
    return [dy, x, weight, 1e-6] + ([dresidual] if residual else [])


def get_input_sets():
    yield get_inputs(37, 1000, torch.float16, residual=False)
    yield get_inputs(700, 65, torch.float32)
