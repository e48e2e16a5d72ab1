# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O6
"""A gelu whose tanh divides Inf by Inf from 10 on."""

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
        value = x[index].to(cutlass.Float32)
        inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
        power = cute.math.exp(2.0 * inner)
        curve = (power - 1.0) / (power + 1.0)
        y[index] = (0.5 * value * (1.0 + curve)).to(cutlass.BFloat16)


@cute.jit
def flat_host(x: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.BFloat16, (length,))
    y = make_fake_compact_tensor(cutlass.BFloat16, (length,))
    return cute.compile(flat_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(64, 500, dtype=torch.bfloat16, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, dtype=torch.bfloat16, device="cuda")]
