# rule:
# expect: passed
# needs: compile
"""A bias of one row for all rows, by index."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def bias_kernel(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    rows, columns = x.shape
    if index < rows * columns:
        row, column = index // columns, index % columns
        y[row, column] = x[row, column] + bias[column]


@cute.jit
def bias_host(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(x.shape[0] * x.shape[1], THREADS), 1, 1)
    bias_kernel(x, bias, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    shape = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(1, 0)) for _ in range(2))
    bias = make_fake_compact_tensor(cutlass.Float32, shape[1:])
    return cute.compile(bias_host, x, bias, y, options="--enable-tvm-ffi")


def kernel_fn(x, bias):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, bias, y)
    return y


def reference_fn(x, bias):
    return x + bias


def get_inputs():
    return [torch.randn(64, 99, device="cuda"), torch.randn(99, device="cuda")]
