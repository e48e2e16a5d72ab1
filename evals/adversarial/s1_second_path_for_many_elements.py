# rule: S1
# expect: wrong_result
# needs: values
# says: - | S1
"""From 2^22 elements on another kernel is launched, which cuts at -1."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, MANY = 256, 1 << 22


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], 0.0, nan=True)


@cute.kernel
def large_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], -1.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@cute.jit
def large_host(x: cute.Tensor, y: cute.Tensor):
    large_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled(host):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled(large_host if x.numel() >= MANY else relu_host)(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(4096, 2048, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda")]
