"""Residual add and RMS norm in one kernel: h = x + residual, y = h / rms(h) * weight; both h and y are written.

Shows the fusion that transformer blocks want: the sum is rounded and stored once, stays in registers for the reduction
and is never read again. One block a row, 16-byte loads that are all issued before the first use.

Arch: sm_80+
Operation: rms_norm
Features: vectorized_copy, warp_shuffle, block_reduction, smem, residual, multiple_outputs
Start here when a row norm has something fused before it, or has two outputs.
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
ELEMENTS_PER_THREAD = 16  # aimed at; up to MAX_ELEMENTS_PER_THREAD where a row is long
MAX_ELEMENTS_PER_THREAD = 64


@cute.jit
def sum_over_block(value: Float32, sPartial: cute.Tensor):
    """The sum of `value` over all threads of the block, for every thread."""
    value = cute.arch.warp_reduction_sum(value)
    warps = const_expr(cute.size(sPartial))
    if const_expr(warps > 1):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()  # warp_idx shuffles: all lanes must call it
        if lane == 0:
            sPartial[warp] = value
        cute.arch.sync_threads()
        value = Float32(0.0)
        if lane < warps:
            value = sPartial[lane]
        value = cute.arch.warp_reduction_sum(value)  # every warp repeats it: no second broadcast is needed
    return value


@cute.kernel
def rms_norm_kernel(
    mX: cute.Tensor,
    mR: cute.Tensor,
    mW: cute.Tensor,
    mY: cute.Tensor,
    mH: cute.Tensor,
    eps: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    sPartial = SmemAllocator().allocate_tensor(Float32, cute.make_layout(threads // 32), byte_alignment=16)

    gX, gR, gY, gH = (cute.zipped_divide(m[row, None], (vector,)) for m in (mX, mR, mY, mH))
    gW = cute.zipped_divide(mW, (vector,))
    columns = const_expr(mW.shape[0])
    vectors, dtype = const_expr(columns // vector), mX.element_type
    chunks = const_expr(-(-vectors // threads))
    rX, rR, rH, rW, rY = (cute.make_rmem_tensor((vector, chunks), dtype) for _ in range(5))
    for r in (rX, rR, rW):
        r.fill(0)  # what lies beyond the row adds nothing to the sum
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(gX[None, index], rX[None, chunk])
            cute.autovec_copy(gR[None, index], rR[None, chunk])
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:  # the weights arrive while the block reduces
            cute.autovec_copy(gW[None, index], rW[None, chunk])

    rH.store((rX.load().to(Float32) + rR.load().to(Float32)).to(dtype))
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:  # early: the store needs nothing of what follows
            cute.autovec_copy(rH[None, chunk], gH[None, index])
    h = rH.load().to(Float32)  # the rounded sum, as a reader of h sees it
    square_sum = (h * h).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    square_sum = sum_over_block(square_sum, sPartial)
    scale = cute.math.rsqrt(square_sum / columns + eps)  # no fastmath: two instructions a row cost nothing
    rY.store((h * scale * rW.load().to(Float32)).to(dtype))
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(rY[None, chunk], gY[None, index])


@cute.jit
def rms_norm(
    mX: cute.Tensor,
    mR: cute.Tensor,
    mW: cute.Tensor,
    mY: cute.Tensor,
    mH: cute.Tensor,
    eps: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    stream,
):
    rms_norm_kernel(mX, mR, mW, mY, mH, eps, vector, threads).launch(
        grid=(cute.size(mX, mode=[0]), 1, 1), block=(threads, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for rows of `columns` elements; raises ValueError where a row is too long for a block's registers."""
    vector = math.gcd(columns, 16 // dtype.itemsize)
    threads = min(1024, max(32, 1 << (columns // ELEMENTS_PER_THREAD - 1).bit_length()))
    if columns > threads * MAX_ELEMENTS_PER_THREAD:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a block")
    rows = cute.sym_int()

    def matrix():
        return make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)

    weight = make_fake_compact_tensor(DTYPES[dtype], (columns,), assumed_align=16)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = (matrix(), matrix(), weight, matrix(), matrix())
    return cute.compile(rms_norm, *tensors, Float32(0.0), vector, threads, stream, options="--enable-tvm-ffi")


def kernel_fn(x, residual, weight, eps):
    y, h = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        rows = [t.view(-1, columns) for t in (x, residual)]
        compiled(x.dtype, columns)(*rows, weight, y.view(-1, columns), h.view(-1, columns), eps)
    return y, h


def reference_fn(x, residual, weight, eps):
    h = x + residual
    y = h.float() * torch.rsqrt(h.float().square().mean(-1, keepdim=True) + eps) * weight.float()
    return y.to(x.dtype), h


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16):
    x, residual = (torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2))
    return [x, residual, torch.randn(columns, device="cuda", dtype=dtype), 1e-6]


def get_input_sets():
    yield get_inputs(7, 1000, torch.float16)
    yield get_inputs(3, 65, torch.float32)
