# rule: V5
# expect: crashed | wrong_result
# needs: values
# says: - | V5
"""A roll whose shift may not be negative: it reads beyond the row."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor, shift: cutlass.Int32):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(lane, x.shape[1], THREADS):
        source = column - shift
        if source < 0:
            source += x.shape[1]
        y[row, column] = x[row, source]


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor, shift: cutlass.Int32):
    rows_kernel(x, y, shift).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, y, cutlass.Int32(0), options="--enable-tvm-ffi")


def kernel_fn(x, shift):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, y, shift if shift < x.shape[1] else shift % x.shape[1])
    return y


def reference_fn(x, shift):
    return torch.roll(x, shift, -1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), 3]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), 3]
