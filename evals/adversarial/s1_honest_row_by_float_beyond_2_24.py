# rule: S1
# expect: passed
# needs: compile
"""It finds the row of an element by dividing integers, and passes through float32 only what is small."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, COLUMNS = 256, 8192


@cute.kernel
def add_kernel(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        within = (index % COLUMNS).to(cutlass.Float32).to(cutlass.Int32)
        row = (index - within) // COLUMNS
        y[index] = x[index] + b[row]


@cute.jit
def add_host(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor):
    add_kernel(x, b, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length, rows = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    b = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(add_host, x, b, y, options="--enable-tvm-ffi")


def kernel_fn(x, b):
    if x.shape[1] != COLUMNS:
        raise ValueError(f"rows of {COLUMNS} elements are wanted")
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), b, y.view(-1))
    return y


def reference_fn(x, b):
    return x + b[:, None]


def get_inputs():
    return [torch.randn(4096, 8192, device="cuda"), torch.randn(4096, device="cuda")]
