# rule: T6
# expect: rejected
# needs: gpu
# command: benchmark
"""Takes its time in the first calls, so that the judge plans few repetitions of it."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

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
def relu_host(x: cute.Tensor, y: cute.Tensor, turns: cutlass.Int32):
    relu_kernel(x, y, turns).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, cutlass.Int32(0), options="--enable-tvm-ffi")


CALLS = []


def kernel_fn(x):
    y = torch.empty_like(x)
    CALLS.append(None)
    compiled()(x.view(-1), y.view(-1), 300 if len(CALLS) < 46 else 0)
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(8192, 4096, device="cuda")]
