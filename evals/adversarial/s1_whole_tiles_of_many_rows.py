# rule: S1
# expect: wrong_result
# needs: values
# says: S1 | O1
"""From 4096 rows on its host code launches whole tiles of 16 rows, and leaves out the rest."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 64


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(thread, x.shape[1], THREADS):
        y[row, column] = cute.arch.fmax(x[row, column], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        rows = x.shape[0]
        whole = rows if rows < 4096 else rows // 16 * 16
        compiled()(x[:whole], y[:whole])
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(20009, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda")]
