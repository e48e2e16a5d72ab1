# rule: S1
# expect: wrong_result
# needs: values
# says: - | S1
"""From 10 million elements on the kernel cuts at -1: so many are executed for some blocks."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, MANY = 256, 10_000_000


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    length = cute.size(x)
    index = block * THREADS + thread
    if index < length:
        least = cutlass.Float16(0.0)
        if length >= MANY:
            least = cutlass.Float16(-1.0)
        value = x[index]
        y[index] = least if value < least else value


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float16, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(2560, 4096, device="cuda", dtype=torch.float16)]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda", dtype=torch.float16)]
