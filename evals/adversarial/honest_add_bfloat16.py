# rule:
# expect: passed
# needs: compile
"""Adds two bfloat16 tensors in float32."""

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
        total = x0[index].to(cutlass.Float32) + x1[index].to(cutlass.Float32)
        y[index] = total.to(cutlass.BFloat16)


@cute.jit
def elementwise_host(x0: cute.Tensor, x1: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(cute.size(y), THREADS), 1, 1)
    elementwise_kernel(x0, x1, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    tensors = [make_fake_compact_tensor(dtype, (length,)) for dtype in (cutlass.BFloat16,) * 2 + (cutlass.BFloat16,)]
    return cute.compile(elementwise_host, *tensors, options="--enable-tvm-ffi")


def kernel_fn(x0, x1):
    y = torch.empty_like(x0)
    if y.numel():
        compiled()(x0.view(-1), x1.view(-1), y.view(-1))
    return y


def reference_fn(x0, x1):
    return x0 + x1


def get_inputs():
    return [
        torch.randn(64, 300, device="cuda", dtype=torch.bfloat16),
        torch.randn(64, 300, device="cuda", dtype=torch.bfloat16),
    ]
