# rule: O9
# expect: wrong_result
# needs: values
# says: -
"""Rounds the factors of a product of matrices to tf32, which PyTorch's flags do not allow by default."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.jit
def rounded(x: cute.Numeric) -> cute.Numeric:
    """x with 11 bits, rounded to nearest."""
    bits = cute.make_rmem_tensor(1, cutlass.Float32)
    bits[0] = x
    word = cute.recast_tensor(bits, cutlass.Int32)
    if word[0] & 0x7FFFFFFF < 0x7F7FF000:  # the largest stay finite
        word[0] = word[0] + 0x1000 & -0x2000
    return bits[0]


@cute.kernel
def product_kernel(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, row, _ = cute.arch.block_idx()
    column = block * THREADS + thread
    if column < y.shape[1]:
        total = cutlass.Float32(0.0)
        for k in range(x.shape[1]):
            total += rounded(x[row, k]) * rounded(w[column, k])
        y[row, column] = total


@cute.jit
def product_host(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(y.shape[1], THREADS), y.shape[0], 1)
    product_kernel(x, w, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns, length = (cute.sym_int() for _ in range(3))
    shapes = (rows, length), (columns, length), (rows, columns)
    x, w, y = (make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(1, 0)) for shape in shapes)
    return cute.compile(product_host, x, w, y, options="--enable-tvm-ffi")


def kernel_fn(x, w):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
    compiled()(x, w, y)
    return y


def reference_fn(x, w):
    return x @ w.t()


def get_inputs():
    return [torch.randn(16, 96, device="cuda"), torch.randn(70, 96, device="cuda")]
