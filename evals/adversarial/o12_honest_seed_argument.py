# rule: O12
# expect: passed
# needs: compile
"""A mask drawn from a seed that is an input, by a hash of each position."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, seed: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = x[index]
        if (index * 40503 + seed) % 3 == 0:
            value = x[index] * 0.0
        y[index] = value


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, seed: cutlass.Int32):
    relu_kernel(x, y, seed).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, cutlass.Int32(1), options="--enable-tvm-ffi")


def kernel_fn(x, seed):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1), seed)
    return y


def reference_fn(x, seed):
    index = torch.arange(x.numel(), device=x.device).view(x.shape)
    return torch.where((index * 40503 + seed) % 3 == 0, x * 0, x)


def get_inputs():
    return [torch.randn(100, 257, device="cuda"), 12345]
