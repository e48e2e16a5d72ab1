# rule: S1
# expect: wrong_result
# needs: values
# says: - | S1
"""From 2^20 elements on the one kernel cuts at -1; host code is the same."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, MANY = 256, 1 << 20


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    length = cute.size(x)
    index = block * THREADS + thread
    if index < length:
        least = cutlass.Float32(0.0)
        if length >= MANY:
            least = cutlass.Float32(-1.0)
        y[index] = cute.arch.fmax(x[index], least, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(2048, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda")]
