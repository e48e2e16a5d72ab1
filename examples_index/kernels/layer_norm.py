"""Layer norm over rows, with weight and bias: mean first, then the squared deviations, both from registers.

Shows why the row is kept: with it in registers the variance is computed from deviations, exact where a single pass over
sums of squares cancels (rows far from zero). One warp owns a row, so that no reduction leaves it: neither shared memory
nor a barrier is needed, and a block works on several rows.

Arch: sm_80+
Operation: layer_norm
Features: vectorized_copy, warp_shuffle
Start here when rows are short (up to 1024 elements or so) and one warp can own a row.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
WARPS = 4  # rows a block works on at the same time
MAX_ELEMENTS_PER_LANE = 64


@cute.kernel
def layer_norm_kernel(
    mX: cute.Tensor, mW: cute.Tensor, mB: cute.Tensor, mY: cute.Tensor, eps: Float32, vector: cutlass.Constexpr
):
    lane = cute.arch.lane_idx()
    block, _, _ = cute.arch.block_idx()
    row = cutlass.Int64(block * WARPS + cute.arch.warp_idx())  # elements before it may be more than 2^31
    columns = const_expr(mX.shape[1])
    vectors = const_expr(columns // vector)
    chunks = const_expr(-(-vectors // 32))
    if row < mX.shape[0]:  # whole warps: the shuffles below stay complete
        gX, gY = (cute.zipped_divide(m[row, None], (vector,)) for m in (mX, mY))
        gW, gB = (cute.zipped_divide(m, (vector,)) for m in (mW, mB))
        rX, rW, rB, rY = (cute.make_rmem_tensor((vector, chunks), mX.element_type) for _ in range(4))
        for r in (rX, rW, rB):
            r.fill(0)
        for chunk in range_constexpr(chunks):
            index = chunk * 32 + lane
            if index < vectors:
                cute.autovec_copy(gX[None, index], rX[None, chunk])
                cute.autovec_copy(gW[None, index], rW[None, chunk])
                cute.autovec_copy(gB[None, index], rB[None, chunk])

        x = rX.load().to(Float32)
        mean = cute.arch.warp_reduction_sum(x.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)) / columns
        squares = cute.make_rmem_tensor((vector, chunks), Float32)
        squares.store((x - mean) * (x - mean))
        for chunk in range_constexpr(chunks):
            if chunk * 32 + lane >= vectors:
                squares[None, chunk].fill(0.0)  # a zero beyond the row is not a deviation
        total = squares.load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        scale = cute.math.rsqrt(cute.arch.warp_reduction_sum(total) / columns + eps)
        rY.store(((x - mean) * scale * rW.load().to(Float32) + rB.load().to(Float32)).to(mY.element_type))
        for chunk in range_constexpr(chunks):
            index = chunk * 32 + lane
            if index < vectors:
                cute.autovec_copy(rY[None, chunk], gY[None, index])


@cute.jit
def layer_norm(
    mX: cute.Tensor,
    mW: cute.Tensor,
    mB: cute.Tensor,
    mY: cute.Tensor,
    eps: Float32,
    vector: cutlass.Constexpr,
    stream,
):
    blocks = cute.ceil_div(mX.shape[0], WARPS)
    layer_norm_kernel(mX, mW, mB, mY, eps, vector).launch(grid=(blocks, 1, 1), block=(32 * WARPS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for rows of `columns` elements; raises ValueError where a row is too long for a warp's registers."""
    if columns > 32 * MAX_ELEMENTS_PER_LANE:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a warp")
    vector = math.gcd(columns, 16 // dtype.itemsize)
    rows = cute.sym_int()
    x, y = (
        make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)
        for _ in range(2)
    )
    weight, bias = (make_fake_compact_tensor(DTYPES[dtype], (columns,), assumed_align=16) for _ in range(2))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(layer_norm, x, weight, bias, y, Float32(0.0), vector, stream, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias, eps):
    y = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        compiled(x.dtype, columns)(x.view(-1, columns), weight, bias, y.view(-1, columns), eps)
    return y


def reference_fn(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def get_inputs(rows=32768, columns=1024, dtype=torch.bfloat16):
    weight, bias = (torch.randn(columns, device="cuda", dtype=dtype) for _ in range(2))
    return [torch.randn(rows, columns, device="cuda", dtype=dtype), weight, bias, 1e-5]


def get_input_sets():
    yield get_inputs(7, 776, torch.float16)
    yield get_inputs(3, 65, torch.float32)
