# rule:
# expect: passed
# needs: compile
"""Rounds float32 to 8 bits, saturating."""

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
        value = cute.arch.fmin(cute.arch.fmax(x[index], -448.0, nan=True), 448.0, nan=True)
        y[index] = value.to(cutlass.Float8E4M3FN)


@cute.jit
def elementwise_host(x: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(cute.size(y), THREADS), 1, 1)
    elementwise_kernel(x, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    tensors = [make_fake_compact_tensor(dtype, (length,)) for dtype in (cutlass.Float32, cutlass.Float8E4M3FN)]
    return cute.compile(elementwise_host, *tensors, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    if y.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


DERIVED_SHAPES = False


def reference_fn(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn)


def get_inputs():
    return [torch.randn(64, 256, device="cuda")]
