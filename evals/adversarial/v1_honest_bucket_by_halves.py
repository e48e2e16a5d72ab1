# rule: V1
# expect: passed
# needs: values
"""Buckets by binary search."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, boundaries: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(lane, x.shape[1], THREADS):
        begin, end = cutlass.Int32(0), cutlass.Int32(boundaries.shape[0])
        while begin < end:
            middle = (begin + end) // 2
            if boundaries[middle] < x[row, column]:
                begin = middle + 1
            else:
                end = middle
        y[row, column] = cutlass.Int64(begin)


@cute.jit
def rows_host(x: cute.Tensor, boundaries: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, boundaries, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    others = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    boundaries = make_fake_compact_tensor(cutlass.Float32, (others,))
    y = make_fake_compact_tensor(cutlass.Int64, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, boundaries, y, options="--enable-tvm-ffi")


def kernel_fn(x, boundaries):
    y = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    if x.numel():
        compiled()(x, boundaries, y)
    return y


def reference_fn(x, boundaries):
    return torch.searchsorted(boundaries, x.nan_to_num(-3.0e38, 3.0e38, -3.0e38))


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.linspace(-2, 2, 9, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.linspace(-2, 2, 9, device="cuda")]
