# rule:
# expect: passed
# needs: compile
"""Hints, assertions and an error that says what is wanted."""

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


def kernel_fn(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda, "a CUDA tensor is wanted"
    if x.dtype != torch.float32:
        raise TypeError(f"{x.dtype}: float32 is wanted")
    y: torch.Tensor = torch.empty_like(x)
    if x.numel():
        compiled()(x.reshape(-1), y.view(-1))
    return y


def reference_fn(x):
    return x * 2


def get_inputs():
    return [torch.randn(64, 64, device="cuda")]
