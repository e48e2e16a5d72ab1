# rule: V3
# expect: passed
# needs: values
"""Rows of a table by indices that its reference takes from 0 on alone."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def rows_kernel(x: cute.Tensor, ids: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    index = ids[row]
    for column in range(lane, x.shape[1], 32):
        y[row, column] = x[index, column]


@cute.jit
def rows_host(x: cute.Tensor, ids: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, ids, y).launch(grid=(ids.shape[0], 1, 1), block=(32, 1, 1))


@functools.cache
def compiled():
    rows, columns, n = cute.sym_int(), cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    ids = make_fake_compact_tensor(cutlass.Int64, (n,))
    y = make_fake_compact_tensor(cutlass.Float32, (n, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, ids, y, options="--enable-tvm-ffi")


def kernel_fn(x, ids):
    y = torch.empty(ids.shape[0], x.shape[1], device=x.device)
    if y.numel():
        compiled()(x, ids, y)
    return y


def reference_fn(x, ids):
    return x.index_select(0, ids)


def get_inputs():
    return [torch.randn(300, 500, device="cuda"), torch.randint(0, 300, (64,), device="cuda")]


def get_input_sets():
    yield [torch.randn(5, 33, device="cuda"), torch.randint(0, 5, (7,), device="cuda")]
