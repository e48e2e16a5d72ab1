# rule: O10
# expect: wrong_result
# needs: values
# says: - | O6 | O3 | O1
"""A softmax that does not subtract the maximum: right for small numbers only."""

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
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        total += cute.math.exp(x[row, column])
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = cute.math.exp(x[row, column]) / total


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    shape = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(1, 0)) for _ in range(2))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda")]
