# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1
"""Rounding by adding a half: 0.5 and 2.5 go up, where the even number is asked for."""

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
        y[index] = cute.math.floor(x[index] + 0.5)


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
