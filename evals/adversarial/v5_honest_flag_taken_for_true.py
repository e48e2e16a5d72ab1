# rule: V5
# expect: passed
# needs: values
"""A flag that chooses what is compiled."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, other: cute.Tensor, y: cute.Tensor, relu: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = x[index] + other[index]
        y[index] = cute.arch.fmax(value, 0.0, nan=True) if cutlass.const_expr(relu) else value


@cute.jit
def flat_host(x: cute.Tensor, other: cute.Tensor, y: cute.Tensor, relu: cutlass.Constexpr):
    flat_kernel(x, other, y, relu).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled(relu):
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    other = make_fake_compact_tensor(cutlass.Float32, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(flat_host, x, other, y, relu, options="--enable-tvm-ffi")


def kernel_fn(x, other, relu):
    y = torch.empty_like(x)
    if x.numel():
        compiled(relu)(x.view(-1), other.view(-1), y.view(-1))
    return y


def reference_fn(x, other, relu):
    return torch.relu(x + other) if relu else x + other


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.randn(64, 500, device="cuda"), True]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.randn(2, 33, device="cuda"), True]
