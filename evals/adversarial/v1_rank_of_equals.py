# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1
"""Ranks that count equal elements as smaller."""

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
    for column in range(lane, x.shape[1], THREADS):
        rank = cutlass.Int64(0)
        for place in range(x.shape[1]):
            if place != column:
                if x[row, place] <= x[row, column]:
                    rank += 1
        y[row, column] = rank


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Int64, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return (x.unsqueeze(-2) < x.unsqueeze(-1)).sum(-1)


def get_inputs():
    return [torch.randn(32, 100, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda")]
