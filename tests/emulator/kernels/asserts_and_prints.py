"""Prints a line a thread, then asserts that no index reaches a limit."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def increment_kernel(gx: cute.Tensor, gy: cute.Tensor, limit: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    if tidx < 2:
        cute.printf("thread %d of {}: %.2f %c|%5u|%-4d|%%\n", tidx, limit, gx[tidx], 65, 7, -3)
    cute.testing.assert_(tidx < limit, "index is too large")
    gy[tidx] = gx[tidx] + 1.0


@cute.jit
def increment(x: cute.Tensor, y: cute.Tensor, limit: cutlass.Int32):
    increment_kernel(x, y, limit).launch(grid=[1, 1, 1], block=[32, 1, 1])


def kernel_fn(x, limit=32):
    y = torch.empty_like(x)
    views = from_dlpack(x), from_dlpack(y)
    compiled = cute.compile(increment, *views, cutlass.Int32(1), options="--enable-assertions")
    compiled(*views, limit)
    return y


def reference_fn(x):
    return x + 1.0


def get_inputs():
    return [torch.arange(32, dtype=torch.float32, device="cuda")]
