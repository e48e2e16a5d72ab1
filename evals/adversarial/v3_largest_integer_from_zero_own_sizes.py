# rule: V3
# expect: wrong_result
# needs: values
# says: - | V3
"""The largest integer of a row, from 0 on: a row below zero gives 0."""

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
    best = cutlass.Int32(0)
    for column in range(x.shape[1]):
        value = x[row, column]
        if value > best:
            best = value
    if lane == 0:
        y[row] = best


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Int32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Int32, (rows,))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.amax(x, dim=-1)


def get_inputs():
    return [torch.randint(-1000, 1000, (64, 500), dtype=torch.int32, device="cuda")]
