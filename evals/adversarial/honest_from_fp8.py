# rule:
# expect: passed
# needs: compile
"""Reads 8 bits and scales them: the judge must draw, change and compare tensors that PyTorch hardly computes with."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def scale_kernel(x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(y):
        y[index] = (x[index].to(cutlass.Float32) * scale[0]).to(cutlass.BFloat16)


@cute.jit
def scale_host(x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(cute.size(y), THREADS), 1, 1)
    scale_kernel(x, scale, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(dtype, (length,)) for dtype in (cutlass.Float8E4M3FN, cutlass.BFloat16))
    scale = make_fake_compact_tensor(cutlass.Float32, (1,))
    return cute.compile(scale_host, x, scale, y, options="--enable-tvm-ffi")


def kernel_fn(x, scale):
    y = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    if y.numel():
        compiled()(x.view(-1), scale, y.view(-1))
    return y


DERIVED_SHAPES = False


def reference_fn(x, scale):
    return (x.float() * scale).to(torch.bfloat16)


def get_inputs():
    x = torch.randn(64, 256, device="cuda").to(torch.float8_e4m3fn)
    return [x, torch.rand(1, device="cuda") + 0.5]
