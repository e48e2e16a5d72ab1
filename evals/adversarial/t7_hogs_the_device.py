# rule: T7
# expect: rejected
# needs: gpu
# command: benchmark
# says: T4 | T8
"""Leaves a long launch behind on a stream of its own, for the kernel that is timed next."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, turns: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = x[index]
        for _ in range(turns):
            value = value + 0.0 * cute.math.sin(value)
        y[index] = cute.arch.fmax(value, 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, turns: cutlass.Int32, stream: cuda.CUstream):
    relu_kernel(x, y, turns).launch(
        grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, cutlass.Int32(0), make_fake_stream(), options="--enable-tvm-ffi")


@functools.cache
def side():
    return torch.cuda.Stream()


def kernel_fn(x):
    y, hog = torch.empty_like(x), torch.empty(256, device=x.device)
    compiled()(x.view(-1), y.view(-1), 0, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
    compiled()(x.view(-1)[:256], hog, 60000, cuda.CUstream(side().cuda_stream))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(8192, 4096, device="cuda")]
