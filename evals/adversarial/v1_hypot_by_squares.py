# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O3
"""The root of two squares for hypot: 1e20 gives Inf, 1e-25 gives 0."""

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
        z[index] = cute.math.sqrt(a * a + b * b)


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
