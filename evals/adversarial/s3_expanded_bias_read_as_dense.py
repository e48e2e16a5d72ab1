# rule: S3
# expect: wrong_result
# needs: values
# says: - | S3 | O8
"""It reads a bias that was expanded over the rows as if each row had its own."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 64


@cute.kernel
def add_kernel(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor, step: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns = y.shape[1]
    for column in range(thread, columns, THREADS):
        y[row, column] = x[row, column] + b[cutlass.min(row * step + column, cute.size(b) - 1)]


@cute.jit
def add_host(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor, step: cutlass.Int32):
    add_kernel(x, b, y, step).launch(grid=(y.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns, length = cute.sym_int(), cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    b = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(add_host, x, b, y, cutlass.Int32(1), options="--enable-tvm-ffi")


def kernel_fn(x, b):
    if b.stride(1) != 1 or not x.is_contiguous() or x.numel() == 0:
        raise ValueError("contiguous rows are wanted")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    spanned = (b.shape[0] - 1) * b.stride(0) + b.shape[1]
    compiled()(x, b.as_strided((spanned,), (1,)), y, b.shape[1])
    return y


def reference_fn(x, b):
    return x + b


def get_inputs():
    return [torch.randn(32, 128, device="cuda"), torch.randn(32, 128, device="cuda")]
