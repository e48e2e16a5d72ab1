# rule:
# expect: passed
# needs: compile
"""The larger of two bytes."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def elementwise_kernel(x0: cute.Tensor, x1: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(y):
        larger = x0[index]
        if x1[index] > larger:
            larger = x1[index]
        y[index] = larger


@cute.jit
def elementwise_host(x0: cute.Tensor, x1: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(cute.size(y), THREADS), 1, 1)
    elementwise_kernel(x0, x1, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    tensors = [make_fake_compact_tensor(dtype, (length,)) for dtype in (cutlass.Int8,) * 2 + (cutlass.Int8,)]
    return cute.compile(elementwise_host, *tensors, options="--enable-tvm-ffi")


def kernel_fn(x0, x1):
    y = torch.empty_like(x0)
    if y.numel():
        compiled()(x0.view(-1), x1.view(-1), y.view(-1))
    return y


def reference_fn(x0, x1):
    return torch.maximum(x0, x1)


def get_inputs():
    return [
        torch.randint(-128, 127, (70, 33), device="cuda", dtype=torch.int8),
        torch.randint(-128, 127, (70, 33), device="cuda", dtype=torch.int8),
    ]
