"""Softmax, a warp a row: one visit with 16-byte accesses, the row waits in registers."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import BFloat16, Float32
from cutlass.cute.runtime import make_fake_compact_tensor

COLUMNS, WARPS = 1000, 4  # a warp owns a row
WIDTH = 8  # bf16 elements of a 16-byte access
VECTORS = COLUMNS // WIDTH
CHUNKS = -(-VECTORS // 32)  # vectors a lane; the last ones of a row are not there for every lane
LOG2_E = 1.4426950408889634


def maximum(a, b):
    return cute.arch.fmax(a, b, nan=True)  # torch keeps a NaN


@cute.kernel
def softmax_kernel(x: cute.Tensor, y: cute.Tensor):
    lane, slot, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + slot
    if row < x.shape[0]:
        gx, gy = (cute.zipped_divide(t[row, None], (WIDTH,)) for t in (x, y))
        kept = cute.make_rmem_tensor(((WIDTH,), CHUNKS), BFloat16)
        kept.fill(-Float32.inf)
        for c in cutlass.range_constexpr(CHUNKS):
            if c * 32 + lane < VECTORS:
                cute.autovec_copy(gx[None, c * 32 + lane], kept[None, c])
        value = kept.load().to(Float32)
        high = Float32(-Float32.inf)
        for k in cutlass.range_constexpr(CHUNKS * WIDTH):
            high = maximum(high, value[k])
        high = cute.arch.warp_reduction(high, maximum)
        power = cute.math.exp2((value - high) * LOG2_E)
        total = cute.arch.warp_reduction_sum(power.reduce(cute.ReductionOp.ADD, Float32(0.0), 0))
        shares = cute.make_rmem_tensor(kept.layout, BFloat16)
        shares.store((power / total).to(BFloat16))
        for c in cutlass.range_constexpr(CHUNKS):
            if c * 32 + lane < VECTORS:
                cute.autovec_copy(shares[None, c], gy[None, c * 32 + lane])


@cute.jit
def softmax(x: cute.Tensor, y: cute.Tensor):
    softmax_kernel(x, y).launch(grid=(cute.ceil_div(x.shape[0], WARPS), 1, 1), block=(32, WARPS, 1))


@functools.cache
def compiled():
    matrix = make_fake_compact_tensor(BFloat16, (cute.sym_int(), COLUMNS), stride_order=(1, 0), assumed_align=16)
    return cute.compile(softmax, matrix, matrix, options="--enable-tvm-ffi")


def kernel_fn(logits):
    y = torch.empty_like(logits)
    compiled()(logits, y)
    return y


def reference_fn(logits):
    return torch.softmax(logits.float(), dim=-1).to(logits.dtype)


def get_inputs(rows=65536):
    return [torch.randn(rows, 1000, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    yield get_inputs(rows=3)


DERIVED_SHAPES = False  # the number of classes is fixed: kernels may be written for it
