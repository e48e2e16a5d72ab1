# rule: V2
# expect: passed
# needs: values
"""A scale of one element."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = x[row, column] * scale[0]


@cute.jit
def rows_host(x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, scale, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    others = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    scale = make_fake_compact_tensor(cutlass.Float32, (others,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, scale, y, options="--enable-tvm-ffi")


def kernel_fn(x, scale):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, scale, y)
    return y


def reference_fn(x, scale):
    return x * scale


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.full((1,), 0.125, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.full((1,), 0.125, device="cuda")]
