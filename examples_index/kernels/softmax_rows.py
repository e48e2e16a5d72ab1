"""Softmax over the rows of a matrix, one block a row, the row in registers.

Shows a block reduction that a reader can follow: 16-byte loads into registers, a reduction over the warp by shuffles,
over the block through shared memory, and a second reduction of another kind. A row is read once and written once.
`cutesmith generate` writes a tuned version (several rows a block, online maximum and sum, cache hints); this one is
meant to be read and changed.

Arch: sm_80+
Operation: softmax
Features: vectorized_copy, warp_shuffle, block_reduction, smem
Start here when a row has to be reduced more than once before it is written.
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
LOG2_E = 1.4426950408889634
ELEMENTS_PER_THREAD = 16  # aimed at: enough loads in flight, few enough registers for full occupancy
MAX_ELEMENTS_PER_THREAD = 64  # what fits the registers of a thread


def maximum(a, b):
    return cute.arch.fmax(a, b, nan=True)  # a NaN wins, as in torch


def add(a, b):
    return a + b


@cute.jit
def reduce_row(value: Float32, combine: cutlass.Constexpr, neutral: cutlass.Constexpr, sPartial: cute.Tensor):
    """`value` combined over all threads of the block; every thread gets the result."""
    value = cute.arch.warp_reduction(value, combine)
    warps = const_expr(cute.size(sPartial))
    if const_expr(warps > 1):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        if lane == 0:
            sPartial[warp] = value
        cute.arch.sync_threads()
        value = Float32(neutral)
        if lane < warps:
            value = sPartial[lane]
        value = cute.arch.warp_reduction(value, combine)  # every warp repeats it: no second broadcast is needed
    return value


@cute.kernel
def softmax_kernel(mX: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    smem = SmemAllocator()
    # One array for each reduction: reusing one would need another barrier between them.
    sMax = smem.allocate_tensor(Float32, cute.make_layout(threads // 32), byte_alignment=16)
    sSum = smem.allocate_tensor(Float32, cute.make_layout(threads // 32), byte_alignment=16)

    gX = cute.zipped_divide(mX[row, None], (vector,))  # (vector, vectors of the row)
    gY = cute.zipped_divide(mY[row, None], (vector,))
    vectors = const_expr(cute.size(gX, mode=[1]))
    chunks = const_expr(-(-vectors // threads))
    rX = cute.make_rmem_tensor((vector, chunks), mX.element_type)
    rX.fill(-math.inf)  # what lies beyond the row adds exp(-inf) = 0
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread  # neighbouring threads read neighbouring vectors
        if index < vectors:
            cute.autovec_copy(gX[None, index], rX[None, chunk])

    x = rX.load().to(Float32)
    largest = Float32(-math.inf)
    for i in range_constexpr(vector * chunks):
        largest = maximum(largest, x[i])  # .reduce(cute.ReductionOp.MAX) would drop a NaN
    largest = reduce_row(largest, maximum, -math.inf, sMax)
    # exp(x - largest) as one fma and one ex2; a row of -inf alone gives NaN, as in torch
    powers = cute.math.exp2((x - largest) * LOG2_E, fastmath=True)
    total = powers.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    total = reduce_row(total, add, 0.0, sSum)

    rY = cute.make_rmem_tensor((vector, chunks), mY.element_type)
    rY.store((powers * (1.0 / total)).to(mY.element_type))
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(rY[None, chunk], gY[None, index])


@cute.jit
def softmax(mX: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, threads: cutlass.Constexpr, stream):
    softmax_kernel(mX, mY, vector, threads).launch(
        grid=(cute.size(mX, mode=[0]), 1, 1), block=(threads, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for rows of `columns` elements, any number of them; raises ValueError where a row is too long."""
    vector = math.gcd(columns, 16 // dtype.itemsize)
    threads = min(1024, max(32, 1 << (columns // ELEMENTS_PER_THREAD - 1).bit_length()))
    if columns > threads * MAX_ELEMENTS_PER_THREAD:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a block")
    shape = (cute.sym_int(), columns)
    fakes = [make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=(1, 0), assumed_align=16) for _ in range(2)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(softmax, *fakes, vector, threads, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        compiled(x.dtype, columns)(x.view(-1, columns), y.view(-1, columns))
    return y


def reference_fn(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(33, 1000, torch.float16)
    yield get_inputs(5, 129, torch.float32)
    yield [torch.randn(2, 3, 64, device="cuda")]
