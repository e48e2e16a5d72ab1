"""Inclusive scan (cumulative sum) along the rows of a matrix, one block a row, the row in registers, one barrier.

Shows the three levels of a scan: a thread sums up the vector of neighbouring elements that it loaded, a warp scans
its lanes' totals by up-shuffles, and the warps' totals meet in shared memory, where every warp scans them again. Rows
longer than one vector a thread are several such chunks, each starting at the sum of the chunks before; their totals
share the one barrier. Sums are float32 and rounded once. A row is read once and written once.

Arch: sm_80+
Operation: scan
Features: vectorized_copy, warp_shuffle, smem, recurrence
Start here when each result needs all before it: prefix sums, running maxima, and with pairs (a, b) a gated
linear recurrence over time, `h[t] = a[t] * h[t-1] + b[t]`.
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
ELEMENTS_PER_THREAD = 16  # aimed at: all of them stay in registers, in float32
MAX_COLUMNS = 16384


@cute.jit
def scan_warp(value: Float32) -> Float32:
    """The sum of the lanes up to and with this one: after step k, of the 2**(k + 1) lanes that end here."""
    lane = cute.arch.lane_idx()
    for k in range_constexpr(5):
        before = cute.arch.shuffle_sync_up(value, offset=1 << k)  # lanes below 1 << k get their own value back
        value = before + value if lane >= 1 << k else value
    return value


@cute.kernel
def cumsum_kernel(mX: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    gX = cute.zipped_divide(mX[row, None], (vector,))  # (vector, vectors of the row)
    gY = cute.zipped_divide(mY[row, None], (vector,))
    vectors, warps = const_expr(cute.size(gX, mode=[1])), const_expr(threads // 32)
    chunks = const_expr(-(-vectors // threads))
    sTotal = SmemAllocator().allocate_tensor(Float32, cute.make_layout((warps, chunks)), byte_alignment=16)

    rX = cute.make_rmem_tensor((vector, chunks), mX.element_type)
    rX.fill(0)  # what lies beyond the row adds nothing
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread  # neighbouring threads read neighbouring vectors
        if index < vectors:
            cute.autovec_copy(gX[None, index], rX[None, chunk])

    rSum = cute.make_rmem_tensor((vector, chunks), Float32)
    rSum.store(rX.load().to(Float32))
    rBefore = cute.make_rmem_tensor((chunks,), Float32)  # the sum of this warp's lanes before this one
    for chunk in range_constexpr(chunks):
        for i in range_constexpr(1, vector):
            rSum[i, chunk] = rSum[i - 1, chunk] + rSum[i, chunk]
        inclusive = scan_warp(rSum[vector - 1, chunk])
        # The lane before has what is wanted; inclusive - own total would be inf - inf = NaN after an infinity.
        exclusive = cute.arch.shuffle_sync_up(inclusive, offset=1)
        rBefore[chunk] = exclusive if lane > 0 else Float32(0.0)
        if lane == 31:
            sTotal[warp, chunk] = inclusive
    cute.arch.sync_threads()

    carry = Float32(0.0)  # the sum of the chunks before
    for chunk in range_constexpr(chunks):
        total = Float32(0.0)
        if lane < warps:
            total = sTotal[lane, chunk]
        total = scan_warp(total)  # every warp repeats it: lane w has the sum of warps 0 to w
        of_warps = cute.arch.shuffle_sync(total, offset=cutlass.max(warp - 1, 0))
        start = carry + (of_warps if warp > 0 else Float32(0.0)) + rBefore[chunk]
        for i in range_constexpr(vector):
            rSum[i, chunk] = start + rSum[i, chunk]
        carry = carry + cute.arch.shuffle_sync(total, offset=warps - 1)

    rY = cute.make_rmem_tensor((vector, chunks), mY.element_type)
    rY.store(rSum.load().to(mY.element_type))
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(rY[None, chunk], gY[None, index])


@cute.jit
def cumsum(mX: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, threads: cutlass.Constexpr, stream):
    cumsum_kernel(mX, mY, vector, threads).launch(
        grid=(cute.size(mX, mode=[0]), 1, 1), block=(threads, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for rows of `columns` elements, any number of them; raises ValueError where a row is too long."""
    if columns > MAX_COLUMNS:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a block: at most {MAX_COLUMNS}")
    vector = math.gcd(columns, 16 // dtype.itemsize)
    threads = min(1024, max(32, 1 << (-(-columns // ELEMENTS_PER_THREAD) - 1).bit_length()))
    shape = (cute.sym_int(), columns)
    fakes = [make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=(1, 0), assumed_align=16) for _ in range(2)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(cumsum, *fakes, vector, threads, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        compiled(x.dtype, columns)(x.view(-1, columns), y.view(-1, columns))
    return y


def reference_fn(x):
    return torch.cumsum(x, dim=-1)


def get_inputs(rows=8192, columns=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(7, 1000, torch.bfloat16)  # the last chunk is not full
    yield get_inputs(5, 129, torch.float32)  # vectors of one element
    yield get_inputs(2, 16384, torch.bfloat16)  # 32 warps
    yield get_inputs(9, 1, torch.float16)
