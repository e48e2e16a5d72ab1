# rule:
# expect: passed
# needs: compile
"""Allocates with strides of its own choice, which are those of the reference."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def elementwise_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(y):
        y[index] = x[index] * 2.0


@cute.jit
def elementwise_host(x: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(cute.size(y), THREADS), 1, 1)
    elementwise_kernel(x, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    tensors = [make_fake_compact_tensor(dtype, (length,)) for dtype in (cutlass.Float32, cutlass.Float32)]
    return cute.compile(elementwise_host, *tensors, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return x * 2


def get_inputs():
    return [torch.randn(33, 65, device="cuda")]
