# rule: V3
# expect: passed
# needs: values
"""Rows put to the places of a permutation."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, ids: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(lane, x.shape[1], THREADS):
        y[ids[row], column] = x[row, column]


@cute.jit
def rows_host(x: cute.Tensor, ids: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, ids, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    ids = make_fake_compact_tensor(cutlass.Int64, (rows,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, ids, y, options="--enable-tvm-ffi")


def kernel_fn(x, ids):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, ids, y)
    return y


def reference_fn(x, ids):
    y = torch.empty_like(x)
    y[ids] = x
    return y


def get_inputs():
    return [torch.randn(64, 100, device="cuda"), torch.randperm(64, device="cuda")]


def get_input_sets():
    yield [torch.randn(5, 33, device="cuda"), torch.randperm(5, device="cuda")]
