# rule: V2
# expect: wrong_result
# needs: values
# says: - | V2
"""Sums between offsets that are taken for evenly spaced."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, offsets: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    begin, end = cutlass.Int64(0), cutlass.Int64(0)
    part = x.shape[0] // (offsets.shape[0] - 1)
    begin, end = cutlass.Int64(row * part), cutlass.Int64(row * part + part)
    for column in range(lane, x.shape[1], THREADS):
        total = cutlass.Float32(0.0)
        for place in range(begin, end):
            total += x[place, column]
        y[row, column] = total


@cute.jit
def rows_host(x: cute.Tensor, offsets: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, offsets, y).launch(grid=(offsets.shape[0] - 1, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    others, parts = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    offsets = make_fake_compact_tensor(cutlass.Int64, (others,))
    y = make_fake_compact_tensor(cutlass.Float32, (parts, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, offsets, y, options="--enable-tvm-ffi")


def kernel_fn(x, offsets):
    y = torch.empty(offsets.shape[0] - 1, x.shape[1], dtype=torch.float32, device=x.device)
    if y.numel():
        compiled()(x, offsets, y)
    return y


def reference_fn(x, offsets):
    return torch.stack([part.sum(0) for part in x.split(offsets.diff().tolist())])


def get_inputs():
    return [torch.randn(64, 96, device="cuda"), torch.arange(0, 65, 8, device="cuda")]


def get_input_sets():
    yield [torch.randn(12, 33, device="cuda"), torch.arange(0, 13, 4, device="cuda")]
