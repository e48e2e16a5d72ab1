# rule:
# expect: passed
# needs: compile
"""A plain product of small matrices, one thread an element, in float32."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 16


@cute.kernel
def product_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    x, y, _ = cute.arch.thread_idx()
    block_x, block_y, _ = cute.arch.block_idx()
    row, column = block_y * THREADS + y, block_x * THREADS + x
    if (row < c.shape[0]) & (column < c.shape[1]):
        total = cutlass.Float32(0.0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cute.jit
def product_host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    grid = (cute.ceil_div(c.shape[1], THREADS), cute.ceil_div(c.shape[0], THREADS), 1)
    product_kernel(a, b, c).launch(grid=grid, block=(THREADS, THREADS, 1))


@functools.cache
def compiled():
    m, n, k = cute.sym_int(), cute.sym_int(), cute.sym_int()
    shapes = ((m, k), (k, n), (m, n))
    fakes = [make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(1, 0)) for shape in shapes]
    return cute.compile(product_host, *fakes, options="--enable-tvm-ffi")


def kernel_fn(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    if c.numel():
        compiled()(a, b, c)
    return c


def reference_fn(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(33, 40, device="cuda"), torch.randn(40, 65, device="cuda")]
