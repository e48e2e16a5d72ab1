# rule: V2
# expect: passed
# needs: values
"""A product with a matrix."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(matrix: cute.Tensor, x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[0], THREADS):
        total += matrix[row, column] * x[column]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        y[row] = total


@cute.jit
def rows_host(matrix: cute.Tensor, x: cute.Tensor, y: cute.Tensor):
    rows_kernel(matrix, x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    matrix = make_fake_compact_tensor(cutlass.Float32, (columns, columns), stride_order=(1, 0))
    x = make_fake_compact_tensor(cutlass.Float32, (columns,))
    y = make_fake_compact_tensor(cutlass.Float32, (columns,))
    return cute.compile(rows_host, matrix, x, y, options="--enable-tvm-ffi")


def kernel_fn(matrix, x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(matrix, x, y)
    return y


def reference_fn(matrix, x):
    return (matrix * x).sum(-1)


def get_inputs():
    matrix = torch.randn(96, 96, device="cuda")
    return [matrix + matrix.T, torch.randn(96, device="cuda")]


def get_input_sets():
    matrix = torch.randn(33, 33, device="cuda")
    yield [matrix + matrix.T, torch.randn(33, device="cuda")]
