# rule: V1
# expect: passed
# needs: values
"""Rounding of halves to the even number."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = x[index]
        below = cute.math.floor(value)
        rest = value - below
        up = cutlass.Float32(1.0) if rest > 0.5 else cutlass.Float32(0.0)
        if rest == 0.5:
            up = below - 2.0 * cute.math.floor(below * 0.5)
        y[index] = below + up


@cute.jit
def flat_host(x: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(flat_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.round(x)


def get_inputs():
    return [torch.randn(64, 500, device="cuda") * 4]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda")]
