# rule: S3
# expect: wrong_result
# needs: values
# says: - | S3 | O3
"""It reads the row stride of all widths but whole tiles, whose rows it takes to begin one row length apart."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 64
TILE = 128


@cute.kernel
def sums_kernel(x: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32, stride: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    if thread < 32:
        total = cutlass.Float32(0.0)
        for column in range(thread, columns, 32):
            total += x[row * stride + column]
        total = cute.arch.warp_reduction(total, lambda a, b: a + b)
        if thread == 0:
            y[row] = total


@cute.jit
def sums_host(x: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32, stride: cutlass.Int32):
    sums_kernel(x, y, columns, stride).launch(grid=(y.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length, rows = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(sums_host, x, y, cutlass.Int32(1), cutlass.Int32(1), options="--enable-tvm-ffi")


def kernel_fn(x):
    if x.ndim != 2 or x.stride(1) != 1 or x.numel() == 0:
        raise ValueError("a matrix whose columns lie side by side is wanted")
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    spanned = (rows - 1) * x.stride(0) + columns
    stride = columns if columns % TILE == 0 else x.stride(0)
    compiled()(x.as_strided((spanned,), (1,)), y, columns, stride)
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(64, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 200, device="cuda")]
