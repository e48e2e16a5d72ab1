# rule: S2
# expect: passed
# needs: compile
"""One thread a row, in as many blocks as there are rows."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def sums_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * THREADS + thread
    if row < x.shape[0]:
        total = cutlass.Float32(0.0)
        for column in range(x.shape[1]):
            total += x[row, column]
        y[row] = total


@cute.jit
def sums_host(x: cute.Tensor, y: cute.Tensor):
    sums_kernel(x, y).launch(grid=(cute.ceil_div(x.shape[0], THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(sums_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(64, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 256, device="cuda")]
