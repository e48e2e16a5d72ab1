# rule: O10
# expect: wrong_result
# needs: values
# says: - | O9 | O6 | O3
"""The variance as a difference of sums: an offset of the input cancels every digit."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total, squares = cutlass.Float32(0.0), cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        total += x[row, column]
        squares += x[row, column] * x[row, column]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    squares = cute.arch.warp_reduction(squares, lambda a, b: a + b)
    mean = total / x.shape[1]
    if lane == 0:
        y[row] = squares / x.shape[1] - mean * mean


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    shape = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, shape[:1])
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return x.var(dim=-1, unbiased=False)


def get_inputs():
    return [torch.randn(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda")]
