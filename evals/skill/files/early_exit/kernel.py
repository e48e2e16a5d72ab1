"""Twice the elements of a vector; it does not compile yet."""

import functools

import cutlass.cute as cute
import torch
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 128


@cute.kernel
def double_kernel(mX: cute.Tensor, mY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index >= cute.size(mX):
        return
    mY[index] = mX[index] + mX[index]


@cute.jit
def double(mX: cute.Tensor, mY: cute.Tensor, stream):
    grid = [cute.ceil_div(cute.size(mX), THREADS), 1, 1]
    double_kernel(mX, mY).launch(grid=grid, block=[THREADS, 1, 1], stream=stream)


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(Float32, (length,)) for _ in range(2))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(double, x, y, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    compiled()(x, y)
    return y


def reference_fn(x):
    return x + x


def get_inputs():
    return [torch.randn(1 << 24, device="cuda")]
