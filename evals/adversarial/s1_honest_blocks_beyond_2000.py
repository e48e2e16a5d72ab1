# rule: S1
# expect: passed
# needs: values
"""Blocks from the 2000th on take another path to the same elements."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def double_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        place = index
        if block >= 2000:
            place = index // 2 * 2 + thread % 2
        y[index] = x[place] + x[place]


@cute.jit
def double_host(x: cute.Tensor, y: cute.Tensor):
    double_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(double_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return x + x


def get_inputs():
    return [torch.randn(2048, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda")]
