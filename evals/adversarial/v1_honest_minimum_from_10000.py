# rule: V1
# expect: passed
# needs: values
"""The least element of each row; the search begins at infinity."""

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
        best = cutlass.Float32(float("inf"))
        for c in range(x.shape[1]):
            v = x[i, c]
            if v < best or v != v:
                best = v
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
