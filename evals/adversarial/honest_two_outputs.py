# rule:
# expect: passed
# needs: compile
"""Minimum and maximum of each row: a tuple of two tensors."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def extremes_kernel(x: cute.Tensor, low: cute.Tensor, high: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    least, largest = x[row, 0], x[row, 0]
    for column in range(lane, x.shape[1], 32):
        least = cute.arch.fmin(least, x[row, column], nan=True)
        largest = cute.arch.fmax(largest, x[row, column], nan=True)
    least = cute.arch.warp_reduction(least, lambda a, b: cute.arch.fmin(a, b, nan=True))
    largest = cute.arch.warp_reduction(largest, lambda a, b: cute.arch.fmax(a, b, nan=True))
    if lane == 0:
        low[row] = least
        high[row] = largest


@cute.jit
def extremes_host(x: cute.Tensor, low: cute.Tensor, high: cute.Tensor):
    extremes_kernel(x, low, high).launch(grid=(x.shape[0], 1, 1), block=(32, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    low, high = (make_fake_compact_tensor(cutlass.Float32, (rows,)) for _ in range(2))
    return cute.compile(extremes_host, x, low, high, options="--enable-tvm-ffi")


def kernel_fn(x):
    low, high = (torch.empty(x.shape[0], dtype=x.dtype, device=x.device) for _ in range(2))
    if x.numel():
        compiled()(x, low, high)
    return low, high


def reference_fn(x):
    return x.amin(dim=-1), x.amax(dim=-1)


def get_inputs():
    return [torch.randn(64, 300, device="cuda")]
