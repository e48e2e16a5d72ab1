# rule: V5
# expect: wrong_result
# needs: values
# says: - | V5
"""A scale cut to bfloat16, as get_inputs gives 0.75: 0.1 is off by a thousandth."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, y: cute.Tensor, alpha: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = x[index] * alpha.to(cutlass.BFloat16).to(cutlass.Float32) + 1.0


@cute.jit
def flat_host(x: cute.Tensor, y: cute.Tensor, alpha: cutlass.Float32):
    flat_kernel(x, y, alpha).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(flat_host, x, y, cutlass.Float32(0), options="--enable-tvm-ffi")


def kernel_fn(x, alpha):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1), alpha)
    return y


def reference_fn(x, alpha):
    return x * alpha + 1.0


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), 0.75]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), 0.75]
