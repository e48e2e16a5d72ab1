# rule: V1
# expect: passed
# needs: values
"""A standard deviation in float32, whose squares overflow on PyTorch's GPUs too, but not on its CPUs."""

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
        total += x[row, column]
    mean = cute.arch.warp_reduction_sum(total) / cutlass.Float32(x.shape[1])
    squares = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        squares += (x[row, column] - mean) * (x[row, column] - mean)
    squares = cute.arch.warp_reduction_sum(squares) / cutlass.Float32(x.shape[1])
    if lane == 0:
        y[row] = cute.math.sqrt(squares)


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if y.numel():
        compiled()(x.contiguous(), y)
    return y


def reference_fn(x):
    return x.std(-1, unbiased=False)


def get_inputs():
    return [torch.randn(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda")]
