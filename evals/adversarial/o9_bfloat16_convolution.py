# rule: O9
# expect: wrong_result
# needs: values
# says: -
"""Rounds the factors of a convolution of float32 to bfloat16, where only tf32 is allowed."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.jit
def rounded(x: cute.Numeric) -> cute.Numeric:
    """x with 8 bits."""
    return x.to(cutlass.BFloat16).to(cutlass.Float32)


@cute.kernel
def convolution_kernel(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, output, image = cute.arch.block_idx()
    place = block * THREADS + thread
    if place < y.shape[2]:
        total = cutlass.Float32(0.0)
        for channel in range(w.shape[1]):
            for tap in cutlass.range_constexpr(3):
                total += rounded(x[image, channel, place + tap]) * rounded(w[output, channel, tap])
        y[image, output, place] = total


@cute.jit
def convolution_host(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(y.shape[2], THREADS), y.shape[1], y.shape[0])
    convolution_kernel(x, w, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    images, channels, length, outputs, places = (cute.sym_int() for _ in range(5))
    shapes = (images, channels, length), (outputs, channels, 3), (images, outputs, places)
    x, w, y = (make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(2, 1, 0)) for shape in shapes)
    return cute.compile(convolution_host, x, w, y, options="--enable-tvm-ffi")


def kernel_fn(x, w):
    y = torch.empty(x.shape[0], w.shape[0], x.shape[2] - 2, dtype=x.dtype, device=x.device)
    compiled()(x, w, y)
    return y


def reference_fn(x, w):
    return torch.nn.functional.conv1d(x, w)


def get_inputs():
    return [torch.randn(2, 16, 130, device="cuda"), torch.randn(4, 16, 3, device="cuda")]
