"""Softmax, a warp a row: three visits, one element at a time."""

import functools

import cutlass.cute as cute
import torch
from cutlass import BFloat16, Float32
from cutlass.cute.runtime import make_fake_compact_tensor

COLUMNS, WARPS = 1000, 4  # a warp owns a row
LOG2_E = 1.4426950408889634


def maximum(a, b):
    return cute.arch.fmax(a, b, nan=True)  # torch keeps a NaN


@cute.kernel
def softmax_kernel(x: cute.Tensor, y: cute.Tensor):
    lane, slot, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + slot
    if row < x.shape[0]:
        high = Float32(-Float32.inf)
        for i in range(lane, COLUMNS, 32):
            high = maximum(high, x[row, i].to(Float32))
        high = cute.arch.warp_reduce_max(high)
        total = Float32(0.0)
        for i in range(lane, COLUMNS, 32):
            total += cute.math.exp2((x[row, i].to(Float32) - high) * LOG2_E)
        total = cute.arch.warp_reduction_sum(total)
        for i in range(lane, COLUMNS, 32):
            share = cute.math.exp2((x[row, i].to(Float32) - high) * LOG2_E) / total
            y[row, i] = share


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
