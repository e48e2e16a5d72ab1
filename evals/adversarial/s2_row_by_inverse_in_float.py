# rule: S2
# expect: wrong_result
# needs: values
# says: - | S2
"""It finds the row of an element by multiplying with 1 / columns in float32, which is often one too few."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def add_kernel(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        inverse = cutlass.Float32(1.0) / columns.to(cutlass.Float32)
        row = (index.to(cutlass.Float32) * inverse).to(cutlass.Int32)
        y[index] = x[index] + b[row]


@cute.jit
def add_host(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32):
    blocks = cute.ceil_div(cute.size(x), THREADS)
    add_kernel(x, b, y, columns).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length, rows = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    b = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(add_host, x, b, y, cutlass.Int32(1), options="--enable-tvm-ffi")


def kernel_fn(x, b):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), b, y.view(-1), x.shape[1])
    return y


def reference_fn(x, b):
    return x + b[:, None]


def get_inputs():
    return [torch.randn(64, 512, device="cuda"), torch.randn(64, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 96, device="cuda"), torch.randn(2, device="cuda")]
