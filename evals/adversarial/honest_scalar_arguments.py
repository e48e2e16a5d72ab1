# rule:
# expect: passed
# needs: compile
"""An integer and a float beside the tensor, at run time."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, scale: cutlass.Float32, shift: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = x[index] * scale + shift.to(cutlass.Float32)


@cute.jit
def scale_host(x: cute.Tensor, y: cute.Tensor, scale: cutlass.Float32, shift: cutlass.Int32):
    grid = (cute.ceil_div(cute.size(x), THREADS), 1, 1)
    scale_kernel(x, y, scale, shift).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(scale_host, x, y, cutlass.Float32(1), cutlass.Int32(0), options="--enable-tvm-ffi")


def kernel_fn(x, scale, shift):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1), scale, shift)
    return y


def reference_fn(x, scale, shift):
    return x * scale + shift


def get_inputs():
    return [torch.randn(64, 99, device="cuda"), 0.25, 3]


def get_input_sets():
    yield [torch.randn(3, 5, device="cuda"), -2.0, 0]
