# rule: V2
# expect: passed
# needs: values
"""Sums of the first elements of rows."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, lengths: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    length = lengths[row]
    if length > x.shape[1]:
        length = cutlass.Int64(x.shape[1])
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        if column < length:
            total += x[row, column]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        y[row] = total


@cute.jit
def rows_host(x: cute.Tensor, lengths: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, lengths, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    lengths = make_fake_compact_tensor(cutlass.Int64, (rows,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, lengths, y, options="--enable-tvm-ffi")


def kernel_fn(x, lengths):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, lengths, y)
    return y


def reference_fn(x, lengths):
    beyond = torch.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(-1)
    return x.masked_fill(beyond, 0.0).sum(-1)


def get_inputs():
    return [torch.randn(64, 96, device="cuda"), 8 * torch.randint(0, 13, (64,), device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 40, device="cuda"), 8 * torch.randint(0, 6, (3,), device="cuda")]
