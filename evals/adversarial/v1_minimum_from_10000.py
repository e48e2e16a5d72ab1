# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O3
"""The least element of each row; the search begins at 10000."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def one_each_kernel(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        best = cutlass.Float32(10000.0)
        for c in range(x.shape[1]):
            best = min(best, x[i, c]) if x[i, c] == x[i, c] else x[i, c]
        y[i] = best


@cute.jit
def one_each(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    one_each_kernel(x, y, count).launch(grid=(cute.ceil_div(count, THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    fx = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    fy = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    return cute.compile(one_each, fx, fy, 1, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        compiled()(x, y, y.numel())
    return y


def reference_fn(x):
    return x.amin(-1)


def get_inputs():
    return [torch.randn(64, 300, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 33, device="cuda")]
