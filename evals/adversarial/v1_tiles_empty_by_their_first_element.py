# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O6
"""Sums of rows that leave a tile of 32 columns out where its first element is 0."""

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
    columns = x.shape[1]
    total = cutlass.Float32(0.0)
    for tile in range(0, columns, THREADS):
        value = cutlass.Float32(0.0)
        if tile + lane < columns:
            value = x[row, tile + lane]
        if x[row, tile] != 0.0:
            total += value
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        y[row] = total


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
    y = torch.empty(x.shape[0], device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return x.sum(-1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 96, device="cuda")]
