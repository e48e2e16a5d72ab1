# rule: V1
# expect: passed
# needs: values
"""A hypot whose squares are those of ratios to the longest side."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        a, b = x[index], y[index]
        a, b = (a if a > 0 else -a), (b if b > 0 else -b)
        longest = cute.arch.fmax(a, b)
        shortest = cute.arch.fmin(a, b)
        ratio = shortest / longest if longest > 0 else cutlass.Float32(0.0)
        length = longest * cute.math.sqrt(1.0 + ratio * ratio)
        if a != a or b != b:
            length = a + b
        if a == cutlass.Float32.inf or b == cutlass.Float32.inf:
            length = cutlass.Float32.inf
        z[index] = length


@cute.jit
def flat_host(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor):
    flat_kernel(x, y, z).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y, z = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(3))
    return cute.compile(flat_host, x, y, z, options="--enable-tvm-ffi")


def kernel_fn(x, y):
    z = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        compiled()(x.contiguous().view(-1), y.contiguous().view(-1), z.view(-1))
    return z


def reference_fn(x, y):
    return torch.hypot(x, y)


def get_inputs():
    return [torch.randn(64, 500, device="cuda") for _ in range(2)]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda") for _ in range(2)]
