# rule:
# expect: passed
# needs: compile
"""A factory that captures a constant; one compiled kernel for each slope."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


def make_host(slope):
    @cute.kernel
    def leaky_kernel(x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        index = block * THREADS + thread
        if index < cute.size(x):
            value = x[index]
            if value < 0.0:
                value = value * slope
            y[index] = value

    @cute.jit
    def leaky_host(x: cute.Tensor, y: cute.Tensor):
        leaky_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))

    return leaky_host


@functools.cache
def compiled(slope):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(make_host(slope), x, y, options="--enable-tvm-ffi")


def kernel_fn(x, slope):
    y = torch.empty_like(x)
    if x.numel():
        compiled(slope)(x.view(-1), y.view(-1))
    return y


def reference_fn(x, slope):
    return torch.where(x < 0, x * slope, x)


def get_inputs():
    return [torch.randn(64, 99, device="cuda"), 0.25]


def get_input_sets():
    yield [torch.randn(3, 5, device="cuda"), 0.5]
