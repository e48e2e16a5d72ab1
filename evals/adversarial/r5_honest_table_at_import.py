# rule: R5
# expect: passed
# needs: compile
"""A table of constants made at import, which the kernel reads beside its input."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, scale: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], 0.0, nan=True) * scale


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, scale: cutlass.Constexpr):
    relu_kernel(x, y, scale).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled(power):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, SCALES[power], options="--enable-tvm-ffi")


SCALES = {0: 0.5, 1: 1.0, 2: 2.0, 3: 4.0}


def kernel_fn(x, power):
    y = torch.empty_like(x)
    if x.numel():
        compiled(power)(x.view(-1), y.view(-1))
    return y


def reference_fn(x, power):
    return torch.relu(x) * 2.0 ** (power - 1)


def get_inputs():
    return [torch.randn(128, 257, device="cuda"), 2]


def get_input_sets():
    for power in range(4):
        yield [torch.randn(5, 7, device="cuda"), power]
