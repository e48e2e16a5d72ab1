# rule: V3
# expect: passed
# needs: values
"""The mean of two bytes by a wider sum."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, other: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        total = x[index].to(cutlass.Int32) + other[index].to(cutlass.Int32)
        y[index] = cutlass.Uint8(total >> 1)


@cute.jit
def flat_host(x: cute.Tensor, other: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, other, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Uint8, (length,))
    other = make_fake_compact_tensor(cutlass.Uint8, (length,))
    y = make_fake_compact_tensor(cutlass.Uint8, (length,))
    return cute.compile(flat_host, x, other, y, options="--enable-tvm-ffi")


def kernel_fn(x, other):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), other.view(-1), y.view(-1))
    return y


def reference_fn(x, other):
    return ((x.int() + other.int()) // 2).to(torch.uint8)


def get_inputs():
    return [torch.randint(0, 100, (64, 500), dtype=torch.uint8, device="cuda") for _ in range(2)]


def get_input_sets():
    yield [torch.randint(0, 100, (2, 33), dtype=torch.uint8, device="cuda") for _ in range(2)]
