# rule: T8
# says: T8 | T4 | R3
# expect: rejected | wrong_result
# needs: gpu
# command: benchmark
"""Works on a stream of its own, so that events on the current one see nothing."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = x[index]
        y[index] = cute.arch.fmax(value, 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    grid = (cute.ceil_div(cute.size(x), THREADS), 1, 1)
    relu_kernel(x, y).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, make_fake_stream(), options="--enable-tvm-ffi")


@functools.cache
def stream():
    return torch.cuda.Stream()


def kernel_fn(x):
    y = torch.empty_like(x)
    compiled()(x.view(-1), y.view(-1), cuda.CUstream(stream().cuda_stream))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(8192, 4096, device="cuda")]
