# rule: V3
# expect: wrong_result
# needs: values
# says: - | V3
"""The place of the least integer, the last of equal ones."""

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
    best = cutlass.Int32(2147483647)
    place = cutlass.Int64(0)
    for column in range(x.shape[1]):
        value = x[row, column]
        if value <= best:
            best = value
            place = cutlass.Int64(column)
    if lane == 0:
        y[row] = place


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Int32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Int64, (rows,))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.argmin(x, dim=-1)


def get_inputs():
    return [torch.randint(-1000000000, 1000000000, (64, 100), dtype=torch.int32, device="cuda")]


def get_input_sets():
    yield [torch.randint(-1000000000, 1000000000, (2, 33), dtype=torch.int32, device="cuda")]
