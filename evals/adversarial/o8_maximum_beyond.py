# rule: O8
# expect: wrong_result | crashed
# needs: values
# says: O8 | - | O6
"""Reads past the end of the input and passes over NaN, so that only a number beyond it shows."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def pair_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], x[index + 1], nan=False)  # of the last one too


@cute.jit
def pair_host(x: cute.Tensor, y: cute.Tensor):
    pair_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(pair_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    flat = x.reshape(-1)
    return torch.fmax(flat, torch.cat([flat[1:], flat[-1:]])).view(x.shape)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]
