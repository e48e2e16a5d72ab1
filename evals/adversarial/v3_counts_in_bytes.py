# rule: V3
# expect: wrong_result
# needs: values
# says: - | V3
"""Counts of values in bytes: a value that fills half of a row wraps."""

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
    count = cutlass.Uint8(0)
    for column in range(x.shape[1]):
        if x[row, column] == lane:
            count = cutlass.Uint8(count + 1)
    y[row, lane] = cutlass.Int64(count)


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    others = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Int64, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Int64, (rows, others), stride_order=(1, 0))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], 32, dtype=torch.int64, device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.nn.functional.one_hot(x, 32).sum(-2)


def get_inputs():
    return [torch.randint(0, 32, (64, 500), device="cuda")]


def get_input_sets():
    yield [torch.randint(0, 32, (2, 33), device="cuda")]
