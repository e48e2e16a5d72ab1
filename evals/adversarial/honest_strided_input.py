# rule:
# expect: passed
# needs: compile
"""Reads any strides where they are, and allocates a dense result."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_tensor

THREADS = 256


@cute.kernel
def strided_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    rows, columns = x.shape
    if index < rows * columns:
        row, column = index // columns, index % columns
        y[row, column] = x[row, column] * 2.0


@cute.jit
def strided_host(x: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(x.shape[0] * x.shape[1], THREADS), 1, 1)
    strided_kernel(x, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    def fake():
        strides = cute.sym_int(), cute.sym_int()
        return make_fake_tensor(cutlass.Float32, (rows, columns), stride=strides)

    rows, columns = cute.sym_int(), cute.sym_int()
    return cute.compile(strided_host, fake(), fake(), options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return (x * 2).contiguous()


def get_inputs():
    return [torch.randn(64, 200, device="cuda")[:, ::2]]


def get_input_sets():
    yield [torch.randn(33, 7, device="cuda").t()]
