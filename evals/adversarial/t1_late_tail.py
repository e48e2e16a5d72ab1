# rule: T1
# expect: rejected
# needs: gpu
# says: T1 | R1
"""Waits for the current stream and works on another one that nothing waits for, for most of the output."""

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
        y[index] = cute.arch.fmax(x[index], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, make_fake_stream(), options="--enable-tvm-ffi")


@functools.cache
def side():
    return torch.cuda.Stream()


def kernel_fn(x):
    y = torch.empty_like(x)
    eighth, current = x.numel() // 8, torch.cuda.current_stream()
    side().wait_stream(current)
    for part, stream in ((slice(0, eighth), current), (slice(eighth, None), side())):
        compiled()(x.view(-1)[part], y.view(-1)[part], cuda.CUstream(stream.cuda_stream))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(8192, 4096, device="cuda")]
