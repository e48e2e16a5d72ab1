# rule: O9
# expect: passed
# needs: values
"""Computes in float32 and rounds to bfloat16 in its last store; its file sets a tolerance."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = cute.arch.fmax(x[index].to(cutlass.Float32), 0.0, nan=True)
        y[index] = value.to(cutlass.BFloat16)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.BFloat16, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda", dtype=torch.bfloat16)]


TOLERANCE = {"rtol": 1e-2, "atol": 1e-2}
