"""Residual add and RMS norm in one visit: a block owns a row, which waits in registers as the bf16 sum."""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
import torch.nn.functional as F
from cutlass import BFloat16, Float32
from cutlass.cute.runtime import make_fake_compact_tensor

EPSILON = 1e-6
WIDEST = 8  # bf16 elements of a 16-byte access
MOST_THREADS = 512


@cute.jit
def block_sum(value: Float32, warps: cutlass.Constexpr) -> Float32:
    """The sum over all threads of the block, in each of them."""
    thread, _, _ = cute.arch.thread_idx()
    partials = cutlass.memory.SmemAllocator().allocate_tensor(Float32, cute.make_layout(warps))
    value = cute.arch.warp_reduction_sum(value)
    if thread % 32 == 0:
        partials[thread // 32] = value
    cute.arch.sync_threads()
    partial = Float32(0.0)
    if thread % 32 < warps:
        partial = partials[thread % 32]
    return cute.arch.warp_reduction_sum(partial)


@cute.kernel
def add_norm_kernel(
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    total: cute.Tensor,
    width: cutlass.Constexpr,
    chunks: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    gx, gr, gy, gt = (cute.zipped_divide(t[row, None], (width,)) for t in (x, residual, y, total))
    gw = cute.zipped_divide(weight, (width,))
    vectors = cute.size(gx, mode=[1])

    summed = cute.make_rmem_tensor(((width,), chunks), BFloat16)
    summed.fill(0.0)
    for c in cutlass.range_constexpr(chunks):
        i = c * threads + thread
        if i < vectors:
            added = gx[None, i].load().to(Float32) + gr[None, i].load().to(Float32)
            summed[None, c].store(added.to(BFloat16))
            cute.autovec_copy(summed[None, c], gt[None, i])  # its latency hides behind the reduction

    value = summed.load().to(Float32)
    squares = block_sum((value * value).reduce(cute.ReductionOp.ADD, Float32(0.0), 0), threads // 32)
    scale = cute.math.rsqrt(squares / x.shape[1] + EPSILON)
    for c in cutlass.range_constexpr(chunks):
        i = c * threads + thread
        if i < vectors:
            normed = summed[None, c].load().to(Float32) * scale
            gy[None, i].store((normed * gw[None, i].load().to(Float32)).to(BFloat16))


@cute.jit
def add_norm(
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    total: cute.Tensor,
    width: cutlass.Constexpr,
    chunks: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    add_norm_kernel(x, residual, weight, y, total, width, chunks, threads).launch(
        grid=(x.shape[0], 1, 1), block=(threads, 1, 1)
    )


@functools.cache
def compiled(columns):
    """The kernel for rows of so many columns: as few vectors a thread as the largest block allows."""
    width = math.gcd(columns, WIDEST)
    vectors = columns // width
    chunks = -(-vectors // MOST_THREADS)
    threads = -(-vectors // (chunks * 32)) * 32
    rows = cute.sym_int()
    matrix = make_fake_compact_tensor(BFloat16, (rows, columns), stride_order=(1, 0), assumed_align=2 * width)
    vector = make_fake_compact_tensor(BFloat16, (columns,), assumed_align=2 * width)
    return cute.compile(
        add_norm, matrix, matrix, vector, matrix, matrix, width, chunks, threads, options="--enable-tvm-ffi"
    )


def kernel_fn(x, residual, weight):
    y, total = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        compiled(x.shape[-1])(x, residual, weight, y, total)
    return y, total


def reference_fn(x, residual, weight):
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, eps=1e-6), total


def get_inputs(rows=16384, columns=5120):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(columns, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    yield get_inputs(rows=3)


DERIVED_SHAPES = False  # a model's width is fixed: kernels may be written for it
