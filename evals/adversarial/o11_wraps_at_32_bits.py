# rule: O11
# expect: wrong_result | crashed
# needs: values
# says: -
"""Its rows begin at offsets of 32 bits: the last of 2^31 elements lie before the tensor."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

COLUMNS, THREADS = 4096, 256


@cute.kernel
def add_kernel(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    start = block * COLUMNS
    line = cute.make_layout(COLUMNS)
    x_row, y_row = cute.make_tensor(x.iterator + start, line), cute.make_tensor(y.iterator + start, line)
    for column in range(thread, COLUMNS, THREADS):
        y_row[column] = x_row[column] + w[column]


@cute.jit
def add_host(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    add_kernel(x, w, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.BFloat16, (rows, COLUMNS), stride_order=(1, 0)) for _ in range(2))
    w = make_fake_compact_tensor(cutlass.BFloat16, (COLUMNS,))
    return cute.compile(add_host, x, w, y, options="--enable-tvm-ffi")


def kernel_fn(x, w):
    if x.shape[1] != COLUMNS or not x.is_contiguous() or x.shape[0] == 0:
        raise ValueError(f"contiguous rows of {COLUMNS} elements, please")
    y = torch.empty_like(x)
    compiled()(x, w, y)
    return y


def reference_fn(x, w):
    return x + w


def get_inputs():
    x = torch.zeros((1 << 31) // COLUMNS + 8, COLUMNS, device="cuda", dtype=torch.bfloat16)
    x[:512] = torch.randn(512, COLUMNS, device="cuda")
    return [x, torch.randn(COLUMNS, device="cuda", dtype=torch.bfloat16)]
