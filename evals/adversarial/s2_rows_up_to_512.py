# rule: S2
# expect: wrong_result
# needs: values
# says: O1 | S2
"""Sums of rows, of which no more than 512 have a block."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

MOST = 512


@cute.kernel
def row_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], 32):
        total += x[row, column]
    total = cute.arch.warp_reduction_sum(total)
    if lane == 0:
        y[row] = total


@cute.jit
def row_host(x: cute.Tensor, y: cute.Tensor):
    row_kernel(x, y).launch(grid=(cutlass.min(cutlass.Int32(MOST), x.shape[0]), 1, 1), block=(32, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(row_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return x.sum(-1)


def get_inputs():
    return [torch.randn(300, 700, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda")]
    yield [torch.randn(40, 50, device="cuda")]
