"""Rows added where an index says, `zeros(rows, columns).index_add(0, index, x)`: the gradient of an embedding table.

Shows a scatter by atomic additions in float32: a warp takes a row of x, its lanes neighbouring elements, so that one
atomic instruction adds 128 neighbouring bytes. The order of additions varies, and with it the last bits; a row of the
result is rounded once, in a second launch. An index outside the table adds nothing, as PyTorch would raise an error.

Arch: sm_80+
Operation: scatter
Features: scatter, atomics, predication
Start here when results go where the data says: index_add, scatter_add, gradients of tokens, histograms.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int64, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream, make_fake_tensor

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
WARPS = 4  # rows that a block adds at the same time
THREADS = 256  # of a block that rounds the sums


@cute.kernel
def scatter_kernel(mX: cute.Tensor, mIndex: cute.Tensor, mSum: cute.Tensor):
    lane, (block, _, _) = cute.arch.lane_idx(), cute.arch.block_idx()
    token = block * WARPS + cute.arch.warp_idx()
    tokens, columns = mX.shape
    chunks = const_expr(-(-columns // 32))
    if token < tokens:
        row = mIndex[token]  # the same for all lanes: one broadcast load
        if (row >= 0) & (row < mSum.shape[0]):
            rX = cute.make_rmem_tensor((chunks,), Float32)
            for chunk in range_constexpr(chunks):  # all loads before the first addition
                if chunk * 32 + lane < columns:
                    rX[chunk] = mX[token, chunk * 32 + lane].to(Float32)
            first = mSum[row, None].iterator
            for chunk in range_constexpr(chunks):
                if chunk * 32 + lane < columns:
                    cute.arch.atomic_add(first + (chunk * 32 + lane), rX[chunk])


@cute.kernel
def round_kernel(mSum: cute.Tensor, mY: cute.Tensor):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    place = Int64(block) * THREADS + thread
    if place < cute.size(mSum):
        mY[place] = mSum[place].to(mY.element_type)


@cute.jit
def scatter(mX: cute.Tensor, mIndex: cute.Tensor, mSum: cute.Tensor, stream):
    blocks = cute.ceil_div(mX.shape[0], WARPS)
    scatter_kernel(mX, mIndex, mSum).launch(grid=(blocks, 1, 1), block=(32 * WARPS, 1, 1), stream=stream)


@cute.jit
def round_sums(mSum: cute.Tensor, mY: cute.Tensor, stream):
    blocks = cute.ceil_div(cute.size(mSum), THREADS)
    round_kernel(mSum, mY).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """Both launches for rows of `columns` elements; raises ValueError where a row does not fit a warp's registers."""
    if columns > 32 * 64:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a warp")
    tokens, rows, size = cute.sym_int(), cute.sym_int(), cute.sym_int64()
    across, down, step = (cute.sym_int64() for _ in range(3))  # any strides: nothing is copied before the launch
    x = make_fake_tensor(DTYPES[dtype], (tokens, columns), (down, across), assumed_align=dtype.itemsize)
    index = make_fake_tensor(Int64, (tokens,), (step,), assumed_align=8)
    sums = make_fake_compact_tensor(Float32, (rows, columns), stride_order=(1, 0))
    flat, y = (make_fake_compact_tensor(kind, (size,)) for kind in (Float32, DTYPES[dtype]))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    adds = cute.compile(scatter, x, index, sums, stream, options="--enable-tvm-ffi")
    rounds = cute.compile(round_sums, flat, y, stream, options="--enable-tvm-ffi")
    return adds, rounds


def kernel_fn(x, index, rows):
    if x.shape[1] == 0 or rows == 0:
        return x.new_zeros(rows, x.shape[1])
    sums = torch.zeros(rows, x.shape[1], device=x.device, dtype=torch.float32)
    adds, rounds = compiled(x.dtype, x.shape[1])
    if x.shape[0]:
        adds(x, index, sums)
    if x.dtype is torch.float32:
        return sums
    y = torch.empty_like(sums, dtype=x.dtype)
    rounds(sums.view(-1), y.view(-1))
    return y


def reference_fn(x, index, rows):
    sums = torch.zeros(rows, x.shape[1], device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
    return sums.index_add(0, index, x.to(sums.dtype)).to(x.dtype)


DOMAIN = {"rows": "fixed"}


def get_inputs(tokens=16384, rows=32000, columns=1024, dtype=torch.bfloat16):
    index = torch.randint(0, rows, (tokens,), device="cuda")
    return [torch.randn(tokens, columns, device="cuda", dtype=dtype), index, rows]


EMULATED_SIZES = {"tokens": 48, "rows": 20}


def get_input_sets():
    yield get_inputs(33, 7, 64)
    yield get_inputs(5, 9, 129, torch.float32)
    yield get_inputs(1, 1, 1, torch.float16)
